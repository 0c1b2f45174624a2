"""The layers of one round: which key seals what, in which order, and the exact size of everything.

    joint envelope ── hop 1 ──┬─ report lane:    hop 2 … hop k, release key, analyzer, report
                              └─ parameter lane: hop 2 … hop k, accountant, local budget

    in turns, an answer: hop 1 … hop k, release key, analyzer, report

A client calls `wrap`, in turns `wrap_answer` for its report; a hop or sink asks for its own `Layer`. Sizes are the same
for every client of a round; any other size is refused before it is opened.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import NamedTuple

from protocol.envelope import HOP_ACCOUNTANT, HOP_ANALYZER, HOP_RELEASE, Label, key_id, overhead, seal
from protocol.manifest import RoundTerms
from protocol.v1.messages_pb2 import Lane

__all__ = ["BUDGET_BYTES", "Layer", "Onion", "Wrapped", "decode_budget", "encode_budget"]

BUDGET_BYTES = 16
_BUDGET = struct.Struct(">dd")


def encode_budget(epsilon: float, delta: float) -> bytes:
    """Returns the plaintext of the parameter lane: two IEEE doubles, big-endian."""
    return _BUDGET.pack(epsilon, delta)


def decode_budget(plaintext: bytes) -> tuple[float, float]:
    """Returns (epsilon, delta) as sent; whether they are on the grid is the accountant's to check."""
    if len(plaintext) != BUDGET_BYTES:
        raise ValueError(f"a budget has {len(plaintext)} bytes; {BUDGET_BYTES} are required")
    epsilon, delta = _BUDGET.unpack(plaintext)
    return epsilon, delta


@dataclass(frozen=True)
class Layer:
    """One layer: who can open it, its label, and the sizes with and without it."""

    public_key: bytes
    label: Label
    sealed_size: int
    plain_size: int


class Wrapped(NamedTuple):
    """A joint envelope, and the trail by which its maker recognises it on its way.

    The trail is, hop by hop, the SHA-256 of the report ciphertext and of the parameter ciphertext that the hop passes
    on: 64 bytes a hop. It stays with the client.
    """

    envelope: bytes
    trail: bytes


class Onion:
    """All layers of one round, derived from its terms."""

    def __init__(self, terms: RoundTerms) -> None:
        self._suite = terms.suite
        self._terms = terms
        manifest = terms.manifest
        hops = [(index, keys.public_key) for index, keys in enumerate(manifest.hops, start=1)]
        inner = [(HOP_RELEASE, manifest.accountant.release_public_key), (HOP_ANALYZER, manifest.analyzer.public_key)]
        self._report = self._layers(Lane.LANE_REPORT, hops[1:] + inner, terms.question.submitted_bytes)
        self._answer = (
            self._layers(Lane.LANE_ANSWER, hops + inner, terms.question.mechanism.report_bytes)
            if terms.question.turns
            else []
        )
        self._parameter = self._layers(
            Lane.LANE_PARAMETER, [*hops[1:], (HOP_ACCOUNTANT, manifest.accountant.public_key)], BUDGET_BYTES
        )
        both = self._report[0].sealed_size + self._parameter[0].sealed_size
        (self.joint,) = self._layers(Lane.LANE_JOINT, hops[:1], both)

    def _layers(self, lane: Lane.ValueType, keys: list[tuple[int, bytes]], innermost: int) -> list[Layer]:
        """Returns the layers of a lane, outermost first."""
        layers: list[Layer] = []
        size = innermost
        for hop, public_key in reversed(keys):
            label = Label(self._terms.round_id, self._terms.hash, lane, hop, key_id(public_key))
            layers.append(Layer(public_key, label, size + overhead(self._suite), size))
            size += overhead(self._suite)
        return layers[::-1]

    def layer(self, lane: Lane.ValueType, hop: int) -> Layer:
        """Returns the layer of a lane that `hop` opens (a number in the chain, or a place behind it)."""
        lanes = {
            Lane.LANE_JOINT: [self.joint],
            Lane.LANE_REPORT: self._report,
            Lane.LANE_PARAMETER: self._parameter,
            Lane.LANE_ANSWER: self._answer,
        }
        for layer in lanes[lane]:
            if layer.label.hop == hop:
                return layer
        raise ValueError(f"hop {hop} has no layer in lane {lane} of round {self._terms.round_id!r}")

    def arriving_size(self, lane: Lane.ValueType, hop: int) -> int:
        """Returns the exact size of this lane's ciphertexts as they arrive at a hop or sink."""
        return self.layer(lane, HOP_RELEASE if hop == HOP_ANALYZER else hop).sealed_size

    def split(self, joint_plaintext: bytes) -> tuple[bytes, bytes]:
        """Returns (report, parameter) ciphertexts for the next role from an opened joint envelope."""
        cut = self._report[0].sealed_size
        return joint_plaintext[:cut], joint_plaintext[cut:]

    def wrap(self, report: bytes, budget: bytes) -> Wrapped:
        """Returns the joint envelope around one randomized report and its local budget, and its trail."""
        needed = self._terms.question.submitted_bytes
        if len(report) != needed or len(budget) != BUDGET_BYTES:
            raise ValueError(
                f"report and budget have {len(report)} and {len(budget)} bytes, not {needed} and {BUDGET_BYTES}"
            )
        reports, budgets = self._seal(self._report, report), self._seal(self._parameter, budget)
        (envelope,) = self._seal([self.joint], reports[0] + budgets[0])
        passed_on = list(zip(reports, budgets, strict=False))[: self._terms.num_hops]
        return Wrapped(envelope, b"".join(hashlib.sha256(one).digest() for pair in passed_on for one in pair))

    def wrap_answer(self, report: bytes) -> bytes:
        """Returns the envelope around one randomized report of a client whose turn it is."""
        needed = self._terms.question.mechanism.report_bytes
        if len(report) != needed:
            raise ValueError(f"the report has {len(report)} bytes, not {needed}")
        return self._seal(self._answer, report)[0]

    def _seal(self, layers: list[Layer], content: bytes) -> list[bytes]:
        """Returns the ciphertext of every layer, outermost first."""
        sealed: list[bytes] = []
        for layer in reversed(layers):
            content = seal(self._suite, layer.public_key, layer.label, content)
            sealed.append(content)
        return sealed[::-1]
