"""Laws above that of every host with Laplace noise, for any values: T3 of the exchange bound.

A law is that of X = (R_x0 - e^epsilon R_x1)/R_host under R_host, thinned (T1), for one of a few places; the lemmas are
in docs/paper, section 5. Each law is moved to a few atoms with its mean kept, which makes it larger in convex order,
and is passed on by its moments. `noise_sums` adds them up.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from croupier.accountant.numerics.binomial import UNIT, Floats, Ints

PLACE_WIDTH = 0.1
"""The width, in units of 1/budget, of the first and last cell of a host's places. Wider cells thin every law more (T1);
narrower ones make more laws."""
WIDENING = 0.4
"""The growth of cells with their distance from the end, because hosts further inside are hidden better."""
OUTSIDE_COST = 0.0005
"""The fraction by which the second moment may be larger for hosts that are not between the victim's values, in units of
the square of budgets above 1. A smaller fraction makes more laws."""
CELLS = 96
"""Cells of z, and half as many in a tail, on which the likelihood ratio is moved to its end values. The cells of a tail
are narrowest near its start. Half as many cells cost 0.1 % of epsilon."""
DISTANCES = 9
"""Distances of the victim's values with known second moments, from which the places outside are chosen."""
TERMS = 40
"""The most terms of the power series of phi; a bound on the omitted terms is added."""
AT_ONCE = 1 << 15
"""The number of values that are computed at once, which fit into the processor's cache."""


@dataclass(frozen=True, eq=False)
class Family:
    """Thinned laws of X, F of them, by their moments: E[X^k] = scale[f]^k moments[f, k-2] for k >= 2, |X| <= scale."""

    scale: Floats
    moments: Floats

    @classmethod
    def of(cls, values: Floats, mass: Floats, thin: Floats) -> Family:
        """Applies T1 to laws with these values and masses, (F, L): X/thin with probability thin, (F,), otherwise 0."""
        thin = thin * (1 - 8 * UNIT)
        scale = np.abs(values).max(1) / thin * (1 + 8 * UNIT)
        moments, step = np.empty((scale.size, TERMS - 1)), max(1, AT_ONCE // values.shape[1])
        for first in range(0, scale.size, step):
            part = slice(first, first + step)
            unit = values[part] / (thin * scale)[part, None]
            power = mass[part] * thin[part, None] * unit
            for k in range(TERMS - 1):
                power *= unit
                moments[part, k] = power.sum(1)
        return cls(scale, moments)

    def part(self, number: int, rows: Ints | slice, laws: slice | list[int] = slice(None)) -> Family:
        """Returns the given laws of the given rows of `number` rows; rows may repeat."""
        which = np.arange(self.scale.size).reshape(number, -1)[rows][:, laws].ravel()
        return Family(self.scale[which], self.moments[which])

    def largest_second(self, rows: int) -> Floats:
        """Returns the largest second moment in each of `rows` rows of laws: (rows,)."""
        largest: Floats = (self.scale**2 * self.moments[:, 0]).reshape(rows, -1).max(1)
        return largest


Place = tuple[float, float, float]
"""The victim's two values and a host's."""


def cell_mass(rate: float, centre: Floats, edges: Floats) -> Floats:
    """Returns the Laplace mass of each cell between edges (the outer two may be infinite); none has centre inside."""
    low, high = edges[:, :-1], edges[:, 1:]
    near = np.where(low >= centre, low - centre, centre - high)
    mass: Floats = 0.5 * np.exp(-rate * near) * -np.expm1(-rate * (high - low))
    return mass


def two_atoms(low: Floats, high: Floats, mass: Floats, product: Floats) -> tuple[Floats, Floats]:
    """Returns atoms on two values of every cell that enclose its values in either order; mass and mean are kept."""
    mean = np.divide(product, mass, out=np.zeros_like(mass), where=mass > 0)
    width = np.where(high == low, 1.0, high - low)
    upper = np.clip((mean - low) / width, 0.0, 1.0)
    return np.concatenate([low, high], axis=1), np.concatenate([mass * (1 - upper), mass * upper], axis=1)


def _cells(slow: float, fast: float, places: Floats) -> Floats:
    """Returns edges of cells for laws that are smooth between the places and decay at these rates outside: (P, L+1)."""
    widths = np.linspace(0.0, 1.0, CELLS // 2) ** 2
    tail = np.union1d(8 * widths / fast, 9 * widths / slow)
    first, last = places[:, :1], places[:, 1:2]
    middle = first + (last - first) * np.linspace(0.0, 1.0, CELLS + 1)
    middle[:, -1] = places[:, 1]
    middle = np.sort(np.concatenate([middle, places[:, 2:]], axis=1), axis=1)
    far = np.full(first.shape, math.inf)
    return np.concatenate([-far, first - tail[:0:-1], middle, last + tail[1:], far], axis=1)


def ratio_atoms(victim: float, epsilon: float, rate: float, places: Sequence[Place]) -> tuple[Floats, Floats]:
    """Returns values and masses, (P, L), of X = (R_x0 - e^epsilon R_x1)/R_host under R_host for each of the places.

    R_host is of the given rate <= victim, and x0 <= host <= x1: X is monotone in every cell, between its end values.
    """
    at = np.array(places)
    x0, x1, host = at[:, :1], at[:, 1:2], at[:, 2:]
    edges = _cells(rate, victim, at)
    inner = edges[:, 1:-1]
    ends = victim / rate * np.exp(rate * np.abs(inner - host)) * difference(victim, epsilon, inner, inner, x0, x1)
    outer = ends[:, [0, -1]] if rate == victim else np.zeros((at.shape[0], 2))  # the limits: constant, or 0
    ends = np.concatenate([outer[:, :1], ends, outer[:, 1:]], axis=1)
    low, high = edges[:, :-1], edges[:, 1:]
    product = 0.5 * -np.expm1(-victim * (high - low)) * difference(victim, epsilon, low, high, x0, x1)
    return two_atoms(ends[:, :-1], ends[:, 1:], cell_mass(rate, host, edges), product)


def difference(victim: float, epsilon: float | Floats, low: Floats, high: Floats, x0: Floats, x1: Floats) -> Floats:
    """Returns e^(-v d0) - e^(epsilon - v d1), not cancelling; d0, d1 are the distances of x0, x1 from [low, high]."""
    near, other = (np.maximum(np.maximum(low - x, x - high), 0.0) for x in (x0, x1))
    left, right = high <= x0, low >= x1
    further = np.where(left, x1 - x0, np.where(right, x0 - x1, other - near))
    value: Floats = np.exp(-victim * near) * -np.expm1(epsilon - victim * further)
    return value


@lru_cache(maxsize=128)
def family_of(victim: float, epsilon: float, rate: float, kept: float = 1.0) -> Family:
    """Returns the laws of T3: every host of this budget, for any values, is below a mixture of them.

    kept: hosts of smaller budgets, down to kept * rate, are below it as well (L3).
    """
    laws = members(victim, epsilon, rate)
    values, mass = ratio_atoms(victim, epsilon, rate, [place for place, _ in laws])
    return Family.of(values, mass, np.array([thin for _, thin in laws]) * kept)


def places_of_hosts(rate: float, length: float) -> list[tuple[float, float]]:
    """Returns places, from 0 to 1 in units of an interval of at most this length, and the thinning of each (L1, T1).

    They are close to each other near the ends, where a host is at its worst.
    """
    half, end = [0.0], length / 2
    while half[-1] < end:
        half.append(min(end, half[-1] + PLACE_WIDTH / rate + WIDENING * half[-1]))
    cells = [*half, *(length - x for x in half[-2::-1])]
    cost = [1 / math.cosh(rate * (right - left) / 2) for left, right in itertools.pairwise(cells)]
    weighted = zip(cells, [1.0, *cost], [*cost, 1.0], strict=True)
    return [(place / length, min(before, after) * (1 - 64 * UNIT)) for place, before, after in weighted]


def members(victim: float, epsilon: float, rate: float) -> list[tuple[Place, float]]:
    """Returns the places and the thinning of T3's laws."""
    between = places_of_hosts(rate, 1.0)
    laws: list[tuple[Place, float]] = [((0.0, 1.0, x), thin) for x, thin in between]
    first, last = 0.0, 1 - epsilon / victim * (1 - 1e-12)
    places = np.linspace(0.0, max(last, 0.0), DISTANCES)
    second = second_moments(victim, epsilon, rate, places)
    cost = OUTSIDE_COST * max(1.0, rate) ** 2
    most = (1 + cost) * float(second[0]) / between[0][1]
    while first < last:
        # The largest edge with a second moment of about the largest above; any edge is sound.
        slack = most / max(float(np.interp(first, places, second)), 1e-300)
        edge = min(1.0, max(math.log(slack) / rate, first + max(cost, 0.125 * first) / max(1.0, rate)))
        laws.append(((first, 1.0, first), math.exp(-rate * edge)))
        laws.append(((0.0, 1 - first, 1 - first), math.exp(-rate * edge)))
        first = edge
    return laws


def second_moments(victim: float, epsilon: float, rate: float, places: Floats) -> Floats:
    """Returns the larger E X^2 of a host at either of two values of the victim, 1 - y apart, (Y,)."""
    pairs: list[Place] = [(y, 1.0, y) for y in places.tolist()]
    pairs += [(0.0, 1 - y, 1 - y) for y in places.tolist()]
    values, mass = ratio_atoms(victim, epsilon, rate, pairs)
    moments: Floats = np.maximum(*np.split((values**2 * mass).sum(1), 2))
    return moments
