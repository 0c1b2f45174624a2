"""The exchange bound with a core and tails: its lemmas by quadrature, the whole against data sets and attacks."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from accountant.attacks.lower_bound import lower_bound
from accountant.bounds import core_laws, exchange_core
from accountant.bounds.core_laws import (
    Apart,
    Cut,
    places_of_hosts,
    shared_blanket,
    shared_mass,
    split_family,
    split_mean,
)
from accountant.bounds.exchange import stages
from accountant.bounds.exchange_core import ExchangeCoreProfile, distances, in_core
from accountant.bounds.exchange_laplace import (
    ExchangeLaplaceProfile,
    FollowedProduct,
    exchange_laplace_profile,
    spread,
)
from accountant.bounds.laplace_laws import Family
from accountant.bounds.profile import Others, Victim, smallest_epsilon
from croupier import Budgets, certify
from tests.accountant.bounds.test_exchange_laplace import histogram, letters
from tests.accountant.bounds.test_exchange_parts import score_divergence, scored, summed
from tests.support.drawn import drawn

Floats = NDArray[np.float64]
Tiers = list[tuple[float, int]]


def others_of(tiers: Tiers, victim: float, dishonest: int = 0) -> Others:
    """All users but one of the victim's budget."""
    count = np.array([n - (e == victim) for e, n in tiers], dtype=np.int64)
    return Others(np.array([e for e, _ in tiers]), np.zeros(len(tiers)), count, dishonest)


def core_of(tiers: Tiers, victim: float, delta: float | None, dishonest: int = 0) -> ExchangeCoreProfile | None:
    others = others_of(tiers, victim, dishonest)
    own = exchange_laplace_profile(Victim(victim), others, delta)
    return in_core(own if isinstance(own, ExchangeLaplaceProfile) else None, Victim(victim), others, delta)


def density(rate: float, centre: float, z: Floats) -> Floats:
    return rate / 2 * np.exp(-rate * np.abs(z - centre))


def grid(*marks: float, reach: float) -> tuple[Floats, Floats]:
    """Nodes and weights: cells between the marks, finer next to them, and as far beyond them as is said."""
    ends, fine = sorted(set(marks)), np.geomspace(1e-4, reach, 400)
    edges = [np.linspace(low, high, 401) for low, high in itertools.pairwise(ends)]
    edges += [mark + side * fine for mark in ends for side in (-1, 1)]
    cells = np.unique(np.concatenate([*edges, ends]))
    nodes, weights = np.polynomial.legendre.leggauss(4)
    middle, half = (cells[1:] + cells[:-1]) / 2, np.diff(cells) / 2
    return (middle[:, None] + half[:, None] * nodes).ravel(), (half[:, None] * weights).ravel()


def parts(apart: Apart, cut: Cut, z: Floats) -> tuple[Floats, Floats]:
    """D_1 and D_2 of the only distance, by their definition."""
    v, d = apart.victim, float(apart.distance[0])
    whole = density(v, 0.0, z) - math.exp(apart.log_gain[0]) * density(v, d, z)
    away = np.maximum(np.maximum(-cut.radius - z, z - d - cut.radius), 0.0)
    first = cut.kept * whole * np.exp(-(cut.steep - v) * away) + cut.moved * on_core(apart, cut, z)
    return first, whole - first


def on_core(apart: Apart, cut: Cut, z: Floats) -> Floats:
    """psi of the only distance."""
    v, d = apart.victim, float(apart.distance[0])
    both: Floats = density(v, 0.0, z) + math.exp(apart.log_kept[0]) * density(v, d, z)
    return np.where((z >= -cut.radius) & (z <= d + cut.radius), both / 2, 0.0)


def drawn_cut(rng: np.random.Generator) -> tuple[Apart, Cut, float, bool]:
    """Two distances, one of them twice, a cut of each, and the rate of a host of the core, or (True) of the tails."""
    victim = float(np.exp(rng.uniform(math.log(0.1), math.log(6))))
    most = min(3.0, 0.8 * victim)
    epsilon = float(rng.choice([math.exp(rng.uniform(math.log(1e-9), math.log(most))), rng.uniform(0.05, 1) * most]))
    first, second = rng.permutation([rng.choice([1.0, rng.uniform(0.05, 1)]), rng.uniform(0.05, 1)])
    width = np.sqrt(8 * epsilon * rng.uniform(0, 0.5, 2)) / victim
    at = exchange_core._apart(victim, np.array([first, second, first]), width[[0, 1, 0]], epsilon)
    steep = victim * float(rng.choice([1.05, rng.uniform(1.1, 3), rng.uniform(3, 6)]))
    radius = float(rng.choice([0.0, rng.uniform(0, 0.2), rng.uniform(0.2, 4)])) / victim
    size = float(rng.choice([epsilon, victim]))
    moved = size * rng.choice([0.0, rng.uniform(0, 0.3), rng.uniform(-0.3, 0), rng.uniform(-1, 1)], 3, replace=False)
    cut = Cut(radius, steep, moved, float(rng.choice([1.0, rng.uniform(0.5, 1), rng.uniform(0.01, 0.5)])))
    tails = bool(rng.integers(2))
    most = victim if tails else steep
    return at, cut, float(rng.choice([most, victim, rng.uniform(min(0.05, most / 2), most)])), tails


def row_of(at: Apart, cut: Cut, row: int) -> tuple[Apart, Cut]:
    """This distance alone."""
    return at.only(row), replace(cut, moved=float(np.broadcast_to(cut.moved, at.distance.shape)[row]))


@given(st.integers(0, 2**32 - 1))
@drawn(12)
def test_every_host_is_below_the_laws_of_a_few_places(seed: int) -> None:
    """L1 and T1 for either part, whatever the host's budget: in convex order, by quadrature."""
    rng = np.random.default_rng(seed)
    at, cut, rate, tails = drawn_cut(rng)
    at, cut = row_of(at, cut, int(rng.integers(3)))
    low, d = float(at.nearest[0]) - 1, float(at.distance[0])
    host = float(rng.choice([rng.uniform(low, 1), low, 1.0, 0.0, d]))
    z, width = grid(0.0, d, host, low, 1.0, -cut.radius, d + cut.radius, reach=30 / at.victim)
    shown = parts(at, cut, z)[tails]
    own = density(rate, host, z)
    laws = [(density(rate, low + unit * (1 - low), z), thin) for unit, thin in places_of_hosts(rate)]
    levels = np.quantile(shown / own, [0.001, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.999])
    for level in (*levels, 0.0):
        true = float(np.maximum(shown - level * own, 0) @ width)
        best = max(
            float(np.maximum(shown - level * thin * r, 0) @ width) + (1 - thin) * max(0.0, -level) for r, thin in laws
        )
        assert true <= best * (1 + 1e-6) + 1e-9


@given(st.integers(0, 2**32 - 1))
@drawn(24)
def test_the_moments_and_means_of_both_parts_are_those_by_quadrature(seed: int) -> None:
    """Of every row; second moments to one per cent."""
    rng = np.random.default_rng(seed)
    all_rows, whole, rate, tails = drawn_cut(rng)
    family, places = split_family(all_rows, rate, whole, tails=tails), places_of_hosts(rate)
    if family is None:  # hardly ever
        return
    means, sizes = split_mean(all_rows, whole, tails=tails)
    assert family.scale.shape == (3 * len(places),)
    for row in range(3):
        at, cut = row_of(all_rows, whole, row)
        low, d = float(at.nearest[0]) - 1, float(at.distance[0])
        for index, (unit, thin) in enumerate(places, row * len(places)):
            host = low + unit * (1 - low)
            z, width = grid(0.0, d, host, -cut.radius, d + cut.radius, reach=60 / at.victim)
            reference, shown = density(rate, host, z), parts(at, cut, z)[tails]
            ratio = shown / reference
            assert float(shown @ width) == pytest.approx(means[row], abs=1e-6 * sizes[row] + 1e-13)
            most = np.abs(ratio).max() / thin
            assert most * (1 - 1e-9) <= family.scale[index] <= most * 1.1
            for power in (2, 3, 4):
                moment = float((ratio**power * reference) @ width) / thin ** (power - 1)
                largest = float((np.abs(ratio) ** power * reference) @ width) / thin ** (power - 1)
                found = float(family.scale[index] ** power * family.moments[index, power - 2])
                assert abs(found - moment) <= {2: 0.01, 3: 0.05, 4: 0.1}[power] * largest
                assert power == 3 or found >= moment * (1 - 1e-6)


@given(st.integers(0, 2**32 - 1))
@drawn(12)
def test_what_is_given_in_place_of_the_core_is_in_every_host(seed: int) -> None:
    """psi/Z, of which every host's law has a part gamma: no less, and at the worst host no more."""
    rng = np.random.default_rng(seed)
    rows, cut, _, _ = drawn_cut(rng)
    rate = rows.victim * float(rng.choice([1.0, rng.uniform(0.02, 1)]))
    mass, gamma = shared_mass(rows, cut), shared_blanket(rows, cut, rate)
    for row in range(3):
        at, alone = row_of(rows, cut, row)
        low, d = float(at.nearest[0]) - 1, float(at.distance[0])
        z, width = grid(0.0, d, low, 1.0, -cut.radius, d + cut.radius, reach=1.0)
        psi = on_core(at, alone, z)
        assert float(psi @ width) == pytest.approx(mass[row], rel=1e-9)
        z = np.unique(np.concatenate([z, [0.0, d]]))
        omega, hosts = on_core(at, alone, z) / mass[row], np.unique([*np.linspace(low, 1, 41), 0.0, d])
        kept = [float((density(rate, x, z)[omega > 0] / omega[omega > 0]).min()) for x in hosts.tolist()]
        assert gamma[row] < min(kept) <= gamma[row] * (1 + 1e-9)


@pytest.mark.parametrize("rate", [3.0, 3.4, 3.9, 4.3, 5.0])
def test_a_largest_ratio_between_the_edges_of_cells_is_not_missed(rate: float) -> None:
    """Between the victim's values, where the difference starts from 0 at the first one and the host is at the other."""
    at = exchange_core._apart(0.5, np.ones(1), np.zeros(1), 0.1)
    moved = 2 * 0.7 * math.expm1(0.1 - 0.5) / (1 + math.exp(-0.5))
    z = np.linspace(0.0, 1.0, 100_001)
    ratio = parts(at, Cut(0.0, 6.0, moved, 0.7), z)[0] / density(rate, 1.0, z)
    assert 0.1 < z[ratio.argmin()] < 0.9
    cells = core_laws._Middle.of(0.5, rate, np.ones((1, 1)), at.log_gain[:, None], np.zeros((1, 1)), np.ones((1, 1)))
    values, mass = cells.atoms(np.zeros(1, dtype=np.int64), 0.7, np.full((1, 1), moved))
    assert ratio.min() * 1.02 <= values.min() <= ratio.min() * (1 - 1e-9)
    assert ratio.max() == pytest.approx(0.0, abs=1e-9)
    assert mass.sum() == pytest.approx((1 - math.exp(-rate)) / 2)


@pytest.mark.parametrize("rate", [0.5, 0.93, 0.97, 0.995, 1.0])
@pytest.mark.parametrize("radius", [0.0, 3.0])
def test_a_largest_ratio_far_out_is_not_missed(rate: float, radius: float) -> None:
    """Of the tails, which hosts of nearly the victim's budget show best where hardly any report is."""
    at, cut = exchange_core._apart(1.0, np.ones(1), np.zeros(1), 0.1), Cut(radius, 1.05, 0.0)
    z = np.concatenate([-np.linspace(0.0, 300.0, 30_001)[::-1], 1 + np.linspace(0.0, 300.0, 30_001)])
    family = split_family(at, rate, cut, tails=True)
    assert family is not None
    for index, (unit, thin) in enumerate(places_of_hosts(rate)):
        most = np.abs(parts(at, cut, z)[1] / density(rate, unit, z)).max()
        assert most * (1 - 1e-6) <= family.scale[index] * thin <= 1.05 * most


def test_what_no_laws_are_given_for() -> None:
    """Rates too large for the part, radii and shares out of range, and terms that cancel or overflow."""
    at = exchange_core._apart(12.0, np.ones(1), np.zeros(1), 0.1)
    for rate, tails in ((12.1, True), (14.1, False)):
        with pytest.raises(ValueError, match="rate must be at most"):
            split_family(at, rate, Cut(0.1, 14.0, 0.0), tails=tails)
    with pytest.raises(ValueError, match="rate must be at most"):
        shared_blanket(at, Cut(0.1, 14.0, 0.0), 12.1)
    for radius, kept in ((-0.1, 1.0), (0.1, 0.0), (0.1, 1.1)):
        with pytest.raises(ValueError, match="radius must be"):
            Cut(radius, 14.0, 0.0, kept)
    # Left of 0 nothing is left but rounding, which a host near 1 shows much larger than all the rest.
    exact = -2 * -math.expm1(0.1 - 12) / (1 + math.exp(-12))
    for share, known in ((0.0, True), (0.9, True), (1.0, False)):
        assert (split_family(at, 9.0, Cut(5.0, 14.0, share * exact), tails=False) is not None) == known
    assert split_family(at, 14.0, Cut(200.0, 14.0, 0.0), tails=False) is None


@given(st.integers(0, 2**32 - 1))
@drawn(12)
def test_any_exponential_moment_is_below_the_one_that_is_used(seed: int) -> None:
    """For theta > 0, by quadrature, of a host anywhere."""
    rng = np.random.default_rng(seed)
    at, cut, rate, tails = drawn_cut(rng)
    at, cut = row_of(at, cut, int(rng.integers(3)))
    family = split_family(at, rate, cut, tails=tails)
    if family is None:
        return
    low, d = float(at.nearest[0]) - 1, float(at.distance[0])
    mean, sizes = split_mean(at, cut, tails=tails)
    w = float(rng.uniform(0.05, 3)) / float(family.scale.max())
    number = family.scale.size
    left = float(rng.choice([1.0, rng.uniform(0.5, 1)]))  # thinned once more, by a clock that has not rung
    of_each = (np.repeat(mean, number), np.repeat(sizes, number), np.full((number, 1), w * left))
    bounds, _ = exchange_core._log_phi(family, *of_each, np.full((number, 1), left))
    host = float(rng.choice([rng.uniform(low, 1), low, 1.0]))
    z, width = grid(0.0, d, host, -cut.radius, d + cut.radius, reach=60 / at.victim)
    own, shown = density(rate, host, z), parts(at, cut, z)[tails]
    t = w * shown / own
    change = np.where(np.abs(t) < 1e-4, t * t / 2, np.expm1(t) - t)
    true = math.log1p(left * (w * float(mean[0]) + float((change * own) @ width)))
    assert true <= float(bounds.max()) + 1e-6 * w * w * float((family.scale**2 * family.moments[:, 0]).max())


@given(st.integers(0, 2**32 - 1))
@drawn(12)
def test_every_pair_of_values_is_covered_by_two_distances(seed: int) -> None:
    """f_0 - E f_d is pointwise below a mean of the two ends' differences, and the hosts are in their intervals."""
    rng = np.random.default_rng(seed)
    victim = float(np.exp(rng.uniform(math.log(0.05), math.log(5))))
    epsilon = victim * float(np.exp(rng.uniform(math.log(1e-3), 0)))
    found = distances(victim, epsilon)
    if found is None:
        assert victim > 60 * math.sqrt(epsilon)
        return
    ends = found.distance
    assert ends.size <= max(most for _, most in exchange_core.STEPS)
    assert ends[0] == 1
    assert ends[-1] <= epsilon / victim
    assert (found.log_gain > 0).all()
    d = float(rng.uniform(epsilon / victim, 1))
    upper = int(np.flatnonzero(ends >= d)[-1])
    lower = upper + 1
    z = np.unique(np.concatenate([np.linspace(-3, 4, 2_001), ends[[upper, lower]], [0.0, d]]))
    h = ends[upper] - ends[lower]
    share = math.sinh(victim * (d - ends[lower])) / math.sinh(victim * h)
    rest = math.sinh(victim * (ends[upper] - d)) / math.sinh(victim * h)
    share = share / (share + rest)
    least = sum(
        part * (density(victim, 0.0, z) - math.exp(found.log_gain[k]) * density(victim, float(ends[k]), z))
        for part, k in ((share, upper), (1 - share, lower))
    )
    assert (density(victim, 0.0, z) - math.exp(epsilon) * density(victim, d, z) <= least + 1e-12 * victim).all()
    for k in (upper, lower):
        assert found.nearest[k] <= d


def moment(at: Apart, cut: Cut, rate: float, w: float, left: float, *, tails: bool) -> float:
    """The largest exponential moment of the laws of this budget at w, thinned once more; by quadrature."""
    low, d, found = float(at.nearest[0]) - 1, float(at.distance[0]), []
    for unit, thin in places_of_hosts(rate):
        host = low + unit * (1 - low)
        z, width = grid(0.0, d, host, -cut.radius, d + cut.radius, reach=40 / at.victim)
        own, shown, thin = density(rate, host, z), parts(at, cut, z)[tails], thin * left
        t = w * shown / own / thin
        change = np.where(np.abs(t) < 1e-4, t * t / 2, np.expm1(t) - t)
        found.append(w * float(shown @ width) + thin * float((change * own) @ width))
    return max(found)


@pytest.mark.parametrize("tails", [False, True])
@pytest.mark.parametrize("users", [60, 2_000])
def test_the_bound_by_one_moment_is_that_of_all_hosts_and_stages(
    users: int, tails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the tilt that was used, with what the clocks take in every stage."""
    tilts: list[float] = []
    as_used = exchange_core._Rows.exponent

    def seen(rows: exchange_core._Rows, theta: Floats, thin: Floats) -> Floats:
        tilts.append(float(theta[0, 0]))
        return as_used(rows, theta, thin)

    monkeypatch.setattr(exchange_core._Rows, "exponent", seen)
    rates, count = np.array([0.3, 0.6, 1.0]), np.array([users, users / 2, users])
    hosts = exchange_core._Hosts.of(rates[: 3 - tails], count[: 3 - tails], 1e-2)
    epsilon = 0.4 if users < 1_000 else 0.06
    at = exchange_core._apart(0.6, np.array([0.9]), np.array([0.05]), epsilon)
    cut = Cut(2.0, 1.0, 0.1 * epsilon)
    families = [split_family(at, rate, cut, tails=tails) for rate in hosts.rates.tolist()]
    known = [family for family in families if family is not None]
    found = float(hosts.log_bounds(known, *split_mean(at, cut, tails=tails))[0])
    precision = np.array([1 / float((f.scale**2 * f.moments[:, 0]).max()) for f in known])
    weights = spread(precision, hosts.count, hosts.blanket, hosts.horizon)
    ends, log_mass = stages(hosts.horizon, exchange_core.STAGES)
    heights = []
    for end, log_share in zip(ends.tolist(), log_mass.tolist(), strict=True):
        rung = 1 - np.exp(-weights * end)
        left = (1 - rung / hosts.blanket) / (1 - rung)
        each = [
            math.log1p(moment(at, cut, float(e), tilts[-1] * float(w), float(c), tails=tails))
            for e, w, c in zip(hosts.rates, weights, left, strict=True)
        ]
        heights.append(float(hosts.count @ np.array(each)) + log_share)
    true = float(np.logaddexp.reduce(heights)) - math.log(tilts[-1]) - 1
    assert true - 1e-3 <= found <= true + 0.3


def test_both_parts_and_silent_clocks_are_charged() -> None:
    rates, count, v, epsilon = np.array([0.6, 1.0]), np.array([60.0, 100.0]), 0.6, 0.2
    core, tails = (exchange_core._Hosts.of(rates[:k], count[:k], 1e-4) for k in (2, 1))
    alone = ExchangeCoreProfile(v, None, core, None, 1.5, 0.2, refined=False)
    both, whole = replace(alone, tails=tails), replace(alone, refined=True)
    found = distances(v, epsilon)
    assert found is not None
    at, cut = found.only(0), alone._cut(epsilon)
    z, width = grid(0.0, 1.0, -1.5, 2.5, reach=60.0)
    first, second = parts(at, cut, z)
    mass = float(np.maximum(second, 0) @ width)
    assert float(alone._rest(at, cut)[0]) == pytest.approx(mass, rel=1e-3)
    assert math.exp(-tails.horizon) * mass < float(both._rest(at, cut)[0]) <= mass
    silent = math.exp(-core.horizon) * float(np.maximum(first, 0) @ width)
    assert alone._unheard(cut) >= silent
    for curve in (alone, both, whole):
        bound = curve.in_core(epsilon)
        assert bound >= float(curve._rest(at, cut)[0]) + silent
        assert whole.in_core(epsilon) <= bound or curve is both
    for hosts, tail in ((core, False), (tails, True)):
        families = [split_family(at, rate, cut, tails=tail) for rate in hosts.rates.tolist()]
        known = [family for family in families if family is not None]
        heard = math.exp(float(hosts.log_bounds(known, *split_mean(at, cut, tails=tail))[0]))
        if tail:
            assert heard + math.exp(-hosts.horizon) * mass < mass
            assert both._rest(at, cut)[0] == pytest.approx(heard + math.exp(-hosts.horizon) * mass, rel=1e-5)
        else:
            assert alone._core(at, cut)[0] == pytest.approx(heard + alone._unheard(cut), rel=1e-12)
            assert alone._unheard(cut) > 1e-9 * heard


def test_the_integral_is_of_what_the_clocks_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Floats] = []

    class Seen(FollowedProduct):
        def __init__(self, families: tuple[Family, ...], count: Floats, weights: Floats, drift: float) -> None:
            seen.append(np.array([family.scale.max() for family in families]))
            super().__init__(families, count, weights, drift)

    monkeypatch.setattr(exchange_core, "FollowedProduct", Seen)
    hosts = exchange_core._Hosts.of(np.array([0.6, 1.0]), np.array([40.0, 200.0]), 1e-4)
    at, cut = exchange_core._apart(0.6, np.ones(1), np.zeros(1), 0.2), Cut(2.0, 1.0, 0.02)
    families = [split_family(at, rate, cut, tails=False) for rate in (0.6, 1.0)]
    known = [family for family in families if family is not None]
    mean, terms = split_mean(at, cut, tails=False)
    found = hosts.integral(known, float(mean[0]))
    assert found < math.exp(hosts.log_bounds(known, mean, terms)[0])
    weights = spread(np.array([1 / family.variance for family in known]), hosts.count, hosts.blanket, hosts.horizon)
    ends, _ = stages(hosts.horizon, exchange_core.STAGES)
    assert len(seen) == exchange_core.STAGES
    for end, scales in zip(ends.tolist(), seen, strict=True):
        rung = 1 - np.exp(-weights * end)
        left = (1 - rung / hosts.blanket) / (1 - rung)
        assert scales == pytest.approx(np.array([family.scale.max() for family in known]) / left, rel=1e-9)


def test_each_distance_has_its_own_integral(monkeypatch: pytest.MonkeyPatch) -> None:
    curve = core_of([(0.3, 1_000), (0.5, 9_000)], 0.3, 1e-6)
    assert curve is not None
    epsilon = 0.015
    found = distances(0.3, epsilon)
    assert found is not None
    quick = curve._core(found, curve._cut(epsilon))

    def nothing_at_one(self: ExchangeCoreProfile, apart: Apart, cut: Cut) -> float:
        return 0.0 if apart.distance[0] == 1 else 0.99 * float(self._core(apart, cut)[0])

    monkeypatch.setattr(ExchangeCoreProfile, "_integral", nothing_at_one)
    assert 0.98 * quick[1] <= curve.in_core(epsilon) < quick[0]


def drawn_curve(rng: np.random.Generator, users: int, delta: float) -> tuple[ExchangeCoreProfile, Tiers]:
    """A curve with a cut that is drawn, and the others that are honest: mostly of larger budgets."""
    victim = float(rng.uniform(0.3, 1.2))
    tiers: Tiers = [
        (victim * float(rng.uniform(0.2, 0.9)), int(rng.integers(0, users // 4))),
        (victim, int(rng.integers(1, users // 4))),
        (victim * float(rng.uniform(1.05, 2.2)), int(rng.integers(users // 2, users))),
        (victim * float(rng.uniform(2.3, 3)), int(rng.integers(0, users // 4))),
    ]
    tiers = [(e, n) for e, n in tiers if n]
    rates, count = np.array([e for e, _ in tiers]), np.array([float(n) for _, n in tiers])
    small = int(np.searchsorted(rates, victim, "right"))
    tails = exchange_core._Hosts.of(rates[:small], count[:small], delta) if rng.random() < 0.9 else None
    radius, share = float(rng.uniform(0.5, 5)) / victim, float(rng.choice([0.03, 0.1, 0.25]))
    curve = ExchangeCoreProfile(victim, None, exchange_core._Hosts.of(rates, count, delta), tails, radius, share)
    return replace(curve, refined=bool(rng.integers(2))), tiers


def useful(curve: ExchangeCoreProfile, delta: float) -> float:
    """About the epsilon at which section 7 gives this delta."""
    low, high = 0.0, curve.local_epsilon
    curve = replace(curve, refined=False)
    for _ in range(6):
        middle = (low + high) / 2
        low, high = (low, middle) if curve.in_core(middle) <= delta else (middle, high)
    return high


@given(st.integers(0, 2**32 - 1))
@drawn(2)
def test_no_data_set_of_some_hundred_users_is_worse(seed: int) -> None:
    """The best test for a sum, of these data, is a post-processing of the shuffled reports."""
    rng = np.random.default_rng(seed)
    delta = float(rng.choice([1e-1, 1e-2, 1e-4]))
    curve, tiers = drawn_curve(rng, 1_200, delta)
    victim = curve.local_epsilon
    cuts, levels = np.linspace(-4 / victim, 1 + 4 / victim, 120), 30
    epsilon = useful(curve, delta) * float(rng.uniform(0.9, 1))
    bound, gain = curve.in_core(epsilon), math.exp(epsilon)
    plain = np.arange(cuts.size + 1)
    for pair in ((0.0, 1.0), (1.0, 0.0), (0.1, 0.8)):
        cells = [scored(victim, x, cuts, plain, cuts.size) for x in pair]
        for at in itertools.product((0.0, 1.0), repeat=len(tiers)):
            crowd = sum(n * scored(e, x, cuts, plain, cuts.size) for (e, n), x in zip(tiers, at, strict=True))
            statistic = (cells[0] - gain * cells[1]) / crowd
            low, high = statistic.min(), statistic.max()
            score = np.rint((statistic - low) / (high - low) * levels).astype(np.int64)
            laws = [summed(score, law, levels) for law in cells]
            around = [(scored(e, x, cuts, score, levels), n) for (e, n), x in zip(tiers, at, strict=True)]
            assert score_divergence(laws[0], laws[1], around, gain) <= bound + 1e-12


@given(st.integers(0, 2**32 - 1))
@drawn(2)
def test_no_data_set_of_three_letters_is_worse(seed: int) -> None:
    """Reports shown in three categories, every histogram enumerated; values and cuts anywhere."""
    rng = np.random.default_rng(seed)
    delta = float(rng.choice([0.2, 0.05, 1e-2]))
    curve, tiers = drawn_curve(rng, 90, delta)
    victim, rates = curve.local_epsilon, np.repeat([e for e, _ in tiers], [n for _, n in tiers])
    epsilons = [useful(curve, delta), float(rng.uniform(0.02, 0.5)) * victim]
    bounds = [curve.in_core(epsilon) for epsilon in epsilons]
    for _ in range(6):
        pair = rng.permutation([0.0, 1.0]) if rng.random() < 0.7 else rng.uniform(0, 1, 2)
        values = rng.choice([np.zeros(rates.size), np.ones(rates.size), rng.uniform(0, 1, rates.size)])
        cuts = np.sort(rng.choice([pair[0], pair[1], 0.5, rng.uniform(-1, 2)], 2, replace=False))
        laws = [histogram(letters(np.append(rates, victim), np.append(values, own), cuts)) for own in pair]
        for epsilon, bound in zip(epsilons, bounds, strict=True):
            assert float(np.maximum(laws[0] - math.exp(epsilon) * laws[1], 0).sum()) * (1 - 1e-10) <= bound


def epsilon_of(curve: ExchangeCoreProfile, delta: float) -> float:
    return smallest_epsilon(curve, delta, curve.local_epsilon, 1e-4).epsilon


MOSTLY_LARGER = [
    ([(0.3, 100_000), (0.5, 900_000)], 0.3, 1e-6, 0.00095),
    ([(0.1, 500_000), (0.3, 500_000), (0.5, 9_000_000)], 0.3, 1e-6, 0.000245),
    ([(0.05, 500), (1.0, 500), (2.0, 9_000)], 1.0, 1e-6, 0.0765),
]


@pytest.mark.parametrize(("tiers", "victim", "delta", "most"), MOSTLY_LARGER)
def test_between_the_attack_and_what_the_largest_victims_have(
    tiers: Tiers, victim: float, delta: float, most: float
) -> None:
    """Among the smaller budgets alone they had 2.1 to 2.5 times what the attack proves for the largest."""
    curve = core_of(tiers, victim, delta)
    assert curve is not None
    assert curve.own is not None
    found, attack = epsilon_of(curve, delta), lower_bound(Budgets.from_tiers(tiers), "laplace", delta=delta)
    own = lower_bound(Budgets.from_tiers(tiers), "laplace", victim=victim, delta=delta).epsilon
    assert own <= found <= most
    assert found <= 1.08 * attack.epsilon
    assert curve.own.delta(1.5 * found).value > delta
    for share in (0.3, 0.7):  # a curve of many points is as sound
        assert curve.plain.delta(share * found).value >= curve.delta(share * found).value * (1 - 1e-9)


@pytest.mark.parametrize(("delta", "users"), [(1e-12, 10_000), (1e-9, 10_000), (1e-3, 500)])
@pytest.mark.parametrize("dishonest", [0, 200])
def test_no_attack_is_better(delta: float, users: int, dishonest: int) -> None:
    tiers = [(0.3, users), (0.5, 9 * users)]
    curve = core_of(tiers, 0.3, delta, dishonest)
    assert curve is not None
    assert curve.core.count.tolist() == [users - 1 - dishonest, 9 * users - dishonest]
    attack = lower_bound(Budgets.from_tiers(tiers), "laplace", victim=0.3, delta=delta, dishonest=dishonest)
    assert attack.epsilon <= epsilon_of(curve, delta) <= 1.4 * attack.epsilon


def test_a_victim_with_few_hosts_of_its_own() -> None:
    """The tails' positive mass is all that is charged where there is none."""
    alone = core_of([(0.45, 1), (0.5, 900_000)], 0.45, 1e-6)
    assert alone is not None
    assert alone.own is None
    assert alone.tails is None
    assert lower_bound(Budgets.from_tiers([(0.5, 900_000)]), "laplace", delta=1e-6).epsilon > epsilon_of(alone, 1e-6)
    many = core_of([(0.45, 50_000), (0.5, 900_000)], 0.45, 1e-6)
    assert many is not None
    assert epsilon_of(many, 1e-6) <= epsilon_of(alone, 1e-6)


def test_where_it_is_used() -> None:
    """Both sides of each threshold: larger budgets, what the largest has, eight budgets, spans and what can be used."""
    larger = [(0.5 + 0.001 * k, 10_000) for k in range(8)]
    assert core_of([(0.3, 1_000), *larger[:7]], 0.3, 1e-6) is not None
    assert core_of([(0.3, 1_000), *larger], 0.3, 1e-6) is None  # nine budgets
    assert core_of([(0.3, 1_000), (0.5, 9_000)], 0.5, 1e-6) is None  # nobody has more
    assert core_of([(0.3, 9_000), (0.5, 1_000)], 0.3, 1e-6) is None  # it has less than the largest anyway
    assert core_of([(0.3, 1_000), (0.5, 9_000)], 0.3, 1e-6, dishonest=9_000) is None
    assert core_of([(0.3, 1_000), (31.0, 9_000)], 0.3, 1e-6) is None
    assert core_of([(30.5, 1_000), (31.0, 9_000)], 30.5, 1e-6) is None
    span = Victim(0.3, 0.0, ((0.29, 0.0), (0.3, 0.0)))
    assert in_core(None, span, others_of([(0.3, 1_000), (0.5, 9_000)], 0.3), 1e-6) is None


@pytest.mark.parametrize(("larger", "kept"), [(3, True), (4, False)])
def test_curves_of_many_points_have_up_to_four_budgets(larger: int, kept: bool) -> None:
    tiers: Tiers = [(0.3, 1_000), *((0.5 + 0.001 * k, 10_000 * (1 + k)) for k in range(larger))]
    curve = core_of(tiers, 0.3, 1e-6)
    assert curve is not None
    assert curve.core.rates.size == larger + 1
    assert isinstance(curve.plain, ExchangeCoreProfile) == kept
    assert curve.plain.delta(0.01).value >= curve.delta(0.01).value


def test_what_it_claims_where_it_is_of_no_use() -> None:
    curve = core_of([(0.3, 1_000), (0.5, 9_000)], 0.3, 1e-6)
    assert curve is not None
    assert distances(0.3, 0.0) is None
    assert distances(0.3, 0.3) is None
    assert curve.in_core(0.0) == math.inf
    assert curve.in_core(1e-9) == math.inf  # too many distances
    assert curve.delta(0.3).value == curve.delta(0.4).value == 0
    for epsilon in (0.0, 1e-9, 0.01, 0.1, 0.2999999):
        bound = curve.delta(epsilon)
        assert 0 < bound.value <= -math.expm1((epsilon - 0.3) / 2) * (1 + 1e-12)
        assert 0 <= bound.slack <= bound.value
    with pytest.raises(ValueError, match="epsilon"):
        curve.delta(-0.1)


def test_the_whole_certificate_and_its_curves() -> None:
    """One round, several, and what is recorded; settings without larger budgets are as before."""
    tiers = [(0.3, 10_000), (0.5, 90_000)]
    found = certify(tiers, "laplace", delta=1e-6)
    assert found.lower_bound is not None
    assert found.lower_bound.epsilon <= found.epsilon <= 1.02 * found.lower_bound.epsilon
    small = found.tiers[0]
    assert small.epsilon < found.epsilon
    assert small.privacy_profile is not None
    assert small.privacy_profile.delta(1.15 * small.epsilon).value <= 1e-6
    twice = certify(tiers, "laplace", delta=1e-6, rounds=2, attack=False)
    assert twice.epsilon <= 1.6 * found.epsilon
    back = certify(tiers, "laplace", epsilon=found.epsilon, attack=False)
    assert back.delta <= 1.01e-6
    for linkage, tier in (("separate", 0.3), ("stratified", 0.3)):
        held = certify(tiers, "laplace", delta=1e-6, linkage=linkage, attack=False).tiers[0]
        assert held.local_epsilon == tier
        assert (held.epsilon < 0.004) == (linkage == "separate")
