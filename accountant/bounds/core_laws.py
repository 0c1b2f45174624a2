"""The laws that every host with Laplace noise is below when the victim's difference is cut into a core and its tails.

The core is a share of the difference of the victim's two laws near its two values, the tails are the rest; some of the
mean is moved from one to the other (docs/exchange-bound.md, section 6). A host may lie anywhere in an interval: its law
is below a mixture of those of a few places (L1 and T1 of section 5), whatever its budget. Laws are put on few atoms
with the mean kept, and handed on as moments. What becomes of them is left to `exchange_core`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from accountant.bounds.laplace_laws import Family, cell_mass, difference, two_atoms
from accountant.numerics.binomial import UNIT, Floats, Ints

__all__ = ["TERMS", "Apart", "Cut", "places_of_hosts", "shared_blanket", "shared_mass", "split_family", "split_mean"]

END_CELL, GROWTH, WIDEST_CELL = 0.15, 0.5, 0.5
"""Places of a host: the first and last cell in units of 1/budget; how cells widen from there on; the widest."""
MIDDLE_CELLS, MIDDLE_CELL = 12, 0.14
"""Cells of z between the victim's values: so many, and as many more as have this width, in units of the length on which
D/R changes by a factor e."""
OUTER_CELL, FIRST_CELL, WIDENING = 0.1, 0.06, 0.5
"""Cells beyond them in such units: up to the end of the core, and the first after each of these points; by what part
of the distance from there they widen."""
MOST_LENGTHS, FAR = 12.0, 14.0
"""How many such units the first kind is for at most; how many lengths 1/rate a tail is put in cells for."""
MOST_CANCELLED = 100.0
"""How much larger than their sum the terms of D/R may be, the largest of each: their rounding stays far below what is
added for it."""
MOST_EXPONENT = 300.0
"""Of the exponential that is the largest D/R beyond the victim's values."""
TERMS = 28
"""Of the power series of phi."""
ATOMS = 1 << 12
"""How many are dealt with at once: what is in the processor's cache."""


@dataclass(frozen=True, eq=False)
class Apart:
    """Distances d between the victim's values, 0 and d, that stand for others as well, each with its own ln E.

    Shapes (K,); a distance may be there several times. D = f_0 - e^log_gain f_d, f of the victim's rate. log_gain is
    ln(c E): a distance in a cell is covered by the cell's ends with E reduced by c.
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


@dataclass(frozen=True, eq=False)
class Cut:
    """D = D_1 + D_2 with D_1 = kept g D + moved psi, and C = [-radius, d + radius].

    psi is (f_0 + c f_d)/2 on C and 0 elsewhere. g is 1 on C, and e^(-(steep - v) s) at a distance s from it. D_1 is the
    core, D_2 the tails. Raises ValueError for a radius below 0 or a share that is not in (0, 1].
    """

    radius: float
    steep: float
    """At least the budgets of all hosts of the core, and more than the victim's."""
    moved: float | Floats
    """Of any sign; of every distance, (K,), or of all."""
    kept: float = 1.0

    def __post_init__(self) -> None:
        if not (self.radius >= 0 and 0 < self.kept <= 1):
            raise ValueError(f"radius must be >= 0 and kept in (0, 1], not {self.radius} and {self.kept}")


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


def shared_mass(apart: Apart, cut: Cut) -> Floats:
    """Z, the mass of psi, (K,); good to 16 ulp."""
    mass: Floats = _on_core(apart, cut) * (1 + np.exp(apart.log_kept)) / 2
    return mass


def shared_blanket(apart: Apart, cut: Cut, rate: float) -> Floats:
    """Gamma with R_host >= gamma psi/Z for all hosts of this rate, at most the victim's, (K,); rounded down.

    psi/R is convex between the victim's values and falls beyond them, so that it is largest at one of them.
    """
    v, d = apart.victim, apart.distance
    if rate > v:
        raise ValueError(f"the rate must be at most the victim's, {v}, not {rate}")
    reach = 1 + np.maximum(d - apart.nearest, 0.0)  # from the farthest host to d; to 0 it is 1
    kept, other = np.exp(apart.log_kept), np.exp(-v * d)
    most = np.maximum((1 + kept * other) * math.exp(rate), (kept + other) * np.exp(rate * reach))
    gamma: Floats = shared_mass(apart, cut) * (2 * rate / v) / most
    return gamma * (1 - (64 + 4 * rate) * UNIT)


def split_mean(apart: Apart, cut: Cut, *, tails: bool) -> tuple[Floats, Floats]:
    """The mass of D_1, or of D_2 with `tails`, and the sum of the sizes of its terms, of which it is good to 16 ulp.

    Both of shape (K,).
    """
    v = apart.victim
    beyond = math.exp(-v * cut.radius) * (1 + np.exp(-v * apart.distance)) / 2
    if tails:
        part = (1 - cut.kept) + cut.kept * beyond * ((cut.steep - v) / cut.steep)
    else:
        part = cut.kept * (_on_core(apart, cut) + beyond * (v / cut.steep))
    whole = -np.expm1(apart.log_gain) * part
    added = (-cut.moved if tails else cut.moved) * shared_mass(apart, cut)
    return whole + added, np.abs(whole) + np.abs(added)


def split_family(apart: Apart, rate: float, cut: Cut, *, tails: bool, terms: int = TERMS) -> Family | None:
    """The laws of D_1/R_host under R_host, or of D_2/R_host with `tails`, for every distance and place: K J laws.

    The rate is at most `steep`, with tails at most the victim's. None where D cancels so much that its rounding might
    matter, or is too large. Raises ValueError for a larger rate.
    """
    v, places = apart.victim, places_of_hosts(rate)
    if rate > (v if tails else cut.steep):
        raise ValueError(f"the rate must be at most that of the part it hides, not {rate}")
    if max(rate - v, 0.0) * cut.radius + 2 * rate > MOST_EXPONENT:
        return None
    unit, thin = np.array(places).T
    # What is the same for all that is moved is computed once: one row for every pair of a distance and a place.
    every = np.stack([apart.distance, apart.log_gain, apart.log_kept, apart.nearest], axis=1)
    rows, which = np.unique(every, axis=0, return_inverse=True)
    x1, gain, log_kept, nearest = np.repeat(rows, unit.size, axis=0).T[:, :, None]
    host = (nearest - 1) + np.tile(unit, rows.shape[0])[:, None] * (2 - nearest)
    pair = (which.reshape(-1, 1) * unit.size + np.arange(unit.size)).ravel()
    moved = np.repeat(np.broadcast_to(-cut.moved if tails else cut.moved, apart.distance.shape), unit.size)
    kept = 1 - cut.kept if tails else cut.kept

    middle = _Middle.of(v, rate, x1, gain, log_kept, host)
    sizes, flanks = np.zeros(pair.size), []
    for end, shapes in zip((0, -1), _flanks(v, rate, cut, (-host, host - x1), terms, tails=tails), strict=True):
        plain, terms_of_d, psi = (x[:, end][pair] for x in (middle.plain, middle.terms_of_d, middle.psi))
        share = 1.0 if tails else kept
        factors = [(share * plain, share * terms_of_d)]
        factors.append((kept * plain + moved * psi, kept * terms_of_d + np.abs(moved) * psi))
        for (factor, size), shape in zip(factors, shapes, strict=False):
            flanks.append((factor, shape))
            sizes = np.maximum(sizes, size * shape.scale[pair])
    most_plain, most_psi = ((x * middle.inverse).max(1) for x in (middle.terms_of_d, middle.psi))
    sizes = np.maximum(sizes, kept * most_plain[pair] + np.abs(moved) * most_psi[pair])
    found, step = [], max(1, 8 * ATOMS // (2 * middle.mass.shape[1]))
    for first in range(0, pair.size, step):
        part = slice(first, first + step)
        values, mass = middle.atoms(pair[part], kept, moved[part, None])
        parts = [(factor[part], shape.only(pair[part])) for factor, shape in flanks]
        largest = np.maximum.reduce([np.abs(values).max(1), *(np.abs(factor) * shape.scale for factor, shape in parts)])
        if (sizes[part] > MOST_CANCELLED * largest).any():
            return None
        largest *= 1 + 64 * UNIT
        moments = _moments(values / largest[:, None], mass, terms)
        for factor, shape in parts:
            ratio = (factor * shape.scale / largest)[:, None]
            moments += np.cumprod(np.broadcast_to(ratio, (ratio.size, terms)), axis=1)[:, 1:] * shape.moments
        found.append(Family(largest, moments))
    thin = np.tile(thin, apart.distance.size) * (1 - 8 * UNIT)
    scale = np.concatenate([family.scale for family in found]) / thin * (1 + 8 * UNIT)
    return Family(scale, np.concatenate([family.moments for family in found]) * thin[:, None])


@dataclass(frozen=True, eq=False)
class _Middle:
    """Cells between the victim's values, for pairs of a distance and a host; shapes (P, L+1) at edges, (P, L) in cells.

    There D_j = kept D + moved psi. In units of v/2 and, for R, of rate/2.
    """

    victim: float
    rate: float
    plain: Floats
    """D at the edges."""
    terms_of_d: Floats
    """What the rounding of D is relative to: itself, and the terms of its exponent."""
    psi: Floats
    plain_slope: Floats
    """-D'/v; so for psi."""
    psi_slope: Floats
    inverse: Floats
    """1/R."""
    curved: Floats
    """Of cells: width^2/8 times the larger 1/R."""
    mass: Floats
    """Of R; then that of D and psi."""
    plain_mass: Floats
    psi_mass: Floats

    @classmethod
    def of(cls, v: float, rate: float, x1: Floats, gain: Floats, log_kept: Floats, host: Floats) -> _Middle:
        grid = x1 * np.linspace(0.0, 1.0, MIDDLE_CELLS + math.ceil((v + rate) * float(x1.max()) / MIDDLE_CELL) + 1)
        edges = np.sort(np.concatenate([grid, np.clip(host, 0.0, x1)], axis=1), axis=1)
        low, high, zero = edges[:, :-1], edges[:, 1:], np.zeros_like(x1)
        width = high - low
        first, second = np.exp(-v * edges), np.exp(-v * (x1 - edges))
        plain, other, kept = (
            difference(v, gain, edges, edges, zero, x1),
            np.exp(gain) * second,
            np.exp(log_kept) * second,
        )
        inverse, shrunk = v / rate * np.exp(rate * np.abs(edges - host)), -np.expm1(-v * width) / 2
        return cls(
            v,
            rate,
            plain,
            np.abs(plain) + (np.abs(gain) + v * x1) * other,
            (first + kept) / 2,
            first + other,
            (first - kept) / 2,
            inverse,
            width * width / 8 * _larger(inverse) * (1 + 1e-9),
            cell_mass(rate, host, edges),
            difference(v, gain, low, high, zero, x1) * shrunk,
            (np.exp(-v * low) + np.exp(log_kept - v * (x1 - high))) / 2 * shrunk,
        )

    def atoms(self, pair: Ints, kept: float, moved: Floats) -> tuple[Floats, Floats]:
        """Values and masses, (F, 2 L), of laws larger than that of D_j/R for these pairs; moved: (F, 1).

        Within a cell D_j/R is within width^2/8 of its largest second derivative of its chord. The second derivative of
        D_j is v^2 D_j, so that D_j and its slope are largest at an end.
        """
        v, e = self.victim, self.rate
        shown = kept * self.plain[pair] + moved * self.psi[pair]
        slope = kept * self.plain_slope[pair] + moved * self.psi_slope[pair]
        bend = (e * e + v * v) * _larger(np.abs(shown)) + 2 * e * v * _larger(np.abs(slope))
        bend *= self.curved[pair]
        shown *= self.inverse[pair]
        low, high = np.minimum(*_ends(shown)) - bend, _larger(shown) + bend
        return two_atoms(low, high, self.mass[pair], kept * self.plain_mass[pair] + moved * self.psi_mass[pair])


def _flanks(
    v: float, rate: float, cut: Cut, hosts: tuple[Floats, Floats], terms: int, *, tails: bool
) -> list[list[Family]]:
    """What D_j/R is to its factor at the victim's value, left and right of both: beyond C, and on it; P laws each.

    hosts: how far beyond the value they are, (P, 1). On C the difference is the factor times e^(-v t) at a distance t
    from the value; there is no such part where C ends at the value. Beyond, it is e^(-v t) g, or e^(-v t) (1 - kept g)
    with tails.
    """
    # With a host on the other side of the value D/R is larger everywhere, and its chance smaller, by the same factor.
    both = np.concatenate(hosts)[:, 0]
    places, which = np.unique(np.maximum(both, 0.0), return_inverse=True)
    further = np.exp(rate * np.maximum(-both, 0.0))
    shapes = [_beyond(v, rate, cut, places[:, None] - cut.radius, terms, tails=tails)]
    if cut.radius > 0:
        shapes.append(_near(v, rate, cut.radius, places[:, None], terms))
    sides = which.reshape(2, -1), further.reshape(2, -1, 1)
    return [
        [Family(x.scale[at] * more[:, 0], x.moments[at] / more) for x in shapes]
        for at, more in zip(*sides, strict=True)
    ]


def _near(v: float, rate: float, radius: float, host: Floats, terms: int) -> Family:
    """From the value, at 0, to the end of C: one exponential on each side of the host."""
    even = radius if rate >= v else min(radius, FAR / v)
    steps = 8 + math.ceil(min(even * abs(rate - v), MOST_LENGTHS) / OUTER_CELL)
    grid = np.concatenate([even * np.linspace(0.0, 1.0, steps + 1), _widening(rate + v, min(1.0, radius)), [radius]])
    edges = _with(host, grid, radius)
    low, high = _ends(edges)
    values = v / rate * np.exp(rate * np.abs(edges - host) - v * edges)
    product = np.exp(-v * low) * -np.expm1(-v * (high - low)) / 2
    return _shape(*_ends(values), cell_mass(rate, host, edges), product, terms)


def _beyond(v: float, rate: float, cut: Cut, host: Floats, terms: int, *, tails: bool) -> Family:
    """From the end of C, at 0, on: both factors, e^(-v s)/R and 1 - kept g, or e^(-v s) g/R, are monotone."""
    decay, steeper = v if tails else cut.steep, cut.steep - v
    edges = _with(host, _widening(rate + cut.steep, FAR / decay), math.inf)
    values = v / rate * np.exp(rate * np.abs(edges - host) - v * cut.radius - decay * edges)
    # Far out it falls to 0, or is constant.
    values = np.concatenate([values, np.zeros_like(host)], axis=1)
    edges = np.concatenate([edges, np.full_like(host, math.inf)], axis=1)
    low, high = _ends(edges)
    mass, width, reached = cell_mass(rate, host, edges), high - low, math.exp(-v * cut.radius) / 2
    if not tails:
        product = reached * np.exp(-decay * low) * -np.expm1(-decay * width) * (v / decay)
        return _shape(*_ends(values), mass, product, terms)
    share = (1 - cut.kept) - cut.kept * np.expm1(-steeper * edges)
    least, most = np.minimum(*_ends(values)) * share[:, :-1], _larger(values) * share[:, 1:]
    if rate < v:  # in the last cell the product is largest where 1 - share has fallen to this, or at its lower end
        last = np.maximum(cut.kept * np.exp(-steeper * edges[:, -2]), 1e-300)
        top = np.minimum(last, (v - rate) / (cut.steep - rate))
        most[:, -1] = values[:, -2] * (top / last) ** ((v - rate) / steeper) * (1 - top) * (1 + 1e-12)
    # The share's part at the lower end, and what it grows by; nothing cancels but relative to 1 - v/steep.
    whole = -np.expm1(-v * width)
    grown = (steeper * whole + v * np.exp(-v * width) * np.expm1(-steeper * width)) / cut.steep
    product = reached * np.exp(-v * low) * (share[:, :-1] * whole + cut.kept * np.exp(-steeper * low) * grown)
    return _shape(least, most, mass, product, terms)


def _shape(low: Floats, high: Floats, mass: Floats, product: Floats, terms: int) -> Family:
    """The law on two values >= 0 of every cell, with the cell's mean, product / mass, kept."""
    values, mass = two_atoms(low, high, mass, product)
    scale = values.max(1)
    return Family(scale, _moments(values / scale[:, None], mass, terms))


def _moments(values: Floats, mass: Floats, terms: int) -> Floats:
    """From the second to the last, (F, terms - 1)."""
    found, step = np.empty((values.shape[0], terms - 1)), max(1, ATOMS // values.shape[1])
    for first in range(0, values.shape[0], step):
        at = values[first : first + step]
        powers, known = np.empty((terms - 1, *at.shape)), 2
        powers[0] = at * at
        powers[1] = powers[0] * at
        while known < terms - 1:  # powers from 2 to known + 1, times the one of `known`, are the next ones
            more = min(known, terms - 1 - known)
            np.multiply(powers[:more], powers[known - 2], out=powers[known : known + more])
            known += more
        found[first : first + step] = (powers.transpose(1, 0, 2) @ mass[first : first + step, :, None])[:, :, 0]
    return found


def _widening(scale: float, reach: float) -> Floats:
    """Points from 0 to reach, first by FIRST_CELL / scale, and the further the wider."""
    growth = math.log1p(FIRST_CELL * WIDENING)
    steps = math.ceil(math.log1p(WIDENING * scale * reach) / growth)
    found: Floats = np.expm1(growth * np.arange(steps + 1)) / (WIDENING * scale)
    return np.append(found[:-1], reach)


def _with(host: Floats, grid: Floats, end: float) -> Floats:
    """Edges for every host, (P, L+1): it is one of them, if it is between 0 and the end."""
    both = np.concatenate([np.broadcast_to(grid, (host.size, grid.size)), np.clip(host, 0.0, end)], axis=1)
    return np.sort(both, axis=1)


def _on_core(apart: Apart, cut: Cut) -> Floats:
    """The mass of f_0, and of f_d, on C."""
    v = apart.victim
    mass: Floats = -(math.expm1(-v * cut.radius) + np.expm1(-v * (cut.radius + apart.distance))) / 2
    return mass


def _ends(values: Floats) -> tuple[Floats, Floats]:
    """Those at the lower and at the upper end of every cell."""
    return values[:, :-1], values[:, 1:]


def _larger(values: Floats) -> Floats:
    """The larger of both."""
    return np.maximum(*_ends(values))
