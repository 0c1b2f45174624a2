"""Dishonest services: the real ones with one thing changed. They live in tests only.

A cheating hop tampers either before it commits, and then signs what it really sends, or after. `caught` says which
service refused its hand-over, and how.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import grpc.aio
import pytest

from croupier.accountant.service.service import AccountantService
from croupier.analyzer.service import AnalyzerService
from croupier.operator.operator import Operator
from croupier.protocol.batches import ciphertext_hashes, digest, drop_counts, unpack
from croupier.protocol.envelope import HOP_ACCOUNTANT, HOP_ANALYZER, KeyPair, Label, generate_key_pair
from croupier.protocol.errors import Code, Refusal, refusal_of
from croupier.protocol.identity import Kind, canonical
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Lane, RoundId
from croupier.protocol.onion import Onion, encode_budget, split_report
from croupier.protocol.tickets import BLINDED_BYTES, TICKET_BYTES, TicketIssuer, ticket_message
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.kinds import Direction, DocumentKind
from croupier.runtime.lane_sender import LaneOutput, LaneSender
from croupier.runtime.round_engine import StateStep
from croupier.runtime.service import RoundService
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.transaction import Transaction
from croupier.shuffler.inclusion import put_inclusion_list
from croupier.shuffler.service import ShufflerService
from tests.support import encode_report
from tests.support.lanes import chunks

Context = grpc.aio.ServicerContext[Any, Any]
Lanes = dict[Lane, list[bytes]]


async def refused(call: Awaitable[object]) -> Refusal | None:
    """Returns the Refusal with which a service answers a call, None if it does not refuse."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return refusal_of(error)
    return None


async def code_of(call: Awaitable[object]) -> Code | None:
    """Returns the code with which a service refuses a call."""
    refusal = await refused(call)
    return refusal.code if refusal else None


async def said_to_signing(
    operator: Operator, name: str, manifest: bytes, survey: bytes, before: pb.Signed | None = None
) -> Code | None:
    """Returns the code with which a service refuses to sign a manifest, None if it signs."""
    request = rpc.SignRequest(manifest=manifest, survey=survey, before=before)
    return await code_of(stubs.RoundControlStub(operator.channel_to(name)).Sign(request))


def own_report(terms: RoundTerms, hop: int, report: int = 1) -> bytes:
    """Returns a report of a hop's own, sealed as if it had come out of an envelope that the hop has opened."""
    onion = Onion(terms)
    content = os.urandom(TICKET_BYTES) + onion.seal_report(encode_report(report))
    return onion.seal_layers([layer for layer in onion.report_layers if layer.label.hop > hop], content)[0]


def own_budget(terms: RoundTerms, hop: int, epsilon: float) -> bytes:
    """Returns a budget of a hop's own, sealed like `own_report`."""
    onion = Onion(terms)
    content = os.urandom(TICKET_BYTES) + encode_budget(epsilon, 0.0) + os.urandom(16)
    return onion.seal_layers([layer for layer in onion.budget_layers if layer.label.hop > hop], content)[0]


def instead(part: object, **methods: Callable[..., object]) -> None:
    """Replaces methods of one part of a service."""
    for name, method in methods.items():
        assert hasattr(part, name), f"{type(part).__name__} has no {name}"
        setattr(part, name, method)


def step_instead(service: RoundService, state: pb.RoundState.ValueType, step: StateStep) -> StateStep:
    """Makes a service take another step in a state, and returns the step that it took."""
    honest = service.engine.steps[state]
    service.engine.steps = {**service.engine.steps, state: step}
    return honest


async def none_early(terms: RoundTerms) -> None:
    """Leaves all fakes to the time after the close: a hop has one set of tickets, and a cheat uses it then."""


class CheatingShuffler(ShufflerService):
    """A hop that does everything right; its subclasses do not."""

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self.caught: dict[str, Refusal] = {}
        self._honest = LaneSender(setup, self.peers)
        instead(self.sender, put_output=self.put_output, send_lane=self.send_lane, hand_over=self.hand_over)

    def put_output(self, tx: Transaction, round_id: str, output: LaneOutput) -> None:
        self._honest.put_output(tx, RoundId(round_id), output)

    async def send_lane(self, terms: RoundTerms, receiver: str, lane: Lane) -> int:
        return await self._honest.send_lane(terms, receiver, lane)

    async def hand_over(self, terms: RoundTerms, receiver: str, commitments: Sequence[pb.Signed]) -> None:
        try:
            await self._honest.hand_over(terms, receiver, self.tell(terms, receiver, commitments))
        except Refusal as refusal:
            self.caught[receiver] = refusal
            raise

    def tell(self, terms: RoundTerms, receiver: str, commitments: Sequence[pb.Signed]) -> Sequence[pb.Signed]:
        """Returns the commitments that this receiver is told."""
        return commitments

    def tamper(self, terms: RoundTerms, lanes: Lanes, drops: dict[Lane, dict[str, int]]) -> None:
        """Changes the output, and what will be said about it, before the commitments are made."""

    def claim(self, terms: RoundTerms, commitment: pb.Commitment) -> None:
        """Changes what is said about the input."""

    async def _mix(self, terms: RoundTerms) -> bool:
        """Mixes as it should, and then replaces the batch by a changed one, with commitments to that."""
        await super()._mix(terms)

        def change(tx: Transaction) -> None:
            onion, round_id, hop = Onion(terms), terms.round_id, self.position.hop(terms)
            handover = pb.HandOverRequest.FromString(tx.document(round_id, DocumentKind.COMMITMENTS_OUT) or b"")
            lanes: Lanes = {}
            drops: dict[Lane, dict[str, int]] = {}
            own = [pb.Commitment.FromString(signed.payload) for signed in handover.commitments[-2:]]
            for commitment in own:
                size = onion.layer(commitment.lane, hop + 1).sealed_size if hop < terms.shared.num_hops else 0
                lane = commitment.lane
                size = size or onion.layer(lane, HOP_ANALYZER if lane == pb.LANE_REPORT else HOP_ACCOUNTANT).sealed_size
                lanes[lane] = unpack(b"".join(chunks(tx, round_id, Direction.OUT, lane) or []), size)
                drops[lane] = {"does-not-open": 0} | {drop.reason: drop.count for drop in commitment.drops}
            before = {lane: list(batch) for lane, batch in lanes.items()}
            self.tamper(terms, lanes, drops)
            if lanes == before:
                return
            tx.delete_output(round_id)
            tx.delete_documents(round_id, DocumentKind.PASSED_ON)
            del handover.commitments[-2:]
            for commitment in own:
                batch = lanes[commitment.lane]
                self.put_output(tx, round_id, LaneOutput(commitment.lane, batch))
                put_inclusion_list(tx, round_id, commitment.lane, ciphertext_hashes(batch))
                commitment.num_out, commitment.digest_out = len(batch), digest(batch)
                self.claim(terms, commitment)
                del commitment.drops[:]
                commitment.drops.extend(drop_counts(drops[commitment.lane]))
                handover.commitments.append(self.peers.identity.signed(Kind.COMMITMENT, canonical(commitment)))
            tx.replace_document(round_id, DocumentKind.COMMITMENTS_OUT, handover.SerializeToString(deterministic=True))

        await self.store.run("cheat", change)
        return True


class AfterCommitting(CheatingShuffler):
    """Sends another report lane than the one it has committed to."""

    def change(self, terms: RoundTerms, reports: list[bytes]) -> list[bytes]:
        raise NotImplementedError

    def put_output(self, tx: Transaction, round_id: str, output: LaneOutput) -> None:
        if output.lane == pb.LANE_REPORT:
            changed = self.change(self.engine.kept_terms[round_id], list(output.ciphertexts))
            output = LaneOutput(output.lane, changed)
        super().put_output(tx, round_id, output)


class SubstitutesAfterCommitting(AfterCommitting):
    """One report is the hop's own."""

    def change(self, terms: RoundTerms, reports: list[bytes]) -> list[bytes]:
        return [own_report(terms, self.position.hop(terms)), *reports[1:]]


class DropsAfterCommitting(AfterCommitting):
    """One report is missing."""

    def change(self, terms: RoundTerms, reports: list[bytes]) -> list[bytes]:
        return reports[1:]


class DuplicatesAfterCommitting(AfterCommitting):
    """One report is there twice, another is not."""

    def change(self, terms: RoundTerms, reports: list[bytes]) -> list[bytes]:
        return [reports[1], *reports[1:]]


class DropsWithoutSaying(CheatingShuffler):
    """A victim is missing in both lanes, and no reason is given."""

    def tamper(self, terms: RoundTerms, lanes: Lanes, drops: dict[Lane, dict[str, int]]) -> None:
        for batch in lanes.values():
            batch.pop()


class AddsItsOwn(CheatingShuffler):
    """One report and budget of its own more than came in."""

    def tamper(self, terms: RoundTerms, lanes: Lanes, drops: dict[Lane, dict[str, int]]) -> None:
        lanes[pb.LANE_REPORT].append(own_report(terms, self.position.hop(terms)))
        lanes[pb.LANE_PARAMETER].append(own_budget(terms, self.position.hop(terms), 0.5))


class DropsAndSaysItDidNotOpen(CheatingShuffler):
    """A victim is missing in both lanes: allegedly it did not open."""

    def tamper(self, terms: RoundTerms, lanes: Lanes, drops: dict[Lane, dict[str, int]]) -> None:
        for lane, batch in lanes.items():
            batch.pop()
            drops[lane]["does-not-open"] += 1


class DropsReportsAndKeepsTheirBudgets(CheatingShuffler):
    """Leaves the fewest reports at which no check fails; the budgets of the others still count as a crowd."""

    def tamper(self, terms: RoundTerms, lanes: Lanes, drops: dict[Lane, dict[str, int]]) -> None:
        reports = lanes[pb.LANE_REPORT]
        drops[pb.LANE_REPORT]["does-not-open"] += len(reports) - terms.shared.min_batch_size
        del reports[terms.shared.min_batch_size :]


class ReplacesReports(CheatingShuffler):
    """All reports but one are the hop's own; commitments and both lanes agree."""

    def tamper(self, terms: RoundTerms, lanes: Lanes, drops: dict[Lane, dict[str, int]]) -> None:
        reports = lanes[pb.LANE_REPORT]
        reports[1:] = [own_report(terms, self.position.hop(terms), 0) for _ in reports[1:]]


class SpoilsReports(CheatingShuffler):
    """All reports but one are noise that opens for every hop, and for the analyzer no more."""

    def tamper(self, terms: RoundTerms, lanes: Lanes, drops: dict[Lane, dict[str, int]]) -> None:
        onion = Onion(terms)
        hops = [
            layer
            for layer in onion.report_layers
            if self.position.hop(terms) < layer.label.hop <= terms.shared.num_hops
        ]
        reports = lanes[pb.LANE_REPORT]
        reports[1:] = [onion.seal_layers(hops, os.urandom(hops[-1].plain_size))[0] for _ in reports[1:]]


class ReplacesBudgets(CheatingShuffler):
    """All budgets are the smallest of the grid, so that the certificate comes out small."""

    def tamper(self, terms: RoundTerms, lanes: Lanes, drops: dict[Lane, dict[str, int]]) -> None:
        budgets = lanes[pb.LANE_PARAMETER]
        budgets[:] = [own_budget(terms, self.position.hop(terms), terms.budget_grid[0]) for _ in budgets]


class Duplicates(CheatingShuffler):
    """Every second report and budget is replaced by a copy of the one before it; the counts agree."""

    def tamper(self, terms: RoundTerms, lanes: Lanes, drops: dict[Lane, dict[str, int]]) -> None:
        for batch in lanes.values():
            batch[1::2] = batch[: len(batch) - 1 : 2]


class CommitsToOtherNumbers(CheatingShuffler):
    """Says that it has sent one more than it has, and received one more."""

    def tell(self, terms: RoundTerms, receiver: str, commitments: Sequence[pb.Signed]) -> Sequence[pb.Signed]:
        told = list(commitments)
        for index in (-2, -1):
            own = pb.Commitment.FromString(told[index].payload)
            own.num_in += 1
            own.num_out += 1
            told[index] = self.peers.identity.signed(Kind.COMMITMENT, canonical(own))
        return told


class AltersAnothersCommitment(CheatingShuffler):
    """Says that hop 1 has dropped a client, which hop 1 has not signed."""

    def tell(self, terms: RoundTerms, receiver: str, commitments: Sequence[pb.Signed]) -> Sequence[pb.Signed]:
        told = [pb.Signed.FromString(commitment.SerializeToString()) for commitment in commitments]
        theirs = pb.Commitment.FromString(told[0].payload)
        theirs.num_in += 1
        theirs.drops.extend(drop_counts({"does-not-open": 1}))
        told[0].payload = canonical(theirs)
        return told


class SpeaksForAnother(AltersAnothersCommitment):
    """The same, and signs it with its own key."""

    def tell(self, terms: RoundTerms, receiver: str, commitments: Sequence[pb.Signed]) -> Sequence[pb.Signed]:
        told = list(super().tell(terms, receiver, commitments))
        told[0] = self.peers.identity.signed(Kind.COMMITMENT, told[0].payload)
        return told


class SwapsWhatItReceived(CheatingShuffler):
    """Says that it has received another batch than hop 1 says that it has sent."""

    def tell(self, terms: RoundTerms, receiver: str, commitments: Sequence[pb.Signed]) -> Sequence[pb.Signed]:
        told = list(commitments)
        own = pb.Commitment.FromString(told[-2].payload)
        own.digest_in = bytes(32)
        told[-2] = self.peers.identity.signed(Kind.COMMITMENT, canonical(own))
        return told


class LeavesOutCommitments(CheatingShuffler):
    """Keeps hop 1's commitments to itself."""

    def tell(self, terms: RoundTerms, receiver: str, commitments: Sequence[pb.Signed]) -> Sequence[pb.Signed]:
        return commitments[2:]


class Equivocates(CheatingShuffler):
    """Tells the accountant of another report batch than the one that the analyzer holds."""

    def tell(self, terms: RoundTerms, receiver: str, commitments: Sequence[pb.Signed]) -> Sequence[pb.Signed]:
        if receiver != terms.accountant.service:
            return commitments
        told = list(commitments)
        own = pb.Commitment.FromString(told[-2].payload)
        own.digest_out = bytes(32)
        told[-2] = self.peers.identity.signed(Kind.COMMITMENT, canonical(own))
        return told


class TrustingAnalyzer(AnalyzerService):
    """An analyzer without its first defence: it checks no commitment. The second is `analyzer.held_reports._digest`."""

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        instead(self.receiver, check_batch=self.check_batch)

    async def check_batch(self, terms: RoundTerms, request: pb.HandOverRequest) -> None:
        return


class AnyBatch:
    """A digest that is never another one."""

    def __ne__(self, other: object) -> bool:
        return False


class UnboundLabel(Label):
    """A label that binds an envelope to nothing: what `info` would be without its defence."""

    def info(self) -> bytes:
        return b"any round, lane, hop, manifest and key"


def no_orders(counts: Mapping[Lane, int]) -> dict[Lane, list[int]]:
    """A hop that leaves everything in the order of its arrival."""
    return {lane: list(range(count)) for lane, count in counts.items()}


def same_keys_every_round(patch: pytest.MonkeyPatch) -> None:
    """Takes away the other defence against replay between rounds: every service makes the same keys for every round."""
    prepare, fresh = RoundService.Prepare, generate_key_pair
    known: dict[tuple[str, int], KeyPair] = {}
    asking: list[tuple[str, int]] = []

    def generate(suite: str) -> KeyPair:
        name, number = asking[-1]
        asking[-1] = name, number + 1
        return known.setdefault((name, number), fresh(suite))

    async def prepare_again(self: RoundService, request: rpc.PrepareRequest, context: Context) -> rpc.PrepareResponse:
        asking.append((self.peers.name, 0))
        return await prepare(self, request, context)  # makes its keys before it first waits

    patch.setattr("croupier.runtime.round_control.generate_key_pair", generate)
    patch.setattr(RoundService, "Prepare", prepare_again)


class MarksHops(AccountantService):
    """An accountant that gives hops tickets under a key of its own, to tell fakes from clients' reports."""

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self.issuer = TicketIssuer(os.urandom(32), pb.LANE_REPORT)
        instead(self.desk, give_fakes=self.give_fakes)

    async def give_fakes(self, terms: RoundTerms, hop: str, blinded: bytes) -> pb.GetFakeTicketsResponse:
        messages = [blinded[at : at + BLINDED_BYTES] for at in range(0, len(blinded), BLINDED_BYTES)]
        return pb.GetFakeTicketsResponse(evaluations=self.issuer.evaluate(messages))

    def is_fake(self, terms: RoundTerms, report: bytes) -> bool:
        ticket, sealed = split_report(report)
        return self.issuer.is_valid(ticket_message(terms.hash, pb.LANE_REPORT, hashlib.sha256(sealed).digest()), ticket)


class HesitantAccountant(AccountantService):
    """Takes what it is given and says nothing yet."""

    hesitates = True

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self.certify = step_instead(self, pb.ROUND_STATE_CLOSED, self.hesitate)

    async def hesitate(self, terms: RoundTerms) -> bool:
        return not self.hesitates and await self.certify(terms)


class HardOfHearing(AnalyzerService):
    """Hears of a certificate when it likes: until then the accountant holds it, and asks again."""

    listens = False

    async def Grant(self, request: pb.GrantRequest, context: Context) -> pb.GrantResponse:  # noqa: N802
        if not self.listens:
            raise Refusal(Code.NOT_READY)
        return await super().Grant(request, context)
