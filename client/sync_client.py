"""The client library for programs without an event loop: every call waits until it is done.

    with croupier.connect("deployment.toml") as client:
        receipt = client.round().submit(1, max_local_epsilon=1.0)

`client.async_client` does the work, on an event loop in a thread of its own, so that it may be used from any thread,
and from a notebook, which has an event loop already.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from croupier.client.async_client import Accept, Answers, AsyncClient, ShownSurvey
from croupier.client.joined import JoinedSurvey, WaveRecord
from croupier.client.limits import Limits, SpentHere
from croupier.client.round_client import AsyncClientRound, VerifiedRound
from croupier.client.round_result import Inclusion, Receipt, RoundResult
from croupier.net.channels import ClientTransport
from croupier.protocol.deployment import Deployment

T = TypeVar("T")


def connect(
    deployment: Path | str | Deployment,
    *,
    directory: Path | str | None = None,
    key_file: Path | str | None = None,
    limits: Limits | None = None,
    patience_s: float = 60.0,
    gateway: str = "",
    transport: ClientTransport | None = None,
) -> Client:
    """Returns a client of a deployment; arguments and errors are those of `AsyncClient`."""
    return Client(
        AsyncClient(
            deployment,
            directory=directory,
            key_file=key_file,
            limits=limits,
            patience_s=patience_s,
            gateway=gateway,
            transport=transport,
        )
    )


class Client:
    """A client with blocking calls, from `connect`: see `AsyncClient`. Any number of threads may share it."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="croupier-client", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes channels and files, and ends the thread; sealed answers stay.

        Calls of other threads that still wait end with CancelledError.
        """
        if self._loop.is_closed():
            return
        self.wait_for(self._end())
        self.wait_for(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self._client.close()

    def round(self, round_id: str = "") -> ClientRound:
        """See `AsyncClient.round`."""
        asked = self.wait_for(self._client.round(round_id))
        return ClientRound(asked.terms, asked.state, self, asked)

    def study(self, study_id: str = "") -> ShownSurvey:
        """See `AsyncClient.study`."""
        return self.wait_for(self._client.study(study_id))

    def join(self, shown: ShownSurvey, wave_epsilon: float, *, person: str = "", invitation: str = "") -> JoinedSurvey:
        """See `AsyncClient.join`."""
        return self._client.join(shown, wave_epsilon, person=person, invitation=invitation)

    def follow(
        self,
        study_id: str,
        answers: Answers,
        *,
        until_end: bool = True,
        accept: Accept | None = None,
        person: str = "",
        key: bytes = b"",
    ) -> Iterator[WaveRecord]:
        """See `AsyncClient.follow`; it yields the record of each wave, and waits for the next one."""
        waves = self._client.follow(study_id, answers, until_end=until_end, accept=accept, person=person, key=key)

        async def next_one() -> WaveRecord | None:
            return await anext(waves, None)

        while (record := self.wait_for(next_one())) is not None:
            yield record

    def leave(self, study_id: str, person: str = "") -> JoinedSurvey:
        """See `AsyncClient.leave`."""
        return self._client.leave(study_id, person)

    def studies(self) -> list[JoinedSurvey]:
        """See `AsyncClient.studies`."""
        return self._client.studies()

    @property
    def deployment(self) -> Deployment:
        """The deployment of the file."""
        return self._client.deployment

    @property
    def limits(self) -> Limits:
        """See `AsyncClient.limits`."""
        return self._client.limits

    @property
    def spent(self) -> SpentHere:
        """See `AsyncClient.spent`."""
        return self._client.spent

    @property
    def public_key(self) -> str:
        """See `AsyncClient.public_key`."""
        return self._client.public_key

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns the result of a coroutine of the asynchronous client."""
        done = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return done.result()
        except BaseException:  # an interrupt of the waiting thread ends the work, too
            done.cancel()
            raise


@dataclass(frozen=True, repr=False)
class ClientRound(VerifiedRound):
    """One round; the calls of `AsyncClientRound`, which wait."""

    client: Client
    asked: AsyncClientRound

    def submit(
        self,
        value: float | str | Collection[str],
        max_local_epsilon: float,
        *,
        person: str = "",
        key: bytes = b"",
        invitation: str = "",
    ) -> Receipt:
        """See `AsyncClientRound.submit`."""
        return self.client.wait_for(
            self.asked.submit(value, max_local_epsilon, person=person, key=key, invitation=invitation)
        )

    def verify(self, wait_s: float = 0.0) -> Inclusion:
        """See `AsyncClientRound.verify`."""
        return self.client.wait_for(self.asked.verify(wait_s))

    def result(self, wait_s: float = 0.0) -> RoundResult:
        """See `AsyncClientRound.result`."""
        return self.client.wait_for(self.asked.result(wait_s))
