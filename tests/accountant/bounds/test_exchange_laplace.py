"""The exchange bound for Laplace noise: its lemmas by quadrature, and the whole against enumerated data sets."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from accountant import Budgets
from accountant.attacks.lower_bound import lower_bound
from accountant.bounds import exchange_laplace
from accountant.bounds.exchange import exchange_bound
from accountant.bounds.exchange_laplace import ExchangeLaplaceProfile, exchange_laplace_profile
from accountant.bounds.profile import NoAmplification, Others, Victim, smallest_epsilon
from accountant.numerics.count_law import CountLaw
from tests.support.drawn import drawn

Floats = NDArray[np.float64]
Tiers = list[tuple[float, int]]


def curve_of(tiers: Tiers, victim: float, delta: float | None = 1e-6, dishonest: int = 0) -> ExchangeLaplaceProfile:
    """All users but one of the victim's budget."""
    left = [(e, n - (e == victim)) for e, n in tiers]
    left = [(e, n) for e, n in left if n > 0]
    count = np.array([n for _, n in left], dtype=np.int64)
    others = Others(np.array([e for e, _ in left]), np.zeros(len(left)), count, dishonest)
    curve = exchange_laplace_profile(Victim(victim), others, delta)
    assert isinstance(curve, ExchangeLaplaceProfile)
    return curve


def epsilon_of(tiers: Tiers, victim: float, delta: float = 1e-6, dishonest: int = 0) -> float:
    return smallest_epsilon(curve_of(tiers, victim, delta, dishonest), delta, victim, 1e-4).epsilon


def density(rate: float, centre: float, z: Floats) -> Floats:
    return rate / 2 * np.exp(-rate * np.abs(z - centre))


def grid(rate: float) -> tuple[Floats, float]:
    """Midpoints that reach far enough for this rate."""
    edges = np.linspace(-30 / rate, 1 + 30 / rate, 200_001)
    return (edges[1:] + edges[:-1]) / 2, float(edges[1] - edges[0])


# T1 to T3, L1 and L2: every pair and every host is below the laws of the family.


@given(st.integers(0, 2**32 - 1))
@drawn(15)
def test_every_host_and_pair_is_below_the_family_in_convex_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    victim = float(rng.uniform(0.2, 4))
    rate = victim * float(rng.choice([1.0, rng.uniform(0.1, 1)]))
    low, high = np.sort(rng.uniform(0, 1, 2)) if rng.random() < 0.7 else (0.0, 1.0)
    host = float(rng.choice([rng.uniform(0, 1), low, high, rng.uniform(low, high)]))
    gain = math.exp(float(rng.uniform(0, 0.95)) * victim * (high - low))
    z, width = grid(rate)
    difference = density(victim, low, z) - gain * density(victim, high, z)
    reference = density(rate, host, z)
    family = exchange_laplace._family(victim, math.log(gain), rate)
    assert family.moments[:, 0].min() > 0
    laws = [
        (exchange_laplace._ratio_atoms(victim, math.log(gain), rate, *place), thin)
        for place, thin in exchange_laplace._members(victim, math.log(gain), rate)
    ]
    levels = np.quantile(difference / reference, [0.001, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.999])
    for level in np.concatenate([levels, [-0.1, 0.0, 0.1]]):
        true = float(np.maximum(difference - level * reference, 0).sum() * width)
        best = 0.0
        for (values, mass), thin in laws:
            excess = thin * float(mass @ np.maximum(values / thin - level, 0)) + (1 - thin) * max(0.0, -level)
            best = max(best, excess)
        assert true <= best + 1e-6


def test_the_places_of_the_hosts_leave_no_gap() -> None:
    """T3, checked again: cells from 0 to 1 whose thinning is that of the wider one, and distances that meet."""
    for victim, rate, epsilon in (
        (0.3, 0.3, 0.1),
        (3.0, 0.1, 0.2),
        (2.0, 2.0, 0.05),
        (6.0, 5.0, 4.0),
        (30.0, 30.0, 1.0),
    ):
        found = exchange_laplace._members(victim, epsilon, rate)
        between = [(host, thin) for (x0, x1, host), thin in found if (x0, x1) == (0.0, 1.0)]
        positions = sorted({host for host, _ in between})
        assert positions[0] == 0
        assert positions[-1] == 1
        for left, right in itertools.pairwise(positions):
            needed = 1 / math.cosh(rate * (right - left) / 2) * (1 + 1e-14)
            for end in (left, right):
                assert min(thin for host, thin in between if host == end) <= needed
        starts = sorted((x0, thin) for (x0, x1, host), thin in found if host == x0 and x1 == 1)
        mirrored = sorted((1 - x1, thin) for (x0, x1, host), thin in found if host == x1 and x0 == 0)
        for laws in (starts, mirrored):
            covered = 0.0
            for start, thin in laws:
                assert start <= covered + 1e-12
                covered = max(covered, -math.log(thin) / rate)
            assert covered >= 1 - epsilon / victim - 1e-9


def test_the_moments_are_those_of_the_family_by_quadrature() -> None:
    victim, rate, gain = 1.5, 0.6, 1.2
    family = exchange_laplace._family(victim, math.log(gain), rate)
    z, width = grid(rate)
    for index, ((x0, x1, at), thin) in enumerate(exchange_laplace._members(victim, math.log(gain), rate)):
        reference = density(rate, at, z)
        ratio = (density(victim, x0, z) - gain * density(victim, x1, z)) / reference
        second = float((ratio**2 * reference).sum() * width) / thin
        assert second * (1 - 1e-5) <= family.scale[index] ** 2 * family.moments[index, 0] <= second * 1.01


@pytest.mark.parametrize("victim", [1e-3, 1e-7, 1e-12])
def test_tiny_budgets_do_not_cancel(victim: float) -> None:
    """D/R is about as small as the budget: (R_x0 - e^epsilon R_x1)/R has to be good to that."""
    epsilon, host, rate = 0.4 * victim, 0.25, victim
    values, mass = exchange_laplace._ratio_atoms(victim, epsilon, rate, 0.0, 1.0, host)
    with mpmath.workdps(50):
        v, e = mpmath.mpf(victim), mpmath.mpf(epsilon)

        def second(z: mpmath.mpf) -> mpmath.mpf:
            ratio = mpmath.exp(v * (abs(z - host) - abs(z))) - mpmath.exp(e + v * (abs(z - host) - abs(z - 1)))
            return ratio**2 * v / 2 * mpmath.exp(-v * abs(z - host))

        whole = mpmath.quad(second, [-100 / v, -10 / v, -1, 0, host, 1, 2, 10 / v, 100 / v])
        assert whole * (1 - mpmath.mpf(10) ** -10) <= float(mass @ values**2) <= whole * (1 + mpmath.mpf(10) ** -2)
        mean = -mpmath.expm1(e)
        assert abs(float(mass @ values) - mean) <= abs(mean) * mpmath.mpf(10) ** -10


# T4: the law of the slots.


@pytest.mark.parametrize(("coin", "rate"), [(0.3, 0.3), (0.3, 1.0), (1.0, 2.0)])
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_the_law_of_the_slots_is_above_that_of_every_host(coin: float, rate: float, slots: int) -> None:
    law = exchange_laplace._slots(coin, rate, CountLaw(np.array([slots - 1]), np.ones(1), 0.0, 0.0))
    mass = np.exp(law.log_mass)
    assert mass.sum() == pytest.approx(1, rel=1e-10)
    assert mass @ law.values == pytest.approx(1, rel=1e-10)
    rng = np.random.default_rng(5)
    noise = 0.5 + rng.laplace(0, 1 / coin, (400_000, slots))
    for own, place in ((rate, 0.0), (rate, 0.4), (max(coin, 0.7 * rate), 1.0)):
        ratio = density(own, place, noise) / density(coin, 0.5, noise)
        mean = ratio.mean(1)
        for level in (0.3, 0.8, 1.0, 1.2, 2.0):
            excess = np.maximum(mean - level, 0)
            true = float(excess.mean()) - 5 * float(excess.std()) / math.sqrt(excess.size)
            assert true <= float(mass @ np.maximum(law.values - level, 0)) + 1e-9


# The whole, on data sets of at least ten users whose reports are shown in a few letters only.


def letters(rates: Floats, values: Floats, cuts: Floats) -> Floats:
    """The chance of each letter (a cell between cuts) for every user, (n, L)."""
    t = cuts[None, :] - values[:, None]
    below = np.where(t < 0, 0.5 * np.exp(-rates[:, None] * np.abs(t)), 1 - 0.5 * np.exp(-rates[:, None] * np.abs(t)))
    return np.diff(np.concatenate([np.zeros((values.size, 1)), below, np.ones((values.size, 1))], axis=1), axis=1)


def histogram(chances: Floats) -> Floats:
    """The law of the number of reports in each of three letters, as an array over the first two counts."""
    law = np.zeros((chances.shape[0] + 1,) * 2)
    law[0, 0] = 1.0
    for a, b, c in chances:
        following = law * c
        following[1:] += law[:-1] * a
        following[:, 1:] += law[:, :-1] * b
        law = following
    return law


@given(st.integers(0, 2**32 - 1))
@drawn(6)
def test_no_data_set_of_ten_and_more_users_is_worse(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = np.sort(rng.uniform(0.2, 3, int(rng.integers(1, 4))))
    victim = float(kinds[-1])
    tiers = [(float(e), int(rng.integers(5, 30))) for e in kinds]
    tiers[0] = (tiers[0][0], tiers[0][1] + 10)
    curve = curve_of(tiers, victim, 0.01)
    rates = np.concatenate([np.full(n - (e == victim), e) for e, n in tiers])
    for _ in range(6):
        pair = np.sort(rng.uniform(0, 1, 2)) if rng.random() < 0.5 else np.array([0.0, 1.0])
        if rng.random() < 0.5:
            pair = pair[::-1]
        values = rng.choice([np.zeros(rates.size), np.ones(rates.size), rng.uniform(0, 1, rates.size)])
        cuts = np.sort(rng.choice([pair[0], pair[1], 0.5, rng.uniform(-1, 2), rng.uniform(0, 1)], 2, replace=False))
        epsilon = float(rng.choice([0.0, rng.uniform(0, 0.6)])) * victim
        laws = []
        for own in pair:
            chances = letters(np.append(rates, victim), np.append(values, own), cuts)
            laws.append(histogram(chances))
        truth = float(np.maximum(laws[0] - math.exp(epsilon) * laws[1], 0).sum())
        product = curve._product(epsilon)
        bound = exchange_bound(product, 0.02).value + curve.blanket.lost
        assert truth * (1 - 1e-10) <= bound
        assert truth * (1 - 1e-10) <= curve.delta(epsilon).value


TABLE = [
    ([(1.0, 10_000)], 1.0, 1e-6, 0.0317),
    ([(0.5, 1_000)], 0.5, 1e-4, 0.0326),
    ([(0.1, 5_400), (0.5, 3_700), (1.0, 900)], 1.0, 1e-6, 0.0418),
    ([(0.1, 5_400), (0.5, 3_700), (1.0, 900)], 0.5, 1e-6, 0.0202),
    ([(0.1, 5_400), (0.5, 3_700), (1.0, 900)], 0.1, 1e-6, 0.0038),
    ([(2.0, 10_000)], 2.0, 1e-6, 0.0737),
    ([(3.0, 10_000)], 3.0, 1e-6, 0.1452),
    ([(0.1, 9_000), (3.0, 1_000)], 3.0, 1e-6, 0.197),
]


@pytest.mark.parametrize(("tiers", "victim", "delta", "expected"), TABLE)
def test_the_table_of_the_specification(tiers: Tiers, victim: float, delta: float, expected: float) -> None:
    found = epsilon_of(tiers, victim, delta)
    attack = lower_bound(Budgets.from_tiers(tiers), "laplace", victim=victim, delta=delta).epsilon
    assert attack <= found <= expected * 1.01


@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-15])
def test_no_attack_is_better(delta: float) -> None:
    tiers = [(0.3, 2_000), (1.0, 2_000), (2.0, 500)]
    for victim, _ in tiers:
        attack = lower_bound(Budgets.from_tiers(tiers), "laplace", victim=victim, delta=delta).epsilon
        assert attack <= epsilon_of(tiers, victim, delta)


def test_the_dishonest_are_left_out_of_every_budget() -> None:
    tiers = [(0.5, 2_000), (1.0, 2_000)]
    hurt = [epsilon_of(tiers, 1.0, dishonest=f) for f in (0, 300, 1_500)]
    assert hurt == sorted(hurt)
    alike = epsilon_of([(0.5, 1_700), (1.0, 1_700)], 1.0)
    assert hurt[1] == pytest.approx(alike, rel=1e-6)


@pytest.mark.parametrize("local", [1e-6, 1e-3, 5.0, 30.0])
def test_tiny_and_large_budgets_give_a_bound_without_a_warning(local: float) -> None:
    tiers = [(local, 1_000), (1.0, 1_000)]
    for victim in (local, 1.0):
        curve = curve_of(tiers, victim)
        assert smallest_epsilon(curve, 1e-6, victim, 1e-3).epsilon <= victim
        for share in (0.0, 0.5, 0.9999):
            bound = curve.delta(share * victim)
            assert 0 <= bound.slack <= bound.value <= 1
            assert bound.value > 0


def test_where_the_bound_is_not_offered() -> None:
    many = Others(np.linspace(0.1, 1, 9), np.zeros(9), np.full(9, 100, dtype=np.int64), 0)
    assert isinstance(exchange_laplace_profile(Victim(1.0), many, 1e-6), NoAmplification)
    larger = Others(np.array([2.0]), np.zeros(1), np.array([100], dtype=np.int64), 0)
    assert isinstance(exchange_laplace_profile(Victim(1.0), larger, 1e-6), NoAmplification)
    span = Victim(3.0, 0.0, ((1.0, 0.0), (3.0, 0.0)))
    assert isinstance(exchange_laplace_profile(span, larger, 1e-6), NoAmplification)
    assert isinstance(exchange_laplace_profile(Victim(40.0), larger, 1e-6), NoAmplification)
