"""The Gaussian limit of the bound with a core and tails: which cut of the victim's noise promises the least.

For many hosts everything becomes Gaussian, and the two groups' variances add up (docs/exchange-bound.md, section 6).
Here they are by quadrature, to choose a cut by. Nothing certified rests on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from accountant.bounds.core_laws import MOST_EXPONENT
from accountant.numerics.binomial import Floats

__all__ = ["CutLimit", "limit_of"]

PLACES = (0.0, 0.08, 0.25, 0.5, 0.75, 0.92, 1.0)
"""Of a host, between the victim's values."""
RADII = (0.0, *(float(x) for x in np.geomspace(0.02, 12, 13)))
"""Tried, in units of 1/v."""
STEEPER = (0.0, 0.1, 0.25, 0.5, 0.9, 1.5, 3.0)
"""How much the core's rate is above the least one it may have, in units of v."""
KEPT = (1.0, 0.97, 0.93, 0.88, 0.82, 0.75, 0.67, 0.58, 0.48, 0.38, 0.28, 0.18, 0.08)
INNER = (1.0, 0.75, 0.55, 0.35)
"""The rate between the values, in units of v."""
FEW = 3
"""With more budgets only the first of them is tried."""
TILTS = tuple(float(x) for x in np.geomspace(0.5, 1.25, 13))
"""The share on the side of d, in units of that on the side of 0."""
NEARER = (0.94, 0.96, 0.98, 1.0, 1.02, 1.04, 1.06)
"""How much larger the shares are then."""
MOST_BENT = 0.9
"""The largest share with another rate between the values: with more what is left of D cancels too much."""
LEAST_WON = 0.002
"""Of the variance, by a share of its own on either side."""
FINER = 3
"""So many times each of them is tried again around the best, closer together."""
INNER_POINTS, OUTER, FAR = 48, 160, 24.0
"""Points of the quadrature, between the values and beyond; how far, in units of 1/v."""


@dataclass(frozen=True)
class CutLimit:
    """A cut, and about the standard deviation that it leaves."""

    deviation: float
    radius: float
    steep: float
    kept: float
    bent: tuple[float, float] | None
    """See `Cut`."""
    heard: float
    """What gamma adds up to, about, in the group whose clock is heard less."""


def limit_of(
    victim: float,
    apart: tuple[float, float],
    epsilon: float,
    groups: Sequence[tuple[Floats, Floats]],
    steepest: float,
    shared: bool,
    heard: float,
) -> CutLimit:
    """The best cut for these hosts of the core and of the tails, rates and numbers, and a core at least so steep.

    apart: the least and the largest distance that it is for. shared: whether it is the core's hosts that give omega
    near the victim's values. heard: what gamma adds up to at least in a group, where that can be had.
    """
    # At distances near 0 nothing lies between the values.
    one = apart[0] <= 0 or sum(rates.size for rates, _ in groups) > FEW
    inner_rates = [victim * part for part in (INNER[:1] if one else INNER)]
    found = []
    for inner in inner_rates:
        hosts = [
            [_Hosts(n, e, victim, apart[1], epsilon, inner) for e, n in zip(*(x.tolist() for x in of), strict=True)]
            for of in groups
        ]
        found.append(_best(victim, apart[0], hosts, inner, steepest, shared, heard))
    return min(found, key=lambda one: one.deviation * max(1.0, heard / max(one.heard, 1e-9)))


def _best(
    victim: float,
    least: float,
    hosts: Sequence[Sequence[_Hosts]],
    inner: float,
    steepest: float,
    shared: bool,
    heard: float,
) -> CutLimit:
    """With this rate between the values."""
    away, _ = _beyond(victim)
    radii, steeper, kept = np.array(RADII) / victim, np.array(STEEPER) * victim, np.array(KEPT)
    best, lowest = CutLimit(math.inf, float(radii[0]), steepest, 1.0, None, 0.0), math.inf
    for _ in range(FINER):
        r, w = (x.ravel() for x in np.meshgrid(radii, steepest + steeper, indexing="ij"))
        g = np.exp(-(w - victim)[:, None] * np.maximum(away - r[:, None], 0.0))
        unit = math.tanh(inner * least / 2) / inner - np.expm1(-victim * r) / victim
        total, clear = np.zeros((r.size, kept.size)), np.full(r.size, math.inf)
        for tail, group in enumerate(hosts):
            inverse, given = np.zeros_like(total), np.zeros(r.size)
            for host in group:
                n, e = host.number, host.rate
                outer = host.outer.sum(0)
                second = kept**2 * (host.inside[1:, 1:].sum((0, 1)) + g * g @ outer.T)[:, :, None]
                if tail:
                    once, none = host.inside[0, 1:].sum(0) + g @ outer.T, host.inside[0, 0] + outer.sum(1)
                    second += none[:, None] - 2 * kept * once[:, :, None]
                # As in `shared_blanket`, and T4's.
                close = e * np.exp(-e - max(e - victim, 0.0) * r) * unit
                given += n * (close if shared != bool(tail) else e / max(one.rate for one in group) * math.exp(-e / 2))
                inverse += n / np.maximum(second.max(1), 1e-300)
            total += (1 + 1 / np.maximum(given, 1e-9))[:, None] / inverse  # with what the clock takes, about
            clear = np.minimum(clear, given)
        price = total * np.maximum(1.0, heard / np.maximum(clear, 1e-9))[:, None] ** 2
        at, share = np.unravel_index(int(np.argmin(price)), total.shape)
        if price[at, share] < lowest:
            lowest, deviation = float(price[at, share]), math.sqrt(float(total[at, share]))
            best = CutLimit(deviation, float(r[at]), float(w[at]), float(kept[share]), None, float(clear[at]))
        radii, steeper = _around(radii, best.radius), _around(steeper, best.steep - steepest)
        kept = _around(kept, best.kept)
    return best if least <= 0 else _bent(best, victim, hosts, inner)


def _bent(cut: CutLimit, victim: float, hosts: Sequence[Sequence[_Hosts]], inner: float) -> CutLimit:
    """With the best share on either side, where that is worth it."""
    away, _ = _beyond(victim)
    g = np.exp(-(cut.steep - victim) * np.maximum(away - cut.radius, 0.0))
    squares = [[host.squares(g) for host in group] for group in hosts]

    def variance(first: Floats, last: Floats) -> Floats:
        total: Floats = np.zeros(first.size)
        for tail, (group, known) in enumerate(zip(hosts, squares, strict=True)):
            shares = np.stack([np.ones_like(first), -first, -last] if tail else [np.zeros_like(first), first, last])
            second = [np.einsum("in,jn,ijp->np", shares, shares, square).max(1) for square in known]
            numbers = np.array([[host.number] for host in group])
            total += 1 / (numbers / np.maximum(np.stack(second), 1e-300)).sum(0)
        found: Floats = np.where(np.maximum(first, last) <= 1, total, math.inf)
        return found

    share, ratio, shares, ratios = cut.kept, 1.0, np.ones(1), np.array(TILTS)
    for _ in range(FINER):
        one, other = (x.ravel() for x in np.meshgrid(share * shares, ratios, indexing="ij"))
        at = int(np.argmin(variance(one / np.sqrt(other), one * np.sqrt(other))))
        share, ratio, shares, ratios = float(one[at]), float(other[at]), np.array(NEARER), _around(ratios, other[at])
    ends = share / math.sqrt(ratio), share * math.sqrt(ratio)
    even, best = (float(variance(*(np.array([x]) for x in pair))[0]) for pair in ((cut.kept, cut.kept), ends))
    if not best < (1 - LEAST_WON) * even and inner == victim:
        return cut
    if max(ends) > MOST_BENT and inner != victim:
        return replace(cut, deviation=math.inf)
    return replace(cut, deviation=cut.deviation * math.sqrt(best / even), kept=ends[0], bent=(ends[1], inner))


def _around(tried: Floats, best: float) -> Floats:
    """Seven places from the neighbour on one side to that on the other."""
    ordered = np.sort(tried)
    at = int(np.argmin(np.abs(ordered - best)))
    return np.linspace(ordered[max(at - 1, 0)], ordered[min(at + 1, ordered.size - 1)], 7)


def _beyond(victim: float) -> tuple[Floats, Floats]:
    """Points beyond the values, by their distance from them, and weights."""
    edges = FAR / victim * np.linspace(0.0, 1.0, OUTER + 1) ** 2
    return (edges[1:] + edges[:-1]) / 2, np.diff(edges)


class _Hosts:
    """Of one budget, for some places: what D^2/R, D h/R and h^2/R come to.

    number: how many; rate: their budget. inside: the integrals between the values for D, and for h with a share on the
    side of 0 only and on that of d only, (3, 3, P). outer: those of D^2/R around points on either side, (2, P, Z).
    """

    def __init__(self, number: float, rate: float, victim: float, distance: float, epsilon: float, inner: float):
        self.number, self.rate = number, rate
        places = np.unique([distance - 1, (distance - 1) / 2, *(distance * x for x in PLACES), (1 + distance) / 2, 1.0])
        z = distance * (np.arange(INNER_POINTS) + 0.5) / INNER_POINTS
        inverse = 2 / rate * np.exp(rate * np.abs(z - places[:, None])) * distance / INNER_POINTS
        ends = _difference(victim, distance, epsilon, np.array([0.0, distance]))
        near, far = (np.sinh(inner * x) / math.sinh(inner * distance) for x in (distance - z, z))
        parts = np.stack([_difference(victim, distance, epsilon, z), ends[0] * near, ends[1] * far])
        self.inside: Floats = np.einsum("iz,jz,pz->ijp", parts, parts, inverse)
        away, weights = _beyond(victim)
        beyond = []
        for z in (-away, distance + away):
            square = _difference(victim, distance, epsilon, z) ** 2 * 2 / rate
            exponent = np.minimum(rate * np.abs(z - places[:, None]), MOST_EXPONENT)  # 0 times infinity is no number
            beyond.append(square * np.exp(exponent) * weights)
        self.outer = np.stack(beyond)

    def squares(self, g: Floats) -> Floats:
        """As `inside`, over all of the line, where h has these shares of D at the points beyond."""
        found = self.inside.copy()
        for side, outer in enumerate(self.outer, 1):
            found[side, side] += outer @ (g * g)
            found[0, side] += outer @ g
            found[side, 0] += outer @ g
            found[0, 0] += outer.sum(1)
        return found


def _difference(victim: float, distance: float, epsilon: float, z: Floats) -> Floats:
    shown: Floats = victim / 2 * (np.exp(-victim * np.abs(z)) - np.exp(epsilon - victim * np.abs(z - distance)))
    return shown
