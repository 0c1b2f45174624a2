"""Many sums at once: |phi| by quadrature, and whole bounds against exact laws of sums."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from croupier.accountant.bounds.exchange import SMOOTHING, integral
from croupier.accountant.bounds.laplace_laws import Family
from croupier.accountant.bounds.noise_sums import NoiseSums, Tilted
from tests.support.cuts import density, drawn_split, grid, marks, parts, row_of
from tests.support.drawn import drawn

Floats = NDArray[np.float64]


@given(st.integers(0, 2**32 - 1))
@drawn(12)
def test_any_exponential_moment_is_below_the_one_that_is_used(seed: int) -> None:
    """At rest, for w > 0, by quadrature, of a host anywhere, thinned once more by a clock that has not rung."""
    rng = np.random.default_rng(seed)
    at, cut, rate, tails = drawn_split(rng)
    at, cut = row_of(at, cut, int(rng.integers(3)))
    family = cut.family(at, rate, tails=tails)
    if family is None:  # hardly ever
        return
    mean, sizes = cut.mean(at, tails=tails)
    left = float(rng.choice([1.0, rng.uniform(0.5, 1)]))
    w = float(np.exp(rng.uniform(math.log(1e-3), math.log(4)))) * left / float(family.scale.max())
    rest = float(Tilted.of(one_row(family, mean, sizes, left), 0, family, np.array([w])).rest.max())
    (low,), (high,) = (x.tolist() for x in at.hosts)
    host = float(rng.choice([rng.uniform(low, high), low, high]))
    z, width = grid(0.0, float(at.distance[0]), host, *marks(at, cut), reach=60 / at.victim)
    own, shown = density(rate, host, z), parts(at, cut, z)[tails]
    t = w * shown / own / left
    change = np.where(np.abs(t) < 1e-4, t * t / 2, np.expm1(t) - t)
    true = (1 + w * float(mean[0]) + left * float((change * own) @ width)) ** 2 - 1
    assert true <= rest + 1e-6 * w * w * float((family.scale**2 * family.moments[:, 0]).max()) + 1e-15


def one_row(family: Family, mean: Floats, terms: Floats, left: float) -> NoiseSums:
    """Returns the sums of one host."""
    return NoiseSums(np.ones(1), np.ones((1, 1)), np.zeros((1, 1)), mean, terms, np.full((1, 1, 1), left), (family,))


@given(st.integers(0, 2**32 - 1))
@drawn(40)
def test_every_law_is_below_the_polynomial_on_the_whole_line(seed: int) -> None:
    """|phi(w (1 + ir))|^2 of laws on a few atoms of one mean, and near it for small r."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(3, 5)) * np.exp(rng.normal(size=(3, 5)))
    mass = rng.dirichlet(np.ones(5), 3)
    mean = float(rng.normal() * 0.2)
    values += (mean - (values * mass).sum(1))[:, None]
    family, left = Family.of(values, mass, np.ones(3)), float(rng.choice([1.0, rng.uniform(0.5, 1)]))
    w = float(np.exp(rng.uniform(math.log(1e-4), math.log(4)))) * left / float(family.scale.max())
    row = one_row(family, np.array([mean]), np.array([abs(mean)]), left)
    laws = Tilted.of(row, 0, family, np.array([w]))
    deviation = w * math.sqrt(float((family.scale**2 * family.moments[:, 0]).max()))
    turns = np.concatenate([[0.0], np.geomspace(0.01, 20, 60) / deviation])
    line = w * (1 + 1j * turns)
    for index in range(3):
        inner = line[:, None] * values[index] / left
        phi = 1 + line * mean + left * (np.exp(inner) - 1 - inner) @ mass[index]
        true, polynomial = np.abs(phi) ** 2 - 1, laws.rest - laws.first * turns**2 + laws.second * turns**4
        above = polynomial[0, index]
        assert (true <= above + 1e-14 * (1 + np.abs(line) ** 2)).all()
        near = turns * w * np.abs(values).max() < 0.1 * left
        assert (above[near] <= true[near] + 3e-4 * deviation**2 * (1 + turns[near] ** 2) + 1e-14).all()
        assert (laws.at(turns[None] ** 2)[0, 0] >= above * (1 + 1e-12 * np.sign(-above)) - 1e-15).all()


def family_of(laws: list[tuple[Floats, Floats]]) -> Family:
    """Returns the family of laws that have equal numbers of atoms."""
    values, mass = (np.stack(part) for part in zip(*laws, strict=True))
    return Family.of(values, mass, np.ones(len(laws)))


def sum_of(values: Floats, mass: Floats, count: int, left: float, size: int) -> Floats:
    """The law of X_1 + ... + X_n, of integer values, each thinned: X/left with probability left; by Fourier sums."""
    law = np.zeros(size)
    for value, chance in zip(values, mass, strict=True):
        law[round(value / left) % size] += left * chance
    law[0] += 1 - left
    return np.fft.irfft(np.fft.rfft(law) ** count, size)


@given(st.integers(0, 2**32 - 1))
@drawn(4)
def test_the_bound_is_just_above_the_worst_sum(seed: int) -> None:
    """Two tiers of two laws each, two stages, by exact convolution: for several means at once."""
    rng = np.random.default_rng(seed)
    count = rng.integers(150, 600, 2)
    left = np.array([[1.0, 0.5], [1.0, 1.0]])  # (T, S): halves keep integer values integers
    log_mass = np.log([0.6, 0.3])
    scale, size = 1 / int(count.sum()), 1 << 16
    number, tiers, means = 4, [], []
    shift = rng.uniform(-0.25, 0.08, number)
    for _ in range(2):
        laws = []
        for k in range(number):
            for _ in range(2):
                low, high = rng.integers(2, 9, 2)
                # Values -2 low, 0, 2 high with about the mean `shift`, exactly that of the row for both.
                share = float(rng.uniform(0.2, 0.9))
                up = (share * low + shift[k] / 2) / (low + high)
                laws.append((np.array([-2.0 * low, 0.0, 2.0 * high]), np.array([share - up, 1 - share, up])))
        tiers.append(laws)
        means.append([float(v @ m) for v, m in laws])
    assert np.allclose(np.array(means), np.repeat(shift, 2))
    weights = np.full((number, 2), scale)
    rows = NoiseSums(
        count.astype(np.float64),
        weights,
        np.repeat(log_mass[None], number, axis=0),
        shift,
        np.abs(shift) + 1,
        np.repeat(left[None], number, axis=0),
        tuple(family_of(laws) for laws in tiers),
    )
    bounds = rows.positive_parts(0.02)
    place = np.arange(size)
    positive = np.where(place < size // 2, place, 0) * scale
    for k in range(number):
        worst = 0.0
        for first, second in itertools.product(tiers[0][2 * k : 2 * k + 2], tiers[1][2 * k : 2 * k + 2]):
            total = 0.0
            for stage in range(2):
                law = [
                    np.fft.rfft(sum_of(*law, int(n), float(thin), size))
                    for law, n, thin in zip((first, second), count, left[:, stage], strict=True)
                ]
                total += math.exp(log_mass[stage]) * float(positive @ np.fft.irfft(law[0] * law[1], size))
            worst = max(worst, total)
        assert worst * (1 - 1e-9) - 1e-14 <= bounds[k]
        assert bounds[k] <= 1.5 * worst + 1e-13 or worst < 1e-9


def test_a_coarser_integral_is_larger_and_every_stage_counts() -> None:
    law = (np.array([-2.0, 2.0]), np.array([0.52, 0.48]))
    family = family_of([law])

    def bound(step: float, log_mass: list[float]) -> float:
        stages = len(log_mass)
        rows = NoiseSums(
            np.array([1_000.0]),
            np.full((1, 1), 1e-3),
            np.array([log_mass]),
            np.array([-0.08]),
            np.array([1.0]),
            np.ones((1, 1, stages)),
            (family,),
        )
        return float(rows.positive_parts(step)[0])

    fine, coarse = bound(0.02, [0.0]), bound(0.1, [0.0])
    assert fine < coarse < 1.1 * fine
    assert bound(0.02, [math.log(0.5), math.log(0.5)]) == pytest.approx(fine, rel=1e-9)
    assert bound(0.02, [math.log(0.25)]) == pytest.approx(fine / 4, rel=1e-9)


def test_what_lies_beyond_the_last_cell_is_charged() -> None:
    """Cells that end early, of a product that does not fall: the integral by quadrature, at the best smoothing."""
    theta, spread, hosts = np.array([0.7]), np.array([2.0]), np.array([3.0])
    edges = np.array([[0.0, 0.2, 0.5, 0.8]])
    bound = float(integral(theta, spread, hosts, edges, np.zeros((1, 3)))[0])
    r = np.linspace(0, 60, 600_001)
    true = []
    for variance in SMOOTHING:
        rate = variance / 3.0 * 4.0 / 2
        inner = np.exp(rate * (1 - r * r)) / (1 + r * r)
        true.append(float(((inner[1:] + inner[:-1]) / 2 * np.diff(r)).sum()) / (math.pi * 0.7))
    assert min(true) <= bound <= 3 * min(true)


def test_nothing_is_claimed_where_the_series_overflows() -> None:
    family = Family(np.array([1e200]), np.full((1, 27), 1e-300))
    rows = NoiseSums(
        np.array([10.0]),
        np.full((1, 1), 0.1),
        np.zeros((1, 1)),
        np.array([-1e300]),
        np.array([1e300]),
        np.ones((1, 1, 1)),
        (family,),
    )
    bound = float(rows.positive_parts(0.05)[0])
    assert bound == math.inf or bound > 0
