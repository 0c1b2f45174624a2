"""Gateways without sockets: an application that is called as a client's HTTP channel calls it, honest or not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.types import ASGIApp

import croupier.net.http_channel
from croupier.accountant.service.checking import evaluate_both
from croupier.accountant.service.ticket_keys import TICKET_KEYS
from croupier.deploy.listening import HttpServer
from croupier.net.http_channel import CONTENT_TYPE, HttpAnswer
from croupier.net.transport import Transport
from croupier.protocol.deployment import ServiceEntry
from croupier.protocol.names import Lane, RoundId
from croupier.protocol.tickets import BLINDED_BYTES, TicketIssuer
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.service import RoundService

URL = "https://gateway.example"
PassOn = Callable[[bytes], Awaitable[bytes]]


async def ask(
    app: ASGIApp,
    path: str,
    body: bytes = b"",
    method: str = "POST",
    peer: str = "192.0.2.1",
    arrives: asyncio.Event | None = None,
    **headers: str,
) -> HttpAnswer:
    """Returns what an application answers.

    Args:
        arrives: when the body does; at once if not given.
        headers: with "_" for "-"; those that are empty are left out.
    """
    named = {"content-type": CONTENT_TYPE, "content-length": str(len(body))}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    raw = [(name.encode(), value.encode()) for name, value in named.items() if value]
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": raw}
    scope |= {"scheme": "http", "client": (peer, 1)}
    sent: list[Any] = []

    async def receive() -> Any:
        if arrives is not None:
            await arrives.wait()
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return HttpAnswer(sent[0]["status"], answered, b"".join(message.get("body", b"") for message in sent[1:]))


async def get(app: ASGIApp, path: str, method: str = "GET", **headers: str) -> HttpAnswer:
    """Returns what an application answers to a browser; see `ask`."""
    named: dict[str, Any] = {"content_type": "", "content_length": "", **headers}
    return await ask(app, path, method=method, **named)


@asynccontextmanager
async def serving(server: HttpServer) -> AsyncIterator[str]:
    """Runs a server until the end of the block, and yields its URL."""
    running = asyncio.create_task(server.run_until_stopped())
    try:
        yield server.url
    finally:
        server.should_exit = True
        await running


@contextmanager
def reached_at(app: ASGIApp) -> Iterator[str]:
    """Has every HTTP channel lead to an application, and yields the URL that clients may give."""

    async def exchange(url: str, body: bytes | None, _: float) -> HttpAnswer:
        return await ask(app, urlsplit(url).path, body or b"", "GET" if body is None else "POST")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(croupier.net.http_channel, "exchange", exchange)
        yield URL


@dataclass
class Tampering:
    """A dishonest gateway's way to the services: sees all that goes through, and puts something else in its place.

    Attributes:
        instead: by method, what answers instead of a service, given the request and what passes it on.
        seen: method and request of every call that has reached the gateway.
    """

    honest: Transport
    instead: dict[str, Callable[[bytes, PassOn], Awaitable[bytes]]] = field(default_factory=dict)
    seen: list[tuple[str, bytes]] = field(default_factory=list)

    @property
    def transport(self) -> Transport:
        return replace(self.honest, public_channel=self._channel)

    def _channel(self, entry: ServiceEntry) -> Any:
        return _TamperedChannel(self, self.honest.public_channel(entry))


@dataclass
class _TamperedChannel:
    gateway: Tampering
    honest: Any

    def unary_unary(self, path: str) -> Callable[..., Awaitable[bytes]]:
        method = path.rpartition("/")[2]

        async def call(raw: bytes, timeout: float) -> bytes:  # noqa: ASYNC109 (gRPC's name)
            async def pass_on(request: bytes) -> bytes:
                answer: bytes = await self.honest.unary_unary(path)(request, timeout=timeout)
                return answer

            self.gateway.seen.append((method, raw))
            change = self.gateway.instead.get(method)
            return await (change(raw, pass_on) if change else pass_on(raw))

        return call

    async def close(self) -> None:
        await self.honest.close()


async def tickets_for_all(accountant: RoundService, raw: bytes) -> bytes:
    """Returns what an accountant answers that gives one client tickets for any number of answers."""
    asked = pb.GetTicketsRequest.FromString(raw)
    keys = await accountant.store.run("take the keys", lambda tx: tx.keys(RoundId(asked.round_id)))
    seeds: dict[Lane, bytes] = {lane: keys[purpose].private for lane, purpose in TICKET_KEYS.items()}
    reports, budgets = evaluate_both(seeds, [request.envelope for request in asked.requests])
    return pb.GetTicketsResponse(
        codes=[pb.SUBMISSION_CODE_ACCEPTED] * len(asked.requests),
        report_evaluations=reports,
        parameter_evaluations=budgets,
    ).SerializeToString()


async def own_tickets(raw: bytes, pass_on: PassOn) -> bytes:
    """Answers with tickets under keys that were made for one client, which would be recognised by them."""
    (asked,) = pb.GetTicketsRequest.FromString(raw).requests
    if not asked.envelope:  # whether an invitation admits
        return await pass_on(raw)
    blinded = asked.envelope[:BLINDED_BYTES], asked.envelope[BLINDED_BYTES:]
    lanes: tuple[Lane, ...] = (pb.LANE_REPORT, pb.LANE_PARAMETER)
    issuers = [TicketIssuer(os.urandom(32), lane) for lane in lanes]
    report, budget = (issuer.evaluate([element]) for issuer, element in zip(issuers, blinded, strict=True))
    return pb.GetTicketsResponse(
        codes=[pb.SUBMISSION_CODE_ACCEPTED], report_evaluations=report, parameter_evaluations=budget
    ).SerializeToString()
