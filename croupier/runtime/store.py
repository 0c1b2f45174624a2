"""The durable state of one service: a database, reached from the event loop one transaction at a time.

All access goes through `Store.run`, which executes one transaction on the store's own thread and returns after its
commit. Steps of a round that belong together are therefore in one function of a `Transaction`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import sqlalchemy as sa

from croupier.net.log_rate import LogRateLimiter
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import StorageKey
from croupier.runtime.database import DEFAULT_TIMEOUTS, NotShreddedError, Timeouts, is_outage, open_database, why_failed
from croupier.runtime.rows.chunks import ChunkPlace
from croupier.runtime.schema import create_tables
from croupier.runtime.steps import StoreStep
from croupier.runtime.transaction import Transaction

T = TypeVar("T")
_log = logging.getLogger(__name__)
CLOSE_S = 5.0
"""Seconds that closing waits for a server that does not answer: a service that stops must not hang."""


class Store:
    """One service's database, reached from the event loop."""

    def __init__(self, url: str, wrapping_key: StorageKey, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> None:
        """Opens the database and brings its tables up to date; blocks.

        Raises:
            ValueError: see `open_database` and `create_tables`.
        """
        self.database = open_database(url, timeouts)
        self.on_failure: Callable[[], None] = lambda: None
        self.is_shredding = False  # more than one page
        self.num_ended = 0  # transactions, committed or not, by which waiting calls see progress
        self._lines = LogRateLimiter()
        self._wrapping_key = wrapping_key
        shown = sa.make_url(url).render_as_string()
        try:
            with self.database.begin() as connection:
                create_tables(connection, shown)
        except sa.exc.DBAPIError as error:
            self.database.close()
            raise ValueError(f"{shown} cannot be used: {why_failed(error)}") from error
        except BaseException:
            self.database.close()
            raise
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")

    async def run(self, step: str, work: Callable[[Transaction], T]) -> T:
        """Returns the result of `work`, after the commit; none of it happened if this raises.

        If the connection is lost during the commit itself, STORE_FAILED leaves open whether it happened.

        Args:
            step: names the transaction; a `StoreStep`, or a tool's or a test's own words.
            work: reads and changes data that belongs together.

        Raises:
            Refusal: STORE_FAILED when the database cannot be read or written: a full disk, a lost connection.
                BAD_REQUEST for a value that no row can hold.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.transact, step, work)

    def transact(self, step: str, work: Callable[[Transaction], T]) -> T:
        """Does the work of `run` in the caller's thread."""
        with self._errors(step), self.database.begin() as connection:
            return work(Transaction(connection, self._wrapping_key))

    async def shred_pages(self) -> None:
        """Deletes shredded rows from the tables, page by page: other transactions get their turn in between.

        Raises:
            Refusal: as `run` does; the next call continues.
        """
        after: ChunkPlace | None = None
        try:
            while True:
                after = await self.run(StoreStep.SHRED_PAGE, lambda tx: tx.shred_page(after))  # noqa: B023
                if after is None:
                    return
                self.is_shredding = True
        finally:
            self.is_shredding = False

    async def shred(self) -> None:
        """Leaves nothing of shredded rows in tables or files; called after the transaction that shreds them.

        Raises:
            Refusal: as `run` does, and NOT_READY while something is still there; the caller tries again.
        """
        await self.shred_pages()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._shred)

    def _shred(self) -> None:
        with self._errors(StoreStep.SHRED_LOG):
            try:
                self.database.shred()
            except NotShreddedError as error:
                raise Refusal(Code.NOT_READY, f"what was deleted is not erased yet: {error}") from error

    @contextmanager
    def _errors(self, step: str) -> Iterator[None]:
        try:
            yield
        except sa.exc.DataError as error:  # a NUL in a text, a number beyond the column
            raise Refusal(Code.BAD_REQUEST, "a value of it cannot be stored") from error
        except sa.exc.DBAPIError as error:
            if not is_outage(error):
                raise
            why = why_failed(error)
            if line := self._lines.allow(why):  # while it lasts, each call of each client comes here
                where = {"code": Code.STORE_FAILED.name}
                _log.error("the store failed: %s: %s%s", step, why, line[1], extra=where)
            self.on_failure()
            raise Refusal(Code.STORE_FAILED) from error
        finally:
            self.num_ended += 1

    def free_bytes(self) -> int | None:
        """Returns how many bytes are free on the disk of a SQLite file; None for another machine's database."""
        return self.database.free_bytes()

    def close(self) -> None:
        """Waits for the transaction under way, though not for ever, and closes the database; no other one begins."""
        with self.database.patience(CLOSE_S):
            self._thread.shutdown(wait=True, cancel_futures=True)
        self.database.close()
