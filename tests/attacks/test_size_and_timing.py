"""What ciphertexts give away without being opened: their size, their order, and when they travel."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from croupier.client.submission import Participant
from croupier.protocol.batches import ciphertext_hashes
from croupier.protocol.envelope import SUITES
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.gaussian import Gaussian
from croupier.protocol.mechanisms.interval import IntervalMechanism
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.names import Lane, RoundId
from croupier.protocol.onion import Onion
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.kinds import Direction, DocumentKind
from croupier.shuffler.service import ShufflerService
from tests.attacks import cheaters
from tests.support import make_kit, settings
from tests.support.arena import WAIT_S, arena
from tests.support.clients import seal_all_of, without_tickets
from tests.support.lanes import chunks, lane_in

pytestmark = pytest.mark.virtual_time
QUESTIONS = [
    Question("bit", RandomizedResponse()),
    Question("letter", KaryResponse(k=1000, labels=tuple(f"a letter with the number {n}" for n in range(1000)))),
    Question("mean", OneBit(low=-1e9, high=1e9)),
    Question("lattice", Laplace(low=0.0, high=1.0, lattice=1 << 31)),
    Question("normal", Gaussian(low=0.0, high=1.0, lattice=1000, local_delta=1e-6)),
]


def extremes(question: Question) -> list[float]:
    mechanism = question.mechanism
    if isinstance(mechanism, IntervalMechanism):
        return [mechanism.low, mechanism.high]
    return [0, max(1, len(mechanism.categories) - 1)]


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.mechanism.kind)
def test_no_value_and_no_budget_shows_in_the_size_of_an_envelope(question: Question, suite: str) -> None:
    terms = make_kit(3, question, suite).terms
    onion = Onion(terms)
    sizes = set()
    for value in extremes(question):
        for max_local_epsilon in (0.5, 1.9, 1e6):
            raw = without_tickets(terms, Participant(value, max_local_epsilon))
            sizes.add(
                (len(pb.Submission.FromString(raw.submission).envelope), len(raw.submission), len(raw.inclusion_hashes))
            )
    assert len(sizes) == 1
    assert sizes.pop()[0] == onion.joint.sealed_size


class Listener(ShufflerService):
    """The second hop, and an observer of what comes to it and when."""

    arrived = 0

    async def Deliver(self, request: pb.DeliverRequest, context: cheaters.Context) -> pb.DeliverResponse:  # noqa: N802
        self.arrived += 1
        return await super().Deliver(request, context)


class StopsHalfway(cheaters.CheatingShuffler):
    """Sends the first chunk of each lane, and the rest only later: those in it could be watched alone."""

    def __init__(self, setup: object) -> None:
        super().__init__(setup)  # type: ignore[arg-type]
        self.go_on = asyncio.Event()

    async def send_lane(self, terms: RoundTerms, receiver: str, lane: Lane) -> int:
        packed = await self.store.run("look", lambda tx: chunks(tx, terms.round_id, Direction.OUT, lane)) or []
        request = pb.DeliverRequest(
            round_id=terms.round_id, lane=lane, chunk_index=0, chunk_count=len(packed), ciphertexts=packed[0]
        )
        await cheaters.refused(stubs.DeliveryStub(self.peers.channel_to(receiver)).Deliver(request))
        if lane == pb.LANE_PARAMETER:
            handover = (
                await self.store.run("look", lambda tx: tx.document(terms.round_id, DocumentKind.COMMITMENTS_OUT))
                or b""
            )
            request_over = pb.HandOverRequest.FromString(handover)
            self.early = await cheaters.refused(
                stubs.DeliveryStub(self.peers.channel_to(receiver)).HandOver(request_over)
            )
            await self.go_on.wait()
            await super().send_lane(terms, receiver, pb.LANE_REPORT)
        return await super().send_lane(terms, receiver, lane) if self.go_on.is_set() else 0


@pytest.mark.slow
async def test_nothing_travels_before_the_close_and_hops_send_whole_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croupier.runtime.lane_sender.CHUNK_BYTES", 1000)
    async with arena(tmp_path, 2, {"shuffler-1": StopsHalfway, "shuffler-2": Listener}) as deployment:
        terms = await deployment.operator.open_round(settings())
        watcher = deployment.service("shuffler-2")
        first = deployment.service("shuffler-1")
        assert isinstance(watcher, Listener)
        assert isinstance(first, StopsHalfway)
        for _ in range(3):
            await deployment.admit(terms, await deployment.seal(terms, 6))
            answer = await deployment.operator.close_round(terms.round_id)
            assert answer.state == pb.ROUND_STATE_OPEN  # fewer than 20: held
        assert watcher.arrived == 0
        await deployment.admit(terms, await deployment.seal(terms, 12))
        await deployment.operator.close_round(terms.round_id)
        await deployment.until(lambda: hasattr(first, "early"))
        assert watcher.arrived == 2
        assert first.early is not None
        assert first.early.code.name == "BAD_BATCH"
        assert "is not complete" in first.early.hint
        row = await watcher.store.run("look", lambda tx: tx.round(terms.round_id))
        assert row.state == pb.ROUND_STATE_OPEN
        assert (
            await deployment.look("analyzer", lambda tx: chunks(tx, terms.round_id, Direction.IN, pb.LANE_REPORT))
            is None
        )
        first.go_on.set()
        publication, _ = await deployment.operator.result(terms.round_id, WAIT_S)
        assert publication.num_reports == 30


def fixed_points(order: Sequence[bytes], other: Sequence[bytes]) -> int:
    return sum(a == b for a, b in zip(order, other, strict=True))


class SeesItsInput(Listener):
    """Keeps the hashes of the report lane in the order in which it came."""

    async def HandOver(self, request: pb.HandOverRequest, context: cheaters.Context) -> pb.HandOverResponse:  # noqa: N802
        terms = await self.engine.terms(RoundId(request.round_id))
        lane = await lane_in(self, terms, pb.LANE_REPORT)
        self.seen = [ciphertext_hashes([ciphertext])[0] for ciphertext in lane]
        return await super().HandOver(request, context)


@pytest.mark.parametrize("mixing", [True, False])
async def test_the_first_to_submit_is_not_first_in_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mixing: bool
) -> None:
    """The n-th to submit is the n-th in the output for one client on average; for 12 of 100, with chance below 1e-9."""
    if not mixing:
        monkeypatch.setattr("croupier.shuffler.batch_mixer.draw_orders", cheaters.no_orders)
    async with arena(tmp_path, 2, {"shuffler-2": SeesItsInput}) as deployment:
        terms = await deployment.operator.open_round(settings())
        sealed = await seal_all_of(deployment.operator, terms, [Participant(1, 1.0)] * 100)
        for start in range(0, 100, 10):
            submissions = [pb.Submission.FromString(each.submission) for each in sealed[start : start + 10]]
            await deployment.admit(terms, submissions)
        await deployment.finish(terms)
        hop = deployment.service_as("shuffler-2", SeesItsInput)
        came = [each.inclusion_hashes[:32] for each in sealed]
        assert set(hop.seen) == set(came)
        assert fixed_points(hop.seen, came) == 100 if not mixing else fixed_points(hop.seen, came) < 12
