"""The cut into a core and tails that promises the least for given hosts: the best shares in the Gaussian limit.

For many hosts everything becomes Gaussian, and what a cut leaves is a sum of two variances, each of the worst place of
its hosts (docs/exchange-bound.md, section 6). The least over all cuts is found by its dual: for given mixtures of
places the best shares have a closed form, and what they leave is a concave function of the mixtures. Nothing certified
rests on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from croupier.accountant.bounds.core_laws import MOST_EXPONENT, Apart, Cut
from croupier.accountant.bounds.laplace_laws import difference
from croupier.accountant.numerics.binomial import Floats

__all__ = ["HostGroup", "best_shares"]

MIDDLE_CELLS, MIDDLE_CELL = 8, 0.2
"""Cells between the victim's values: the first number, and one more for every such width in units of 1/(v + largest
rate). Narrower cells follow the best shares more closely, and every law takes longer."""
FIRST_CELL, WIDENING, FAR = 0.15, 0.6, 8.0
"""Cells beyond the victim's values: the first one's width in the same units, by what part of the distance they widen,
and where the last one begins, in units of 1/v. Beyond it e^-8 of the victim's noise is left."""
PLACES = 9
"""Places of a host, evenly in its interval, among which the worst mixture is looked for; the victim's values are
places, too."""
EVERYWHERE = 0.1
"""What part of every mixture is even in the end, so that nothing is much rarer for some host than for the worst."""
ROUNDS, STEPS, HALVINGS = 3, 12, 6
"""How often the weights of a group's budgets are adapted; the steps towards the worst places each time; and how many
lengths of a step are tried. With no steps 3,000 x .25 + 10,000 x .5 + 87,000 x 1 is certified 1.5 times as much."""
LARGEST = 0.25
"""The most that one host may tell of the core or of psi, in units of the deviation of all hosts: the Gaussian limit
does not see what is rare and large, and the true bound does."""
NEGLIGIBLE = 1e-4
"""Shares below this, far from the victim's values, are taken as 0, so that the core ends there."""


class HostGroup(Protocol):
    """Of hosts."""

    @property
    def count(self) -> Floats:
        """How many of every budget, (T,)."""

    @property
    def rates(self) -> Floats:
        """Their budgets, (T,)."""


def best_shares(
    victim: float, distance: float, epsilon: float, groups: tuple[HostGroup, HostGroup]
) -> tuple[float, Cut]:
    """About the least standard deviation for these hosts of core and tails, at this distance, and its cut."""
    fastest = max(float(group.rates.max()) for group in groups)
    inside, outside = _grid(victim + fastest, distance, FAR / victim)
    edges = np.concatenate([-outside[:0:-1], distance * inside, distance + outside[1:]])
    d = np.array([distance])
    one = Apart(victim, d, np.array([epsilon]), d)
    deviation, share, psi = _Problem.of(one, edges, groups).solved()
    if fastest > victim:
        small = (share < NEGLIGIBLE) & (psi < NEGLIGIBLE * psi.max())
        # Only cells beyond the victim's values are left out: the others stay, however little of D they hold.
        far = min(max(1, int(np.argmin(small))), max(1, int(np.argmin(small[::-1]))), outside.size - 1)
        outside, share, psi = outside[: outside.size - far], share[far:-far], psi[far:-far]
        share = np.concatenate([[0.0], share, [0.0]])
    else:
        share = np.concatenate([share[:1], share, share[-1:]])
    return deviation, Cut(inside, outside, np.clip(share, 0.0, 1.0), np.concatenate([[0.0], psi / psi.max(), [0.0]]))


def _grid(scale: float, distance: float, reach: float) -> tuple[Floats, Floats]:
    """Edges between the victim's values, in units of their distance, and beyond; see `Cut`."""
    inside = np.linspace(0.0, 1.0, MIDDLE_CELLS + math.ceil(scale * distance / MIDDLE_CELL) + 1)
    growth = math.log1p(FIRST_CELL * WIDENING)
    cells = math.ceil(math.log1p(WIDENING * reach * scale) / growth)
    return inside, np.append(np.expm1(growth * np.arange(cells)) / (WIDENING * scale), reach)


@dataclass(frozen=True, eq=False)
class _Places:
    """Of a group: numbers, (T,), and 1/R for some places of every budget, (P, Z), and its largest in cells, (Z,)."""

    count: list[float]
    inverse: list[Floats]
    largest: list[Floats]

    @classmethod
    def of(cls, one: Apart, group: HostGroup, edges: Floats) -> _Places:
        inverse, largest, middle = [], [], (edges[1:] + edges[:-1]) / 2
        left, right = (float(x[0]) for x in one.hosts)
        for rate in group.rates.tolist():
            values = np.clip([0.0, one.distance[0]], left, right)
            places = np.unique(np.append(np.linspace(left, right, PLACES), values))[:, None]
            inside, ends = (
                2 / rate * np.exp(np.minimum(rate * np.abs(z - places), MOST_EXPONENT)) for z in (middle, edges)
            )
            inverse.append(inside)
            largest.append(np.maximum(ends[:, 1:], ends[:, :-1]).max(0))
        return cls(group.count.tolist(), inverse, largest)


@dataclass(frozen=True, eq=False)
class _Problem:
    """D at Z points with these widths, and both groups."""

    shown: Floats
    width: Floats
    groups: tuple[_Places, _Places]

    @classmethod
    def of(cls, one: Apart, edges: Floats, groups: tuple[HostGroup, HostGroup]) -> _Problem:
        middle, zero = (edges[1:] + edges[:-1]) / 2, np.zeros(1)
        shown = one.victim / 2 * difference(one.victim, one.log_gain, middle, middle, zero, one.distance)
        core, tails = (_Places.of(one, group, edges) for group in groups)
        return cls(shown, np.diff(edges), (core, tails))

    def solved(self) -> tuple[float, Floats, Floats]:
        """The deviation, the core's share of D, and what psi is proportional to; (Z,) each."""
        mixtures = [[np.full(len(x), 1 / len(x)) for x in group.inverse] for group in self.groups]
        seconds = self._seconds([self.shown, self.shown])
        for _ in range(ROUNDS):
            weights = self._weights(seconds)
            for _ in range(STEPS):
                share, shape = self._shares(mixtures, weights)
                seconds = self._seconds(self._parts(share, shape))
                towards = [[np.eye(len(x))[int(np.argmax(x))] for x in second] for second in seconds]
                tried = []
                for k in range(HALVINGS):
                    moved = _towards(mixtures, towards, 0.7 / 2**k)
                    tried.append((self._least(moved, weights), moved))
                value, best = max(tried, key=lambda one: one[0])
                if value <= self._least(mixtures, weights) * (1 + 1e-5):
                    break
                mixtures = best
        even = [[np.full(mix.size, 1 / mix.size) for mix in mixture] for mixture in mixtures]
        mixtures = _towards(mixtures, even, EVERYWHERE)
        share, shape = self._shares(mixtures, weights)
        # What is rare must not be too much at once.
        says = [
            np.max([w / n * x for w, n, x in zip(weight, group.count, group.largest, strict=True)], axis=0)
            for weight, group in zip(weights, self.groups, strict=True)
        ]
        core, _ = self._parts(share, shape)
        most = LARGEST * math.sqrt((self.width * core**2) @ self._costs(mixtures, weights)[0])
        share = np.minimum(share, most / (says[0] * np.maximum(np.abs(self.shown), 1e-300)))
        shape = shape / shape.max()
        shape = np.minimum(shape, LARGEST * (self.width @ shape) / np.maximum(*says))
        seconds = self._seconds(self._parts(share, shape))
        total = sum(
            1 / (np.array(group.count) / np.maximum([x.max() for x in second], 1e-300)).sum()
            for group, second in zip(self.groups, seconds, strict=True)
        )
        return math.sqrt(total), share, shape

    def _weights(self, seconds: list[list[Floats]]) -> list[Floats]:
        """Of every group's budgets: in proportion to numbers and precision."""
        found = [
            np.array(group.count) / np.maximum([x.max() for x in second], 1e-300)
            for group, second in zip(self.groups, seconds, strict=True)
        ]
        return [x / x.sum() for x in found]

    def _least(self, mixtures: list[list[Floats]], weights: list[Floats]) -> float:
        """What the best shares for these mixtures of places leave."""
        parts = self._parts(*self._shares(mixtures, weights))
        return sum(
            float((self.width * part**2) @ cost)
            for part, cost in zip(parts, self._costs(mixtures, weights), strict=True)
        )

    def _costs(self, mixtures: list[list[Floats]], weights: list[Floats]) -> list[Floats]:
        """What a unit of D costs at every point, in either group."""
        return [
            sum(
                (
                    w * w / n * (mix @ x)
                    for w, n, mix, x in zip(weight, group.count, mixture, group.inverse, strict=True)
                ),
                np.zeros_like(self.shown),
            )
            for group, mixture, weight in zip(self.groups, mixtures, weights, strict=True)
        ]

    def _shares(self, mixtures: list[list[Floats]], weights: list[Floats]) -> tuple[Floats, Floats]:
        """The core's share, and what psi is proportional to."""
        core, tails = self._costs(mixtures, weights)
        return tails / (core + tails), 1 / (core + tails)

    def _parts(self, share: Floats, shape: Floats) -> list[Floats]:
        """D_1, of mass 0, and D_2."""
        first = self.shown * share
        first = first - shape * ((self.width @ first) / (self.width @ shape))
        return [first, self.shown - first]

    def _seconds(self, parts: Sequence[Floats]) -> list[list[Floats]]:
        """Of every group, budget and place."""
        return [
            [x @ (self.width * part**2) for x in group.inverse] for group, part in zip(self.groups, parts, strict=True)
        ]


def _towards(mixtures: list[list[Floats]], aims: list[list[Floats]], step: float) -> list[list[Floats]]:
    return [
        [mix + step * (aim - mix) for mix, aim in zip(mixture, aim_of, strict=True)]
        for mixture, aim_of in zip(mixtures, aims, strict=True)
    ]
