"""Which bound the accountant certifies a sequential round by: never one that needs independent reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier import Budgets, certify
from croupier.accountant.mechanisms.hemisphere import HemisphereMechanism
from croupier.accountant.rounds.round_guarantee import certify_into
from croupier.protocol.certificates import method_of
from croupier.protocol.mechanisms.hemisphere import Hemisphere
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import make_kit
from tests.support.sequential import DIMENSION, task

TIERS = [(0.5, 9000), (2.0, 1000)]


@pytest.mark.parametrize("epsilon_max", [1.0, 0.05])
@pytest.mark.parametrize("is_sequential", [True, False])
def test_a_sequential_round_keeps_the_blanket_and_a_batch_does_not(is_sequential: bool, epsilon_max: float) -> None:
    question = task()
    mechanism = question.mechanism
    assert isinstance(mechanism, Hemisphere)
    if not is_sequential:
        question = Question("batch", replace(mechanism, vector=replace(mechanism.vector, sequential=None)))
    kit = make_kit(question=question, epsilon_max=epsilon_max)
    message = pb.Certificate(num_users=10_000)
    entries = certify_into(message, kit.terms, TIERS)
    randomizer = HemisphereMechanism(dimension=DIMENSION)
    expected, blanket = (
        certify(Budgets.from_tiers(TIERS), randomizer, delta=1e-6, attack=False, bounds=bounds)
        for bounds in ("blanket" if is_sequential else "all", "blanket")
    )
    assert message.epsilon == expected.epsilon == max(entry.epsilon for entry in entries)
    assert method_of(message) == expected.method
    assert (message.epsilon == blanket.epsilon) == is_sequential
    # What would have been granted is said by the same bound.
    assert len(message.refusals) == (epsilon_max < 0.1)
