"""The split into a core and tails that promises the least for given hosts: the best shares in the Gaussian limit.

For many hosts everything becomes Gaussian, and what a split leaves is a sum of two variances, each of the worst place
of its hosts (docs/exchange-bound.md, section 6, "The split"). The least over all splits is found by its dual: for given
mixtures of places the best shares have a closed form, and what they leave is a concave function of the mixtures.
Nothing certified rests on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from croupier.accountant.bounds.laplace_laws import difference
from croupier.accountant.bounds.split_laws import MOST_EXPONENT, Split
from croupier.accountant.numerics.binomial import Floats

__all__ = ["best_split", "grid"]

MIDDLE_CELLS = 12
"""Cells between the victim's values: more follow the best shares more closely, and every law takes longer."""
FIRST_CELL, WIDENING, FAR = 0.15, 0.6, 8.0
"""Cells beyond the victim's values: the first one's width in units of 1/(v + largest rate), by what part of the
distance they widen, and where the last one begins, in units of 1/v. Beyond it e^-8 of the victim's noise is left."""
PLACES = 9
"""Places of a host, evenly in its interval, among which the worst mixture is looked for."""
ROUNDS, STEPS = 3, 12
"""How often the weights of a group's budgets are adapted, and the steps towards the worst places each time. With no
steps 3,000 x .25 + 10,000 x .5 + 87,000 x 1 is certified 1.5 times as much."""
LARGEST = 0.25
"""The most that one host may tell of the core or of psi, in units of the deviation of all hosts: the Gaussian limit
does not see what is rare and large, and the true bound does. Without it epsilon is up to 4 % larger."""


class Hosts(Protocol):
    """A group of hosts."""

    @property
    def count(self) -> Floats:
        """How many of every budget, (T,)."""

    @property
    def rates(self) -> Floats:
        """Their budgets, (T,)."""


def best_split(victim: float, distance: float, epsilon: float, groups: tuple[Hosts, Hosts]) -> tuple[float, Split]:
    """About the least standard deviation for these hosts of core and tails, at this distance, and its split."""
    fastest = max(float(group.rates.max()) for group in groups)
    inside, outside = grid(victim + fastest, FAR / victim)
    edges = np.concatenate([-outside[:0:-1], distance * inside, distance + outside[1:]])
    middle, d = (edges[1:] + edges[:-1]) / 2, np.array([distance])
    difference_at = victim / 2 * difference(victim, epsilon, middle, middle, np.zeros(1), d)
    core, tails = (_Group.of(group, distance, edges) for group in groups)
    deviation, share, psi = _Shares(difference_at, np.diff(edges), (core, tails)).solved()
    share = np.pad(share, 1, mode="constant" if fastest > victim else "edge")
    return deviation, Split(inside, outside, np.clip(share, 0.0, 1.0), np.pad(psi / psi.max(), 1))


def grid(scale: float, reach: float) -> tuple[Floats, Floats]:
    """Edges between the victim's values, in units of their distance, and beyond; see `Split`."""
    growth = math.log1p(FIRST_CELL * WIDENING)
    cells = math.ceil(math.log1p(WIDENING * reach * scale) / growth)
    outside = np.expm1(growth * np.arange(cells)) / (WIDENING * scale)
    return np.linspace(0.0, 1.0, MIDDLE_CELLS + 1), np.append(outside, reach)


@dataclass(frozen=True, eq=False)
class _Group:
    """One row for each budget and place of a host, (P,): which budget, and 1/R in the cells, (P, Z)."""

    count: Floats
    """(T,)."""
    tier: Floats
    """Whether the row is one of the budget's, (T, P): 1 or 0."""
    inverse: Floats
    largest: Floats
    """The largest 1/R in the cells, (T, Z)."""

    @classmethod
    def of(cls, group: Hosts, distance: float, edges: Floats) -> _Group:
        places = np.unique(np.append(np.linspace(distance - 1, 1.0, PLACES), [0.0, distance]))
        middle = (edges[1:] + edges[:-1]) / 2
        rates = group.rates[:, None, None]
        inside, ends = (
            2 / rates * np.exp(np.minimum(rates * np.abs(z - places[:, None]), MOST_EXPONENT)) for z in (middle, edges)
        )
        tier = np.repeat(np.eye(group.rates.size), places.size, axis=1)
        return cls(
            group.count,
            tier,
            inside.reshape(-1, middle.size),
            np.maximum(ends[..., 1:], ends[..., :-1]).max(1),
        )

    def even(self) -> Floats:
        """The even mixture of places, (P,)."""
        mixture: Floats = 1 / (self.tier.sum(1) @ self.tier)
        return mixture

    def cost(self, mixture: Floats, weights: Floats) -> Floats:
        """What a unit of D costs in every cell, (Z,): the mean of sum w^2/(n R)."""
        cost: Floats = (mixture * (weights**2 / self.count @ self.tier)) @ self.inverse
        return cost

    def worst(self, second: Floats) -> Floats:
        """The largest of each budget, (T,), of what is known of every place, (P,)."""
        worst: Floats = np.maximum((self.tier * second).max(1), 1e-300)
        return worst

    def weights(self, second: Floats) -> Floats:
        """The budgets' weights, (T,): in proportion to numbers and precision."""
        precision: Floats = self.count / self.worst(second)
        return precision / float(precision.sum())


@dataclass(frozen=True, eq=False)
class _Shares:
    """The dual problem: D at Z points with these widths, and both groups."""

    difference: Floats
    width: Floats
    groups: tuple[_Group, _Group]

    def solved(self) -> tuple[float, Floats, Floats]:
        """The deviation, the core's share of D, and what psi is proportional to; (Z,) each."""
        groups = self.groups
        mixtures = [group.even() for group in groups]
        seconds = self._seconds([self.difference, self.difference])
        for _ in range(ROUNDS):
            weights = [group.weights(second) for group, second in zip(groups, seconds, strict=True)]
            for _ in range(STEPS):
                costs = self._costs(mixtures, weights)
                seconds = self._seconds(self._parts(*_best(costs)))
                worst = [
                    np.sum(np.eye(second.size)[(group.tier * second).argmax(1)], axis=0)
                    for group, second in zip(groups, seconds, strict=True)
                ]
                tried = [
                    [mix + step * (aim - mix) for mix, aim in zip(mixtures, worst, strict=True)]
                    for step in 0.7 * 0.5 ** np.arange(6)
                ]
                best = max(tried, key=lambda mixture: self._least(self._costs(mixture, weights)))
                if self._least(self._costs(best, weights)) <= self._least(costs) * (1 + 1e-5):
                    break
                mixtures = best
        costs = self._costs(mixtures, weights)
        share, shape = _best(costs)
        # What is rare must not be too much at once.
        says = [
            ((weight / group.count)[:, None] * group.largest).max(0)
            for weight, group in zip(weights, groups, strict=True)
        ]
        core, _ = self._parts(share, shape)
        most = LARGEST * math.sqrt((self.width * core**2) @ costs[0])
        share = np.minimum(share, most / (says[0] * np.maximum(np.abs(self.difference), 1e-300)))
        shape = shape / shape.max()
        shape = np.minimum(shape, LARGEST * (self.width @ shape) / np.maximum(*says))
        seconds = self._seconds(self._parts(share, shape))
        total = sum(
            1 / float((group.count / group.worst(second)).sum()) for group, second in zip(groups, seconds, strict=True)
        )
        return math.sqrt(total), share, shape

    def _costs(self, mixtures: list[Floats], weights: list[Floats]) -> list[Floats]:
        """What a unit of D costs at every point, in either group."""
        return [
            group.cost(mixture, weight) for group, mixture, weight in zip(self.groups, mixtures, weights, strict=True)
        ]

    def _least(self, costs: list[Floats]) -> float:
        """What the best shares for these costs leave."""
        parts = self._parts(*_best(costs))
        return sum(float((self.width * part**2) @ cost) for part, cost in zip(parts, costs, strict=True))

    def _parts(self, share: Floats, shape: Floats) -> list[Floats]:
        """D_1, of mass 0, and D_2."""
        first = self.difference * share
        first = first - shape * ((self.width @ first) / (self.width @ shape))
        return [first, self.difference - first]

    def _seconds(self, parts: list[Floats]) -> list[Floats]:
        """E X^2 of every budget and place, (P,), in either group."""
        return [group.inverse @ (self.width * part**2) for group, part in zip(self.groups, parts, strict=True)]


def _best(costs: list[Floats]) -> tuple[Floats, Floats]:
    """The core's share b/(a + b) and what psi is proportional to, 1/(a + b), for costs a and b (section 6)."""
    core, tails = costs
    return tails / (core + tails), 1 / (core + tails)
