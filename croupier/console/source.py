"""What the pages are made from: the deployment as its operator, or else as anybody, sees it, with signatures verified.

What does not change is asked for or computed once: the terms of a round, its result, and what follows from that.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from cryptography import x509

from croupier.client.async_client import AsyncClient
from croupier.client.round_checks import fetch_signed_result
from croupier.console.progress import Counts, counts_of, with_progress
from croupier.deploy.directory import read_deployment
from croupier.deploy.local.clients import client_of, terms_of
from croupier.net.transport import TLS, Transport
from croupier.operator.keys import VALID_BEFORE
from croupier.operator.operator import Operator, is_operators
from croupier.operator.overview import TermsCache, overview
from croupier.operator.published_result import PublishedResult, verified_result
from croupier.protocol.deployment import ServiceEntry
from croupier.protocol.names import NO_ROUND, JsonObject, RoundId

EVERY_S = 1.0
"""Seconds between two looks at the services: shorter is fresher and calls the services more often."""
_LOOKS = 12
"""The number of looks that a rate is computed over."""
_PATIENCE_S, _FOR_A_RESULT_S = 15.0, 1.0
"""Seconds after which the console gives up a question to the services, and a look for a result."""
_MOST_KEPT = 50
"""The most entries of a cache; a full cache gives up an entry for a new one."""


class Source:
    """A deployment that is looked at. Use as an async context manager."""

    def __init__(self, directory: Path, transport: Transport = TLS, every_s: float = EVERY_S) -> None:
        """Reads the deployment, and the operator's secrets where they are.

        Args:
            directory: of the deployment.
            transport: how services are reached.
            every_s: how often the services are asked, while someone watches.

        Raises:
            ValueError: the directory has no deployment.
        """
        self.directory = directory
        self.transport = transport
        self.deployment = read_deployment(directory)
        self.operator = Operator(directory, transport) if is_operators(directory) else None
        self._every_s = every_s
        self._known: TermsCache = {}
        self._looks: deque[tuple[float, Counts]] = deque()
        self._seen: JsonObject = {"services": [], "rounds": []}
        self._looking = asyncio.Lock()
        self._ended = asyncio.Event()
        self._finished: dict[str, PublishedResult] = {}
        self._computed: dict[tuple[str, str], asyncio.Task[Any]] = {}

    async def __aenter__(self) -> Source:
        """Opens the channels."""
        self._open = AsyncExitStack()
        if self.operator is not None:
            await self._open.enter_async_context(self.operator)
        self._analyzer = await self._open.enter_async_context(self.transport.public_channel(self.deployment.analyzer))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the channels."""
        self.end()
        await self._open.aclose()

    def end(self) -> None:
        """Ends every `watch`."""
        self._ended.set()

    async def look(self) -> JsonObject:
        """Returns services and newest rounds as `overview` gives them, with progress and keys; for the operator alone.

        Callers at the same time share one answer of the services.
        """
        if self.operator is None:
            raise ValueError("the services answer the operator alone, whose keys are not here")
        async with self._looking:
            now = time.monotonic()
            if not self._looks or now - self._looks[-1][0] >= self._every_s / 2:
                seen = await overview(self.operator, self._known)
                counts = counts_of(seen)
                while self._looks and now - self._looks[0][0] > _LOOKS * self._every_s:
                    self._looks.popleft()
                self._looks.append((now, counts))
                then, before = self._looks[0]
                self.deployment = read_deployment(self.directory)  # keys may have been rotated
                for service in seen["services"]:
                    service["keys"] = _keys(self.deployment.service(service["service"]), time.time())
                seen["rounds"] = [with_progress(round_view, seen, before, now - then) for round_view in seen["rounds"]]
                self._seen = seen
            return self._seen

    async def watch(self) -> AsyncIterator[JsonObject]:
        """Yields what `look` returns, again and again, until `end`."""
        while not self._ended.is_set():
            yield await self.look()
            try:
                async with asyncio.timeout(self._every_s):
                    await self._ended.wait()
            except TimeoutError:
                continue

    async def round(self, round_id: RoundId) -> JsonObject | None:
        """Returns what the operator sees of a round; None for one who is not the operator, or an old round."""
        if self.operator is None:
            return None
        rounds = (await self.look())["rounds"]
        return next((round_view for round_view in rounds if round_view["round_id"] == round_id), None)

    async def terms(self, round_id: RoundId = NO_ROUND) -> JsonObject:
        """Returns the verified terms of a round, the newest open one if none is named, with its state at hop 1.

        Raises:
            Refusal, SignatureError: there is no such round, or its terms cannot be trusted.
            TimeoutError, UnreachableError: hop 1 is out of reach.
        """
        async with asyncio.timeout(_PATIENCE_S), self.client() as client:
            return await terms_of(await client.round(round_id))

    def client(self) -> AsyncClient:
        """Returns the client of the person who uses this directory."""
        return client_of(self.directory, transport=self.transport, patience_s=60.0)

    async def finished(self, round_id: RoundId) -> PublishedResult:
        """Returns the verified result of a round that is published or refused.

        Raises:
            Refusal, SignatureError: it has no result, or that is not signed as it must be.
            grpc.aio.AioRpcError: the analyzer is out of reach.
        """
        if round_id not in self._finished:
            signed = await fetch_signed_result(self._analyzer, round_id, _FOR_A_RESULT_S)
            result = verified_result(signed, read_deployment(self.directory), round_id)
            _evict_oldest(self._finished)
            self._finished[round_id] = result
        return self._finished[round_id]

    async def computed(self, round_id: RoundId, name: str, compute: Callable[[PublishedResult], Any]) -> Any:
        """Returns what a function makes of a finished round, in a thread, and once for all who ask.

        Raises:
            ValueError: as the function; and as `finished`.
        """
        finished = await self.finished(round_id)
        key = (round_id, name)
        if key not in self._computed:
            _evict_oldest(self._computed)
            self._computed[key] = asyncio.create_task(asyncio.to_thread(compute, finished))
        return await asyncio.shield(self._computed[key])


def _evict_oldest(kept: dict[Any, Any]) -> None:
    """Deletes the oldest entry of a full cache."""
    if len(kept) >= _MOST_KEPT:
        del kept[next(iter(kept))]


def _keys(entry: ServiceEntry, now: float) -> JsonObject:
    """Returns the age of a service's keys, by the certificate that was made with them, and the changes under way."""
    pinned = x509.load_pem_x509_certificate(entry.tls_certificate.encode())
    made, end = (pinned.not_valid_before_utc + VALID_BEFORE).timestamp(), pinned.not_valid_after_utc.timestamp()
    return {
        "age_days": int((now - made) // 86400),
        "expires_in_days": int((end - now) // 86400),
        "pending": entry.pending_identity is not None,
        "retired": len(entry.retired_identities),
    }
