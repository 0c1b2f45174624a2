"""Orders that every certificate keeps: in budgets, in f, between exact and pooled tiers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier import BinaryRandomizedResponse, KaryRandomizedResponse, Randomizer
from tests.support.accounting import certify_without_attack as certify
from tests.support.drawn import drawn
from tests.support.oracles.from_definitions import count_law

RANDOMIZERS = st.sampled_from([BinaryRandomizedResponse(), KaryRandomizedResponse(3), KaryRandomizedResponse(16)])
BUDGETS = st.lists(st.floats(0.01, 10.0), min_size=2, max_size=10)


def alone(k: int, local_epsilon: float, epsilon: float) -> float:
    """Returns what one k-RR report gives away: keep − e^ε·other."""
    return max(0.0, math.exp(local_epsilon) - math.exp(epsilon)) / (math.exp(local_epsilon) + k - 1)


@pytest.mark.slow
@given(BUDGETS, RANDOMIZERS, st.floats(0.0, 5.0), st.integers(0, 3))
@drawn(25)
def test_the_last_honest_user_has_exactly_the_local_divergence(
    budgets: list[float], randomizer: Randomizer, epsilon: float, more: int
) -> None:
    """f ≥ n − 1, for every victim: were the victim among its own others, one message would hide it."""
    k = randomizer.k if isinstance(randomizer, KaryRandomizedResponse) else 2
    certificate = certify(budgets, randomizer, epsilon=epsilon, dishonest=len(budgets) - 1 + more)
    for tier in certificate.tiers:
        expected = alone(k, tier.local_epsilon, epsilon)
        assert expected * (1 - 1e-12) <= tier.delta == pytest.approx(expected, rel=2e-8, abs=1e-12)
    assert certificate.delta == max(tier.delta for tier in certificate.tiers)


@given(BUDGETS, RANDOMIZERS, st.integers(0, 9), st.floats(1.01, 3.0), st.floats(0.0, 3.0))
@drawn(25)
def test_delta_grows_with_every_users_budget(
    budgets: list[float], randomizer: Randomizer, who: int, factor: float, epsilon: float
) -> None:
    """A larger budget of another user hides less; the victim's own gives away more."""
    raised = list(budgets)
    raised[who % len(raised)] = min(20.0, raised[who % len(raised)] * factor)
    before = certify(budgets, randomizer, epsilon=epsilon)
    after = certify(raised, randomizer, epsilon=epsilon)
    assert before.delta <= after.delta * (1 + 1e-9) + before.numerical_slack + 1e-15


@given(BUDGETS, RANDOMIZERS, st.floats(0.0, 3.0), st.integers(0, 8))
@drawn(25)
def test_delta_is_monotone_in_epsilon_f_and_users(
    budgets: list[float], randomizer: Randomizer, epsilon: float, f: int
) -> None:
    base = certify(budgets, randomizer, epsilon=epsilon, dishonest=f)
    slack = base.numerical_slack + 1e-9 * base.delta + 1e-10
    assert certify(budgets, randomizer, epsilon=epsilon * 1.1 + 0.01, dishonest=f).delta <= base.delta + slack
    assert certify(budgets, randomizer, epsilon=epsilon, dishonest=f + 1).delta >= base.delta - slack
    assert certify([*budgets, min(budgets)], randomizer, epsilon=epsilon, dishonest=f).delta <= base.delta + slack
    assert 0 <= base.delta <= max(0.0, -math.expm1(epsilon - max(budgets)))
    assert base.epsilon == epsilon
    assert all(tier.epsilon <= epsilon for tier in base.tiers)


@given(st.lists(st.floats(0.05, 8.0), min_size=33, max_size=40, unique=True), st.integers(0, 5))
@drawn(5)
def test_pooled_tiers_are_never_below_their_own_law(budgets: list[float], f: int) -> None:
    """Many tiers share one law and rounded budgets; the exact law of every victim must stay at or below that."""
    certificate = certify(budgets, BinaryRandomizedResponse(), delta=1e-5, dishonest=f)
    assert len(certificate.tiers) < len(budgets)
    for victim in sorted(budgets)[::6]:
        others = sorted((budget for budget in budgets if budget != victim), reverse=True)
        law = count_law([(2 / (1 + math.exp(budget)), 1) for budget in others[: len(others) - f]])
        tier = next(t for t in certificate.tiers if t.local_epsilon >= victim)
        values = [among_fair_bits(victim, tier.epsilon, m) for m in range(law.size)]
        assert float(law @ values) <= 1e-5 * (1 + 1e-7)


def among_fair_bits(local_epsilon: float, epsilon: float, m: int) -> float:
    """The divergence of a bit among m fair ones."""
    keep, fair = 1 / (1 + math.exp(-local_epsilon)), count_law([(0.5, m)])
    up, down = np.append(0.0, fair), np.append(fair, 0.0)
    one, other = keep * up + (1 - keep) * down, (1 - keep) * up + keep * down
    return float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum())
