"""The layers of one round: which key seals what, in which order, and the exact size of everything.

    joint envelope ── hop 1 ──┬─ report lane:    hop 2 … hop k, analyzer: (ticket, release key: report)
                              └─ parameter lane: hop 2 … hop k, accountant: (ticket, local budget, random bytes)

    sequential, an answer: hop 1 … hop k, analyzer, release key: (key, signature, report)

A client seals its report with `seal_report`, gets tickets for it and for its budget, and calls `wrap`; in a sequential
round it calls `wrap_answer` later. A hop or sink asks for its own `Layer`. Sizes are the same for every client of a
round; any other size is refused before it is opened.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from croupier.protocol.envelope import HOP_ACCOUNTANT, HOP_ANALYZER, HOP_RELEASE, Label, key_id, overhead, seal
from croupier.protocol.names import Lane, PublicKey
from croupier.protocol.tickets import TICKET_BYTES
from croupier.protocol.v1 import messages_pb2 as pb

if TYPE_CHECKING:  # worker processes import this module and read no manifest
    from croupier.protocol.manifest import RoundTerms

BUDGET_BYTES = 16
_SALT_BYTES = 16
BUDGET_RECORD_BYTES = BUDGET_BYTES + _SALT_BYTES
_BUDGET = struct.Struct(">dd")


def encode_budget(epsilon: float, delta: float) -> bytes:
    """Returns a local budget as it travels: two IEEE doubles, big-endian."""
    return _BUDGET.pack(epsilon, delta)


def decode_budget(plaintext: bytes) -> tuple[float, float]:
    """Returns (epsilon, delta) as sent; whether they are on the grid is the accountant's to check."""
    if len(plaintext) != BUDGET_BYTES:
        raise ValueError(f"a budget has {len(plaintext)} bytes; it must have {BUDGET_BYTES}")
    epsilon, delta = _BUDGET.unpack(plaintext)
    return epsilon, delta


@dataclass(frozen=True)
class BudgetRecord:
    """A client's budget as its ticket is for it: with random bytes, so that no ticket fits two clients.

    Attributes:
        budget: `encode_budget`, 16 bytes.
        salt: 16 bytes from the operating system's generator.
    """

    budget: bytes
    salt: bytes

    def __post_init__(self) -> None:
        if len(self.budget) != BUDGET_BYTES or len(self.salt) != _SALT_BYTES:
            raise ValueError(
                f"budget and salt have {len(self.budget)} and {len(self.salt)} bytes; "
                f"they must have {BUDGET_BYTES} and {_SALT_BYTES}"
            )

    @classmethod
    def split(cls, plaintext: bytes) -> tuple[bytes, BudgetRecord]:
        """Returns (ticket, record) of an opened parameter message of the right size."""
        cut = TICKET_BYTES + BUDGET_BYTES
        return plaintext[:TICKET_BYTES], cls(plaintext[TICKET_BYTES:cut], plaintext[cut:])


UNOPENED = bytes(hashlib.sha256().digest_size + TICKET_BYTES)
"""What the analyzer hands in, instead of hash and ticket, for what arrived and does not open."""


def ticket_item(plaintext: bytes) -> bytes:
    """Returns what the analyzer hands in for a report message that it has opened: hash and ticket."""
    ticket, sealed = split_report(plaintext)
    return hashlib.sha256(sealed).digest() + ticket


def split_report(plaintext: bytes) -> tuple[bytes, bytes]:
    """Returns (ticket, ciphertext under the release key) of a report message that the analyzer has opened."""
    return plaintext[:TICKET_BYTES], plaintext[TICKET_BYTES:]


@dataclass(frozen=True)
class Layer:
    """One layer: the key that it is sealed to, its label, and the sizes with and without it."""

    public_key: PublicKey
    label: Label
    sealed_size: int
    plain_size: int


class JointEnvelope(NamedTuple):
    """A joint envelope, and the inclusion hashes by which its maker recognises it on its way.

    They are, hop by hop, the SHA-256 of the report ciphertext and of the parameter ciphertext that the hop passes
    on: 64 bytes a hop. It stays with the client.
    """

    envelope: bytes
    inclusion_hashes: bytes


class Onion:
    """All layers of one round, derived from its terms."""

    def __init__(self, terms: RoundTerms) -> None:
        self._suite = terms.shared.hpke_suite
        self._terms = terms
        hops = [(index, PublicKey(keys.public_key)) for index, keys in enumerate(terms.hops, start=1)]
        analyzer = (HOP_ANALYZER, PublicKey(terms.analyzer.public_key))
        question, release = terms.question, (HOP_RELEASE, PublicKey(terms.accountant.release_public_key))
        self._release = self._layers(pb.LANE_REPORT, [release], question.submitted_bytes)
        held = TICKET_BYTES + self._release[0].sealed_size
        self.report_layers = self._layers(pb.LANE_REPORT, [*hops[1:], analyzer], held)
        self._answer = (
            self._layers(pb.LANE_ANSWER, [*hops, analyzer, release], question.answer_bytes)
            if question.sequential
            else []
        )
        accountant = (HOP_ACCOUNTANT, PublicKey(terms.accountant.public_key))
        record = TICKET_BYTES + BUDGET_RECORD_BYTES
        self.budget_layers = self._layers(pb.LANE_PARAMETER, [*hops[1:], accountant], record)
        both = self.report_layers[0].sealed_size + self.budget_layers[0].sealed_size
        (self.joint,) = self._layers(pb.LANE_JOINT, hops[:1], both)

    def _layers(self, lane: Lane, keys: list[tuple[int, PublicKey]], innermost: int) -> list[Layer]:
        """Returns the layers of a lane, outermost first."""
        layers: list[Layer] = []
        size = innermost
        for hop, public_key in reversed(keys):
            label = Label(self._terms.round_id, self._terms.hash, lane, hop, key_id(public_key))
            layers.append(Layer(public_key, label, size + overhead(self._suite), size))
            size += overhead(self._suite)
        return layers[::-1]

    def layer(self, lane: Lane, hop: int) -> Layer:
        """Returns the layer of a lane that `hop` opens (a number in the chain, or a place behind it)."""
        lanes = {
            pb.LANE_JOINT: [self.joint],
            pb.LANE_REPORT: self.report_layers + self._release,
            pb.LANE_PARAMETER: self.budget_layers,
            pb.LANE_ANSWER: self._answer,
        }
        for layer in lanes[lane]:
            if layer.label.hop == hop:
                return layer
        raise ValueError(f"hop {hop} has no layer in lane {lane} of round {self._terms.round_id!r}")

    def arriving_size(self, lane: Lane, hop: int) -> int:
        """Returns the exact size of this lane's ciphertexts as they arrive at a hop or sink."""
        if lane == pb.LANE_TICKET:
            return len(UNOPENED)
        return self.layer(lane, hop).sealed_size

    def split(self, joint_plaintext: bytes) -> tuple[bytes, bytes]:
        """Returns (report, parameter) ciphertexts for the next role from an opened joint envelope."""
        cut = self.report_layers[0].sealed_size
        return joint_plaintext[:cut], joint_plaintext[cut:]

    def seal_report(self, report: bytes) -> bytes:
        """Returns one randomized report under the release key: what the ticket of the report lane is for."""
        needed = self._terms.question.submitted_bytes
        if len(report) != needed:
            raise ValueError(f"the report has {len(report)} bytes; it must have {needed}")
        return self.seal_layers(self._release, report)[0]

    def wrap(self, sealed: bytes, record: BudgetRecord, tickets: tuple[bytes, bytes]) -> JointEnvelope:
        """Returns the joint envelope around a sealed report and its budget, and its inclusion hashes.

        Args:
            sealed: what `seal_report` returned.
            record: the local budget that the report was made with.
            tickets: of the report lane and of the parameter lane, each for its `ticket_message`.
        """
        if {len(ticket) for ticket in tickets} != {TICKET_BYTES}:
            raise ValueError(f"tickets have {[len(ticket) for ticket in tickets]} bytes; each must have {TICKET_BYTES}")
        reports = self.seal_layers(self.report_layers, tickets[0] + sealed)
        budgets = self.seal_layers(self.budget_layers, tickets[1] + record.budget + record.salt)
        (envelope,) = self.seal_layers([self.joint], reports[0] + budgets[0])
        passed_on = list(zip(reports, budgets, strict=False))[: self._terms.shared.num_hops]
        return JointEnvelope(
            envelope, b"".join(hashlib.sha256(message).digest() for pair in passed_on for message in pair)
        )

    def wrap_fake(self, sealed: bytes, ticket: bytes, hop: int) -> bytes:
        """Returns what a hop passes on for a fake report, in the same layers as a client's.

        Args:
            sealed: what `seal_report` returned.
            ticket: of the report lane, for its `ticket_message`.
            hop: the number in the chain of the hop that adds it.
        """
        if len(ticket) != TICKET_BYTES:
            raise ValueError(f"the ticket has {len(ticket)} bytes; it must have {TICKET_BYTES}")
        return self.seal_layers(self.report_layers[hop - 1 :], ticket + sealed)[0]

    def wrap_answer(self, answer: bytes) -> bytes:
        """Returns the envelope around the signed report of a client that is asked in a sequential round."""
        needed = self._terms.question.answer_bytes
        if len(answer) != needed:
            raise ValueError(f"the answer has {len(answer)} bytes; it must have {needed}")
        return self.seal_layers(self._answer, answer)[0]

    def seal_layers(self, layers: list[Layer], content: bytes) -> list[bytes]:
        """Returns the ciphertext of every layer, outermost first."""
        sealed: list[bytes] = []
        for layer in reversed(layers):
            content = seal(self._suite, layer.public_key, layer.label, content)
            sealed.append(content)
        return sealed[::-1]


@lru_cache(maxsize=64)
def onion_of(terms: RoundTerms) -> Onion:
    """Returns the onion of a round, made once for the same terms: a service asks for it with every call."""
    return Onion(terms)
