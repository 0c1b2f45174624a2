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

from croupier.accountant.bounds import split_laws
from croupier.accountant.bounds.best_split import HostGroup, best_split
from croupier.accountant.bounds.laplace_laws import places_of_hosts
from croupier.accountant.bounds.split_laws import Distances, Split
from tests.support.cuts import all_within, density, drawn_split, grid, marks, parts, row_of, steps
from tests.support.drawn import drawn
from tests.support.messages import naming

Floats = NDArray[np.float64]


def places(at: Distances, rate: float) -> list[tuple[float, float]]:
    """Where hosts are put, for the first distance of those that are answered together."""
    low, high = at.hosts
    return places_of_hosts(rate, float((high - low).max()) * (1 + 2e-15))


@given(st.integers(0, 2**32 - 1))
@drawn(12)
def test_every_host_is_below_the_laws_of_a_few_places(seed: int) -> None:
    """L1 and T1 for either part, whatever the host's budget: in convex order, by quadrature."""
    rng = np.random.default_rng(seed)
    at, cut, rate, tails = drawn_split(rng)
    at, cut = row_of(at, cut, int(rng.integers(3)))
    (low,), (high,) = (x.tolist() for x in at.hosts)
    host = float(rng.choice([rng.uniform(low, high), low, high, *np.clip([0.0, at.distance[0]], low, high)]))
    z, width = grid(0.0, float(at.distance[0]), host, low, high, *marks(at, cut), reach=30 / at.victim)
    shown = parts(at, cut, z)[tails]
    own = density(rate, host, z)
    laws = [(density(rate, low + unit * (high - low), z), thin) for unit, thin in places(at, rate)]
    levels = np.quantile(shown / own, [0.001, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.999])
    for level in (*levels, 0.0):
        true = float(np.maximum(shown - level * own, 0) @ width)
        best = max(
            float(np.maximum(shown - level * thin * r, 0) @ width) + (1 - thin) * max(0.0, -level) for r, thin in laws
        )
        assert true <= best * (1 + 1e-6) + 1e-9


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1))
@drawn(10)
def test_the_moments_and_means_of_both_parts_are_those_by_quadrature(seed: int) -> None:
    """The test compares every row. Putting a cell on two values raises moments by at most the part of its width."""
    rng = np.random.default_rng(seed)
    all_rows, cuts, rate, tails = drawn_split(rng)
    family, at_most = cuts.family(all_rows, rate, tails=tails), places(all_rows, rate)
    if family is None:  # hardly ever
        return
    means, sizes = cuts.mean(all_rows, tails=tails)
    assert family.scale.shape == (3 * len(at_most),)
    for row in range(3):
        at, cut = row_of(all_rows, cuts, row)
        (low,), (high,) = (x.tolist() for x in at.hosts)
        for index, (unit, thin) in enumerate(at_most, row * len(at_most)):
            host = low + unit * (high - low)
            z, width = grid(0.0, float(at.distance[0]), host, *marks(at, cut), reach=60 / at.victim)
            reference, shown = density(rate, host, z), parts(at, cut, z)[tails]
            ratio = shown / reference
            assert float(shown @ width) == pytest.approx(means[row], abs=1e-6 * sizes[row] + 1e-13)
            assert np.abs(ratio).max() / thin * (1 - 1e-9) <= family.scale[index]
            for power in (2, 4, 6):
                moment = float((ratio**power * reference) @ width) / thin ** (power - 1)
                bound = float(family.scale[index] ** power * family.moments[index, power - 2])
                assert bound >= moment * (1 - 1e-6)


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1))
@drawn(6)
def test_the_moments_of_the_best_cuts_are_hardly_larger(seed: int) -> None:
    """Those that are used have cells narrow enough: half of the second moments are within 2 %, all within a quarter.

    The worst are of victims of ε above 3 beside a core of ε above 9: cells are the same for all.
    """
    rng = np.random.default_rng(seed)
    victim = float(np.exp(rng.uniform(math.log(0.3), math.log(4))))
    larger = bool(rng.integers(2))
    fast = victim * (float(rng.uniform(1.1, 3)) if larger else 1.0)
    core = HostGroup(np.array([fast]), np.array([1e5]))
    tails = HostGroup(np.array([victim * float(rng.uniform(0.05, 0.9))]), np.array([1e5]))
    distance = float(rng.uniform(0.3, 1))
    deviation, cut = best_split(victim, distance, 0.02 * victim, (core, tails))
    assert deviation > 0
    at = Distances.at(victim, np.array([distance]), np.zeros(1), 0.02 * victim)
    even = -cut.mean(at, tails=False)[0] / cut.mass(at)
    for hosts, rest in ((core, False), (tails, True)):
        for rate in hosts.rates.tolist():
            family = replace(cut, moved=even).family(at, rate, tails=rest)
            assert family is not None
            (low,), (high,) = (x.tolist() for x in at.hosts)
            for index, (unit, thin) in enumerate(places(at, rate)):
                host = low + unit * (high - low)
                z, width = grid(0.0, distance, host, *marks(at, cut), reach=60 / victim)
                reference = density(rate, host, z)
                ratio = parts(at, replace(cut, moved=float(even[0])), z)[rest] / reference
                second = float((ratio**2 * reference) @ width) / thin
                assert second * (1 - 1e-9) <= family.scale[index] ** 2 * family.moments[index, 0] <= 1.25 * second


@given(st.integers(0, 2**32 - 1))
@drawn(12)
def test_what_is_given_in_place_of_the_core_is_in_every_host(seed: int) -> None:
    """psi/Z, of which every host's law has a part gamma: no less, and at the worst host no more."""
    rng = np.random.default_rng(seed)
    rows, cut, rate, _ = drawn_split(rng)
    mass, gamma = cut.mass(rows), cut.gamma(rows, rate)
    for row in range(3):
        at, alone = row_of(rows, cut, row)
        (low,), (high,) = (x.tolist() for x in at.hosts)
        edges = np.unique(marks(at, alone))
        z, width = grid(*edges, reach=1.0)
        assert float(steps(at, alone, z)[1] @ width) == pytest.approx(mass[row], rel=1e-9)
        # 1/R is largest at an end of a cell.
        near = np.unique(np.concatenate([z, *(edges + x * 1e-12 for x in (-1, 0, 1))]))
        omega, hosts = steps(at, alone, near)[1] / mass[row], np.linspace(low, high, 41)
        kept = [float((density(rate, x, near)[omega > 0] / omega[omega > 0]).min()) for x in hosts.tolist()]
        assert gamma[row] < min(kept) * (1 + 1e-9)
        assert min(kept) <= gamma[row] * (1 + 1e-6)


@given(st.integers(0, 2**32 - 1))
@drawn(12)
def test_every_ratio_is_between_the_two_values_of_its_cell(seed: int) -> None:
    """D_1/R or D_2/R on a fine grid of every cell, whatever the rates and wherever the host is."""
    rng = np.random.default_rng(seed)
    at, cut, rate, tails = drawn_split(rng)
    at, cut = row_of(at, cut, int(rng.integers(3)))
    (low,), (high,) = (x.tolist() for x in at.hosts)
    host = float(rng.choice([rng.uniform(low, high), low, high]))
    x1, gain, place = (np.full((1, 1), x) for x in (at.distance[0], at.log_gain[0], host))
    cells = split_laws.CutCells.of(cut, at.victim, rate, x1, gain, place, tails=tails)
    values, _ = cells.atoms(np.zeros(1, dtype=np.int64), np.full((1, 1), -cut.moved if tails else cut.moved))
    least, most = np.split(values[0], 2)
    edges = np.sort(np.append(cut.edges(at.distance)[0], host))
    for k, (first, last) in enumerate(itertools.pairwise(edges)):
        first, last = max(first, edges[1] - 40 / at.victim), min(last, edges[-2] + 40 / at.victim)
        z = first + (last - first) * np.linspace(0.001, 0.999, 41)
        ratio = parts(at, cut, z)[tails] / density(rate, host, z)
        room = 1e-9 * np.abs(values).max()
        assert (ratio >= min(least[k], most[k]) - room).all()
        assert (ratio <= max(least[k], most[k]) + room).all()


@pytest.mark.parametrize("rate", [3.0, 3.4, 3.9, 4.3, 5.0])
def test_a_largest_ratio_between_the_edges_of_cells_is_not_missed(rate: float) -> None:
    """Between the victim's values, where the difference starts from 0 at the first one and the host is at the other."""
    v, gain = 0.5, 0.1
    at = Distances.at(v, np.ones(1), np.zeros(1), gain)
    share, psi = np.pad(np.full(40, 0.7), 2), np.pad(np.ones(40), 2)
    moved = 0.7 * math.expm1(gain - v)
    cut = Split(np.linspace(0.0, 1.0, 41), np.array([0.0, 0.1]), share, psi, moved)
    z = np.linspace(0.0, 1.0, 100_001)[:-1]
    ratio = parts(at, cut, z)[0] / density(rate, 1.0, z)
    assert 0.1 < z[ratio.argmin()] < 0.95
    cells = split_laws.CutCells.of(cut, v, rate, *(np.full((1, 1), x) for x in (1.0, gain, 1.0)), tails=False)
    values, mass = cells.atoms(np.zeros(1, dtype=np.int64), np.full((1, 1), moved))
    assert ratio.min() * 1.5 <= values.min() <= ratio.min() * (1 - 1e-9)
    assert mass.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("rate", [0.5, 0.93, 0.97, 0.995, 1.0])
@pytest.mark.parametrize("radius", [0.1, 3.0])
def test_a_largest_ratio_far_out_is_not_missed(rate: float, radius: float) -> None:
    """The largest ratio of the tails may lie far out, for hosts whose budget is close to the victim's."""
    at, cut = Distances.at(1.0, np.ones(1), np.zeros(1), 0.1), all_within(radius, 2.0)
    z = np.concatenate([-np.linspace(0.0, 300.0, 30_001)[::-1], 1 + np.linspace(0.0, 300.0, 30_001)])
    family = cut.family(at, rate, tails=True)
    assert family is not None
    for index, (unit, thin) in enumerate(places(at, rate)):
        most = np.abs(parts(at, cut, z)[1] / density(rate, unit, z)).max()
        assert most * (1 - 1e-6) <= family.scale[index] * thin <= 1.05 * most


def test_what_no_laws_are_given_for() -> None:
    """Rates too large for the part, shares and psi out of range, and terms that cancel or overflow."""
    at = Distances.at(12.0, np.ones(1), np.zeros(1), 0.1)
    core = all_within(5.0, 26.0)
    for cut, rate, tails in ((core, 12.1, True), (replace(core, share=np.ones_like(core.share)), 12.1, False)):
        with pytest.raises(ValueError, match=naming("rate")):
            cut.family(at, rate, tails=tails)
    for share in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=naming("share")):
            replace(core, share=np.full_like(core.share, share))
    for psi in (np.zeros_like(core.psi), -core.psi, np.ones_like(core.psi), np.where(core.psi > 0, math.inf, 0.0)):
        with pytest.raises(ValueError, match=naming("psi")):
            replace(core, psi=psi)
    with pytest.raises(ValueError, match="must have"):
        replace(core, psi=core.psi[1:])
    for edges in (core.inside[::-1], core.inside + 0.1, np.zeros_like(core.inside), core.inside * 0.9):
        with pytest.raises(ValueError, match=naming("edges", 1)):
            replace(core, inside=edges)
    with pytest.raises(ValueError, match=naming("edges", 1)):
        replace(core, outside=core.outside + 0.1)
    assert core.family(at, 14.0, tails=False) is not None
    assert all_within(200.0, 26.0).family(at, 14.0, tails=False) is None
    # Only rounding remains, which a host near 1 shows much larger than all the rest.
    flat = Split(np.array([0.0, 1.0]), np.array([0.0, 1e-9]), np.array([0.0, 1, 0, 0, 0]), np.array([0.0, 1, 0, 0, 0]))
    exact = math.expm1(0.1 - 12)
    for part, known in ((0.0, True), (0.9, True), (1.0, False)):
        assert (replace(flat, moved=part * exact).family(at, 9.0, tails=False) is not None) == known


def test_nothing_between_values_that_are_the_same() -> None:
    """A distance of 0 stands for those next to it."""
    cut = all_within(2.0, 4.0)
    at = Distances.at(2.0, np.zeros(1), np.array([0.01]), 0.1)
    assert cut.mean(at, tails=False)[0] == pytest.approx(-math.expm1(at.log_gain[0]) * -math.expm1(-4.0))
    family = cut.family(at, 2.0, tails=False)
    assert family is not None
    assert np.isfinite(family.scale).all()


@given(st.integers(0, 2**32 - 1))
@drawn(20)
def test_means_are_good_to_what_they_say(seed: int) -> None:
    """Against 60 digits, at victims' budgets from 10^-9 on, where the difference is nearly nothing."""
    rng = np.random.default_rng(seed)
    _, cut, _, tails = drawn_split(rng)
    v = float(np.exp(rng.uniform(math.log(1e-9), math.log(20))))
    d = float(rng.choice([1.0, rng.uniform(0.05, 1)]))
    gain = float(rng.uniform(0, 1)) * v * d
    at = Distances(v, *(np.array([x]) for x in (d, gain, d)))
    cut = replace(cut, moved=float(rng.choice([0.0, rng.uniform(-1, 1) * v])))
    (mean,), (size,) = cut.mean(at, tails=tails)
    with mpmath.workdps(60):
        rate, cost = mpmath.mpf(v), mpmath.exp(mpmath.mpf(gain))

        def below(x: mpmath.mpf) -> mpmath.mpf:
            return mpmath.exp(rate * x) / 2 if x < 0 else 1 - mpmath.exp(-rate * x) / 2

        edges = [mpmath.mpf(float(x)) for x in cut.edges(at.distance)[0]]
        of_cells = [
            below(b) - below(a) - cost * (below(b - mpmath.mpf(d)) - below(a - mpmath.mpf(d)))
            for a, b in itertools.pairwise(edges)
        ]
        share = [mpmath.mpf(float(x)) for x in cut.share]
        true = sum((1 - s if tails else s) * x for s, x in zip(share, of_cells, strict=True))
        moved = mpmath.mpf(float(cut.moved)) * sum(
            rate / 2 * mpmath.mpf(float(p)) * (b - a)
            for p, (a, b) in zip(cut.psi, itertools.pairwise(edges), strict=True)
            if p > 0
        )
        true += -moved if tails else moved
        assert abs(mpmath.mpf(float(mean)) - true) <= 16 * 2.0**-52 * float(size)
