"""Retention: deletes rounds that ended long ago, and ends rounds that nobody will bring to an end any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from croupier.protocol.errors import Refusal
from croupier.protocol.manifest import parse_terms
from croupier.protocol.names import RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.kinds import DocumentKind
from croupier.runtime.round_control import BEFORE_CERTIFICATE, OPENED_WITHIN_S, RoundControl
from croupier.runtime.round_engine import FINAL_STATES, RoundEngine
from croupier.runtime.rows.rounds import RoundRow
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.transaction import Transaction

_log = logging.getLogger(__name__)
_EVERY_S = 600.0


class Retention:
    """Looks every ten minutes for rounds whose time is over.

    Args:
        setup: of the service.
        engine: drives the rounds.
        control: withdraws rounds.
        kept_documents: kinds of documents that stay when the rest of a round is deleted.
        on_deletion: called after rounds have been deleted, so that memory forgets them as well.
    """

    def __init__(
        self,
        setup: ServiceSetup,
        engine: RoundEngine,
        control: RoundControl,
        *,
        kept_documents: tuple[DocumentKind, ...] = (),
        on_deletion: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = setup.store
        self._clock = setup.clock
        self._keep_s = setup.keep_s
        self._engine = engine
        self._control = control
        self._kept_documents = kept_documents
        self._on_deletion = on_deletion
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Looks now, and from then on until `stop`."""
        self._task = asyncio.create_task(self._repeat())

    async def stop(self) -> None:
        """Stops looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _repeat(self) -> None:
        while True:
            try:
                await self.delete_expired()
            except Refusal as refusal:  # the store's, which readiness reports
                _log.warning("old rounds are not deleted now: %s", refusal)
            except Exception:  # noqa: BLE001 (whatever it was, the next try may work)
                _log.exception("old rounds are not deleted now")
            await asyncio.sleep(_EVERY_S)

    async def delete_expired(self) -> None:
        """Ends rounds that were never opened or are overdue, and deletes rounds that ended long enough ago."""
        await self._end_unopened()
        await self._withdraw_overdue()
        await self._delete_old()

    async def _end_unopened(self) -> None:
        last_s = int(self._clock.now()) - OPENED_WITHIN_S

        def end(tx: Transaction) -> list[RoundId]:
            never_opened = tx.never_opened(last_s)
            for round_id in never_opened:
                tx.update_round(round_id, state=pb.ROUND_STATE_DISPOSED)
                self._engine.shred_round(tx, round_id)
            return never_opened

        for round_id in await self._store.run(StoreStep.END_UNOPENED_ROUNDS, end):
            _log.warning("the round is withdrawn: it was prepared and never opened", extra={"round_id": round_id})
            await self._engine.shred(round_id)

    async def _withdraw_overdue(self) -> None:
        latest_s = self._clock.now() - self._keep_s

        def overdue(tx: Transaction) -> list[RoundId]:
            return [
                row.round_id
                for row in tx.rounds()
                if row.manifest
                and row.state in BEFORE_CERTIFICATE
                and not row.problem
                and self._control.withdrawable(tx, row)
                and 0 < _deadline_s(row) <= latest_s
            ]

        for round_id in await self._store.run(StoreStep.FIND_OVERDUE_ROUNDS, overdue):
            _log.warning("the round is withdrawn: its deadline is long over", extra={"round_id": round_id})
            await self._control.withdraw_round(round_id)

    async def _delete_old(self) -> None:
        now_s = int(self._clock.now())

        def find(tx: Transaction) -> list[RoundId]:
            tx.record_ends(FINAL_STATES, now_s)
            return list(tx.ends(now_s - self._keep_s))

        deleted = await self._store.run(StoreStep.FIND_OLD_ROUNDS, find)
        for round_id in deleted:
            await self._delete_round(round_id)
            _log.info("what was kept of the round is deleted", extra={"round_id": round_id})
        if deleted:
            self._on_deletion()
            await self._engine.shred(deleted[0])

    async def _delete_round(self, round_id: RoundId) -> None:
        """Deletes a round page by page, so that other transactions get their turn in between."""
        while await self._store.run(StoreStep.DELETE_PAGE, lambda tx: tx.delete_admitted(round_id)):
            pass
        await self._store.run(StoreStep.DELETE_OLD_ROUND, lambda tx: tx.delete_round(round_id, self._kept_documents))
        self._engine.delete_terms(round_id)


def _deadline_s(row: RoundRow) -> int:
    return parse_terms(row.manifest).close_deadline_unix_s
