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

from accountant.numerics.binomial import UNIT, Floats, Ints

__all__ = [
    "MAX_TERMS",
    "Family",
    "Pair",
    "Place",
    "cell_mass",
    "difference",
    "family_of",
    "grid_family",
    "members",
    "pair_family",
    "pair_variance",
    "ratio_atoms",
    "second_moments",
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

GRID_STEP, GRID_WIDENING, WIDEST_STEP = 0.06, 0.35, 0.25
"""Positions of a host where T2 is not proved: the last step up to 1, in units of 1/rate; how much wider they get with
the distance from there; the widest."""
GRID_COST = 0.006
"""By what part the cells of the victim's distance may enlarge the largest E e^(tilt X) - 1, about."""
GAPS = tuple(0.4 * 0.8**k for k in range(20))
"""Widths of such cells that are tried; the last serves where none is narrow enough."""

MOST_CANCELLED = 30.0
"""How much larger than their sum the terms of D/R may be, the largest of each: their rounding stays below a few ulp."""


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
    apart: tuple[float, float] = (0.0, 1.0),
    terms: int = MAX_TERMS,
) -> Family:
    """T3: every host of this budget, whatever its value and the victim's, is below a mixture of these laws.

    kept: hosts of smaller budgets, down to kept * rate, are as well (L3). coarse: of fewer laws, a little larger.
    apart: see `members`. terms: of the power series.
    """
    found = members(victim, epsilon, rate, coarse, apart)
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


def members(
    victim: float, epsilon: float, rate: float, coarse: bool = False, apart: tuple[float, float] = (0.0, 1.0)
) -> list[tuple[Place, float]]:
    """The places and the thinning of T3's laws; coarse: fewer of them.

    apart: how far from each other the victim's two values are, at least and at most.
    """
    least, widest = apart
    cells = [widest * x for x in _positions(rate * widest, coarse)]
    cost = [1 / math.cosh(rate * (right - left) / 2) for left, right in itertools.pairwise(cells)]
    found: list[tuple[Place, float]] = []
    for x, before, after in zip(cells, [1.0, *cost], [*cost, 1.0], strict=True):
        found.append(((0.0, widest, x), min(before, after)))
    cost_outside = min(OUTSIDE_COST[coarse] * max(1.0, rate) ** 2.5, MOST_OUTSIDE_COST)
    most = (1 + cost_outside) * max(second_moments(victim, epsilon, rate, widest)) / found[0][1]
    first = 0.0
    while first < 1 - least and victim * min(widest, 1 - first) > epsilon * (1 - 1e-12):
        end = min(1.0, first + widest)
        outside: tuple[Place, Place] = (first, end, first), (1 - end, 1 - first, 1 - first)
        # As far as leaves the second moment about the largest of those above; any edge is sound.
        room = most / max(second_moments(victim, epsilon, rate, end - first))
        edge = max(math.log(room) / rate, first + max(cost_outside, 0.125 * first) / max(1.0, rate), 1 - widest)
        edge = min(1 - least, edge)
        found.extend((place, math.exp(-rate * edge)) for place in outside)
        first = edge
    return found


@dataclass(frozen=True)
class Pair:
    """D = a(|z - x0|) - b(|z - x1|) with a(t) = first[0] e^(-slow t) - first[1] e^(-fast t), and b(t) of `second`."""

    slow: float
    fast: float
    first: tuple[float, float]
    second: tuple[float, float]

    def proper(self, rate: float, least: float) -> bool:
        """Whether T2 is proved for it, hosts of this rate < slow and values from `least` to 1 apart (conditions C)."""
        slow, fast = (self.slow - rate) * (1 - 1e-9), (self.fast - rate) * (1 + 1e-9)
        for one, other in ((self.first, self.second), (self.second, self.first)):
            near = one[0] - other[0] * math.exp(-self.slow * least)
            beyond = one[1] - other[1] * math.exp(-self.fast * (1.0 if other[1] > 0 else least))
            if not (slow * one[0] > max(0.0, fast * one[1]) and slow * near > max(0.0, fast * beyond)):
                return False
        return True

    def bend(self, rate: float, part: tuple[float, float]) -> tuple[float, float, float]:
        """|b'(0)|, the integral of |b''|, and the largest e^(rate t) |b''(t)|, for t > 0; rounded up. rate < slow.

        b is that of `part`, `first` or `second`, of which the first factor is > 0.
        """
        slow, fast = self.slow, self.fast
        one, other = part[0] * slow, part[1] * fast  # -b'
        low, high = one * slow, other * fast  # b''
        kink = total = abs(one - other)
        if high > low > 0:  # b'' changes its sign, once
            at = math.log(high / low) / (fast - slow)
            turn = one * math.exp(-slow * at) - other * math.exp(-fast * at)
            total = abs(turn - (one - other)) + abs(turn)
        most = abs(low - high)
        if (fast - rate) * high > (slow - rate) * low > 0:
            at = math.log((fast - rate) * high / ((slow - rate) * low)) / (fast - slow)
            most = max(most, abs(low * math.exp((rate - slow) * at) - high * math.exp((rate - fast) * at)))
        spare, more = 1e-12 * (abs(one) + abs(other)), 1e-12 * (abs(low) + abs(high))
        return kink + spare, total + 4 * spare, most + 2 * more


def pair_family(pair: Pair, rate: float, found: list[tuple[Place, float]], terms: int) -> Family | None:
    """The laws of D/R_host under R_host for these places and thinnings; rate < slow, and `Pair.proper`.

    None where D cancels so much that its rounding might matter.
    """
    at = np.array([place for place, _ in found])
    x0, x1, host = at[:, :1], at[:, 1:2], at[:, 2:]
    edges = _cells(rate, pair.slow, at, MIDDLE_CELLS[True])
    inner = edges[:, 1:-1]
    ends, sizes, product = np.zeros(edges.shape), np.zeros(inner.shape), np.zeros((edges.shape[0], edges.shape[1] - 1))
    for sign, centre, parts in ((1, x0, pair.first), (-1, x1, pair.second)):
        for factor, decay in ((sign * parts[0], pair.slow), (-sign * parts[1], pair.fast)):
            term = factor * 2 / rate * np.exp(rate * np.abs(inner - host) - decay * np.abs(inner - centre))
            ends[:, 1:-1] += term
            sizes += np.abs(term)
            product += factor * 2 / decay * cell_mass(decay, centre, edges)
    if (sizes.max(1) > MOST_CANCELLED * np.abs(ends).max(1)).any():
        return None
    values, mass = _on_ends(ends, cell_mass(rate, host, edges), product)
    return thinned_family(values, mass, np.array([thin for _, thin in found]), terms)


def grid_family(pair: Pair, rate: float, least: float, terms: int, tilt: float) -> Family | None:
    """The laws that every host is below where T2 is not proved: on a grid of its places and the victim's distances.

    Values of the victim are from `least` to 1 apart; rate < slow. Where E e^(tilt X) is small there are fewer laws; any
    tilt is sound. None where D cancels too much, see `pair_family`.
    """
    found = _grid_laws(pair, rate, least, tilt)
    return None if found is None else thinned_family(*found, terms)


def _grid_laws(pair: Pair, rate: float, least: float, tilt: float) -> tuple[Floats, Floats, Floats] | None:
    """See `grid_family`: values and masses, (F, L), and how they are thinned, (F,)."""
    hosts = _grid(rate, least)
    cost = [1 / math.cosh(rate * (right - left) / 2) for left, right in itertools.pairwise(hosts)]
    thin = [min(both) for both in zip([1.0, *cost], [*cost, 1.0], strict=True)]
    some = np.linspace(least, 1.0, 9)
    near = [(d, x) for x in hosts for d in some.tolist()]
    values, mass, _ = _pair_atoms(pair, rate, [*((0.0, d, x) for d, x in near), *((d, 0.0, x) for d, x in near)])
    size = (mass * _grown(values, tilt)).sum(1).reshape(2, len(hosts), some.size) / np.array(thin)[:, None]
    most = math.sqrt((1 + GRID_COST) * float(size.max()))

    found: list[Place] = []
    thinned: list[float] = []
    lost: list[tuple[float, float]] = []
    for kind, bend in enumerate((pair.bend(rate, pair.second), pair.bend(rate, pair.first))):
        for k, x in enumerate(hosts):
            top = min(1.0, 2 * hosts[min(k + 1, len(hosts) - 1)])  # hosts in the cell on its right are the furthest
            distances, cells = [top], [(0.0, 1e-300)]
            while distances[-1] > least:
                last = distances[-1]
                for gap in GAPS:
                    below = max(least, last - gap)
                    cell = _lost(bend, rate, x, below, last)
                    own = np.interp([below, last], some, np.sqrt(size[kind, k]))
                    both = max(cell[0], cells[-1][0]) * max(cell[1], cells[-1][1])
                    if max(own[0] + math.sqrt(cell[0] * cell[1] / thin[k]), own[1] + math.sqrt(both / thin[k])) <= most:
                        break
                distances.append(below)
                cells.append(cell)
            for d, one, other in zip(distances, cells, [*cells[1:], cells[-1]], strict=True):
                found.append((0.0, d, x) if kind == 0 else (d, 0.0, x))
                thinned.append(thin[k])
                lost.append((max(one[0], other[0]), max(one[1], other[1])))
    values, mass, exact = _pair_atoms(pair, rate, found)
    if not exact:
        return None
    area, ratio = np.array(lost).T
    product = np.sqrt(area * ratio)
    moved = np.maximum(product / (product + np.sqrt((mass * values * values).sum(1))), 1e-9)[:, None]  # any is sound
    jump, chance = ratio[:, None] / moved, moved * (area / (2 * ratio))[:, None]
    values = np.concatenate([values / (1 - moved), jump, -jump], axis=1)
    mass = np.concatenate([mass * (1 - moved), chance, chance], axis=1)
    return values, mass, np.array(thinned)


def pair_variance(pair: Pair, rate: float) -> float:
    """About the largest E X^2, for two values 1 apart and a host at one of them."""
    values, mass, _ = _pair_atoms(pair, rate, [(0.0, 1.0, 0.0), (0.0, 1.0, 1.0)])
    return float((mass * values * values).sum(1).max())


def _grown(values: Floats, tilt: float) -> Floats:
    """2 (e^(tilt x) - 1 - tilt x)/tilt^2, about x^2; not a bound."""
    t = np.clip(tilt * values, -20.0, 20.0)
    more: Floats = np.where(np.abs(t) < 1e-3, 1.0, 2 * (np.expm1(t) - t) / np.maximum(t * t, 1e-6))
    return more * values * values


def _lost(bend: tuple[float, float, float], rate: float, host: float, low: float, high: float) -> tuple[float, float]:
    """Upper bounds on the integral of |G| and on |G|/R where one of the victim's values is in the cell [low, high]."""
    kink, total, steepest = bend
    width = high - low
    reach = math.exp(rate * max(abs(low - host), abs(high - host)))
    ratio = 2 / rate * reach * (width * width / 8 * steepest + width / 2 * kink) * (1 + 1e-9) + 1e-300
    return min(ratio, width * width / 4 * (total + kink) * (1 + 1e-9)), ratio


def _grid(rate: float, least: float) -> list[float]:
    """Places of a host from least/2 to 1, close to each other near 1: the victim's values are 0 and nearer to it."""
    steps = [0.0]
    while steps[-1] < 1 - least / 2:
        steps.append(steps[-1] + min(WIDEST_STEP, GRID_STEP / rate + GRID_WIDENING * steps[-1]))
    return [least / 2, *(1 - x for x in reversed(steps[:-1]))]


def _pair_atoms(pair: Pair, rate: float, places: Sequence[Place]) -> tuple[Floats, Floats, bool]:
    """As `ratio_atoms`, for any pair and any place of a host; and whether D cancels no more than it may.

    D/R is not monotone: it is within width^2/8 of the largest second derivative of the values at the ends of a cell.
    """
    at = np.array(places)
    x0, x1, host = at[:, :1], at[:, 1:2], at[:, 2:]
    ordered = np.sort(at, axis=1)
    edges = _cells(rate, pair.slow, ordered[:, [0, 2, 1]], MIDDLE_CELLS[True])
    inner = edges[:, 1:-1]
    middle, width = (inner[:, 1:] + inner[:, :-1]) / 2, np.diff(inner, axis=1)
    ends, sizes, bend = np.zeros(inner.shape), np.zeros(inner.shape), np.zeros(middle.shape)
    product = np.zeros((edges.shape[0], edges.shape[1] - 1))
    for sign, centre, parts in ((1, x0, pair.first), (-1, x1, pair.second)):
        for factor, decay in ((sign * parts[0], pair.slow), (-sign * parts[1], pair.fast)):
            term = factor * 2 / rate * np.exp(rate * np.abs(inner - host) - decay * np.abs(inner - centre))
            ends += term
            size = np.abs(term)
            sizes += size
            slope = rate * np.sign(middle - host) - decay * np.sign(middle - centre)
            bend += slope * slope * np.maximum(size[:, 1:], size[:, :-1])
            product += factor * 2 / decay * cell_mass(decay, centre, edges)
    bend *= width * width / 8 * (1 + 1e-9)
    out = sizes[:, :1], sizes[:, -1:]
    low = np.concatenate([-out[0], np.minimum(ends[:, 1:], ends[:, :-1]) - bend, -out[1]], axis=1)
    high = np.concatenate([out[0], np.maximum(ends[:, 1:], ends[:, :-1]) + bend, out[1]], axis=1)
    values, mass = two_atoms(low, high, cell_mass(rate, host, edges), product)
    return values, mass, bool((sizes.max(1) <= MOST_CANCELLED * np.abs(ends).max(1)).all())


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
