"""The laws of a cut of Laplace noise: lemmas, moments, means and what hosts give, by quadrature."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from accountant.bounds import core_laws, core_limit, exchange_core
from accountant.bounds.core_laws import (
    Apart,
    Cut,
    places_of_hosts,
    shared_blanket,
    shared_mass,
    split_family,
    split_mean,
)
from tests.support.drawn import drawn

Floats = NDArray[np.float64]


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
    outside = np.where(z <= 0, *cut.shares) * whole * np.exp(-(cut.steep - v) * away)
    ends = [v / 2 * (1 - math.exp(apart.log_gain[0] - v * d)), v / 2 * (math.exp(-v * d) - math.exp(apart.log_gain[0]))]
    first, last = (share * end for share, end in zip(cut.shares, ends, strict=True))
    kept = np.where((z > 0) & (z < d), between(cut.inner(v), d, first, last, z), outside)
    kept += cut.moved * on_core(apart, cut, z)
    return kept, whole - kept


def between(rate: float, d: float, first: float, last: float, z: Floats) -> Floats:
    """The solution of f'' = rate^2 f with these values at 0 and d."""
    inside = np.clip(z, 0.0, d)
    found: Floats = (first * np.sinh(rate * (d - inside)) + last * np.sinh(rate * inside)) / np.sinh(rate * d)
    return found


def on_core(apart: Apart, cut: Cut, z: Floats) -> Floats:
    """psi of the only distance."""
    v, d = apart.victim, float(apart.distance[0])
    end = (1 + math.exp(-v * d)) * v / 4
    away = np.maximum(np.maximum(-z, z - d), 0.0)
    psi = between(cut.inner(v), d, end, end, z) * np.exp(-v * away)
    return np.where(away <= cut.radius, psi, 0.0)


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
    kept, far = (float(rng.choice([1.0, rng.uniform(0.5, 1), rng.uniform(0.01, 0.5)])) for _ in range(2))
    far = float(rng.choice([far, min(1.0, kept * (1 + rng.uniform(-0.1, 0.1)))]))
    bent = None if rng.random() < 0.4 else (far, victim * float(rng.choice([1.0, rng.uniform(0.01, 2)])))
    cut = Cut(radius, steep, moved, kept, bent)
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
@drawn(10)
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
    rate = rows.victim * float(rng.choice([1.0, rng.uniform(0.02, 1), rng.uniform(1, 3)]))
    mass, gamma = shared_mass(rows, cut), shared_blanket(rows, cut, rate)
    for row in range(3):
        at, alone = row_of(rows, cut, row)
        low, d = float(at.nearest[0]) - 1, float(at.distance[0])
        z, width = grid(0.0, d, low, 1.0, -cut.radius, d + cut.radius, reach=1.0)
        psi = on_core(at, alone, z)
        assert float(psi @ width) == pytest.approx(mass[row], rel=1e-9)
        end = cut.radius * (1 - 1e-12)
        z = np.unique(np.concatenate([z, [0.0, d, -end, d + end]]))
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
    cells = core_laws._Middle.of(0.5, rate, 0.5, (0.7, 0.7), np.ones((1, 1)), at.log_gain[:, None], np.ones((1, 1)))
    values, mass = cells.atoms(np.zeros(1, dtype=np.int64), np.full((1, 1), moved), whole=False)
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
    for radius, kept in ((-0.1, 1.0), (0.1, 0.0), (0.1, 1.1)):
        with pytest.raises(ValueError, match="radius must be"):
            Cut(radius, 14.0, 0.0, kept)
    for bent in ((0.0, 2.0), (1.1, 2.0), (0.5, 0.0)):
        with pytest.raises(ValueError, match="inner > 0"):
            Cut(0.1, 14.0, 0.0, 1.0, bent)
    # At a distance of 0 nothing lies between the values.
    nowhere = exchange_core._apart(12.0, np.zeros(1), np.zeros(1), 0.1)
    assert split_family(nowhere, 9.0, Cut(5.0, 14.0, 0.0, 0.5, (0.5, 2.0)), tails=True) is None
    # Left of 0 nothing is left but rounding, which a host near 1 shows much larger than all the rest.
    exact = -2 * -math.expm1(0.1 - 12) / (1 + math.exp(-12))
    for share, known in ((0.0, True), (0.9, True), (1.0, False)):
        assert (split_family(at, 9.0, Cut(5.0, 14.0, share * exact), tails=False) is not None) == known
    assert split_family(at, 14.0, Cut(200.0, 14.0, 0.0), tails=False) is None


@pytest.mark.parametrize("left", [0.1, 1e-3, 1e-6, 1e-9])
def test_the_mean_of_the_tails_is_exact_where_nearly_nothing_is_left(left: float) -> None:
    """Reproduction: 1 less the mean of two shares was 10^8 ulp off where both are nearly 1."""
    v, gain = 1.0, 0.01
    for d, radius in ((1.0, 30.0), (0.1, 1.0), (0.01, 0.1)):
        apart = Apart(v, np.array([d]), np.array([gain]), np.array([d]))
        cut = Cut(radius, 1.3, 0.0, 1 - left, (1 - left / 3, v))
        mean, size = split_mean(apart, cut, tails=True)
        with mpmath.workdps(60):
            cost, far = mpmath.exp(mpmath.mpf(gain)), mpmath.exp(-mpmath.mpf(d) * v)
            true = mpmath.mpf(0)
            for share, value in zip(cut.shares, ((1 - cost * far) / 2, (far - cost) / 2), strict=True):
                rest, beyond = 1 - mpmath.mpf(share), mpmath.exp(-mpmath.mpf(radius))
                steep = mpmath.mpf(share) / mpmath.mpf(cut.steep)
                true += value * (rest * (1 - beyond) + beyond * (1 - steep) + rest * mpmath.tanh(mpmath.mpf(d) / 2))
            assert abs(mpmath.mpf(float(mean[0])) - true) <= 16 * 2.0**-52 * float(size[0])


def test_the_limit_is_a_number_among_budgets_forty_times_as_large() -> None:
    """Reproduction: 0 times infinity, and with it no cut for 112 x .0391 among 908,721 x 1.362."""
    with np.errstate(all="raise", under="ignore"):
        hosts = core_limit._Hosts(908_721.0, 1.362, 0.0391, 1.0, 0.01, 0.0391)
    assert np.isfinite(hosts.squares(np.ones(hosts.outer.shape[2]))).all()


def test_without_tails_no_part_of_the_core_is_given_away() -> None:
    apart = Apart(1.0, np.array([1.0]), np.array([0.1]), np.array([1.0]))
    profile = object.__new__(exchange_core.ExchangeCoreProfile)
    object.__setattr__(profile, "local_epsilon", 1.0)
    object.__setattr__(profile, "core", None)
    with pytest.raises(ValueError, match="without tails the core has all of the difference"):
        profile._alone_in_core(apart, Cut(1.0, 1.3, 0.0, 0.9), 0.1)
