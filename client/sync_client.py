"""The client library for programs without an event loop: every call waits until it is done.

    with croupier.connect("deployment.toml") as client:
        receipt = client.round().submit(1, max_local_epsilon=1.0)

`client.async_client` does the work, on an event loop in a thread of its own, so that it may be used from any thread,
and from a notebook, which has an event loop already.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from croupier.client.async_client import AsyncClient
from croupier.client.limits import Limits, SpentHere
from croupier.client.round_client import AsyncClientRound, VerifiedRound
from croupier.protocol.deployment import Deployment

P = ParamSpec("P")
T = TypeVar("T")


def _waiting(call: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Returns the method that waits until a method of the asynchronous client, or of its round, is done."""

    @wraps(call)
    def wait(self: Any, /, *args: P.args, **how: P.kwargs) -> T:
        done: T = self.wait_for(call(self.asynchronous, *args, **how))
        return done

    return wait


def _iterating(call: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """Returns the method that yields what a method of the asynchronous client yields, and waits for the next one."""

    @wraps(call)
    def iterate(self: Any, /, *args: P.args, **how: P.kwargs) -> Iterator[T]:
        records = call(self.asynchronous, *args, **how)

        async def next_one() -> T | None:
            return await anext(records, None)

        while (record := self.wait_for(next_one())) is not None:
            yield record

    return iterate


class Client:
    """A client with blocking calls, from `connect`: see `AsyncClient`. Any number of threads may share it."""

    def __init__(self, client: AsyncClient) -> None:
        self.asynchronous = client
        self.join, self.leave, self.joined_surveys = client.join, client.leave, client.joined_surveys
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
        await self.asynchronous.close()

    def round(self, round_id: str = "") -> ClientRound:
        """See `AsyncClient.round`."""
        asked = self.wait_for(self.asynchronous.round(round_id))
        return ClientRound(asked.terms, asked.state, asked, self.wait_for)

    survey = _waiting(AsyncClient.survey)
    follow = _iterating(AsyncClient.follow)

    @property
    def deployment(self) -> Deployment:
        """The deployment of the file."""
        return self.asynchronous.deployment

    @property
    def limits(self) -> Limits:
        """See `AsyncClient.limits`."""
        return self.asynchronous.limits

    @property
    def spent(self) -> SpentHere:
        """See `AsyncClient.spent`."""
        return self.asynchronous.spent

    @property
    def public_key(self) -> str:
        """See `AsyncClient.public_key`."""
        return self.asynchronous.public_key

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

    asynchronous: AsyncClientRound
    wait_for: Callable[[Coroutine[Any, Any, Any]], Any]
    submit = _waiting(AsyncClientRound.submit)
    verify = _waiting(AsyncClientRound.verify)
    result = _waiting(AsyncClientRound.result)


def _connecting(make: Callable[P, AsyncClient]) -> Callable[P, Client]:
    def connect(*args: P.args, **how: P.kwargs) -> Client:
        """Returns a client of a deployment; arguments and errors are those of `AsyncClient`."""
        return Client(make(*args, **how))

    return connect


connect = _connecting(AsyncClient)
"""Returns a client of a deployment; arguments and errors are those of `AsyncClient`."""
