"""The engine that drives a round through its states to its end, also after crashes.

A role hands the engine a table of the methods that take the next step in each state. States only ever move forward,
each step ends in one transaction, and at the start every unfinished round continues from its state in the store. A
crash between two steps therefore costs the work of one step and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping

from croupier.protocol.errors import Code, Refusal, SignatureError
from croupier.protocol.manifest import RoundTerms, parse_terms, state_name
from croupier.protocol.names import RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.kinds import DocumentKind
from croupier.runtime.rows.rounds import RoundRow
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.transaction import Transaction
from croupier.runtime.waiting import WaitingRounds, about

_log = logging.getLogger(__name__)
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 10.0
MAX_TERMS = 32
"""The most rounds whose terms stay in memory; those of others are read from the store again."""
FINAL_STATES = (
    pb.ROUND_STATE_DELIVERED,
    pb.ROUND_STATE_REFUSED,
    pb.ROUND_STATE_RELEASED,
    pb.ROUND_STATE_PUBLISHED,
    pb.ROUND_STATE_DISPOSED,
)
StateStep = Callable[[RoundTerms], Awaitable[bool]]
"""Takes the next step of a round; returns False when there is nothing to do until something arrives."""


class RoundEngine:
    """Drives the rounds of one service.

    Args:
        setup: of the service.
        waiting: takes the engine's reasons why a round does not move.
        steps: the method that takes the next step, by the state of the round; a state without one waits for a call.
        ephemeral_documents: documents that are deleted with the round's keys, with all their parts.
        on_end: called with a round that has ended without a result, so that the role frees its memory.

    Attributes:
        steps: as given.
        kept_terms: the terms of the most recently used rounds, at most MAX_TERMS.
        drivers: the tasks that drive rounds on.
    """

    def __init__(
        self,
        setup: ServiceSetup,
        waiting: WaitingRounds,
        steps: Mapping[pb.RoundState.ValueType, StateStep],
        *,
        ephemeral_documents: tuple[DocumentKind, ...] = (),
        on_end: Callable[[RoundId], None],
    ) -> None:
        self._store = setup.store
        self._metrics = setup.metrics
        self._keep_days = setup.keep_days
        self._waiting = waiting
        self.steps = steps
        self._ephemeral_documents = ephemeral_documents
        self._on_end = on_end
        self.kept_terms: OrderedDict[str, RoundTerms] = OrderedDict()
        self.drivers: dict[RoundId, asyncio.Task[None]] = {}
        self._woken: set[RoundId] = set()  # rounds for which something arrived while they were being driven

    # ------------------------------------------------------------- the terms and states of a round

    async def terms(self, round_id: RoundId) -> RoundTerms:
        """Returns the terms of a round that is open here, or has been."""
        terms = self.kept_terms.get(round_id)
        if terms is None:
            row = await self._store.run(StoreStep.READ_TERMS, lambda tx: tx.round(RoundId(round_id)))
            self.check_kept(row)
            if not row.manifest:
                raise Refusal(Code.WRONG_STATE, f"round {round_id!r} is prepared but not open")
            terms = self.kept_terms[round_id] = parse_terms(row.manifest)
            while len(self.kept_terms) > MAX_TERMS:
                self.kept_terms.popitem(last=False)
        self.kept_terms.move_to_end(round_id)
        return terms

    def delete_terms(self, round_id: RoundId) -> None:
        """Deletes the terms of a round from memory."""
        self.kept_terms.pop(round_id, None)

    def check_kept(self, row: RoundRow) -> None:
        """Raises Refusal WRONG_STATE for a round whose data is deleted."""
        if not row.manifest and row.state != pb.ROUND_STATE_PREPARED:
            raise Refusal(
                Code.WRONG_STATE,
                f"round {row.round_id!r} is over, and what was kept of it is deleted after {self._keep_days} days",
            )

    # ------------------------------------------------------------- driving

    async def start(self) -> None:
        """Drives on every round that an earlier run left unfinished."""
        rows, shredding = await self._store.run(StoreStep.LIST_ROUNDS, lambda tx: (tx.rounds(), tx.being_shredded()))
        ended = {row.round_id for row in rows if row.state in FINAL_STATES or row.problem}
        for row in rows:
            if row.round_id in ended & shredding or (row.manifest and row.round_id not in ended):
                self.wake(row.round_id)
        if not ended & shredding:  # else their drivers shred, which may take long
            for row in rows[:1]:
                await self.shred(row.round_id)

    def wake(self, round_id: RoundId) -> None:
        """Drives a round on; a driver that is at work looks at the state again before it ends."""
        task = self.drivers.get(round_id)
        if task is None or task.done():
            task = self.drivers[round_id] = asyncio.create_task(self._drive(round_id))
            task.add_done_callback(lambda done: self._remove_driver(round_id, done))
        else:
            self._woken.add(round_id)

    def _remove_driver(self, round_id: RoundId, driver: asyncio.Task[None]) -> None:
        if self.drivers.get(round_id) is driver:
            del self.drivers[round_id]
            self._woken.discard(round_id)

    async def stop_round(self, round_id: RoundId) -> bool:
        """Stops driving a round; returns whether it was being driven."""
        driver = self.drivers.get(round_id)
        if driver is None:
            return False
        driver.cancel()
        await asyncio.gather(driver, return_exceptions=True)
        self._waiting.go_on(round_id)
        return True

    def cancel(self) -> None:
        """Tells all drivers to stop, and does not wait for them."""
        for driver in self.drivers.values():
            driver.cancel()

    async def stop(self) -> None:
        """Stops driving; everything durable is unchanged."""
        drivers = [driver for driver in self.drivers.values() if not driver.done()]
        for driver in drivers:
            driver.cancel()
        await asyncio.gather(*drivers, return_exceptions=True)

    async def _drive(self, round_id: RoundId) -> None:
        """Takes step after step.

        Where a step fails for a reason that may pass (a full disk, an unreachable peer) it is tried again, ever more
        slowly. Any other Refusal is kept as the round's problem, and the round stops here.
        """
        problem, wait_s = "", _FIRST_WAIT_S
        known = pb.ROUND_STATE_UNSPECIFIED
        while True:
            try:
                if problem:
                    await self.record_problem(round_id, problem)
                    self._waiting.go_on(round_id)
                    self._metrics.round_stopped()
                    return
                self._woken.discard(round_id)
                row = await self._store.run(StoreStep.READ_STATE, lambda tx: tx.round(round_id))
                if row.state != known:
                    known = row.state
                    state = state_name(known)
                    _log.info("the round is %s", state, extra={"round_id": round_id, "state": state})
                ended = row.state in FINAL_STATES or bool(row.problem)
                if ended:
                    await self._store.shred()  # here, so that it is tried again until it is done
                step = self.steps.get(row.state)
                moved = not ended and bool(row.manifest) and step is not None and await step(await self.terms(round_id))
                self._waiting.go_on(round_id)
                if not moved and round_id not in self._woken:
                    return
                wait_s = _FIRST_WAIT_S
                continue
            except (Refusal, SignatureError) as error:
                if isinstance(error, SignatureError) or not error.code.may_pass:
                    _log.error("the round stops: %s", error, extra=about(round_id, error))
                    problem = str(error)
                    continue
                self._waiting.wait(round_id, str(error), error)
            except Exception:  # noqa: BLE001 (a round that fails must not take others with it)
                _log.exception("a step failed", extra={"round_id": round_id})
                self._waiting.wait(round_id, "internal error; the service's log has the details")
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    # ------------------------------------------------------------- the end of a round

    def shred_round(self, tx: Transaction, round_id: RoundId) -> None:
        """Shreds keys and ciphertexts of a round that has ended here, and deletes its ephemeral documents."""
        tx.shred_round(round_id)
        for kind in self._ephemeral_documents:
            tx.delete_documents(round_id, kind)

    def end(self, round_id: RoundId) -> None:
        """Tells the role that a round has ended without a result."""
        self._on_end(round_id)

    async def shred(self, round_id: RoundId) -> None:
        """Removes shredded rows from tables and files; an attempt that fails is repeated, and the status says so."""
        try:
            await self._store.shred()
        except Refusal as refusal:
            self._waiting.wait(round_id, str(refusal), refusal)
            self.wake(round_id)

    async def record_problem(self, round_id: RoundId, problem: str) -> None:
        """Ends the round here; no step is taken any more, so its keys and ciphertexts are shredded."""

        def end(tx: Transaction) -> None:
            tx.update_round(round_id, problem=problem)
            self.shred_round(tx, round_id)

        await self._store.run(StoreStep.STOP_ROUND, end)
        self.end(round_id)
        await self._store.shred()
