"""Forecasts: no mixture of budgets comes to more than was forecast before anybody had answered."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from croupier.accountant.rounds.forecast import forecast
from croupier.accountant.rounds.round_guarantee import certify_into
from croupier.protocol.codes import RefusalReason
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.base import Mechanism
from croupier.protocol.mechanisms.gaussian import Gaussian
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import make_kit

MIXING = [RandomizedResponse(), KaryResponse(4), OneBit(0.0, 1.0)]
NOISE = [Laplace(0.0, 1.0), Gaussian(low=0.0, high=1.0, lattice=100, local_delta=1e-7)]


def terms_of(mechanism: Mechanism, grid: dict[float, float | None], **policy: Any) -> RoundTerms:
    policy = {"min_batch_size": 20, "epsilon_max": 1.0, "delta": 1e-6} | policy
    kit = make_kit(question=Question("q", mechanism), **policy)
    (asked,) = kit.survey.questions
    del asked.budget_grid[:]
    for epsilon, limit in grid.items():
        asked.budget_grid.add(epsilon=epsilon, delta=mechanism.budget_delta, epsilon_max=limit)
    return kit.terms


def certified(terms: RoundTerms, mixture: list[tuple[float, int]], stragglers: int) -> pb.Certificate:
    """Returns what the accountant certifies, by its best bounds, once it knows the budgets."""
    message = pb.Certificate(
        delta=terms.shared.delta, dishonest=terms.shared.dishonest + stragglers, unknown_budgets=stragglers
    )
    certify_into(message, terms, mixture)
    return message


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [*MIXING, *NOISE], ids=lambda mechanism: mechanism.kind)
@pytest.mark.parametrize("stragglers", [0, 3])
def test_no_drawn_mixture_is_worse_than_forecast(mechanism: Mechanism, stragglers: int) -> None:
    source = random.Random(f"{mechanism.kind} {stragglers}")
    drawn, sizes, grid = (12, (20, 150), (0.2, 0.5, 1.0, 1.6)) if mechanism in MIXING else (3, (60,), (0.2, 0.5, 1.6))
    for people in sizes:
        terms = terms_of(mechanism, dict.fromkeys(grid), dishonest=1)
        said = forecast(terms, people, people + stragglers)
        for _ in range(drawn):
            used = sorted(source.sample(grid, source.randint(1, len(grid))))
            cuts = [0, *sorted(source.sample(range(1, people), len(used) - 1)), people]
            mixture = [(budget, high - low) for budget, (low, high) in zip(used, itertools.pairwise(cuts), strict=True)]
            outcome = certified(terms, mixture, stragglers)
            assert outcome.epsilon <= said.worst.epsilon, mixture
            assert not (outcome.refusals and said.worst.is_granted)


def test_one_person_with_a_large_budget_can_sink_a_round() -> None:
    """Reproduction: twenty people, the form offered 4, one person chose it, and every answer was destroyed."""
    terms = terms_of(RandomizedResponse(), dict.fromkeys((0.1, 0.25, 0.5, 1.0, 2.0, 4.0)))
    assert certified(terms, [(0.5, 19), (4.0, 1)], 0).refusals
    said = forecast(terms, 20)
    assert not said.worst.is_granted
    assert said.best.is_granted
    assert [refusal.code for refusal in said.worst.refusals] == [RefusalReason.EPSILON_ABOVE_LIMIT]
    assert said.worst.budgets == ((4.0, 20),)
    assert forecast(terms_of(RandomizedResponse(), dict.fromkeys((0.1, 0.25, 0.5, 1.0))), 20).worst.is_granted


def test_each_budget_is_held_to_a_limit_of_its_own() -> None:
    """The crowd of 4 meets its limit; a person with 1.5 among them may not meet theirs."""
    terms = terms_of(KaryResponse(3), {0.5: 0.5, 1.5: 0.6, 4.0: 4.0})
    assert not forecast(terms, 20).worst.is_granted
    assert certified(terms, [(1.5, 1), (4.0, 19)], 0).refusals
    assert forecast(terms_of(KaryResponse(3), {0.5: 0.5, 1.5: 1.5, 4.0: 4.0}), 20).worst.is_granted


def test_stragglers_cost_what_the_certificate_takes_for_them() -> None:
    terms = terms_of(RandomizedResponse(), {0.5: None, 1.5: None})
    assert forecast(terms, 100).worst.is_granted
    late = forecast(terms, 100, 160)
    assert late.worst.epsilon > 1.0
    assert certified(terms, [(1.5, 100)], 60).epsilon <= late.worst.epsilon


def test_more_people_never_make_a_forecast_worse() -> None:
    terms = terms_of(RandomizedResponse(), {0.5: None, 2.0: None})
    reached = [forecast(terms, people).worst.epsilon for people in (20, 21, 50, 400, 10_000)]
    assert reached == sorted(reached, reverse=True)


def test_noise_that_spends_more_delta_than_the_round_is_never_granted() -> None:
    terms = terms_of(Gaussian(low=0.0, high=1.0, lattice=100, local_delta=1e-4), {0.5: None, 1.0: None})
    said = forecast(terms, 3)
    assert not said.best.is_granted
    assert RefusalReason.DELTA_ABOVE_LIMIT in {refusal.code for refusal in said.best.refusals}


def test_mixed_noise_may_leave_each_person_their_own_budget_only() -> None:
    terms = terms_of(Laplace(0.0, 1.0), {0.5: None, 0.8: None, 1.6: None}, epsilon_max=0.7)
    said = forecast(terms, 1000)
    assert (said.worst.budgets, said.worst.epsilon) == ((), 1.6)
    assert said.best.is_granted
    assert certified(terms, [(0.8, 1), (1.6, 999)], 0).refusals
    assert forecast(terms_of(Laplace(0.0, 1.0), {0.2: None, 0.7: None}, epsilon_max=0.7), 20).worst.is_granted
    assert forecast(terms_of(Laplace(0.0, 1.0), {1.6: None}, epsilon_max=0.7), 1000).worst.is_granted
