"""Orders that every certificate keeps: in budgets, in f, between exact and pooled tiers; and its shape as JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant import (
    BinaryRandomizedResponse,
    Budgets,
    KaryRandomizedResponse,
    LaplaceMechanism,
    Randomizer,
    certify,
    read_budgets_csv,
)
from accountant.blanket import blanket_count, remove_largest
from accountant.certify import MIN_DELTA, _Victim, _victims

RANDOMIZERS = st.sampled_from([BinaryRandomizedResponse(), KaryRandomizedResponse(3), KaryRandomizedResponse(16)])
BUDGETS = st.lists(st.floats(0.01, 10.0), min_size=2, max_size=10)


def alone(k: int, local_epsilon: float, epsilon: float) -> float:
    """Returns what one k-RR report gives away: keep − e^ε·other."""
    return max(0.0, math.exp(local_epsilon) - math.exp(epsilon)) / (math.exp(local_epsilon) + k - 1)


@given(BUDGETS, RANDOMIZERS, st.floats(0.0, 5.0), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_the_last_honest_user_has_exactly_the_local_divergence(
    budgets: list[float], randomizer: Randomizer, epsilon: float, more: int
) -> None:
    """f ≥ n − 1, for every victim: were the victim among its own others, one message would hide it."""
    k = randomizer.k if isinstance(randomizer, KaryRandomizedResponse) else 2
    multiset = Budgets.from_epsilons(budgets)
    f = len(budgets) - 1 + more
    for tier, victim in zip(multiset.tiers, _victims(randomizer, multiset, f), strict=True):
        expected = alone(k, tier.local_epsilon, epsilon)
        assert expected * (1 - 1e-12) <= victim.delta(epsilon)[0] == pytest.approx(expected, rel=1e-8, abs=1e-8)
    worst = certify(budgets, randomizer, epsilon=epsilon, dishonest=f).delta
    assert worst == pytest.approx(alone(k, max(budgets), epsilon), rel=1e-8, abs=1e-8)


@given(BUDGETS, RANDOMIZERS, st.integers(0, 9), st.floats(1.01, 3.0), st.floats(0.0, 3.0))
@settings(max_examples=60, deadline=None)
def test_delta_grows_with_anybodys_budget(
    budgets: list[float], randomizer: Randomizer, who: int, factor: float, epsilon: float
) -> None:
    """A larger budget of another user hides less; the victim's own gives away more."""
    raised = list(budgets)
    raised[who % len(raised)] = min(20.0, raised[who % len(raised)] * factor)
    before = certify(budgets, randomizer, epsilon=epsilon)
    after = certify(raised, randomizer, epsilon=epsilon)
    assert before.delta <= after.delta * (1 + 1e-9) + before.numerical_slack + 1e-15


@given(BUDGETS, RANDOMIZERS, st.floats(0.0, 3.0), st.integers(0, 8))
@settings(max_examples=60, deadline=None)
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


@given(st.lists(st.floats(0.05, 8.0), min_size=25, max_size=40, unique=True), st.integers(0, 5))
@settings(max_examples=10, deadline=None)
def test_pooled_tiers_are_never_below_their_own_law(budgets: list[float], f: int) -> None:
    """More than 24 tiers share one law and rounded budgets; each tier's exact law must stay at or below that."""
    randomizer = BinaryRandomizedResponse()
    certificate = certify(budgets, randomizer, delta=1e-5, dishonest=f)
    assert len(certificate.tiers) == len(budgets) > 24
    for tier in certificate.tiers[:: len(budgets) // 3]:
        others = [budget for budget in budgets if budget != tier.local_epsilon]
        groups = [(2 / (1 + math.exp(budget)), 1) for budget in others]
        exact = _Victim(randomizer, tier.local_epsilon, blanket_count(remove_largest(groups, f), 10_000))
        assert exact.delta(tier.epsilon)[0] <= 1e-5 * (1 + 1e-7)
        assert tier.epsilon <= tier.local_epsilon


def test_a_grid_of_gamma_costs_less_than_two_percent() -> None:
    """2001 budgets are rounded to a grid of γ, 1999 are not: the same people within a hair, so nearly the same ε."""
    fine, coarse = ([0.5 + 1.5 * i / n for i in range(n + 1)] for n in (1998, 2000))
    unrounded, rounded = (certify(budgets, BinaryRandomizedResponse(), delta=1e-6) for budgets in (fine, coarse))
    assert (len(unrounded.tiers), len(rounded.tiers)) == (1999, 2001)
    assert rounded.epsilon == pytest.approx(unrounded.epsilon, rel=0.02)
    for tier, other in zip(rounded.tiers[::400], unrounded.tiers[::400], strict=False):
        assert tier.epsilon == pytest.approx(other.epsilon, rel=0.06)  # neighbours may fall into different cells


@pytest.mark.parametrize("randomizer", [LaplaceMechanism(), LaplaceMechanism(lattice=64)])
def test_laplace_is_certified_at_the_local_budget_and_says_so(randomizer: Randomizer) -> None:
    certificate = certify([0.3, 1.7] * 500, randomizer, delta=1e-3)
    assert (certificate.epsilon, certificate.method, certificate.grade) == (1.7, "local budget", "CERTIFIED")
    assert certificate.assumptions[-1].startswith("no amplification is claimed for laplace")
    at_one = certify([0.3, 1.7], randomizer, epsilon=1.0)
    assert at_one.delta == pytest.approx(1 - math.exp(-0.7), rel=1e-12)
    assert certify([0.3, 1.7], randomizer, epsilon=1.7).delta == 0.0


def test_the_assumptions_name_f_and_the_randomizer() -> None:
    certificate = certify([1.0] * 30, KaryRandomizedResponse(4), delta=1e-4, dishonest=7)
    assert certificate.assumptions == (
        "at least one shuffler is honest",
        "at most 7 clients are dishonest",
        "every other client runs krr at the budget that it reported",
    )
    both = certificate.everyone_else_colludes
    assert (both.epsilon, both.delta, both.grade, both.method) == (1.0, 0.0, "CERTIFIED", "local budget")


@given(BUDGETS, st.one_of(st.floats(MIN_DELTA, 0.5), st.just(MIN_DELTA)))
@settings(max_examples=40, deadline=None)
def test_the_json_is_strict_and_says_what_the_certificate_says(budgets: list[float], delta: float) -> None:
    certificate = certify(budgets, BinaryRandomizedResponse(), delta=delta)
    document = json.loads(json.dumps(certificate.to_json(), allow_nan=False))
    assert document["epsilon"] == certificate.epsilon == max(tier["epsilon"] for tier in document["tiers"])
    assert (document["delta"], document["grade"], document["randomizer"]) == (delta, "CERTIFIED", "rr")
    assert document["num_users"] == len(budgets) == sum(tier["count"] for tier in document["tiers"])
    assert 0 <= document["numerical_slack"] <= delta
    assert document["everyone_else_colludes"] == {"epsilon": max(budgets), "delta": 0.0, "grade": "CERTIFIED"}


def test_budget_files_of_any_shape_are_one_multiset(tmp_path: Path) -> None:
    path = tmp_path / "budgets.csv"
    path.write_text("who,count,epsilon,delta\na,2,0.5,0\nb,,1,\nc,3,0.50,0.0\n")
    assert read_budgets_csv(path) == Budgets.from_epsilons([0.5] * 5 + [1.0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column 'epsilon'; its columns are nothing"),
        ("epsilon\n1\n-0.5\n", r"budgets.csv, line 3: local epsilon is -0\.5; allowed is 0 < epsilon ≤ 20"),
        ("epsilon\n1\n20.5\n", r"line 3: local epsilon is 20\.5; allowed is 0 < epsilon ≤ 20"),
        ("epsilon\nnan\n", "line 2: local epsilon is nan"),
        ("epsilon,count\n1,-3\n", "line 2: count is -3; allowed are whole numbers ≥ 1"),
        ("epsilon,count\n1,2\n1,x\n", "line 3: .*'x'"),
        ("epsilon\n1\nabc\n", "line 3: .*'abc'"),
        ("epsilon,delta\n1,1e-6\n", "line 2: local delta is 1e-06; .* must be 0"),
        ("count,epsilon\n2\n", "line 2: "),
    ],
)
def test_every_bad_line_of_a_budget_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "budgets.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_budgets_csv(path)
