"""The laws that every host with Laplace noise is below when the victim's difference is cut into a core and its tails.

The core is the difference of the victim's two laws near its two values, the tails are the rest; a little of the mean
is moved from one to the other (docs/exchange-bound.md, section 7). A host may lie anywhere in an interval: its law is
below a mixture of those of a few places (L1 and T1 of section 5), whatever its budget. Laws are put on few atoms with
the mean kept, and handed on as moments. What becomes of them is left to `exchange_core`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from accountant.bounds.laplace_laws import Family, cell_mass, difference, thinned_family, two_atoms
from accountant.numerics.binomial import UNIT, Floats

__all__ = ["TERMS", "Apart", "Cut", "places_of_hosts", "split_family", "split_mean"]

END_CELL, GROWTH, WIDEST_CELL = 0.15, 0.5, 0.5
"""Places of a host: the first and last cell in units of 1/budget; how cells widen from there on; the widest."""
MIDDLE_CELLS, OUTER_CELL, TAIL_CELLS = 16, 0.12, 40
"""Cells of z: between the victim's values (more for large budgets); next to them, in units of the length on which
D/R changes by a factor e; in a tail of the line."""
MOST_CELLS = 96
"""Of the second kind."""
MOST_CANCELLED = 30.0
"""How much larger than their sum the terms of D/R may be, the largest of each: their rounding stays below a few ulp."""
TERMS = 28
"""Of the power series of phi."""


@dataclass(frozen=True, eq=False)
class Apart:
    """Distances d between the victim's values, 0 and d, that stand for others as well, each with its own ln E.

    Shapes (K,). D = f_0 - e^log_gain f_d, f of the victim's rate. log_gain is ln(c E): a distance in a cell is covered
    by the cell's ends with E reduced by c.
    """

    victim: float
    distance: Floats
    log_gain: Floats
    log_kept: Floats
    """ln c <= 0."""
    nearest: Floats
    """Hosts lie in [nearest - 1, 1]: the least of the distances that it stands for."""

    def only(self, which: int) -> Apart:
        """One of them."""
        at = slice(which, which + 1)
        return Apart(self.victim, self.distance[at], self.log_gain[at], self.log_kept[at], self.nearest[at])


@dataclass(frozen=True)
class Cut:
    """D = D_1 + D_2 with D_1 = g D + moved psi on C, and C = [-radius, d + radius], psi = (f_0 + c f_d)/2.

    g is 1 on C, and e^(-(steep - v) s) at a distance s from it. D_1 is the core, D_2 the tails.
    """

    radius: float
    steep: float
    """At least the budgets of all hosts of the core, and more than the victim's."""
    moved: float


def places_of_hosts(rate: float) -> list[tuple[float, float]]:
    """Pairs of a place, from 0 to 1 in units of the interval, and the thinning: L1 with T1 for an interval of length 2.

    The interval is [d - 1, 1] for a d >= 0, so that its length is at most 2.
    """
    half = [0.0]
    while half[-1] < 1.0:
        half.append(min(1.0, half[-1] + min(WIDEST_CELL, END_CELL / rate + GROWTH * half[-1])))
    cells = [*half, *(2 - x for x in half[-2::-1])]
    cost = [1 / math.cosh(rate * (right - left) / 2) for left, right in itertools.pairwise(cells)]
    found = zip(cells, [1.0, *cost], [*cost, 1.0], strict=True)
    return [(place / 2, min(before, after) * (1 - 64 * UNIT)) for place, before, after in found]


def split_mean(apart: Apart, cut: Cut, *, tails: bool) -> tuple[Floats, Floats]:
    """The mass of D_1, or of D_2 with `tails`, and the sum of the sizes of its terms, of which it is good to 16 ulp.

    Both of shape (K,).
    """
    v = apart.victim
    outside = math.exp(-v * cut.radius) * (1 + np.exp(-v * apart.distance)) / 2
    beyond = outside * ((cut.steep - v) / cut.steep)
    whole = -np.expm1(apart.log_gain) * (beyond if tails else 1 - beyond)
    added = (1 - outside) * cut.moved * (1 + np.exp(apart.log_kept)) / 2
    return whole - added if tails else whole + added, np.abs(whole) + added


def split_family(apart: Apart, rate: float, cut: Cut, *, tails: bool, terms: int = TERMS) -> Family | None:
    """The laws of D_1/R_host under R_host, or of D_2/R_host with `tails`, for every distance and place: K J laws.

    The rate is at most `steep`, with tails at most the victim's. None where D cancels so much that its rounding might
    matter.
    """
    v, places = apart.victim, places_of_hosts(rate)
    count, number = apart.distance.size, len(places)
    zero = np.zeros((count * number, 1))
    x1, gain, log_kept, nearest = (
        np.repeat(part, number)[:, None] for part in (apart.distance, apart.log_gain, apart.log_kept, apart.nearest)
    )
    unit, thin = (np.tile(part, count) for part in np.array(places).T)
    host = (nearest - 1) + unit[:, None] * (2 - nearest)
    edges = _edges(rate, v, x1, host, cut, tails)
    low, high, inner = edges[:, :-1], edges[:, 1:], edges[:, 1:-1]
    inside, middle = (low >= -cut.radius) & (high <= x1 + cut.radius), (low >= 0) & (high <= x1)
    # D, moved psi and 1/R at the edges, in units of v/2 and of 2/rate; g and 1 - g.
    plain = difference(v, gain, inner, inner, zero, x1)
    psi = cut.moved * _half(v, log_kept, inner, inner, x1)
    host_inverse = v / rate * np.exp(rate * np.abs(inner - host))
    beyond = np.maximum(np.maximum(-cut.radius - inner, inner - (x1 + cut.radius)), 0.0)
    share, gone = np.exp(-(cut.steep - v) * beyond), -np.expm1(-(cut.steep - v) * beyond)
    # The same in cells: masses, and g at the end next to C.
    near = np.maximum(np.maximum(-cut.radius - high, low - (x1 + cut.radius)), 0.0)
    at, width = difference(v, gain, low, high, zero, x1), high - low
    whole = at * -np.expm1(-v * width) / 2
    added = cut.moved * _half(v, log_kept, low, high, x1) * -np.expm1(-v * width) / 2
    kept = at * np.exp(-(cut.steep - v) * near) * -np.expm1(-cut.steep * width) * (v / cut.steep / 2)
    # Between the two values the numerator and 1/R have their own bounds, elsewhere their product is monotone.
    inverse = _on_line(host_inverse, 1.0)
    if tails:
        product = np.where(inside, -added, whole - kept)
        top = -_larger(_on_line(psi, 1.0))  # psi is convex between the two values, and changes by at most e^(v width)
        numerator = (top, top * np.exp(-v * np.where(middle, width, 0.0)))
        alone = _ends(_on_line(-psi * host_inverse, 1.0))
        outside = _ends(_on_line(plain * host_inverse, float(rate == v)))
        one = np.ones_like(gone[:, :1])
        factor = tuple(np.where(inside, 1.0, end) for end in _ends(np.concatenate([one, gone, one], axis=1)))
    else:
        product = np.where(inside, whole + added, kept)
        numerator = _ends(_on_line(plain + psi, 1.0))  # falls between the two values
        alone = _ends(_on_line((plain + psi) * host_inverse, 1.0))
        outside = _ends(_on_line(plain * share * host_inverse, float(rate == cut.steep)))
        factor = (np.ones_like(low), np.ones_like(low))
    first = [np.where(middle, n, np.where(inside, a, o)) for n, a, o in zip(numerator, alone, outside, strict=True)]
    second = [np.where(middle, i, f) for i, f in zip(_ends(inverse), factor, strict=True)]
    corners = [a * b for a in first for b in second]
    least, most = np.minimum.reduce(corners), np.maximum.reduce(corners)
    if not tails:  # in D_2 no terms of different signs are added up
        sizes = np.where(inside, _larger(_on_line((np.abs(plain) + psi) * host_inverse, 1.0)), 0.0).max(1)
        if (sizes > MOST_CANCELLED * np.maximum(np.abs(least), np.abs(most)).max(1)).any():
            return None
    atoms, mass = two_atoms(least, most, cell_mass(rate, host, edges), product)
    return thinned_family(atoms, mass, thin, terms)


def _edges(rate: float, victim: float, x1: Floats, host: Floats, cut: Cut, tails: bool) -> Floats:
    """Edges of cells of the line, (K J, L+1): 0, x1, the ends of C and the host are edges."""
    radius, steps = cut.radius, min(MOST_CELLS, 8 + math.ceil(cut.radius * abs(rate - victim) / OUTER_CELL))
    close = min(1.0, radius)
    around = close * np.linspace(0.0, 1.0, 2 + math.ceil(close * (rate + victim) / OUTER_CELL))
    outer = np.union1d(radius * np.linspace(0.0, 1.0, steps + 1), around)
    middle = np.linspace(0.0, 1.0, MIDDLE_CELLS + math.ceil(8 * rate) + 1)
    widths = np.linspace(0.0, 1.0, TAIL_CELLS)[1:] ** 2
    tail = max(9 / cut.steep, 1.0) * widths
    if tails:
        tail = np.union1d(tail, 9 / victim * widths)
    far = np.full(x1.shape, math.inf)
    left = np.concatenate([-radius - tail[::-1], -outer[::-1]])
    parts = [-far, np.broadcast_to(left, (x1.size, left.size)), host, x1 * middle[1:]]
    return np.sort(np.concatenate([*parts, x1 + outer[1:], x1 + radius + tail, far], axis=1), axis=1)


def _half(victim: float, log_kept: Floats, low: Floats, high: Floats, x1: Floats) -> Floats:
    """(e^(-v d0) + c e^(-v d1))/2, d0 and d1 the distances of 0 and x1 from [low, high]."""
    near, other = (np.maximum(np.maximum(low - x, x - high), 0.0) for x in (0.0, x1))
    half: Floats = (np.exp(-victim * near) + np.exp(log_kept - victim * other)) / 2
    return half


def _on_line(inner: Floats, limit: float) -> Floats:
    """Values at all edges: those at the finite ones, and far out `limit` times those at the last of them."""
    return np.concatenate([limit * inner[:, :1], inner, limit * inner[:, -1:]], axis=1)


def _ends(values: Floats) -> tuple[Floats, Floats]:
    """Those at the lower and at the upper end of every cell."""
    return values[:, :-1], values[:, 1:]


def _larger(values: Floats) -> Floats:
    """The larger of both."""
    return np.maximum(*_ends(values))
