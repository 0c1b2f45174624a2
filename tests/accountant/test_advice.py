"""What a refusal says would have been granted is granted, when it is asked for as it is printed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from accountant.certification import certify
from accountant.mechanisms.registry import randomizer_of
from accountant.planner import plan
from accountant.service.round_certificate import certify_into
from protocol.mechanisms import Gaussian, KaryResponse, Laplace, RandomizedResponse
from protocol.questions import Question
from protocol.v1 import messages_pb2 as pb
from tests.support import make_kit

CASES: list[tuple[Any, dict[float, int], float]] = [
    # Reproduction: "allowed would be 2 users with these budgets", of which none had the largest one.
    (RandomizedResponse(), {0.5: 399, 4.0: 1}, 0.3),
    (RandomizedResponse(), {0.5: 90, 1.0: 10}, 0.2),
    (KaryResponse(4), {0.5: 50, 2.0: 50}, 0.5),
    (Laplace(0.0, 1.0), {1.0: 60}, 0.3),
    (RandomizedResponse(), {1.0: 100}, 1e-7),
]


@pytest.mark.parametrize(("mechanism", "budgets", "epsilon_max"), CASES)
def test_advice_is_granted_as_it_is_printed(mechanism: Any, budgets: dict[float, int], epsilon_max: float) -> None:
    kit = make_kit(question=Question("q", mechanism))
    kit.manifest.epsilon_max = epsilon_max
    del kit.manifest.budget_grid[:]
    kit.manifest.budget_grid.extend(pb.LocalBudget(epsilon=epsilon) for epsilon in budgets)
    message = pb.Certificate(dishonest=3)
    certify_into(message, kit.terms, list(budgets.items()))
    (refusal,) = message.refusals
    advice = refusal.partition("this would be granted: ")[2]
    share = re.search(r"local budgets (\S+) times as large", advice)
    users = re.search(r"(\d+) users with these budgets", advice)
    assert share or users or advice == "only a larger epsilon_max"
    randomizer, delta = randomizer_of(mechanism), kit.manifest.delta
    if share:
        smaller = {epsilon * float(share[1]): count for epsilon, count in budgets.items()}
        assert (
            certify(smaller, randomizer, delta=delta, dishonest=3, attack=False, bounds="blanket").epsilon
            <= epsilon_max
        )
    if users:
        assert int(users[1]) > sum(budgets.values())
        more = plan(randomizer, delta=delta, budgets=budgets, num_users=int(users[1]), dishonest=3, bounds="blanket")
        assert more.budgets.num_tiers == len(budgets)
        assert more.certificate.epsilon <= epsilon_max


def test_a_plan_for_more_users_keeps_every_budget() -> None:
    """Reproduction: for two users of {0.5: 399, 4: 1} nobody was left with 4, and two were enough."""
    found = plan("rr", delta=1e-6, epsilon=1.0, budgets={0.5: 399, 4.0: 1})
    assert [tier.local_epsilon for tier in found.budgets.tiers] == [0.5, 4.0]
    assert found.budgets.num_users > 10
    even = plan("rr", delta=1e-6, budgets={0.5: 399, 4.0: 1}, num_users=800).budgets
    assert [tier.count for tier in even.tiers] == [798, 2]


def test_noise_with_a_larger_delta_than_the_round_is_refused_with_advice() -> None:
    """Reproduction: the refusal said 'certified delta is 1e-05', and neither why nor what to do."""
    kit = make_kit(question=Question("q", Gaussian(0.0, 1.0, local_delta=1e-5)))
    kit.manifest.delta = 1e-8
    message = pb.Certificate()
    certify_into(message, kit.terms, [(1.0, 5)])
    delta = next(refusal for refusal in message.refusals if "delta" in refusal)
    assert delta.startswith("certified delta is 1e-05; it must be at most 1e-08: the shuffle adds nothing")
    assert "it takes more clients, or a round with a smaller local delta" in delta
