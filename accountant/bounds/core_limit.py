"""The Gaussian limit of the bound with a core and tails: which cut of the victim's noise promises the least.

For many hosts everything becomes Gaussian, and the two groups' variances add up (docs/exchange-bound.md, section 6).
Here they are by quadrature, to choose a cut by. Nothing certified rests on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accountant.numerics.binomial import Floats

__all__ = ["CutLimit", "limit_of"]

PLACES = (0.0, 0.08, 0.25, 0.5, 0.75, 0.92, 1.0)
"""Of a host, between the victim's values."""
RADII = (0.0, *(float(x) for x in np.geomspace(0.02, 12, 13)))
"""Tried, in units of 1/v."""
STEEPER = (0.0, 0.1, 0.25, 0.5, 0.9, 1.5, 3.0)
"""How much the core's rate is above the least one it may have, in units of v."""
KEPT = (1.0, 0.97, 0.93, 0.88, 0.82, 0.75, 0.67, 0.58, 0.48, 0.38, 0.28, 0.18, 0.08)
FINER = 3
"""So many times each of them is tried again around the best, closer together."""
INNER, OUTER, FAR = 48, 160, 24.0
"""Points of the quadrature, between the values and beyond; how far, in units of 1/v."""


@dataclass(frozen=True)
class CutLimit:
    """A cut, and about the standard deviation that it leaves."""

    deviation: float
    radius: float
    steep: float
    kept: float
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
    least, distance = apart
    hosts = [
        [(n, e, *_squares(victim, distance, epsilon, e)) for e, n in zip(*(x.tolist() for x in group), strict=True)]
        for group in groups
    ]
    away, _ = _beyond(victim)
    radii, steeper, kept = np.array(RADII) / victim, np.array(STEEPER) * victim, np.array(KEPT)
    best, lowest = CutLimit(math.inf, float(radii[0]), steepest, 1.0, 0.0), math.inf
    for _ in range(FINER):
        r, w = (x.ravel() for x in np.meshgrid(radii, steepest + steeper, indexing="ij"))
        g = np.exp(-(w - victim)[:, None] * np.maximum(away - r[:, None], 0.0))
        mass = 1 - np.exp(-victim * r) * (1 + math.exp(-victim * least)) / 2
        unit = mass * 2 / victim / (1 + math.exp(-victim * least))
        total, clear = np.zeros((r.size, kept.size)), np.full(r.size, math.inf)
        for tail, group in enumerate(hosts):
            inverse, given = np.zeros_like(total), np.zeros(r.size)
            for n, e, inner, outer in group:
                second = kept**2 * (inner + g * g @ outer.T)[:, :, None]  # of every radius and steepness, and place
                if tail:
                    once, none = inner + g @ outer.T, inner + outer.sum(1)
                    second += none[:, None] - 2 * kept * once[:, :, None]
                given += n * (e * math.exp(-e) * unit if shared != bool(tail) else min(1.0, e * math.exp(-e / 2)))
                inverse += n / np.maximum(second.max(1), 1e-300)
            total += (1 + 1 / np.maximum(given, 1e-9))[:, None] / inverse  # with what the clock takes, about
            clear = np.minimum(clear, given)
        price = total * np.maximum(1.0, heard / np.maximum(clear, 1e-9))[:, None] ** 2
        at, share = np.unravel_index(int(np.argmin(price)), total.shape)
        if price[at, share] < lowest:
            lowest, deviation = float(price[at, share]), math.sqrt(float(total[at, share]))
            best = CutLimit(deviation, float(r[at]), float(w[at]), float(kept[share]), float(clear[at]))
        radii, steeper = _around(radii, best.radius), _around(steeper, best.steep - steepest)
        kept = _around(kept, best.kept)
    return best


def _around(tried: Floats, best: float) -> Floats:
    """Seven places from the neighbour on one side to that on the other."""
    ordered = np.sort(tried)
    at = int(np.argmin(np.abs(ordered - best)))
    return np.linspace(ordered[max(at - 1, 0)], ordered[min(at + 1, ordered.size - 1)], 7)


def _beyond(victim: float) -> tuple[Floats, Floats]:
    """Points beyond the values, by their distance from them, and weights."""
    edges = FAR / victim * np.linspace(0.0, 1.0, OUTER + 1) ** 2
    return (edges[1:] + edges[:-1]) / 2, np.diff(edges)


def _squares(victim: float, distance: float, epsilon: float, rate: float) -> tuple[Floats, Floats]:
    """D^2/R for hosts at some places, (P,) the integral between the values, (P, Z) at the points beyond."""
    places = np.unique([distance - 1, (distance - 1) / 2, *(distance * x for x in PLACES), (1 + distance) / 2, 1.0])
    middle = distance * (np.arange(INNER) + 0.5) / INNER
    inner = _square(victim, distance, epsilon, rate, middle, places).sum(1) * distance / INNER
    away, weights = _beyond(victim)
    outer = _square(victim, distance, epsilon, rate, -away, places)
    outer += _square(victim, distance, epsilon, rate, distance + away, places)
    return inner, outer * weights


def _square(victim: float, distance: float, epsilon: float, rate: float, z: Floats, places: Floats) -> Floats:
    shown = victim / 2 * (np.exp(-victim * np.abs(z)) - np.exp(epsilon - victim * np.abs(z - distance)))
    square: Floats = shown**2 * 2 / rate * np.exp(rate * np.abs(z - places[:, None]))
    return square
