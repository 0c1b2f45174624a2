"""The numbers below the certificate, each against mpmath or exact integers: bounds are checked with no tolerance."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant import BinaryRandomizedResponse, Budgets, KaryRandomizedResponse, Randomizer
from accountant.binomial import BETA_ERROR, TAIL, fair_mass, fair_tail, fair_tails, window
from accountant.blanket import blanket_count
from accountant.published import gaussian_dp_delta, gspa_theorem_2


def exact_fair_tail(successes: int, trials: int) -> Fraction:
    return Fraction(sum(math.comb(trials, j) for j in range(max(successes, 0), trials + 1)), 2**trials)


@given(st.integers(0, 1500), st.floats(0.0, 1.05))
@settings(max_examples=50, deadline=None)
def test_a_fair_tail_has_its_stated_relative_error(trials: int, share: float) -> None:
    """Also deep in the tail, where a difference of distribution functions would have no digit left."""
    successes = round(trials * share)
    exact = exact_fair_tail(successes, trials)
    got = float(fair_tail(np.array([float(successes)]), np.array([float(trials)]))[0])
    if exact < Fraction(1, 10**300):
        assert got < 1e-299
    else:
        assert abs(Fraction(got) / exact - 1) < BETA_ERROR


@pytest.mark.parametrize(("slope", "shift"), [(0.5, 0.0), (0.5, 4.0), (0.7, 1.5), (0.99, 0.0), (0.999999, 30.0)])
def test_a_run_of_tails_has_its_stated_error(slope: float, shift: float) -> None:
    """Steep runs end in tails of 2^-300, which are made of additions and subtractions of their neighbours."""
    c = np.arange(0, 301, dtype=np.float64)
    first = np.floor(shift + slope * c) + 1
    above, without_one, error = fair_tails(c, first)
    for index in range(len(c)):
        trials, successes = int(c[index]), int(first[index])
        assert abs(Fraction(above[index]) - exact_fair_tail(successes, trials)) <= Fraction(error[index])
        if trials:
            exact = exact_fair_tail(successes - 1, trials - 1)
            assert abs(Fraction(without_one[index]) - exact) <= Fraction(error[index])


def test_fair_masses_are_binomial_coefficients() -> None:
    trials = np.repeat(np.arange(0, 40, dtype=np.float64), 42)
    successes = np.tile(np.arange(-1, 41, dtype=np.float64), 40)
    exact = [
        math.comb(int(n), int(j)) / 2 ** int(n) if 0 <= j <= n else 0.0 for n, j in zip(trials, successes, strict=True)
    ]
    assert fair_mass(trials, successes) == pytest.approx(np.array(exact), rel=1e-13, abs=0.0)


@pytest.mark.parametrize(
    ("trials", "probability"),
    [(1, 0.3), (60, 0.5), (2000, 1e-9), (2000, 0.01), (2500, 0.999), (2500, 0.37)],
)
def test_a_window_leaves_out_no_more_than_it_says(trials: int, probability: float) -> None:
    counts, mass, lost = window(trials, probability)
    assert np.array_equal(counts, np.arange(counts[0], counts[0] + len(counts)))
    with mpmath.workdps(60):
        p = mpmath.mpf(probability)
        law = [mpmath.binomial(trials, j) * p**j * (1 - p) ** (trials - j) for j in range(trials + 1)]
        outside = mpmath.fsum(law[: int(counts[0])]) + mpmath.fsum(law[int(counts[-1]) + 1 :])
        assert outside <= lost <= TAIL
        inside = [float(law[int(count)]) for count in counts]
    assert mass == pytest.approx(np.array(inside), rel=1e-9, abs=1e-300)


def test_a_window_of_certainty_is_one_point() -> None:
    counts, mass, lost = window(7, 1.0)
    assert (counts.tolist(), mass.tolist(), lost) == ([7.0], [1.0], 0.0)


RANDOMIZERS: list[tuple[Randomizer, int]] = [
    (BinaryRandomizedResponse(), 2),
    (KaryRandomizedResponse(2), 2),
    (KaryRandomizedResponse(3), 3),
    (KaryRandomizedResponse(10), 10),
    (KaryRandomizedResponse(1 << 20), 1 << 20),
]


@pytest.mark.parametrize(("randomizer", "k"), RANDOMIZERS, ids=lambda x: getattr(x, "name", x))
def test_gamma_is_never_above_the_true_one(randomizer: Randomizer, k: int) -> None:
    """Only a γ that is rounded down still is a decomposition of the randomizer; 'almost' is no theorem."""
    source = np.random.default_rng(3)
    epsilons = np.concatenate([source.uniform(1e-6, 1.0, 200), source.uniform(1.0, 20.0, 800), [1e-12, 20.0]])
    gammas = randomizer.gamma(epsilons)
    assert np.all((gammas > 0) & (gammas < 1))
    above = []
    with mpmath.workdps(50):
        for epsilon, gamma in zip(epsilons.tolist(), gammas.tolist(), strict=True):
            true = k / (mpmath.exp(mpmath.mpf(epsilon)) + k - 1)
            assert mpmath.mpf(gamma) > true * (1 - mpmath.mpf(10) ** -14)
            if mpmath.mpf(gamma) > true:
                above.append((epsilon, gamma, float(mpmath.mpf(gamma) / true - 1)))
    assert above == []  # each as (ε, γ, relative excess)


def exact_delta_given(m: int, k: int, local_epsilon: float, epsilon: float) -> mpmath.mpf:
    """Sums the definition over all histograms: E[ΣL]₊/(m+1), the two letters of the victim and the rest."""
    n, ratio = m + 1, mpmath.exp(mpmath.mpf(epsilon))
    keep = mpmath.exp(mpmath.mpf(local_epsilon)) / (mpmath.exp(mpmath.mpf(local_epsilon)) + k - 1)
    other = (1 - keep) / (k - 1)
    total = mpmath.mpf(0)
    for h0 in range(n + 1):
        for h1 in range(n - h0 + 1):
            rest = n - h0 - h1
            if k == 2 and rest:
                continue
            ways = math.comb(n, h0) * math.comb(n - h0, h1) * (k - 2) ** rest
            p0 = k * (h0 * keep + (h1 + rest) * other)
            p1 = k * (h1 * keep + (h0 + rest) * other)
            total += mpmath.mpf(ways) / mpmath.mpf(k) ** n * max(p0 - ratio * p1, mpmath.mpf(0)) / n
    return total


@given(st.sampled_from(RANDOMIZERS[:4]), st.integers(0, 12), st.floats(0.01, 12.0), st.floats(0.0, 0.99))
@settings(max_examples=80, deadline=None)
def test_the_closed_forms_bound_the_definition(
    case: tuple[Randomizer, int], m: int, local_epsilon: float, share: float
) -> None:
    randomizer, k = case
    epsilon = share * local_epsilon
    values, errors = randomizer.delta_given(np.array([m], dtype=np.int64), local_epsilon, epsilon)
    with mpmath.workdps(40):
        exact = exact_delta_given(m, k, local_epsilon, epsilon)
        assert abs(mpmath.mpf(float(values[0])) - exact) <= mpmath.mpf(float(errors[0]))
    assert float(errors[0]) < 1e-9 * math.exp(epsilon)


@pytest.mark.parametrize(("randomizer", "k"), RANDOMIZERS[:4], ids=lambda x: getattr(x, "name", x))
def test_more_blanket_messages_never_hurt(randomizer: Randomizer, k: int) -> None:
    """What bucketing relies on: δ(m) is non-increasing in m."""
    m = np.arange(0, 400, dtype=np.int64)
    values, errors = randomizer.delta_given(m, 1.0 + 1 / k, 0.15)
    assert np.all(values[1:] <= values[:-1] + errors[1:] + errors[:-1])
    assert values[-1] < values[0] / 5


def test_the_blanket_count_of_long_laws_bounds_the_exact_one() -> None:
    """The path with FFTs, against a plain convolution: no count may lose more than the stated slack."""
    groups = [(0.07, 4000), (0.31, 2500), (0.5, 1500), (0.93, 2000)]
    law = blanket_count(groups, 10_000)
    assert law.slack < 1e-10
    exact = np.array([1.0])
    for gamma, count in groups:  # direct convolution of non-negative numbers: relative error about 1e-12
        counts, mass, _ = window(count, gamma)
        dense = np.zeros(count + 1)
        dense[counts.astype(np.int64)] = mass
        exact = np.convolve(exact, dense)
    dense = np.zeros(len(exact))
    dense[law.m] = law.mass
    missing = float(np.maximum(exact - dense, 0.0).sum())
    assert missing <= law.slack + 1e-11
    mean = float(np.dot(law.m, law.mass))
    assert mean == pytest.approx(sum(gamma * count for gamma, count in groups), rel=1e-9)
    variance = float(np.dot((law.m - mean) ** 2, law.mass))
    assert variance == pytest.approx(sum(gamma * (1 - gamma) * count for gamma, count in groups), rel=1e-7)


def test_the_blanket_count_of_nobody_and_of_everybody() -> None:
    for groups in ([], [(0.0, 50)]):
        nobody = blanket_count(groups, 10)
        assert (nobody.m.tolist(), nobody.mass.tolist(), nobody.slack) == ([0], [1.0], 0.0)
    everybody = blanket_count([(1.0, 3), (1.0, 4)], 10)
    assert everybody.m.tolist() == [7]
    assert everybody.mass == pytest.approx([1.0])


@given(st.floats(0.0, 6.0), st.floats(0.02, 4.0))
@settings(max_examples=100, deadline=None)
def test_gaussian_dp_against_mpmath(epsilon: float, mu: float) -> None:
    with mpmath.workdps(40):
        e, u = mpmath.mpf(epsilon), mpmath.mpf(mu)
        exact = mpmath.ncdf(-e / u + u / 2) - mpmath.exp(e) * mpmath.ncdf(-e / u - u / 2)
    assert gaussian_dp_delta(epsilon, mu) == pytest.approx(float(exact), rel=1e-9, abs=1e-14)


@pytest.mark.parametrize(
    ("tiers", "mu_squared", "says"),
    [
        ([(4.0, 1000)], 2 * (1 + math.exp(4)) / 999, 1.4494),
        (
            [(0.1, 9000), (3.0, 1000)],
            2 / (8999 / (1 + math.exp(0.1)) + 1000 / (1 + math.exp(3))),
            0.0767,
        ),
        ([(2.0, 99), (8.0, 1)], 2 / (98 / (1 + math.exp(2)) + 1 / (1 + math.exp(8))), 1.832),
    ],
)
def test_gspa_theorem_2_is_the_inverse_of_its_curve(
    tiers: list[tuple[float, int]], mu_squared: float, says: float
) -> None:
    bound = gspa_theorem_2(Budgets.from_tiers(tiers), 1e-6)
    assert bound.epsilon is not None
    assert bound.epsilon == pytest.approx(says, abs=0.6 * 10 ** -(len(str(says)) - 2))  # all its printed digits
    assert gaussian_dp_delta(bound.epsilon, math.sqrt(mu_squared)) == pytest.approx(1e-6, rel=1e-5)
    assert (bound.grade, bound.status) == ("ASYMPTOTIC", "")


def test_gspa_theorem_2_names_its_range() -> None:
    bound = gspa_theorem_2(Budgets.from_epsilons([1.0]), 1e-6)
    assert (bound.epsilon, bound.status, bound.note) == (None, "out of range", "it needs at least two users")
