"""A store that fails on command: it dies, errs or is slow around the commit of a transaction that is named.

A commit point has the name of its transaction. What has
been ordered comes from outside (`Orders`), what dying means too: SIGKILL, or `Killed` for a service inside a process.
The store also bears witness: it notes every secret that it held and the digest of every chunk that was about to be sent
or has arrived, committed or not, so that the oracle can ask afterwards whether they are gone, and whether they changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeVar, get_args

import sqlalchemy as sa

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import StorageKey
from croupier.runtime.clock import Clock, SystemClock
from croupier.runtime.steps import StoreStep
from croupier.runtime.store import Store
from croupier.runtime.transaction import Transaction

T = TypeVar("T")
Action = Literal["kill before", "kill after", "fail", "lose the answer"]
ACTIONS: tuple[Action, ...] = get_args(Action)
SMALL_CHUNK_BYTES = 1000
"""A few ciphertexts; with this lanes have several chunks, as those of large rounds have."""
SMALL_PIECE_BYTES = 2000
"""A chunk or two; with this a round is forgotten in several transactions."""
_PROGRESS = "SELECT content FROM documents WHERE kind = 'sequential-progress'"
_NO_LIMIT = 1 << 30
_SECRETS = """
    SELECT ciphertexts FROM chunks WHERE ciphertexts IS NOT NULL
    UNION ALL SELECT content FROM opened
    UNION ALL SELECT wrapped_private FROM round_keys
"""


class Killed(BaseException):
    """Raised where a service inside this process would have ended with `kill -9`."""


@dataclass(frozen=True)
class Trap:
    """Something happens when a transaction is reached for the `nth` time from now.

    `fail`: the database cannot be reached. `lose the answer`: it commits and cannot say so any more.
    """

    serial: int
    point: str
    action: Action
    nth: int


@dataclass(frozen=True)
class Orders:
    """What is wrong with one service at the moment."""

    trap: Trap | None = None
    delay_s: float = 0.0
    clock_offset_s: float = 0.0
    disk_full: bool = False


class ShiftedClock:
    """A clock and what has been ordered on top."""

    def __init__(self, orders: Callable[[], Orders], clock: Clock | None = None) -> None:
        self._orders, self._clock = orders, clock or SystemClock()

    def now(self) -> float:
        return self._clock.now() + self._orders().clock_offset_s


class FaultyStore(Store):
    """The real store with faults around it; a full disk is SQLite's own."""

    def __init__(
        self,
        url: str,
        wrapping_key: bytes,
        *,
        orders: Callable[[], Orders],
        die: Callable[[], NoReturn],
        witness: Callable[[str], None],
    ) -> None:
        super().__init__(url, StorageKey(wrapping_key))
        self._orders, self._die, self._witness = orders, die, witness
        self._met: Counter[int] = Counter()
        self._known: set[bytes] = set()
        self.files = threading.Lock()
        """Held while files are closed or copied: a checkpoint between two copies would tear the database apart."""

    def close(self) -> None:
        with self.files:
            super().close()

    async def run(self, name: str, work: Callable[[Transaction], T]) -> T:
        try:
            self._orders()
            return await super().run(name, work)
        except Killed:
            return await _for_ever()

    async def shred(self) -> None:
        try:
            self._orders()
            await super().shred()
        except Killed:
            await _for_ever()

    def _meet(self, point: str) -> Action | None:
        """Returns what is to happen at this commit point, now."""
        if point.encode() not in self._known:
            self._known.add(point.encode())
            self._witness(f"point {point.replace(' ', '-')} -")
        orders = self._orders()
        if orders.delay_s:
            time.sleep(orders.delay_s)
        trap = orders.trap
        if trap is None or trap.point != point:
            return None
        self._met[trap.serial] += 1
        return trap.action if self._met[trap.serial] == trap.nth else None

    def transact(self, point: str, work: Callable[[Transaction], T]) -> T:
        action = self._meet(point)
        kept: list[bytes] = []

        def watched(tx: Transaction) -> T:
            if action == "fail":
                raise sa.exc.OperationalError(point, None, RuntimeError("the database is out of reach (ordered)"))
            # A limit below the present size stands for the present size: nothing may grow any more.
            limit = 1 if self._orders().disk_full else _NO_LIMIT
            _ask(tx.connection, f"PRAGMA max_page_count = {limit}")
            result = work(tx)
            self._orders()  # a service that has died meanwhile does not commit
            self._note(point, tx.connection)
            if point == StoreStep.KEEP_PROGRESS:  # what hop 1 has acknowledged of a sequential round
                kept.extend(document for (document,) in _ask(tx.connection, _PROGRESS))
            if action == "kill before":
                self._die()
            return result

        result = super().transact(point, watched)
        for document in kept:
            self._witness(f"kept - {document.hex()}")
        if action == "kill after":
            self._die()
        if action == "lose the answer":
            raise Refusal(Code.STORE_FAILED, "(ordered)")
        return result

    def _shred(self) -> None:
        action = self._meet(StoreStep.SHRED_LOG)
        if action == "kill before":
            self._die()
        if action == "fail":
            with self._errors(StoreStep.SHRED_LOG):
                raise sa.exc.OperationalError(
                    StoreStep.SHRED_LOG, None, RuntimeError("the disk is out of reach (ordered)")
                )
        super()._shred()
        if action == "kill after":
            self._die()

    def _note(self, point: str, connection: sa.Connection) -> None:
        for (blob,) in _ask(connection, _SECRETS):
            name = hashlib.sha256(blob).digest()
            if name not in self._known:
                self._known.add(name)
                for start in (12, len(blob) // 2, len(blob) - 24):
                    self._witness(f"secret - {blob[start : start + 24].hex()}")
        here = "SELECT round_id, direction, lane, chunk_index, chunk_count, digest FROM chunks"
        for *place, digest in _ask(connection, here):
            if place[1] == "in" or point == StoreStep.READ_CHUNK_TO_SEND:
                line = f"chunk {'/'.join(map(str, place))} {digest.hex()}"
                if line.encode() not in self._known:
                    self._known.add(line.encode())
                    self._witness(line)


def _ask(connection: sa.Connection, statement: str) -> list[tuple[Any, ...]]:
    """Asks SQLite itself, in the same transaction: it is done in each of them, and SQLAlchemy costs more than that."""
    driver: Any = connection.connection.driver_connection
    rows: list[tuple[Any, ...]] = driver.execute(statement).fetchall()
    return rows


_frozen: set[asyncio.Task[Any]] = set()


async def _for_ever() -> NoReturn:
    """What the code of a dead service does."""
    task = asyncio.current_task()
    if task is not None:
        _frozen.add(task)  # nothing else may hold it any more, and asyncio complains about tasks that just vanish
    await asyncio.get_running_loop().create_future()
    raise Killed


def bury_the_frozen() -> None:
    """Ends the tasks of all services that have died."""
    for task in _frozen:
        task.cancel()
    _frozen.clear()
