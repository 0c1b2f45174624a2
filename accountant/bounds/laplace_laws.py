"""The laws that every host with Laplace noise is below, whatever the values are: T3 of the exchange bound.

A law is that of X = (R_x0 - e^epsilon R_x1)/R_host under R_host, thinned (T1), for one of a few places; the lemmas are
in docs/paper, section 5. Laws are put on few atoms with the mean kept, which makes them larger in convex
order, and handed on as moments. What is made of them is left to `noise_sums`.
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
"""The width, in units of 1/budget, of the first and last cell of the places of a host: wider cells thin every law more
(T1), narrower ones make more laws."""
WIDENING = 0.4
"""How cells widen with their distance from the end, because hosts further inside are hidden better."""
OUTSIDE_COST = 0.0005
"""By what part hosts that are not between the victim's values may have a larger second moment, times the square of
budgets above 1: less makes more laws."""
CELLS = 96
"""Cells of z, and half as many in a tail, on which the likelihood ratio is put on its end values; those of a tail are
narrowest near its start. Half as many cost 0.1 % of epsilon."""
DISTANCES = 9
"""Distances of the victim's values at which second moments are known, to choose the places outside."""
TERMS = 40
"""Terms of the power series of phi, at most; a bound on the omitted terms is added."""
AT_ONCE = 1 << 15
"""How many numbers are dealt with at once: as many as fit into the processor's cache."""


@dataclass(frozen=True, eq=False)
class Family:
    """Thinned laws of X, F of them, by their moments: E[X^k] = scale[f]^k moments[f, k-2] for k >= 2, |X| <= scale."""

    scale: Floats
    moments: Floats

    @classmethod
    def of(cls, values: Floats, mass: Floats, thin: Floats) -> Family:
        """T1 for the laws on these values with these masses, (F, L): X/thin with chance thin, (F,), otherwise 0."""
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
        """These laws of these rows, which may repeat, where there are as many rows."""
        which = np.arange(self.scale.size).reshape(number, -1)[rows][:, laws].ravel()
        return Family(self.scale[which], self.moments[which])

    def largest_second(self, rows: int) -> Floats:
        """The largest second moment of each of as many rows of laws: (rows,)."""
        largest: Floats = (self.scale**2 * self.moments[:, 0]).reshape(rows, -1).max(1)
        return largest


Place = tuple[float, float, float]
"""The victim's two values and a host's."""


def cell_mass(rate: float, centre: Floats, edges: Floats) -> Floats:
    """The Laplace mass of each cell between consecutive edges (the outer two may be infinite); centre is in none."""
    low, high = edges[:, :-1], edges[:, 1:]
    near = np.where(low >= centre, low - centre, centre - high)
    mass: Floats = 0.5 * np.exp(-rate * near) * -np.expm1(-rate * (high - low))
    return mass


def two_atoms(low: Floats, high: Floats, mass: Floats, product: Floats) -> tuple[Floats, Floats]:
    """Atoms on two values of every cell between which (either way round) all of its are; mass and mean are kept."""
    mean = np.divide(product, mass, out=np.zeros_like(mass), where=mass > 0)
    width = np.where(high == low, 1.0, high - low)
    upper = np.clip((mean - low) / width, 0.0, 1.0)
    return np.concatenate([low, high], axis=1), np.concatenate([mass * (1 - upper), mass * upper], axis=1)


def _cells(slow: float, fast: float, places: Floats) -> Floats:
    """Edges of cells for laws that are smooth between the places and decay at these rates outside them: (P, L+1)."""
    widths = np.linspace(0.0, 1.0, CELLS // 2) ** 2
    tail = np.union1d(8 * widths / fast, 9 * widths / slow)
    first, last = places[:, :1], places[:, 1:2]
    middle = first + (last - first) * np.linspace(0.0, 1.0, CELLS + 1)
    middle[:, -1] = places[:, 1]
    middle = np.sort(np.concatenate([middle, places[:, 2:]], axis=1), axis=1)
    far = np.full(first.shape, math.inf)
    return np.concatenate([-far, first - tail[:0:-1], middle, last + tail[1:], far], axis=1)


def ratio_atoms(victim: float, epsilon: float, rate: float, places: Sequence[Place]) -> tuple[Floats, Floats]:
    """X = (R_x0 - e^epsilon R_x1)/R_host under R_host for each of the places: values and masses, (P, L).

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
    """e^(-v d0) - e^(epsilon - v d1), d0 and d1 the distances of x0 and x1 from [low, high]: without cancellation."""
    near, other = (np.maximum(np.maximum(low - x, x - high), 0.0) for x in (x0, x1))
    left, right = high <= x0, low >= x1
    further = np.where(left, x1 - x0, np.where(right, x0 - x1, other - near))
    value: Floats = np.exp(-victim * near) * -np.expm1(epsilon - victim * further)
    return value


@lru_cache(maxsize=128)
def family_of(victim: float, epsilon: float, rate: float, kept: float = 1.0) -> Family:
    """T3: every host of this budget, whatever its value and the victim's, is below a mixture of these laws.

    kept: hosts of smaller budgets, down to kept * rate, are as well (L3).
    """
    laws = members(victim, epsilon, rate)
    values, mass = ratio_atoms(victim, epsilon, rate, [place for place, _ in laws])
    return Family.of(values, mass, np.array([thin for _, thin in laws]) * kept)


def places_of_hosts(rate: float, length: float) -> list[tuple[float, float]]:
    """L1 with T1: places, from 0 to 1 in units of an interval of at most this length, and the thinning of each.

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
    """The places and the thinning of T3's laws."""
    between = places_of_hosts(rate, 1.0)
    laws: list[tuple[Place, float]] = [((0.0, 1.0, x), thin) for x, thin in between]
    first, last = 0.0, 1 - epsilon / victim * (1 - 1e-12)
    places = np.linspace(0.0, max(last, 0.0), DISTANCES)
    second = second_moments(victim, epsilon, rate, places)
    cost = OUTSIDE_COST * max(1.0, rate) ** 2
    most = (1 + cost) * float(second[0]) / between[0][1]
    while first < last:
        # As far as leaves the second moment about the largest of those above; any edge is sound.
        slack = most / max(float(np.interp(first, places, second)), 1e-300)
        edge = min(1.0, max(math.log(slack) / rate, first + max(cost, 0.125 * first) / max(1.0, rate)))
        laws.append(((first, 1.0, first), math.exp(-rate * edge)))
        laws.append(((0.0, 1 - first, 1 - first), math.exp(-rate * edge)))
        first = edge
    return laws


def second_moments(victim: float, epsilon: float, rate: float, places: Floats) -> Floats:
    """The larger E X^2 of a host at the first and at the second of two values of the victim, 1 - y apart, (Y,)."""
    pairs: list[Place] = [(y, 1.0, y) for y in places.tolist()]
    pairs += [(0.0, 1 - y, 1 - y) for y in places.tolist()]
    values, mass = ratio_atoms(victim, epsilon, rate, pairs)
    moments: Floats = np.maximum(*np.split((values**2 * mass).sum(1), 2))
    return moments
