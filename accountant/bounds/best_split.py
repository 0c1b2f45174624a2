"""The split into a core and tails for given hosts: good shares of the victim's difference in the Gaussian limit.

With many hosts every law becomes Gaussian, and the bound for a split depends on the sum of two variances, each at the
worst place of its hosts (docs/paper, section 6, "The split"). For given mixtures of places the shares with the least
sum have a closed form; a few steps move the mixtures towards the worst places. Nothing certified rests on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from croupier.accountant.bounds.laplace_laws import WIDENING, difference
from croupier.accountant.bounds.split_laws import MOST_EXPONENT, Split
from croupier.accountant.numerics.binomial import Floats

MIDDLE_CELLS = 12
"""Cells between the victim's values. More cells follow the best shares more closely, and every law takes longer."""
FIRST_CELL, FAR = 0.15, 8.0
"""Cells beyond the victim's values: the width of the first in units of 1/(v + largest rate), and the start of the last
in units of 1/v. Narrower cells take longer; the cells beyond the last hold e^-8 of the victim's noise."""
PLACES = 9
"""Places of a host, evenly in its interval, over which the worst mixture is searched."""
STEPS = 12
"""Steps towards the worst places. With none, certificates are up to 7 % larger."""
LARGEST = 0.25
"""The largest contribution of one host to the core or to psi, in units of the deviation of all hosts. The Gaussian
limit neglects rare large contributions, which the true bound charges. Without it epsilon is up to 4 % larger."""


@dataclass(frozen=True, eq=False)
class HostGroup:
    """Hosts with their rates and numbers, (T,)."""

    rates: Floats
    count: Floats


def best_split(
    victim: float, distance: float, epsilon: float, groups: tuple[HostGroup, HostGroup]
) -> tuple[float, Split]:
    """Returns about the least standard deviation for these hosts of core and tails at this distance, and its split."""
    fastest = max(float(group.rates.max()) for group in groups)
    inside, outside = grid(victim + fastest, FAR / victim)
    edges = np.concatenate([-outside[:0:-1], distance * inside, distance + outside[1:]])
    width, middle, d = np.diff(edges), (edges[1:] + edges[:-1]) / 2, np.array([distance])
    whole = victim / 2 * difference(victim, epsilon, middle, middle, np.zeros(1), d)
    core, tails = (_Group.of(group, distance, middle, width * whole**2) for group in groups)
    for step in range(STEPS):
        share, psi = _best(core, tails)
        core_part, tails_part = _parts(whole, share, psi, width)
        core, tails = (
            core.nearer(width * core_part**2, 1 / (step + 2)),
            tails.nearer(width * tails_part**2, 1 / (step + 2)),
        )
    share, psi = _best(core, tails)
    core_part, _ = _parts(whole, share, psi, width)
    # Rare contributions must not be too large.
    most = LARGEST * math.sqrt((width * core_part**2) @ core.cost)
    share = np.minimum(share, most / (core.influence * np.maximum(np.abs(whole), 1e-300)))
    psi = np.minimum(psi, LARGEST * (width @ psi) / np.maximum(core.influence, tails.influence))
    core_part, tails_part = _parts(whole, share, psi, width)
    deviation = math.sqrt(
        sum(group.variance(width * part**2) for group, part in ((core, core_part), (tails, tails_part)))
    )
    share = np.pad(share, 1, mode="constant" if fastest > victim else "edge")
    return deviation, Split(inside, outside, np.clip(share, 0.0, 1.0), np.pad(psi / psi.max(), 1))


def grid(scale: float, reach: float) -> tuple[Floats, Floats]:
    """Returns edges between the victim's values, in units of their distance, and beyond; see `Split`."""
    growth = math.log1p(FIRST_CELL * WIDENING)
    cells = math.ceil(math.log1p(WIDENING * reach * scale) / growth)
    outside = np.expm1(growth * np.arange(cells)) / (WIDENING * scale)
    return np.linspace(0.0, 1.0, MIDDLE_CELLS + 1), np.append(outside, reach)


@dataclass(frozen=True, eq=False)
class _Group:
    """A group of hosts of T budgets at P places, in Z cells."""

    count: Floats
    """(T,)."""
    inverse: Floats
    """1/R at the middle of every cell, (T, P, Z)."""
    mixture: Floats
    """The probabilities of the places, for every budget, (T, P)."""
    weights: Floats
    """The weight of every budget, in proportion to number and precision, (T,)."""

    @classmethod
    def of(cls, group: HostGroup, distance: float, middle: Floats, squares: Floats) -> _Group:
        """Returns a group with even mixtures. squares: D^2 times the width of every cell, which decides the weights."""
        places = np.unique(np.append(np.linspace(distance - 1, 1.0, PLACES), [0.0, distance]))
        rates = group.rates[:, None, None]
        inverse = 2 / rates * np.exp(np.minimum(rates * np.abs(middle - places[:, None]), MOST_EXPONENT))
        even = np.full(inverse.shape[:2], 1 / places.size)
        return cls(group.count, inverse, even, np.ones(group.count.size)).nearer(squares, 0.0)

    def nearer(self, squares: Floats, step: float) -> _Group:
        """Returns the group with mixtures a step nearer to the worst places for a part of D with these squares."""
        worst = np.eye(self.inverse.shape[1])[(self.inverse @ squares).argmax(1)]
        precision = self._precision(squares)
        mixture = self.mixture + step * (worst - self.mixture)
        return replace(self, mixture=mixture, weights=precision / precision.sum())

    @property
    def cost(self) -> Floats:
        """The cost of a unit of D in every cell, (Z,): the mean of sum w^2/(n R) over the mixtures."""
        cost: Floats = np.einsum("t,tp,tpz->z", self.weights**2 / self.count, self.mixture, self.inverse)
        return cost

    @property
    def influence(self) -> Floats:
        """The largest contribution of one host to a unit of D in every cell, (Z,)."""
        influence: Floats = ((self.weights / self.count)[:, None] * self.inverse.max(1)).max(0)
        return influence

    def _precision(self, squares: Floats) -> Floats:
        """Returns the part of every budget in 1/variance if its hosts are at their worst place, (T,)."""
        precision: Floats = self.count / np.maximum((self.inverse @ squares).max(1), 1e-300)
        return precision

    def variance(self, squares: Floats) -> float:
        """Returns the variance of a part of D with these squares, with the best weights for it."""
        return 1 / float(self._precision(squares).sum())


def _best(core: _Group, tails: _Group) -> tuple[Floats, Floats]:
    """Returns the core's share b/(a + b) and psi in proportion to 1/(a + b), for costs a and b (section 6)."""
    a, b = core.cost, tails.cost
    return b / (a + b), (a + b).min() / (a + b)


def _parts(whole: Floats, share: Floats, psi: Floats, width: Floats) -> tuple[Floats, Floats]:
    """Returns D_1, of mass 0, and D_2."""
    core = whole * share
    core = core - psi * ((width @ core) / (width @ psi))
    return core, whole - core
