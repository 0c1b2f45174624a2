"""What stands before every call of a server: its bytes, its request, its answer, and what its handler raises."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack, aclosing, nullcontext
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from croupier.net.connections import ConnectionCloser
from croupier.net.limits import ARRIVES_S, BUDGET_BYTES, CALL_BYTES, LARGE_ANSWER, LEAVES_S, Budget, check_fields
from croupier.net.log_rate import LogRateLimiter
from croupier.net.retrying import RETRY_AFTER
from croupier.net.shares import Call, caller_of, serving
from croupier.net.sizes import MESSAGE_BYTES
from croupier.net.tls import Context, ServerTls, presented_certificate
from croupier.protocol.errors import Code, Refusal, SignatureError

_log = logging.getLogger(__name__)

_OURS = "/croupier."
_LONGEST_TEXT = 300
_FOR_CLIENTS = frozenset({"GetRound", "Submit", "GetInclusion", "GetResult", "Attend", "GetTickets", "GetVersions"})


OnRefusal = Callable[[Code], None]
"""Is told of a call that was refused, or failed (INTERNAL)."""


class _Guard(grpc.aio.ServerInterceptor):
    """Stands before every call: its bytes, its slot, its request, its answer, and what its handler raises.

    Only a Refusal's own words leave the process. Every method is a stream to gRPC, and its messages are bytes: so it
    is decided here when and whether a request is read, and a call is over only when its answer has left. A call holds
    no slot before its request has arrived: silent callers keep no other caller out.

    Nothing of a call outlives it, which is why requests are not iterated over and calls not aborted: gRPC's iterator
    and the error of an abort are cycles, and would keep the messages until the garbage collector comes.
    """

    def __init__(self, on_refusal: OnRefusal, concurrent_calls: int, tls: ServerTls | None) -> None:
        self._on_refusal = on_refusal
        self._tls = tls
        # Streams have slots of their own: they do not take those of calls, and there are as many of them.
        self._slots, self._streams = (
            Budget(concurrent_calls, for_pinned=concurrent_calls // 4, newest_first=True) for _ in range(2)
        )
        self._messages, self._large_answers = Budget(BUDGET_BYTES), Budget(BUDGET_BYTES)
        self._close_connection = ConnectionCloser()
        self._log = _RefusalLog()

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(details)
        if handler is None:
            return None
        method = details.method
        serve: Callable[..., Awaitable[None]]
        if handler.unary_unary is not None:
            serve = self._one_answer
        elif handler.stream_stream is None:
            return None  # health's Watch, which would hold a call open
        elif method.startswith(_OURS):
            serve = self._many_answers
        else:
            return handler  # reflection, on the admin port

        async def guarded(_: object, context: Context) -> None:
            status = None
            try:
                call = self._call(context, method)
                with serving(call), self._holding_bytes(call):
                    await serve(handler, context, call)
            except (asyncio.CancelledError, grpc.aio.AbortError):
                raise
            except Exception as error:  # noqa: BLE001 (the last line of defence: nothing internal may travel)
                status = self._status_of(error, method)
            if status is not None and not context.done():  # else the caller has hung up
                code, text, trailing = status
                context.set_code(code)
                context.set_details(text)
                context.set_trailing_metadata(trailing)

        return grpc.stream_stream_rpc_method_handler(guarded)

    def _call(self, context: Context, method: str) -> Call:
        """Returns a call with the caller that it is counted for.

        TLS has let in a certificate that it could lead back to a pinned one; here it must be one itself. One that was
        pinned when its connection began comes from before a change of keys: NOT_READY, and it comes again with the new.
        """
        presented = presented_certificate(context)
        if presented is None:
            if method.startswith(_OURS) and method.rpartition("/")[2] not in _FOR_CLIENTS:
                raise Refusal(Code.NOT_YOUR_CALL, "a client called")
            return Call(caller_of(context.peer()), pinned=False)
        if self._tls is not None and not self._tls.pins(presented):
            if self._tls.has_pinned(presented):
                raise Refusal(Code.NOT_READY, "your certificate is not pinned any more; come again with your new one")
            raise Refusal(Code.NOT_YOUR_CALL, "your certificate is not pinned")
        return Call((presented,), pinned=True)

    def _holding_bytes(self, call: Call) -> AbstractContextManager[None]:
        """Holds the largest size for a message: gRPC tells its size only when it is there."""
        return nullcontext() if call.pinned else self._messages.hold(call, MESSAGE_BYTES)

    async def _one_answer(self, handler: Any, context: Context, call: Call) -> None:
        raw = await _read(context, call, None if call.pinned else ARRIVES_S)
        if raw is None:
            raise Refusal(Code.BAD_REQUEST, "there is no request")
        if not call.pinned:
            self._messages.resize(call, max(len(raw), CALL_BYTES))
            check_fields(raw)
        with self._slots.hold(call):
            # Without a name for the response, which would be held beside its bytes until they have been read.
            answer = handler.response_serializer(
                await handler.unary_unary(_parsed(raw, handler.request_deserializer), context)
            )
        if call.pinned:
            await _write(context, answer)
        elif len(answer) <= LARGE_ANSWER:
            self._messages.resize(call, max(len(answer), CALL_BYTES))
            await self._write_to_stranger(context, call, answer)
        else:
            self._messages.resize(call, CALL_BYTES)
            with self._large_answers.hold(call, len(answer)):
                await self._write_to_stranger(context, call, answer)

    async def _many_answers(self, handler: Any, context: Context, call: Call) -> None:
        patient = call.pinned

        async def parsed() -> AsyncIterator[Any]:
            while (raw := await _read(context, call, None if patient else ARRIVES_S)) is not None:
                if not call.pinned:
                    check_fields(raw)
                yield _parsed(raw, handler.request_deserializer)

        with ExitStack() as entered:  # until then a stream holds bytes: strangers keep no client off the slots

            def mark_authenticated() -> None:
                nonlocal patient
                if not patient:
                    entered.enter_context(self._streams.hold(call))
                    self._messages.release(call)
                    patient = True

            entered.callback(setattr, call, "on_entry", call.on_entry)  # ends a cycle
            call.on_entry = mark_authenticated
            if call.pinned:
                entered.enter_context(self._streams.hold(call))
            async with aclosing(handler.stream_stream(parsed(), context)) as responses:
                async for response in responses:
                    raw = handler.response_serializer(response)
                    await (_write(context, raw) if patient else self._write_to_stranger(context, call, raw))

    async def _write_to_stranger(self, context: Context, call: Call, raw: bytes) -> None:
        """Sends an answer; a call whose answer is not read can only be ended with its whole connection."""
        try:
            await call.wait_for(asyncio.shield(_write(context, raw)), LEAVES_S, "to read the answer")
        except Refusal as refusal:
            self._close_connection(context.peer())
            self._log.public(refusal, "answer")
            raise asyncio.CancelledError from None

    def _status_of(self, error: Exception, method: str) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]:
        refusal = self._log.public(error, method)
        self._on_refusal(refusal.code)
        hint = refusal.retry_after_s
        trailing = () if hint is None else ((RETRY_AFTER, str(round(1000 * hint))),)
        return refusal.code.status, refusal.details(), trailing


async def _read(context: Context, call: Call, seconds: float | None) -> bytes | None:
    """Returns the next message, None after the last. Without a limit in seconds the call cannot be turned away."""
    # Shielded: gRPC does not free what it has allocated for a read that is cancelled. Such a read fails once the server
    # has stopped, when nobody waits for it any more.
    under_way: asyncio.Future[Any] = asyncio.ensure_future(context.read())
    under_way.add_done_callback(lambda read: read.cancelled() or read.exception())
    reading = asyncio.shield(under_way)
    raw: Any = await (reading if seconds is None else call.wait_for(reading, seconds, "your message"))
    return None if raw is grpc.aio.EOF else raw


async def _write(context: Context, raw: bytes) -> None:
    try:
        await context.write(raw)
    except Exception as error:  # gRPC's own, where the caller has hung up
        raise asyncio.CancelledError from error


def _parsed(raw: bytes, parse: Callable[[bytes], Any] | None) -> Any:
    try:
        return parse(raw) if parse else raw
    except DecodeError as error:
        raise Refusal(Code.BAD_REQUEST, "the bytes are not a message of this method") from error


class _RefusalLog:
    """What the log says of calls that are refused: a line each, short, and few a second for each reason."""

    def __init__(self) -> None:
        self._lines = LogRateLimiter()

    def public(self, error: Exception, method: str) -> Refusal:
        """Returns what the caller may know of an error, and logs the rest."""
        if not isinstance(error, Refusal | SignatureError):
            refusal = Refusal(Code.INTERNAL)
            if line := self._lines.allow(refusal.code):
                number, ending = line
                trace = error if number == 1 else None  # long, and the same as a rule
                where = {"method": method, "code": refusal.code.name}
                _log.error("a call failed: %s%s", type(error).__name__, ending, extra=where, exc_info=trace)
            return refusal
        refusal = error if isinstance(error, Refusal) else Refusal(Code.BAD_SIGNATURE, str(error))
        if line := self._lines.allow(refusal.code):
            text = f"{refusal} ({refusal.log_only})" if refusal.log_only else str(refusal)
            # Only what is printed as one byte: JSON makes twelve of others.
            text = text[:_LONGEST_TEXT].encode("ascii", "replace").decode()
            _log.info("refused: %s%s", text, line[1], extra={"method": method, "code": refusal.code.name})
        return refusal


def make_guard(
    concurrent_calls: int, on_refusal: OnRefusal = lambda code: None, tls: ServerTls | None = None
) -> grpc.aio.ServerInterceptor:
    """Returns what stands before every call of a server: limits, checks of the request, refusals as statuses."""
    return _Guard(on_refusal, concurrent_calls, tls)
