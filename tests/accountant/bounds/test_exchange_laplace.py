"""The exchange bound for Laplace noise: its lemmas by quadrature, and the whole against enumerated data sets."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from croupier.accountant import Budgets, certify
from croupier.accountant.bounds import exchange_laplace, laplace_laws, noise_sums
from croupier.accountant.bounds.exchange_laplace import ExchangeLaplaceProfile, exchange_laplace_profile
from croupier.accountant.bounds.profile import NoAmplification, Others, Victim
from croupier.accountant.bounds.spans import SpanProfile
from croupier.accountant.lower_bound import lower_bound
from croupier.accountant.numerics.clock_stages import stages
from croupier.accountant.numerics.inversion import smallest_epsilon
from tests.support.cuts import density
from tests.support.drawn import drawn
from tests.support.histograms import histogram, letters

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


def grid(rate: float) -> tuple[Floats, float]:
    """Midpoints that reach far enough for this rate."""
    edges = np.linspace(-30 / rate, 1 + 30 / rate, 200_001)
    return (edges[1:] + edges[:-1]) / 2, float(edges[1] - edges[0])


def one_law(victim: float, epsilon: float, rate: float, place: laplace_laws.Place) -> tuple[Floats, Floats]:
    values, mass = laplace_laws.ratio_atoms(victim, epsilon, rate, [place])
    return values[0], mass[0]


@pytest.fixture
def few_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coarser, and quicker."""
    monkeypatch.setattr(exchange_laplace, "GROUPS", 4)


# The lemmas: every pair and every host is below the laws of the family.


@given(st.integers(0, 2**32 - 1))
@drawn(25)
def test_hosts_and_victims_of_all_groups_are_below_the_family(seed: int) -> None:
    """T1 to T3 with L1 to L3 and T5, in one; a group may be one budget, and a span one victim."""
    rng = np.random.default_rng(seed)
    victim = float(rng.uniform(0.2, 4))
    smaller = victim * float(rng.choice([1.0, rng.uniform(0.7, 1)]))
    rate = smaller * float(rng.choice([1.0, rng.uniform(0.1, 1)]))
    kept = float(rng.choice([1.0, rng.uniform(0.5, 0.99)]))
    own = rate * float(rng.choice([kept, 1.0, rng.uniform(kept, 1)]))
    low, high = np.sort(rng.uniform(0, 1, 2)) if rng.random() < 0.7 else (0.0, 1.0)
    host = float(rng.choice([rng.uniform(0, 1), low, high, rng.uniform(low, high)]))
    epsilon = float(rng.uniform(0, 0.95)) * smaller * float(high - low)
    z, width = grid(own)
    difference = density(smaller, float(low), z) - math.exp(epsilon) * density(smaller, float(high), z)
    reference = density(own, host, z)
    family = laplace_laws.family_of(victim, epsilon, rate, kept)
    members = laplace_laws.members(victim, epsilon, rate)
    assert len(members) == family.scale.size
    laws = [(one_law(victim, epsilon, rate, place), thin * kept) for place, thin in members]
    levels = np.quantile(difference / reference, [0.001, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.999])
    for level in np.concatenate([levels, [-0.1, 0.0, 0.1]]):
        true = float(np.maximum(difference - level * reference, 0).sum() * width)
        best = max(
            thin * float(mass @ np.maximum(values / thin - level, 0)) + (1 - thin) * max(0.0, -level)
            for (values, mass), thin in laws
        )
        assert true <= best + 1e-6
    for index, ((values, mass), thin) in enumerate(laws):
        second = float(mass @ values**2) / thin
        assert family.scale[index] ** 2 * family.moments[index, 0] == pytest.approx(second, rel=1e-9)


def test_the_places_of_the_hosts_leave_no_gap() -> None:
    """T3, checked again: cells from 0 to 1 whose thinning is that of the wider one, and distances that meet."""
    for victim, rate, epsilon in (
        (0.3, 0.3, 0.1),
        (3.0, 0.1, 0.2),
        (2.0, 2.0, 0.05),
        (6.0, 5.0, 4.0),
        (30.0, 30.0, 1.0),
    ):
        members = laplace_laws.members(victim, epsilon, rate)
        between = [(host, thin) for (x0, x1, host), thin in members if (x0, x1) == (0.0, 1.0)]
        positions = sorted({host for host, _ in between})
        assert positions[0] == 0
        assert positions[-1] == 1
        for left, right in itertools.pairwise(positions):
            needed = 1 / math.cosh(rate * (right - left) / 2) * (1 + 1e-14)
            for end in (left, right):
                assert min(thin for host, thin in between if host == end) <= needed
        starts = sorted((x0, thin) for (x0, x1, host), thin in members if host == x0 and x1 == 1)
        mirrored = sorted((1 - x1, thin) for (x0, x1, host), thin in members if host == x1 and x0 == 0)
        for laws in (starts, mirrored):
            covered = 0.0
            for start, thin in laws:
                assert start <= covered + 1e-12
                covered = max(covered, -math.log(thin) / rate)
            assert covered >= 1 - epsilon / victim - 1e-9


@pytest.mark.parametrize("victim", [1e-3, 1e-7, 1e-12])
def test_tiny_budgets_do_not_cancel(victim: float) -> None:
    """D/R is about as small as the budget: (R_x0 - e^epsilon R_x1)/R has to be good to that."""
    epsilon, host, rate = 0.4 * victim, 0.25, victim
    values, mass = one_law(victim, epsilon, rate, (0.0, 1.0, host))
    with mpmath.workdps(50):
        v, e = mpmath.mpf(victim), mpmath.mpf(epsilon)

        def second(z: mpmath.mpf) -> mpmath.mpf:
            ratio = mpmath.exp(v * (abs(z - host) - abs(z))) - mpmath.exp(e + v * (abs(z - host) - abs(z - 1)))
            return ratio**2 * v / 2 * mpmath.exp(-v * abs(z - host))

        whole = mpmath.quad(second, [-100 / v, -10 / v, -1, 0, host, 1, 2, 10 / v, 100 / v])
        assert whole * (1 - mpmath.mpf(10) ** -10) <= float(mass @ values**2) <= whole * (1 + mpmath.mpf(10) ** -2)
        mean = -mpmath.expm1(e)
        assert abs(float(mass @ values) - mean) <= abs(mean) * mpmath.mpf(10) ** -10


# What the blanket takes from the hosts.


@pytest.mark.parametrize("victim", [0.3, 2.0, 6.0])
def test_the_blanket_lies_below_every_host_and_thins_its_laws(victim: float) -> None:
    tiers = [(0.05, 300), (0.3, 500), (2.0, 400), (6.0, 3_000)]
    curve = curve_of([(e, n) for e, n in tiers if e <= victim], victim)
    widest = float(curve.rates.max())
    z = np.linspace(-20, 21, 40_001)
    tried = {m: exchange_laplace.gamma_of(curve.rates, curve.kept, m) for m in exchange_laplace.PLATEAUS}
    m = next(m for m, gamma in tried.items() if (gamma == curve.blanket).all())
    omega = np.exp(-widest * np.maximum(np.maximum(z, 1 - z) - m, 0)) / (2 * m - 1 + 2 / widest)
    assert omega.sum() * (z[1] - z[0]) == pytest.approx(1, rel=1e-2)
    sums = curve.sums(0.3 * victim)
    assert sums.weights[0] @ sums.count == pytest.approx(1, abs=1e-13)
    for stage, end in enumerate(stages(curve.horizon)[0].tolist()):
        for tier, rate in enumerate(curve.rates.tolist()):
            rung = -math.expm1(-end * sums.weights[0, tier])
            thin = float(sums.left[0, tier, stage])
            assert 0.2 < thin < 1
            for x in (0.0, 0.3, 1.0):
                own = density(rate, x, z)
                left = (own - rung * omega) / (1 - rung)
                assert (left >= thin * own * (1 - 1e-12)).all()


@pytest.mark.parametrize("m", exchange_laplace.PLATEAUS)
def test_the_densest_blanket_below_every_host(m: float) -> None:
    """Gamma is the least of R/omega over all reports and values, for every budget of a group."""
    curve = replace(curve_of([(0.2, 50), (0.9, 300), (4.0, 500)], 4.0), kept=np.array([0.3, 0.5, 0.9]))
    z = np.linspace(-4, 5, 9_001)
    omega = np.exp(-4 * np.maximum(np.maximum(z, 1 - z) - m, 0)) / (2 * m - 1 + 2 / 4)
    for rate, kept, gamma in zip(
        curve.rates.tolist(),
        curve.kept.tolist(),
        exchange_laplace.gamma_of(curve.rates, curve.kept, m).tolist(),
        strict=True,
    ):
        group = np.linspace(rate * kept, rate, 9).tolist()
        least = min(float((density(e, x, z) / omega).min()) for e in group for x in np.linspace(0, 1, 5))
        assert gamma <= least <= gamma * (1 + 1e-3)


def test_weights_do_not_ask_for_more_than_the_blanket_has() -> None:
    curve = curve_of([(0.01, 400), (1.0, 400), (8.0, 2_000)], 8.0)
    blanket = curve.blanket
    for precision in (np.array([1.0, 1.0, 1.0]), np.array([1e9, 1.0, 1e-9]), np.array([1e-9, 1e-9, 1.0])):
        clocks = noise_sums.Clocks.of(curve.count, blanket[None], 1 / precision[None], np.array([curve.horizon]))
        weights = clocks.weights[0]
        assert curve.count @ weights == pytest.approx(1, abs=1e-13)
        assert (weights * curve.horizon <= noise_sums.SPENT * blanket * (1 + 1e-9)).all()


# Groups of hosts and spans of victims.


def test_groups_hold_every_host_and_know_their_ends() -> None:
    rng = np.random.default_rng(3)
    rates = np.sort(rng.uniform(0.05, 2, 500))
    count = rng.integers(1, 4, 500)
    crowd = exchange_laplace.Crowd(rates, count, 0)
    for least in (2.0, 1.0, 0.1):
        below = rates <= least
        curve = crowd.hosts(2.0, least, 1e-6)
        assert curve is not None
        assert curve.count.sum() == count[below].sum()
        assert curve.rates.size <= exchange_laplace.GROUPS
        smallest = curve.rates * curve.kept
        assert (np.diff(curve.rates) > 0).all()
        assert (smallest[1:] > curve.rates[:-1]).all()
        assert curve.rates[-1] == rates[below][-1]
        assert smallest[0] <= rates[0]
    fewer = exchange_laplace.Crowd(rates, count, 2).hosts(2.0, 1.0, 1e-6)
    every = crowd.hosts(2.0, 1.0, 1e-6)
    assert fewer is not None
    assert every is not None
    assert (fewer.count <= every.count - 2).all()  # whichever two are dishonest
    assert fewer.horizon <= every.horizon
    assert crowd.hosts(2.0, 0.04, 1e-6) is None


@pytest.mark.usefixtures("few_groups")
def test_the_parts_of_a_span_leave_no_gap() -> None:
    rates = np.linspace(0.1, 2, 40)
    others = Others(rates, np.zeros(40), np.full(40, 50, dtype=np.int64), 1)
    for low, high in ((1.5, 2.0), (0.3, 0.5), (1.99, 2.0), (1.0, 1.0)):
        span = exchange_laplace_profile(Victim(high, 0.0, ((low, 0.0), (high, 0.0))), others, 1e-6)
        assert isinstance(span, SpanProfile)
        assert isinstance(span.leader, ExchangeLaplaceProfile)
        assert span.leader.local_epsilon == high
        assert span.leader.rates.max() <= max(low, high * (1 - exchange_laplace.FIRST_PART))
        covered = high * (1 - exchange_laplace.FIRST_PART)
        for least, most in parts_of(span, 0.0):
            assert most >= covered > least
            covered = least
        assert covered <= low


def parts_of(span: SpanProfile, epsilon: float) -> list[tuple[float, float]]:
    """The parts below the leader's at which a span's delta is evaluated; of those with one upper end, the last."""
    parts: dict[float, float] = {}

    def part(low: float, high: float) -> Any:
        parts[high] = low
        return span.part(low, high)

    replace(span, part=part).delta(epsilon)
    return [(low, high) for high, low in parts.items()]


# The whole, on data sets of at least ten users whose reports are shown in a few letters only.


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
    epsilons = (0.0, float(rng.uniform(0, 0.6)) * victim)
    bounds = [
        min(float(curve.sums(epsilon).positive_parts(0.02)[0]) + math.exp(-curve.horizon), curve.delta(epsilon).value)
        for epsilon in epsilons
    ]
    for _ in range(8):
        pair = np.sort(rng.uniform(0, 1, 2)) if rng.random() < 0.5 else np.array([0.0, 1.0])
        if rng.random() < 0.5:
            pair = pair[::-1]
        values = rng.choice([np.zeros(rates.size), np.ones(rates.size), rng.uniform(0, 1, rates.size)])
        cuts = np.sort(rng.choice([pair[0], pair[1], 0.5, rng.uniform(-1, 2), rng.uniform(0, 1)], 2, replace=False))
        laws = [histogram(letters(np.append(rates, victim), np.append(values, own), cuts)) for own in pair]
        for epsilon, bound in zip(epsilons, bounds, strict=True):
            truth = float(np.maximum(laws[0] - math.exp(epsilon) * laws[1], 0).sum())
            assert truth * (1 - 1e-10) <= bound


@given(st.integers(0, 2**32 - 1))
@drawn(3)
def test_no_data_set_with_many_budgets_is_worse_for_any_victim_of_a_span(seed: int) -> None:
    """Nine to twelve budgets, all of the span's victims, and two users who tell the observer everything."""
    rng = np.random.default_rng(seed)
    kinds = np.sort(rng.uniform(0.3, 2.5, int(rng.integers(9, 13))))
    count = rng.integers(3, 8, kinds.size)
    count[: kinds.size // 2] += 6
    users = np.repeat(kinds, count)
    low, high = float(kinds[-4]), float(kinds[-1])
    others = Others(kinds, np.zeros(kinds.size), count, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange_laplace, "GROUPS", int(rng.choice([2, 4, 24])))
        span = exchange_laplace_profile(Victim(high, 0.0, ((low, 0.0), (high, 0.0))), others, 0.01)
        assert isinstance(span, SpanProfile)
        epsilon = float(rng.choice([0.0, rng.uniform(0, 0.4)])) * high
        covered = [(max(low, high * (1 - exchange_laplace.FIRST_PART)), high), *parts_of(span, epsilon)]
        parts: list[Any] = [span.leader, *(span.part(a, b) for a, b in covered[1:])]
        bounds = {
            b: float(part.sums(epsilon).positive_parts(0.03)[0]) + math.exp(-part.horizon)
            for (_, b), part in zip(covered, parts, strict=True)
            if part is not None and epsilon < b
        }
        together = span.delta(epsilon).value
    for own in kinds[-4:].tolist():
        rest = np.delete(users, np.flatnonzero(users == own)[0])
        told = int(rng.integers(0, 2)) * int(rng.integers(0, rest.size - 2))
        rest = np.delete(rest, [told, told + 1])
        for _ in range(3):
            pair = rng.permutation([0.0, 1.0]) if rng.random() < 0.7 else rng.uniform(0, 1, 2)
            values = rng.choice([np.zeros(rest.size), np.ones(rest.size), rng.uniform(0, 1, rest.size)])
            cuts = np.sort(rng.choice([pair[0], pair[1], 0.5, rng.uniform(-1, 2)], 2, replace=False))
            laws = [histogram(letters(np.append(rest, own), np.append(values, x), cuts)) for x in pair]
            truth = float(np.maximum(laws[0] - math.exp(epsilon) * laws[1], 0).sum()) * (1 - 1e-10)
            assert truth <= together
            for (least, most), part in zip(covered, parts, strict=True):
                if least <= own <= most and part is not None and epsilon < most:
                    assert truth <= bounds[most]


@pytest.mark.slow
@pytest.mark.usefixtures("few_groups")
@pytest.mark.parametrize("budgets", [9, 33])
def test_many_budgets_get_less_than_the_blanket_and_more_than_an_attack(
    budgets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange_laplace, "GROUPS", 10)
    rates = np.linspace(0.1, 1.0, budgets)
    crowd = Budgets.from_tiers([(float(e), 9_900 // budgets) for e in rates])
    certificate = certify(crowd, "laplace", delta=1e-6, attack=False)
    blanket = certify(crowd, "laplace", delta=1e-6, attack=False, bounds="blanket")
    assert lower_bound(crowd, "laplace", victim=1.0, delta=1e-6).epsilon <= certificate.epsilon < 0.95 * blanket.epsilon
    for tier, loose in zip(certificate.tiers, blanket.tiers, strict=True):
        assert tier.epsilon <= loose.epsilon * (1 + 1e-9)
    if budgets == 33:  # the walk along a span has an end of its own
        late = certify(crowd, "laplace", delta=1e-6, attack=False, seconds=0.0)
        assert late.epsilon == blanket.epsilon


@pytest.mark.usefixtures("few_groups")
def test_a_span_answers_both_ways() -> None:
    rates = np.linspace(0.2, 1.0, 40)
    others = Others(rates, np.zeros(40), np.full(40, 60, dtype=np.int64), 1)
    span = exchange_laplace_profile(Victim(1.0, 0.0, ((0.85, 0.0), (1.0, 0.0))), others, 1e-5)
    assert isinstance(span, SpanProfile)
    inverse = span.smallest_epsilon(1e-5, 1.0)
    assert inverse.reached is not None
    bound = span.delta(inverse.epsilon)
    assert inverse.reached.value <= bound.value <= 1e-5
    assert span.delta(0.98 * inverse.epsilon).value > 1e-5
    assert span.smallest_epsilon(1e-5, 0.9 * inverse.epsilon).reached is None


# The product over the hosts, from the atoms of every law, and the bounds within a cell.


@functools.cache
def laws_of(victim: float, epsilon: float, rate: float) -> list[tuple[Floats, Floats, float]]:
    places, thin = zip(*laplace_laws.members(victim, epsilon, rate), strict=True)
    values, mass = laplace_laws.ratio_atoms(victim, epsilon, rate, places)
    return list(zip(values, mass, thin, strict=True))


def log_product(curve: ExchangeLaplaceProfile, epsilon: float, z: complex) -> Floats:
    """ln of the product of |phi(z)| in every stage, each budget's worst law; phi by its definition."""
    sums = curve.sums(epsilon)
    totals = []
    for end in stages(curve.horizon)[0].tolist():
        total = 0.0
        for tier, rate in enumerate(curve.rates.tolist()):
            weight, gamma = float(sums.weights[0, tier]), float(curve.blanket[tier])
            rung = 1 - math.exp(-weight * end)
            left = float(curve.kept[tier]) * (1 - rung / gamma) / (1 - rung)
            worst = -math.inf
            for values, mass, between in laws_of(curve.local_epsilon, epsilon, rate):
                thin = between * left
                phi = 1 + thin * (np.expm1(z * weight * values / thin) @ mass)
                worst = max(worst, math.log(abs(phi)))
            total += float(sums.count[tier]) * worst
        totals.append(total)
    return np.array(totals)


@pytest.mark.parametrize(
    "tiers", [[(1.0, 60)], [(0.1, 700), (0.8, 300), (2.0, 9)], [(k / 15, 40) for k in range(1, 16)]]
)
def test_the_product_is_that_of_all_hosts_and_within_a_cell_not_below_it(
    tiers: Tiers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange_laplace, "GROUPS", 10)
    victim, epsilon = tiers[-1][0], 0.06
    curve = curve_of(tiers, victim, 1e-4)
    sums = curve.sums(epsilon)
    theta = sums.tilt()
    edges = np.linspace(0.0, 4.0, 81) / (theta * sums.deviation)
    bounds = sums.logarithms(theta, edges[None])[0]
    for cell in (0, 4, 24, 60):
        ends = edges[cell], edges[cell + 1] * (1 - 1e-9)
        at_left, at_right = (log_product(curve, epsilon, float(theta[0]) * (1 + 1j * r)) for r in ends)
        assert (np.maximum(at_left, at_right) <= bounds[:, cell]).all()
        if cell < 24:  # further out the polynomial is above it, where hosts are few
            assert (bounds[:, cell] <= at_left + 0.02).all()


TABLE = [
    ([(1.0, 10_000)], 1.0, 1e-6, 0.03139),
    ([(0.5, 1_000)], 0.5, 1e-4, 0.0318),
    ([(0.1, 5_400), (0.5, 3_700), (1.0, 900)], 1.0, 1e-6, 0.0409),
    ([(0.1, 5_400), (0.5, 3_700), (1.0, 900)], 0.5, 1e-6, 0.0199),
    ([(0.1, 5_400), (0.5, 3_700), (1.0, 900)], 0.1, 1e-6, 0.00378),
    ([(2.0, 10_000)], 2.0, 1e-6, 0.0723),
    ([(3.0, 10_000)], 3.0, 1e-6, 0.137),
    ([(4.0, 10_000)], 4.0, 1e-6, 0.2517),
    ([(0.1, 9_000), (3.0, 1_000)], 3.0, 1e-6, 0.187),
]


@pytest.mark.parametrize(("tiers", "victim", "delta", "expected"), TABLE)
def test_the_table_of_the_specification(tiers: Tiers, victim: float, delta: float, expected: float) -> None:
    epsilon = epsilon_of(tiers, victim, delta)
    attack = lower_bound(Budgets.from_tiers(tiers), "laplace", victim=victim, delta=delta).epsilon
    assert attack <= epsilon <= expected * 1.002


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
    assert hurt[1] == pytest.approx(epsilon_of([(0.5, 1_700), (1.0, 1_700)], 1.0), rel=1e-6)


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
    larger = Others(np.array([2.0]), np.zeros(1), np.array([100], dtype=np.int64), 0)
    assert isinstance(exchange_laplace_profile(Victim(1.0), larger, 1e-6), NoAmplification)
    span = Victim(1.9, 0.0, ((1.0, 0.0), (1.9, 0.0)))
    assert isinstance(exchange_laplace_profile(span, larger, 1e-6), NoAmplification)
    # Its smallest victims have no host.
    wider = exchange_laplace_profile(Victim(3.0, 0.0, ((1.0, 0.0), (3.0, 0.0))), larger, 1e-6)
    assert isinstance(wider, SpanProfile)
    assert wider.delta(0.5).value == 1
    assert wider.smallest_epsilon(1e-6, 2.9).reached is None
    assert isinstance(exchange_laplace_profile(Victim(40.0), larger, 1e-6), NoAmplification)
