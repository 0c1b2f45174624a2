"""The laws that every host with Laplace noise is below, whatever the values are: T3 of the exchange bound.

A law is that of X = (R_x0 - e^epsilon R_x1)/R_host under R_host, thinned (T1), for one of a few places; the lemmas are
in docs/exchange-bound.md, section 5. Laws are put on few atoms with the mean kept, which makes them larger in convex
order, and handed on as moments. What the hosts' product is made of is left to `exchange_laplace`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from croupier.accountant.numerics.binomial import UNIT, Floats, Ints

__all__ = [
    "MAX_TERMS",
    "Family",
    "Place",
    "cell_mass",
    "difference",
    "family_of",
    "members",
    "ratio_atoms",
    "thinned_family",
    "two_atoms",
]

END_CELL, WIDEST_CELL, OUTSIDE_COST = (0.05, 0.2), (0.125, 0.25), (0.0002, 0.004)
"""Positions of a host between the victim's two values: the first and last cell, in units of 1/budget; the widest; by
what part hosts that are not between them may have a larger second moment. Each for few budgets, and for many."""
MOST_OUTSIDE_COST = 0.3
"""That part is more at large budgets, up to this."""
MIDDLE_CELLS, TAIL_CELLS = (160, 64), 40
"""Cells of z on which the likelihood ratio is put on its end values, the first for few budgets, and for many; those of
a tail are narrowest near its start."""
MAX_TERMS = 40
"""Of the power series of phi, as a rule; what is left out is added."""


@dataclass(frozen=True, eq=False)
class Family:
    """The thinned laws of X for one budget, F of them, by their moments.

    phi(w) = 1 + E[X] w + sum_k moments[f, k] (w scale[f])^k / k!, k = 2 ... MAX_TERMS or more. |X| <= scale, and
    moments are of X/scale.
    """

    scale: Floats
    moments: Floats

    def only(self, members: Ints) -> Family:
        """These laws of it."""
        return Family(self.scale[members], self.moments[members])

    def thinned(self, thin: float) -> Family:
        """T1: X/thin with probability thin, otherwise 0."""
        return Family(self.scale / thin * (1 + 4 * UNIT), self.moments * thin)

    @property
    def variance(self) -> float:
        """The largest second moment."""
        return float((self.scale**2 * self.moments[:, 0]).max())


Place = tuple[float, float, float]
"""The victim's two values and a host's."""


def cell_mass(rate: float, centre: Floats, edges: Floats) -> Floats:
    """The Laplace mass of each cell between consecutive edges (the outer two may be infinite); centre is in none."""
    low, high = edges[:, :-1], edges[:, 1:]
    near = np.where(low >= centre, low - centre, centre - high)
    whole: Floats = 0.5 * np.exp(-rate * near) * -np.expm1(-rate * (high - low))
    return whole


def _cells(slow: float, fast: float, places: Floats, pieces: int) -> Floats:
    """Edges of cells for laws that are smooth between the places and decay at these rates outside them: (P, L+1)."""
    widths = np.linspace(0.0, 1.0, TAIL_CELLS) ** 2
    tail = np.union1d(8 * widths / fast, 9 * widths / slow)
    first, last = places[:, :1], places[:, 1:2]
    middle = first + (last - first) * np.linspace(0.0, 1.0, pieces + 1)
    middle[:, -1] = places[:, 1]
    middle = np.sort(np.concatenate([middle, places[:, 2:]], axis=1), axis=1)
    far = np.full(first.shape, math.inf)
    return np.concatenate([-far, first - tail[:0:-1], middle, last + tail[1:], far], axis=1)


def _on_ends(ends: Floats, mass: Floats, product: Floats) -> tuple[Floats, Floats]:
    """Atoms on the end values of every cell, with the cell's mass and with its mean, product / mass, kept.

    ends: (P, L+1), monotone values at the edges; the value within a cell is between those of its ends.
    """
    return two_atoms(ends[:, :-1], ends[:, 1:], mass, product)


def two_atoms(low: Floats, high: Floats, mass: Floats, product: Floats) -> tuple[Floats, Floats]:
    """Atoms on two values of every cell between which (either way round) all of its are; mass and mean are kept."""
    mean = np.divide(product, mass, out=np.zeros_like(mass), where=mass > 0)
    width = np.where(high == low, 1.0, high - low)
    upper = np.clip((mean - low) / width, 0.0, 1.0)
    return np.concatenate([low, high], axis=1), np.concatenate([mass * (1 - upper), mass * upper], axis=1)


def ratio_atoms(
    victim: float, epsilon: float, rate: float, places: Sequence[Place], coarse: bool = False
) -> tuple[Floats, Floats]:
    """X = (R_x0 - e^epsilon R_x1)/R_host under R_host for each of the places: values and masses, (P, L).

    R_host is of the given rate <= victim, and x0 <= host <= x1.
    """
    at = np.array(places)
    x0, x1, host = at[:, :1], at[:, 1:2], at[:, 2:]
    edges = _cells(rate, victim, at, MIDDLE_CELLS[coarse])
    inner = edges[:, 1:-1]
    ends = victim / rate * np.exp(rate * np.abs(inner - host)) * difference(victim, epsilon, inner, inner, x0, x1)
    outer = ends[:, [0, -1]] if rate == victim else np.zeros((at.shape[0], 2))  # the limits: constant, or 0
    ends = np.concatenate([outer[:, :1], ends, outer[:, 1:]], axis=1)
    low, high = edges[:, :-1], edges[:, 1:]
    product = 0.5 * -np.expm1(-victim * (high - low)) * difference(victim, epsilon, low, high, x0, x1)
    return _on_ends(ends, cell_mass(rate, host, edges), product)


def difference(victim: float, epsilon: float | Floats, low: Floats, high: Floats, x0: Floats, x1: Floats) -> Floats:
    """e^(-v d0) - e^(epsilon - v d1), d0 and d1 the distances of x0 and x1 from [low, high]: without cancellation."""
    near, other = (np.maximum(np.maximum(low - x, x - high), 0.0) for x in (x0, x1))
    left, right = high <= x0, low >= x1
    further = np.where(left, x1 - x0, np.where(right, x0 - x1, other - near))
    found: Floats = np.exp(-victim * near) * -np.expm1(epsilon - victim * further)
    return found


@lru_cache(maxsize=128)
def family_of(
    victim: float,
    epsilon: float,
    rate: float,
    kept: float = 1.0,
    coarse: bool = False,
    terms: int = MAX_TERMS,
) -> Family:
    """T3: every host of this budget, whatever its value and the victim's, is below a mixture of these laws.

    kept: hosts of smaller budgets, down to kept * rate, are as well (L3). coarse: of fewer laws, a little larger.
    terms: of the power series.
    """
    found = members(victim, epsilon, rate, coarse)
    values, mass = ratio_atoms(victim, epsilon, rate, [place for place, _ in found], coarse)
    return thinned_family(values, mass, np.array([thin for _, thin in found]) * kept, terms)


def thinned_family(values: Floats, mass: Floats, thin: Floats, terms: int) -> Family:
    """The laws on these values with these masses, (F, L), thinned by (F,), as a family of so many terms."""
    thin = thin * (1 - 8 * UNIT)
    largest = np.abs(values).max(1) / thin * (1 + 8 * UNIT)
    unit = values / (thin * largest)[:, None]
    power, moments = mass * thin[:, None] * unit, []
    for _ in range(2, terms + 1):
        power *= unit
        moments.append(power.sum(1))
    return Family(largest, np.stack(moments, axis=1))


def members(victim: float, epsilon: float, rate: float, coarse: bool = False) -> list[tuple[Place, float]]:
    """The places and the thinning of T3's laws; coarse: fewer of them."""
    cells = _positions(rate, coarse)
    cost = [1 / math.cosh(rate * (right - left) / 2) for left, right in itertools.pairwise(cells)]
    found: list[tuple[Place, float]] = []
    for x, before, after in zip(cells, [1.0, *cost], [*cost, 1.0], strict=True):
        found.append(((0.0, 1.0, x), min(before, after)))
    cost_outside = min(OUTSIDE_COST[coarse] * max(1.0, rate) ** 2.5, MOST_OUTSIDE_COST)
    most = (1 + cost_outside) * max(second_moments(victim, epsilon, rate, 1.0)) / found[0][1]
    first = 0.0
    while first < 1 and victim * (1 - first) > epsilon * (1 - 1e-12):
        outside: tuple[Place, Place] = (first, 1.0, first), (0.0, 1 - first, 1 - first)
        # As far as leaves the second moment about the largest of those above; any edge is sound.
        room = most / max(second_moments(victim, epsilon, rate, 1.0 - first))
        edge = max(math.log(room) / rate, first + max(cost_outside, 0.125 * first) / max(1.0, rate))
        edge = min(1.0, edge)
        found.extend((place, math.exp(-rate * edge)) for place in outside)
        first = edge
    return found


def _positions(rate: float, coarse: bool) -> list[float]:
    """0 = z_0 < ... < z_J = 1, symmetric: close to each other near the ends, where a host is at its worst."""
    half = [0.0]
    while half[-1] < 0.5:
        half.append(min(0.5, half[-1] + min(WIDEST_CELL[coarse], END_CELL[coarse] / rate + 0.35 * half[-1])))
    return [*half, *(1 - x for x in half[-2::-1])]


def second_moments(victim: float, epsilon: float, rate: float, apart: float) -> tuple[float, float]:
    """About E X^2 for two values of the victim so far apart and a host at the first one, and at the second one."""
    if victim * apart < 1e-5:  # nearly the same everywhere, and below what does not cancel here
        return 1.0, 1.0
    near, far = 2 * victim - rate, 2 * victim + rate
    ratio, grown = math.exp(epsilon - victim * apart), math.exp(rate * apart)
    left = (1 - ratio) ** 2
    right = (math.exp(-victim * apart) - math.exp(epsilon)) ** 2
    first = (left + right * grown - math.expm1(-near * apart)) / near
    first += ratio * (ratio * math.expm1(far * apart) / far - 2 * (grown - 1) / rate)
    second = (left * grown + right + ratio * ratio * grown * math.expm1(near * apart)) / near
    second += grown * (2 * ratio * math.expm1(-rate * apart) / rate - math.expm1(-far * apart) / far)
    scale = victim * victim / (2 * rate)
    return max(first * scale, 1e-300), max(second * scale, 1e-300)
