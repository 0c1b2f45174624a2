"""The check that a ledger may begin at zero: it may not if the deployment has certified rounds before.

An accountant that has lost its store would grant again budgets that people have already spent, and a hop with a noise
limit would sign it. So the first start of a ledger is noted in its store, and an empty store without that note is
accepted only in a deployment without a history. The analyzer knows the history: it has the published rounds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

import grpc.aio

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.peers import Peers
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.transaction import Transaction

_log = logging.getLogger(__name__)
_PATIENCE_S = 5.0
"""Seconds to wait for the analyzer at the start of a service; it is asked again before the first round is signed."""
_CERTIFIED = (pb.ROUND_STATE_PUBLISHED, pb.ROUND_STATE_REFUSED, pb.ROUND_STATE_SEQUENTIAL)
"""The states of a round at the analyzer that it has after the accountant's certificate."""


def missing_rounds(analyzer: rpc.StatusResponse, known: Collection[RoundId]) -> list[RoundId]:
    """Returns the rounds that a ledger does not have, of the analyzer's 20 newest rounds that it has published."""
    published = [row.round_id for row in analyzer.rounds if row.state == pb.ROUND_STATE_PUBLISHED]
    return [RoundId(round_id) for round_id in published if round_id not in known]


class LedgerStart:
    """Checks a service's ledger when the service starts, and an empty one before the first round is signed.

    Args:
        setup: of the service.
        peers: the other services.
        known: returns the rounds that the ledger has.
        remedy: for a lost ledger.
    """

    def __init__(
        self, setup: ServiceSetup, peers: Peers, known: Callable[[Transaction], Collection[RoundId]], remedy: str
    ) -> None:
        self._store = setup.store
        self._peers = peers
        self._known = known
        self._remedy = remedy
        self._has_begun = False

    async def check_at_start(self) -> None:
        """Names the published rounds that the ledger does not have; refuses an empty ledger that has been lost.

        Raises:
            ValueError: the ledger is empty, and the deployment has a history.
        """
        try:
            objection, missing = await self._objection()
        except grpc.aio.AioRpcError:
            _log.info("the ledger is not compared with published results: the analyzer does not answer")
            return
        if objection:
            raise ValueError(objection)
        if missing:
            _log.error("the ledger does not have %d published rounds: %s", len(missing), ", ".join(missing))

    async def check_before_signing(self) -> None:
        """Checks that an empty ledger may begin at zero.

        Raises:
            Refusal: NOT_READY while the analyzer does not answer, BAD_MANIFEST if the ledger has been lost.
        """
        if self._has_begun:
            return
        try:
            objection, _ = await self._objection()
        except grpc.aio.AioRpcError as error:
            analyzer = self._peers.deployment.analyzer.name
            why = f"{self._peers.name}'s ledger is empty, and {analyzer} does not say whether rounds were certified"
            raise Refusal(Code.NOT_READY, why) from error
        if objection:
            raise Refusal(Code.BAD_MANIFEST, objection)

    async def _objection(self) -> tuple[str, list[RoundId]]:
        """Returns why the ledger may not begin at zero, and which published rounds it does not have."""
        noted, known = await self._store.run(
            StoreStep.READ_LEDGER_START, lambda tx: (tx.ledger_has_begun(), self._known(tx))
        )
        self._has_begun = noted or bool(known)
        deployment = self._peers.deployment
        if not self._has_begun and deployment.version > 1:
            return self._lost(f"deployment.toml is version {deployment.version}"), []
        control = stubs.RoundControlStub(self._peers.channel_to(deployment.analyzer.name))
        status = await control.Status(rpc.StatusRequest(), timeout=_PATIENCE_S)
        certified = [row.round_id for row in status.rounds if row.state in _CERTIFIED]
        if not self._has_begun and certified:
            return self._lost(f"{status.service} has {len(certified)} certified rounds: {', '.join(certified)}"), []
        await self._store.run(StoreStep.BEGIN_LEDGER, lambda tx: tx.begin_ledger())
        self._has_begun = True
        return "", missing_rounds(status, known)

    def _lost(self, history: str) -> str:
        name = self._peers.name
        return (
            f"the ledger of {name} is empty, but the deployment has a history ({history}): {self._remedy}, or state "
            f"with 'croupier ledger --new-ledger {name}' that the ledger begins at zero"
        )
