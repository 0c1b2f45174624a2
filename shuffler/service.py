"""A shuffler: takes what comes to it, mixes it, and passes it on. Hop 1 also admits clients.

    hop 1:     OPEN ──close──▶ CLOSED ──mix──▶ MIXED ──deliver──▶ DELIVERED
    hop 2..k:  OPEN ──hand-over──▶ CLOSED ──mix──▶ MIXED ──deliver──▶ DELIVERED
    sequential:                                     MIXED ──deliver──▶ SEQUENTIAL ──asking ends──▶ DELIVERED

After the next role's acknowledgement bodies and round key are gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from functools import partial

from croupier.net.tls import Context
from croupier.protocol.deployment import OPERATOR
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import RoundId
from croupier.protocol.randomness import SystemRandom
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.clock import Stopwatch
from croupier.runtime.kinds import DocumentKind, KeyPurpose
from croupier.runtime.lane_opener import LaneOpener
from croupier.runtime.lane_receiver import LaneReceiver
from croupier.runtime.lane_sender import LaneSender
from croupier.runtime.ledger_start import LedgerStart
from croupier.runtime.peers import Peers
from croupier.runtime.position import own_layer
from croupier.runtime.registration import AdmittingService
from croupier.runtime.retention import Retention
from croupier.runtime.round_control import RoundControl, is_before_certificate
from croupier.runtime.round_engine import RoundEngine
from croupier.runtime.rows.rounds import RoundRow
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.transaction import Transaction
from croupier.shuffler.batch_mixer import BatchMixer
from croupier.shuffler.fake_reports import FakeReports
from croupier.shuffler.inclusion import InclusionLists
from croupier.shuffler.noise_ledger import NoiseLedger
from croupier.shuffler.position import ChainPosition
from croupier.shuffler.risk import is_at_risk
from croupier.shuffler.sequential import SequentialHop
from croupier.shuffler.sequential_order import new_order_key
from croupier.shuffler.submissions import Submissions


class ShufflerService(AdmittingService, stubs.ShufflerServicer):
    """One hop.

    Attributes:
        position: of this hop in the chain of each round.
        submissions: at hop 1, admits clients.
        fakes: makes this hop's fake reports in rounds with hop noise.
        mixer: mixes complete batches.
        inclusion: shows clients what was passed on.
        ledger_start: refuses an own ledger that has been lost; None without a noise limit.
        sequential: asks clients one after the other, or passes their answers on.
    """

    position: ChainPosition

    def __init__(self, setup: ServiceSetup) -> None:
        self.store = setup.store
        self.metrics = setup.metrics
        self.peers = Peers(setup)
        self.position = ChainPosition(self.peers.name)
        self.engine = RoundEngine(
            setup,
            self.peers.waiting,
            {
                pb.ROUND_STATE_OPEN: self._prepare_to_mix,
                pb.ROUND_STATE_CLOSED: self._mix,
                pb.ROUND_STATE_MIXED: self._deliver,
                pb.ROUND_STATE_SEQUENTIAL: self._ask_clients,
            },
            ephemeral_documents=(DocumentKind.SEQUENTIAL_PROGRESS, DocumentKind.FAKES),
            on_end=self._stop_round,
        )
        lane_work = partial(own_layer, self.position)
        self.opener = LaneOpener(setup, lane_work, early=(pb.LANE_JOINT, *self.position.lanes))
        self.sender = LaneSender(setup, self.peers)
        self.receiver = LaneReceiver(setup, self.peers, self.engine, self.opener, self.position)
        limit = setup.noise_limit
        self.ledger_start = (
            None
            if limit is None
            else LedgerStart(
                setup,
                self.peers,
                lambda tx: NoiseLedger(tx.connection).rounds(),
                "lower its noise_limit by what 'croupier ledger' last showed for it",
            )
        )
        self.control = RoundControl(
            setup,
            self.peers,
            self.engine,
            withdrawable=_withdrawable,
            ledger_may_begin=None if self.ledger_start is None else self.ledger_start.check_before_signing,
            before_signing=lambda tx, terms: NoiseLedger(tx.connection).sign(terms, limit),
            noise_spent=lambda tx: NoiseLedger(tx.connection).stated(limit),
        )
        self.submissions = Submissions(setup, self.engine, self.opener, self.position, lane_work, self.peers)
        self.admission = self.submissions.admission
        self.retention = Retention(setup, self.engine, self.control, on_deletion=self.admission.reload_roster)
        self.fakes = FakeReports(setup, self.peers, self.position)
        self.mixer = BatchMixer(setup, self.peers, self.opener, self.sender, self.position, self.fakes)
        self.inclusion = InclusionLists(setup, self.peers, self.engine, self.position)
        self.sequential = SequentialHop(setup, self.peers, self.engine, self.position)

    async def start(self) -> None:
        """Checks the hop's own ledger, and drives rounds on."""
        if self.ledger_start is not None:
            await self.ledger_start.check_at_start()
        await super().start()

    def _stop_round(self, round_id: RoundId) -> None:
        self.submissions.stop_round(round_id)
        self.fakes.stop_round(round_id)
        self.sequential.stop_round(round_id)

    def close_streams(self) -> None:
        """Stops asking and ends all streams; their clients reconnect."""
        self.engine.cancel()  # a client that is sent away must not be asked
        self.sequential.close_streams()

    # ------------------------------------------------------------- the states of a round

    async def _prepare_to_mix(self, terms: RoundTerms) -> bool:
        """Makes the fakes that can be made early; meanwhile hop 1 closes the round at its deadline."""
        fakes = asyncio.create_task(self.fakes.make_early(terms))
        try:
            is_closed = await self.submissions.close_at_deadline(terms)
            await fakes
        finally:
            fakes.cancel()
            await asyncio.gather(fakes, return_exceptions=True)
        return is_closed

    async def _mix(self, terms: RoundTerms) -> bool:
        """Opens what is not open yet, permutes both lanes and commits to them."""
        await self.mixer.mix(terms)
        return True

    async def _deliver(self, terms: RoundTerms) -> bool:
        """Sends both lanes and hands over; then deletes the batch, and the key if no answers follow."""
        watch = Stopwatch()
        document = await self.store.run(
            StoreStep.READ_COMMITMENTS_TO_DELIVER, lambda tx: tx.document(terms.round_id, DocumentKind.COMMITMENTS_OUT)
        )
        commitments = pb.HandOverRequest.FromString(document or b"").commitments
        receivers = self.position.receivers(terms)
        sent = 0
        for lane, receiver in receivers.items():
            sent += await self.sender.send_lane(terms, receiver, lane)
        for receiver in dict.fromkeys(receivers.values()):
            await self.sender.hand_over(terms, receiver, commitments)

        is_sequential = terms.question.sequential is not None

        def finish(tx: Transaction) -> None:
            state = pb.ROUND_STATE_SEQUENTIAL if is_sequential else pb.ROUND_STATE_DELIVERED
            tx.update_round(terms.round_id, state=state, bytes_sent=sent)
            tx.add_cost(terms.round_id, "deliver", *watch.read())
            if not is_sequential:
                tx.shred_round(terms.round_id)
                return
            tx.shred_ciphertexts(terms.round_id)
            if self.position.hop(terms) == 1:
                tx.put_key(terms.round_id, KeyPurpose.ORDER, new_order_key(SystemRandom()))

        await self.store.run(StoreStep.FINISH_DELIVERY, finish)
        self.metrics.stage("deliver", watch.read()[0])
        return True

    async def _ask_clients(self, terms: RoundTerms) -> bool:
        """Asks one client after the other (hop 1), and passes on how many have answered."""
        return await self.sequential.run(terms)

    # ------------------------------------------------------------- Shuffler

    async def GetRound(self, request: rpc.GetRoundRequest, context: Context) -> rpc.GetRoundResponse:  # noqa: N802
        """Returns the signed manifest and the state of a round, or of the newest open one.

        Raises:
            Refusal: UNKNOWN_ROUND, NO_OPEN_ROUND, NOT_READY (the round is being prepared), WRONG_STATE (it is deleted).
        """

        def find(tx: Transaction) -> RoundRow:
            if request.round_id:
                return tx.round(RoundId(request.round_id))
            newest = tx.newest_open_round()
            if newest is None:
                raise Refusal(Code.NO_OPEN_ROUND)
            return newest

        row = await self.store.run(StoreStep.FIND_ROUND_FOR_CLIENT, find)
        self.engine.check_kept(row)
        if not row.manifest:
            raise Refusal(Code.NOT_READY, f"round {row.round_id!r} is being prepared")
        return rpc.GetRoundResponse(
            round=pb.SignedRound.FromString(row.manifest), state=row.state, deployment=self.peers.version_in_force
        )

    async def Submit(self, request: pb.SubmitRequest, context: Context) -> pb.SubmitResponse:  # noqa: N802
        """See `Submissions.submit`."""
        return await self.submissions.submit(request)

    async def GetInclusion(  # noqa: N802
        self, request: rpc.GetInclusionRequest, context: Context
    ) -> rpc.GetInclusionResponse:
        """See `InclusionLists.get`."""
        return await self.inclusion.get(request, context)

    def Attend(self, requests: AsyncIterator[pb.AttendRequest], context: Context) -> AsyncGenerator[pb.AttendResponse]:  # noqa: N802
        """See `SequentialHop.attend`."""
        return self.sequential.attend(requests)

    # ------------------------------------------------------------- Delivery and RoundControl

    async def Relay(self, request: pb.RelayRequest, context: Context) -> pb.RelayResponse:  # noqa: N802
        """See `SequentialHop.relay`."""
        return await self.sequential.relay(request, context)

    async def Close(self, request: rpc.CloseRequest, context: Context) -> rpc.CloseResponse:  # noqa: N802
        """Ends admission, and on request the asking of a sequential round; the same call again changes nothing.

        With `hold_at_risk` the round stays open where some mixture of budgets would have it refused.

        Raises:
            Refusal: NOT_YOUR_CALL (not the operator, or not hop 1), UNKNOWN_ROUND, WRONG_STATE (the round is not open
                yet, or deleted), NOT_READY (the accountant does not answer, which knows the risk).
        """
        self.peers.require_caller(context, [OPERATOR])
        terms = await self.engine.terms(RoundId(request.round_id))
        if self.position.hop(terms) != 1:
            raise Refusal(Code.NOT_YOUR_CALL, f"{terms.hops[0].service!r} closes this round")
        forecast = None
        if request.hold_at_risk:
            forecast = await self.submissions.forecast(terms)
        else:
            with suppress(Refusal):  # without the accountant the operator's word is enough
                await self.submissions.forecast(terms, closes_anyway=True)
        if forecast is not None and is_at_risk(forecast):
            return rpc.CloseResponse(state=pb.ROUND_STATE_OPEN, num_clients=forecast.num_reports, forecast=forecast)
        state, count = await self.submissions.close(terms)
        if request.end_sequential:
            await self.sequential.end_asking(terms, state)
        if state != pb.ROUND_STATE_OPEN:
            self.engine.wake(terms.round_id)
        return rpc.CloseResponse(state=state, num_clients=count, forecast=forecast)


def _withdrawable(tx: Transaction, row: RoundRow) -> bool:
    """Also while clients are being asked: the asking ends, and the answers that were given are destroyed."""
    return is_before_certificate(tx, row) or row.state == pb.ROUND_STATE_SEQUENTIAL
