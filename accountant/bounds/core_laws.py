"""The laws that every host with Laplace noise is below when the victim's difference is cut into a core and its tails.

The core is a share of the difference of the victim's two laws near its two values, the tails are the rest; some of the
mean is moved from one to the other (docs/exchange-bound.md, section 6). A host may lie anywhere in an interval: its law
is below a mixture of those of a few places (L1 and T1 of section 5), whatever its budget. Laws are put on few atoms
with the mean kept, and handed on as moments. What becomes of them is left to `exchange_core`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

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
    nearest: Floats
    """Hosts lie in [nearest - 1, 1]: the least of the distances that it stands for."""

    def only(self, which: int) -> Apart:
        """One of them."""
        at = slice(which, which + 1)
        return Apart(self.victim, self.distance[at], self.log_gain[at], self.nearest[at])


@dataclass(frozen=True, eq=False)
class Cut:
    """D = D_1 + D_2 with D_1 = h + moved psi, and C = [-radius, d + radius]. D_1 is the core, D_2 the tails.

    At a distance s from C h is e^(-(steep - v) s) D times a share, `kept` on the side of 0 and `far` on that of d; on C
    outside of [0, d] it is that share of D. psi is (1 + e^(-vd)) v/4 times e^(-v s) on C, at a distance s from [0, d],
    and 0 beyond. Between 0 and d both go on from what they are there as sums of e^(inner z) and e^(-inner z); with
    inner = v and far = kept, h is kept D. Raises ValueError for a radius below 0, a share that is not in (0, 1], or a
    rate `inner` that is not positive.
    """

    radius: float
    steep: float
    """At least the budgets of all hosts of the core, and more than the victim's."""
    moved: float | Floats
    """Of any sign; of every distance, (K,), or of all."""
    kept: float = 1.0
    bent: tuple[float, float] | None = None
    """far and inner; None: kept and the victim's rate."""

    def __post_init__(self) -> None:
        far, inner = self.bent or (self.kept, 1.0)
        if not (self.radius >= 0 and 0 < self.kept <= 1 and 0 < far <= 1 and inner > 0):
            raise ValueError(
                f"radius must be >= 0, kept and far in (0, 1] and inner > 0, not {self.radius}, {self.kept}, {far} "
                f"and {inner}"
            )

    @property
    def shares(self) -> tuple[float, float]:
        """On the side of 0, and on that of d."""
        return self.kept, self.kept if self.bent is None else self.bent[0]

    def inner(self, victim: float) -> float:
        """The rate between the victim's values."""
        return victim if self.bent is None else self.bent[1]


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
    mass: Floats = _end(apart) * (_between(apart, cut) - math.expm1(-apart.victim * cut.radius))
    return mass


def shared_blanket(apart: Apart, cut: Cut, rate: float) -> Floats:
    """Gamma with R_host >= gamma psi/Z for all hosts of this rate, (K,); rounded down.

    psi/R is convex between the victim's values, and beyond them it falls or, for rates above the victim's, grows: so
    that it is largest at one of them, or at an end of C.
    """
    v, d = apart.victim, apart.distance
    reach = 1 + np.maximum(d - apart.nearest, 0.0)  # from the farthest host to d; to 0 it is 1
    further = max(rate - v, 0.0) * cut.radius
    gamma: Floats = shared_mass(apart, cut) * (rate / v) / (_end(apart) * np.exp(rate * reach + further))
    return gamma * (1 - (64 + 4 * (rate + further)) * UNIT)


def split_mean(apart: Apart, cut: Cut, *, tails: bool) -> tuple[Floats, Floats]:
    """The mass of D_1, or of D_2 with `tails`, and the sum of the sizes of its terms, of which it is good to 16 ulp.

    Both of shape (K,).
    """
    v, end, (first, last) = apart.victim, _end(apart), cut.shares
    kept, beyond, gain = (first + last) / 2, math.exp(-v * cut.radius), apart.log_gain
    core = _between(apart, cut) - math.expm1(-v * cut.radius) + beyond * (v / cut.steep)
    if not tails:
        part, less = kept * end * core, np.zeros_like(end)
    else:
        left = ((1 - first) + (1 - last)) / 2  # 1 - kept, also where that is tiny
        part, less = left + kept * end * beyond * ((cut.steep - v) / cut.steep), np.zeros_like(end)
        if cut.inner(v) != v:
            part += kept * end * np.tanh(v * apart.distance / 2)
            less = kept * end * _between(apart, cut)
    # D is 1 - cE e^(-vd) at 0 and e^(-vd) - cE at d: their sum, and their difference.
    whole, moved = -np.expm1(gain), -cut.moved if tails else cut.moved
    tilted = (last - first if tails else first - last) * core * -np.expm1(-v * apart.distance) * (1 + np.exp(gain)) / 4
    added = moved * shared_mass(apart, cut)
    sizes: Floats = np.abs(whole) * (part + less) + np.abs(tilted) + np.abs(added)
    return whole * (part - less) + tilted + added, sizes


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
    if cut.bent is not None and float(apart.distance.min()) <= 0:
        return None
    unit, thin = np.array(places).T
    # What is the same for all that is moved is computed once: one row for every pair of a distance and a place.
    every = np.stack([apart.distance, apart.log_gain, apart.nearest], axis=1)
    rows, which = np.unique(every, axis=0, return_inverse=True)
    x1, gain, nearest = np.repeat(rows, unit.size, axis=0).T[:, :, None]
    host = (nearest - 1) + np.tile(unit, rows.shape[0])[:, None] * (2 - nearest)
    pair = (which.reshape(-1, 1) * unit.size + np.arange(unit.size)).ravel()
    moved = np.repeat(np.broadcast_to(-cut.moved if tails else cut.moved, apart.distance.shape), unit.size)
    # With the victim's own rate D goes on from its ends itself, and so does what is left of it.
    ends, whole = np.array(cut.shares), tails and cut.inner(v) != v
    if tails:
        ends = -ends if whole else 1 - ends
    middle = _Middle.of(v, rate, cut.inner(v), (float(ends[0]), float(ends[1])), x1, gain, host)
    sizes, flanks = np.zeros(pair.size), []
    for end, share, away in zip((0, -1), cut.shares, (-host, host - x1), strict=True):
        shapes = _flank(v, rate, replace(cut, kept=share), away, terms, tails=tails)
        plain, terms_of_d, psi = (x[:, end][pair] for x in (middle.plain, middle.terms_of_d, middle.psi))
        factors = [(plain, terms_of_d) if tails else (share * plain, share * terms_of_d)]
        near = 1 - share if tails else share
        factors.append((near * plain + moved * psi, near * terms_of_d + np.abs(moved) * psi))
        for (factor, size), shape in zip(factors, shapes, strict=False):
            flanks.append((factor, shape))
            sizes = np.maximum(sizes, size * shape.scale[pair])
    most = [(x * middle.inverse).max(1)[pair] for x in (middle.terms_of_d, middle.terms_of_h, middle.psi)]
    sizes = np.maximum(sizes, float(whole) * most[0] + most[1] + np.abs(moved) * most[2])
    found, step = [], max(1, 8 * ATOMS // (2 * middle.mass.shape[1]))
    for first in range(0, pair.size, step):
        part = slice(first, first + step)
        values, mass = middle.atoms(pair[part], moved[part, None], whole=whole)
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

    There D_j is h + moved psi, or D + h + moved psi; see `Cut`, but h may have other signs and shares. In units of v/2
    and, for R, of rate/2.
    """

    victim: float
    rate: float
    inner: float
    plain: Floats
    """D at the edges."""
    terms_of_d: Floats
    """What the rounding of D is relative to: itself, and the terms of its exponent."""
    bent: Floats
    """h."""
    terms_of_h: Floats
    psi: Floats
    plain_slope: Floats
    """D'."""
    bent_slope: Floats
    psi_slope: Floats
    inverse: Floats
    """1/R."""
    curved: Floats
    """Of cells: width^2/8."""
    mass: Floats
    """Of R; then those of D, h and psi."""
    plain_mass: Floats
    bent_mass: Floats
    psi_mass: Floats

    @classmethod
    def of(
        cls, v: float, rate: float, inner: float, shares: tuple[float, float], x1: Floats, gain: Floats, host: Floats
    ) -> _Middle:
        grid = x1 * np.linspace(0.0, 1.0, MIDDLE_CELLS + math.ceil((v + rate) * float(x1.max()) / MIDDLE_CELL) + 1)
        edges = np.sort(np.concatenate([grid, np.clip(host, 0.0, x1)], axis=1), axis=1)
        low, high, zero = edges[:, :-1], edges[:, 1:], np.zeros_like(x1)
        width, away, middle = high - low, x1 - edges, (low + high) / 2
        other = np.exp(gain - v * away)
        plain = difference(v, gain, edges, edges, zero, x1)
        terms = np.abs(plain) + (np.abs(gain) + v * x1) * other
        plain_slope = -v * (np.exp(-v * edges) + other)
        plain_mass = difference(v, gain, low, high, zero, x1) * -np.expm1(-v * width) / 2
        if inner == v and shares[0] == shares[1]:
            bent, bent_slope, bent_mass = (shares[0] * x for x in (plain, plain_slope, plain_mass))
            terms_of_h = abs(shares[0]) * terms
        else:
            first, last = shares[0] * plain[:, :1], shares[1] * plain[:, -1:]
            near, far = (np.sinh(inner * x) / np.sinh(inner * x1) for x in (away, edges))
            bent = first * near + last * far
            terms_of_h = abs(shares[0]) * terms[:, :1] * near + abs(shares[1]) * terms[:, -1:] * far
            near, far = (np.cosh(inner * x) / np.sinh(inner * x1) for x in (away, edges))
            bent_slope = inner * (last * far - first * near)
            wide = v / inner * np.sinh(inner * width / 2) / np.sinh(inner * x1)
            bent_mass = wide * (first * np.sinh(inner * (x1 - middle)) + last * np.sinh(inner * middle))
        end = (1 + np.exp(-v * x1)) / (2 * np.cosh(inner * x1 / 2))
        return cls(
            v,
            rate,
            inner,
            plain,
            terms,
            bent,
            terms_of_h,
            end * np.cosh(inner * (edges - x1 / 2)),
            plain_slope,
            bent_slope,
            inner * end * np.sinh(inner * (edges - x1 / 2)),
            v / rate * np.exp(rate * np.abs(edges - host)),
            width * width / 8 * (1 + 1e-9),
            cell_mass(rate, host, edges),
            plain_mass,
            bent_mass,
            v / inner * end * np.cosh(inner * (middle - x1 / 2)) * np.sinh(inner * width / 2),
        )

    def atoms(self, pair: Ints, moved: Floats, *, whole: bool) -> tuple[Floats, Floats]:
        """Values and masses, (F, 2 L), of laws larger than that of D_j/R for these pairs; whole: with all of D.

        D_j = p + q, p = D or 0 and q = h + moved psi; moved: (F, 1). Within a cell D_j/R is within width^2/8 of its
        largest second derivative of its chord. p'' is v^2 p and q'' is inner^2 q, so that they and their slopes are
        largest at an end.
        """
        e, u = self.rate, self.inner
        shown, slope = self.bent[pair], self.bent_slope[pair]
        mass = self.bent_mass[pair] + moved * self.psi_mass[pair]
        shown += moved * self.psi[pair]
        slope += moved * self.psi_slope[pair]
        curved, inverse = self.curved[pair], self.inverse[pair]
        if not whole:
            bend = (e * e + u * u) * _larger(np.abs(shown)) + 2 * e * _larger(np.abs(slope))
        else:
            v, parts, slopes = self.victim, self.plain[pair], self.plain_slope[pair]
            second, third = (
                v * v * _larger(np.abs(p)) + u * u * _larger(np.abs(q)) for p, q in ((parts, shown), (slopes, slope))
            )
            rest = (v * v - u * u) * _larger(np.abs(shown))  # (p + q)'' = v^2 (p + q) - (v^2 - u^2) q
            shown += parts
            slope += slopes
            mass += self.plain_mass[pair]
            most, steepest = _larger(np.abs(shown)) + curved * second, _larger(np.abs(slope)) + curved * third
            bend = (e * e + v * v) * most + 2 * e * steepest + np.abs(rest)
        bend *= curved * _larger(inverse)
        shown *= inverse
        low, high = np.minimum(*_ends(shown)) - bend, _larger(shown) + bend
        return two_atoms(low, high, self.mass[pair], mass)


def _flank(v: float, rate: float, cut: Cut, host: Floats, terms: int, *, tails: bool) -> list[Family]:
    """What D_j/R is to its factor at the victim's value, on one side of both: beyond C, and on it; P laws each.

    host: how far beyond the value they are, (P, 1). On C the difference is the factor times e^(-v t) at a distance t
    from the value; there is no such part where C ends at the value. Beyond, it is e^(-v t) g, or e^(-v t) (1 - kept g)
    with tails.
    """
    # With a host on the other side of the value D/R is larger everywhere, and its chance smaller, by the same factor.
    places, which = np.unique(np.maximum(host[:, 0], 0.0), return_inverse=True)
    further = np.exp(rate * np.maximum(-host[:, 0], 0.0))
    shapes = [_beyond(v, rate, cut, places[:, None] - cut.radius, terms, tails=tails)]
    if cut.radius > 0:
        shapes.append(_near(v, rate, cut.radius, places[:, None], terms))
    return [Family(x.scale[which] * further, x.moments[which] / further[:, None]) for x in shapes]


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


def _end(apart: Apart) -> Floats:
    """What psi is at the victim's values, (K,), in units of v/2."""
    found: Floats = (1 + np.exp(-apart.victim * apart.distance)) / 2
    return found


def _between(apart: Apart, cut: Cut) -> Floats:
    """The mass of psi between the victim's values, in units of that at their ends, (K,)."""
    inner = cut.inner(apart.victim)
    mass: Floats = apart.victim / inner * np.tanh(inner * apart.distance / 2)
    return mass


def _ends(values: Floats) -> tuple[Floats, Floats]:
    """Those at the lower and at the upper end of every cell."""
    return values[:, :-1], values[:, 1:]


def _larger(values: Floats) -> Floats:
    """The larger of both."""
    return np.maximum(*_ends(values))
