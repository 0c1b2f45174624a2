"""What stands before every call of a server: its room, its request, its answer, and what its handler raises."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, aclosing
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from protocol.errors import Code, Refusal, SignatureError
from runtime.limits import Held, Room, Slots, check_fields, host_of
from runtime.logs import FewLines
from runtime.metrics import Metrics
from runtime.retrying import RETRY_AFTER
from runtime.tls import Context, ServerTls, presented_certificate

__all__ = ["make_guard"]

_log = logging.getLogger(__name__)

_OURS = "/croupier."
_LARGE = 64 * 1024
_LONGEST_TEXT = 300
_FOR_CLIENTS = frozenset({"GetRound", "Submit", "GetInclusion", "GetResult", "Attend", "GetTickets"})


class _Guard(grpc.aio.ServerInterceptor):
    """Stands before every call: its room, its slot, its request, its answer, and what its handler raises.

    Only a Refusal's own words leave the process. Every method is a stream to gRPC, and its messages are bytes: so it
    is decided here when and whether a request is read, and a call is over only when its answer has left. A call holds
    no slot before its request has arrived: silent callers keep no other caller out.
    """

    def __init__(self, metrics: Metrics, slots: Slots, streams: Slots, tls: ServerTls | None) -> None:
        self._metrics = metrics
        self._tls = tls
        self._slots = slots
        self._streams = streams
        self._room, self._large_answers = Room(), Room()
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

        async def guarded(requests: AsyncIterator[bytes], context: Context) -> None:
            try:
                caller, pinned = self._who_calls(context, method)
                with self._room.hold(caller, pinned=pinned) as held:
                    await serve(handler, requests, context, held, pinned)
            except (asyncio.CancelledError, grpc.aio.AbortError):
                raise
            except Exception as error:  # noqa: BLE001 (the last line of defence: nothing internal may travel)
                if not context.done():  # else the caller has hung up
                    await self._refuse(error, method, context)

        return grpc.stream_stream_rpc_method_handler(guarded)

    def _who_calls(self, context: Context, method: str) -> tuple[str, bool]:
        """Returns the caller that a call is counted for, and whether its certificate is pinned.

        TLS has let in a certificate that it could lead back to a pinned one; here it must be one itself. One that was
        pinned when its connection began comes from before a change of keys: NOT_READY, and it comes again with the new.
        """
        presented = presented_certificate(context)
        if presented is None:
            if method.startswith(_OURS) and method.rpartition("/")[2] not in _FOR_CLIENTS:
                raise Refusal(Code.NOT_YOUR_CALL, "a client called")
            return host_of(context.peer()), False
        if self._tls is not None and not self._tls.pins(presented):
            if self._tls.has_pinned(presented):
                raise Refusal(Code.NOT_READY, "your certificate is not pinned any more; come again with your new one")
            raise Refusal(Code.NOT_YOUR_CALL, "your certificate is not pinned")
        return presented, True

    async def _one_answer(
        self, handler: Any, requests: AsyncIterator[bytes], context: Context, held: Held, pinned: bool
    ) -> None:
        raw = await held.message(requests)
        if raw is None:
            raise Refusal(Code.BAD_REQUEST, "there is no request")
        if not pinned:
            self._room.resize(held, len(raw))
            check_fields(raw)
        with self._slots.work(held.caller, pinned=pinned):
            response = await handler.unary_unary(_parsed(raw, handler.request_deserializer), context)
        answer = handler.response_serializer(response)
        if len(answer) <= _LARGE:
            if not pinned:
                self._room.resize(held, len(answer))
            await _write(context, answer)
        else:  # in a room of their own: callers that read nothing keep no submission out
            with self._large_answers.hold(held.caller, len(answer), pinned=pinned):
                await _write(context, answer)

    async def _many_answers(
        self, handler: Any, requests: AsyncIterator[bytes], context: Context, held: Held, pinned: bool
    ) -> None:
        async def parsed() -> AsyncIterator[Any]:
            while (raw := await held.message(requests)) is not None:
                if not pinned:
                    check_fields(raw)
                yield _parsed(raw, handler.request_deserializer)

        with ExitStack() as entered:  # until then a stream holds room: strangers keep no client off the slots
            held.on_entry = lambda: entered.enter_context(self._streams.work(held.caller, pinned=pinned))
            if pinned:
                held.on_entry()
            async with aclosing(handler.stream_stream(parsed(), context)) as responses:
                async for response in responses:
                    await _write(context, handler.response_serializer(response))

    async def _refuse(self, error: Exception, method: str, context: Context) -> None:
        refusal = self._log.public(error, method)
        self._metrics.refusal(refusal.code)
        hint = refusal.retry_after_s
        trailing = () if hint is None else ((RETRY_AFTER, str(round(1000 * hint))),)
        await context.abort(refusal.code.status, refusal.details(), trailing)


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
        self._lines = FewLines()

    def public(self, error: Exception, method: str) -> Refusal:
        """Returns what the caller may know of an error, and logs the rest."""
        if not isinstance(error, Refusal | SignatureError):
            refusal = Refusal(Code.INTERNAL)
            if line := self._lines.another(refusal.code):
                number, ending = line
                trace = error if number == 1 else None  # long, and the same as a rule
                where = {"method": method, "code": refusal.code.name}
                _log.error("a call failed: %s%s", type(error).__name__, ending, extra=where, exc_info=trace)
            return refusal
        refusal = error if isinstance(error, Refusal) else Refusal(Code.BAD_SIGNATURE, str(error))
        if line := self._lines.another(refusal.code):
            text = f"{refusal} ({refusal.log_only})" if refusal.log_only else str(refusal)
            # Only what is printed as one byte: JSON makes twelve of others.
            text = text[:_LONGEST_TEXT].encode("ascii", "replace").decode()
            _log.info("refused: %s%s", text, line[1], extra={"method": method, "code": refusal.code.name})
        return refusal


def make_guard(
    concurrent_calls: int, metrics: Metrics | None = None, tls: ServerTls | None = None
) -> grpc.aio.ServerInterceptor:
    """Returns what stands before every call of a server: limits, checks of the request, refusals as statuses."""
    # Streams last: they do not take the slots of calls, and there are as many of them.
    return _Guard(metrics or Metrics(), Slots(concurrent_calls), Slots(concurrent_calls), tls)
