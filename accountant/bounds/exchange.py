"""The engine of the exchange bound: what the others' own randomness hides, whatever the randomizer.

A host is another user in whose place the victim may have reported. The divergence is at most E[Y]_+ for a weighted sum
Y = sum_i alpha_i X_i over the hosts, and that is at most an integral along the line z = theta + iu of a product with
one factor per host (docs/exchange-bound.md). Here are the stages of the hosts' clocks, the choice of theta, the
smoothing, and the integral, over-estimated cell by cell with its tail. What the factors are is left to the files of the
randomizers.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Protocol

import numpy as np

from croupier.accountant.bounds.least import ChordProfile
from croupier.accountant.bounds.profile import Bounded, Curve
from croupier.accountant.numerics.binomial import UNIT, Floats
from croupier.accountant.privacy_curve import Proof
from croupier.accountant.ranges import check_epsilon
from croupier.protocol.codes import Method
from croupier.protocol.statements import state

__all__ = [
    "ExchangeProfile",
    "HostProduct",
    "StagedProduct",
    "exchange_bound",
    "horizon",
    "integral_edges",
    "stages",
    "tilt",
]

UNHEARD = 1e-9
"""The chance that no clock rings before the horizon, as a part of delta."""
TUNING_DELTA = 1e-12
"""For which delta the horizon is chosen when no target is given."""
FEW_STAGES, MANY_STAGES = 6, 12
"""The stages of a clock, the second with few tiers."""
SMOOTHING = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
"""Variances of the Gaussian that is added to Y, in units of (standard deviation of Y)^2 / `hosts`."""
BULK = 7.0
"""Standard deviations of the integrand, as if it were Gaussian, that get cells of equal width; then they widen."""
GROWTH = 5.0
"""Beyond it each cell is wider than the one before by a fraction of this times the step."""
MOVES = 8
"""How often the tilt is looked for further on, while the best one is at an end of where it was looked for."""
LEAST = 5e-324
"""Stands for a bound that has underflowed: a bound is never 0 where the divergence is not."""


class HostProduct(Protocol):
    """The product over the hosts, for data as bad as can be: Pi_t (max over the data of |phi_t(z)|)^count_t.

    Every method may be too large, by any amount; it is never too small by more than the error that it states.
    """

    @property
    def drift(self) -> float:
        """-E[Y] = e^epsilon - 1; only to choose where to look."""
        ...

    @property
    def deviation(self) -> float:
        """About the standard deviation of Y, > 0; only to choose where to look."""
        ...

    @property
    def hosts(self) -> float:
        """About how many hosts like the most common ones there would be; only to choose where to look."""
        ...

    def at(self, theta: Floats) -> Floats:
        """About the logarithm of the product at z = theta > 0, for each theta; not a bound."""
        ...

    def over(self, theta: float, edges: Floats, bulk: int) -> tuple[Floats, float]:
        """Upper bounds on the logarithm of |product| at z = theta (1 + ir), for all r of each cell, and their error.

        edges: float64 (L+1,), increasing from 0. Returns ((L,), absolute error of each). The first cell's bound holds
        for every r >= 0. bulk: how many of the edges, from the first, lie where the integrand counts.
        """
        ...


@dataclass(frozen=True, eq=False)
class StagedProduct:
    """The mean over the stages in which the first clock may ring, of a product for each: itself a `HostProduct`."""

    products: tuple[HostProduct, ...]
    log_mass: Floats
    """(J,): see `stages`."""

    @property
    def drift(self) -> float:
        """See `HostProduct`."""
        return self.products[0].drift

    @property
    def deviation(self) -> float:
        """See `HostProduct`."""
        return self.products[0].deviation

    @property
    def hosts(self) -> float:
        """See `HostProduct`."""
        return self.products[0].hosts

    def at(self, theta: Floats) -> Floats:
        """That of the stage in the middle, for all of them. See `HostProduct`."""
        return self.products[len(self.products) // 2].at(theta)

    def over(self, theta: float, edges: Floats, bulk: int) -> tuple[Floats, float]:
        """See `HostProduct`."""
        parts, errors = zip(*(product.over(theta, edges, bulk) for product in self.products), strict=True)
        rounding = UNIT * (128 + float(np.abs(self.log_mass).max()))
        return _log_mean(np.stack(parts, axis=-1), self.log_mass), max(errors) + rounding


def horizon(delta: float | None, most: float) -> float:
    """Up to when the clocks run; at most `most`. Any time > 0 is sound."""
    return min(-math.log(UNHEARD) - math.log(TUNING_DELTA if delta is None else delta), most)


def stages(end: float, number: int, power: int = 2) -> tuple[Floats, Floats]:
    """Ends of stages from 0 to `end`, narrow first, and ln of the chance that a clock of rate 1 rings first in each.

    Both of shape (number,). The logarithms are good to a few ulp, and one of their size.
    """
    ends = end * (np.arange(1, number + 1) / number) ** power
    starts = np.concatenate([[0.0], ends[:-1]])
    return ends, np.log(-np.expm1(starts - ends)) - starts


def tilt(product: HostProduct) -> float:
    """The theta with about the smallest bound, where the integrand is least at u = 0. Any theta is sound."""
    mean = product.drift / product.deviation
    theta = (mean + math.hypot(mean, math.sqrt(8))) / (2 * product.deviation)  # the root for Gaussian Y
    for reach in (0.5, 0.125):
        for _ in range(MOVES):
            thetas = theta * np.exp(np.linspace(-reach, reach, 9))
            with np.errstate(over="ignore", invalid="ignore"):
                height = product.at(thetas) - 2 * np.log(thetas)
            best = int(np.argmin(np.where(np.isnan(height), math.inf, height)))
            theta = float(thetas[best])
            if 0 < best < thetas.size - 1:
                break
    return theta


@dataclass(frozen=True, eq=False)
class ExchangeProfile(Curve):
    """What the exchange bounds of all randomizers share. See `PrivacyProfile`."""

    title: ClassVar[str] = "exchange"
    local_epsilon: float
    """The victim's; from there on delta is 0."""
    horizon: float
    """Until when the clocks of the hosts run; then the victim is taken to be seen."""

    @property
    def method(self) -> Proof:
        """See `PrivacyProfile`."""
        return (state(Method.EXCHANGE),)

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        if epsilon >= self.local_epsilon:
            return Bounded(0.0, 0.0)
        local = self._alone(epsilon)
        lost = math.exp(-self.horizon) * local.value * (1 + 64 * UNIT)
        found = exchange_bound(self._product(epsilon), self._step)
        if found.value + lost < local.value:
            return Bounded(found.value + lost, found.slack)
        return local

    @property
    def tolerance(self) -> float:
        """See `Curve.tolerance`: the bound itself exceeds its integral by about as much."""
        return 1e-4

    def to_compose(self, delta: float, ceiling: float) -> Curve:
        """See `Curve.to_compose`: chords."""
        return ChordProfile(self, delta, ceiling)

    @property
    @abstractmethod
    def _step(self) -> float:
        """See `exchange_bound`."""

    @abstractmethod
    def _alone(self, epsilon: float) -> Bounded:
        """What the victim's report shows by itself, for epsilon below its local one."""

    @abstractmethod
    def _product(self, epsilon: float) -> HostProduct:
        """The hosts' factors."""


def exchange_bound(product: HostProduct, step: float = 0.02) -> Bounded:
    """E[Y]_+ <= (1/pi) int_0^oo e^{(theta^2-u^2) s^2/2} / (theta^2+u^2) Pi(theta+iu) du, rounded up; at most 1.

    step: the cells are as good as ones that are so many standard deviations of the integrand wide; the bound exceeds
    the integral by a fraction of about 0.4 step. Slack: the tail of the integral, and rounding.
    """
    theta = tilt(product)
    spread = theta * product.deviation
    edges = integral_edges(step, product.hosts) / spread
    with np.errstate(over="ignore", invalid="ignore"):
        log_product, error = product.over(theta, edges, _bulk(step).size)
    left, width = edges[:-1], np.diff(edges)
    top = float(log_product.max())
    if not (math.isfinite(top) and math.isfinite(error)):
        return Bounded(1.0, 0.0)
    # Each cell is charged at its left end for the explicit decreasing factors.
    rest = np.exp(log_product - top) * width / (1 + left * left)
    end = float(edges[-1])
    best = (math.inf, 0.0, 0.0)
    for variance in SMOOTHING:
        rate = variance / max(product.hosts, 1.0) * spread * spread / 2
        body = float((rest * np.exp(-rate * left * left)).sum())
        tail = math.exp(float(log_product[0]) - top - rate * end * end) / end
        best = min(best, (rate + math.log(body + tail), tail / (body + tail), rate))
    log_value, tail_share, rate = best
    log_value += top - math.log(math.pi * theta)
    # The sums are of positive numbers; the exponents are good to a few ulp of their size.
    relative = error + UNIT * (2 * edges.size + 64 + 8 * (abs(top) + abs(log_value) + rate + abs(math.log(theta))))
    if not relative < 1:
        return Bounded(1.0, 0.0)
    if log_value > 0.5:
        return Bounded(1.0, 1.0 if tail_share > 0.5 else 0.0)
    value = math.exp(log_value)
    slack = 2 * relative * value + tail_share * value + LEAST
    total = value * (1 + 2 * relative) + LEAST
    return Bounded(min(1.0, total), min(1.0, slack, total))


@lru_cache(maxsize=16)
def _bulk(step: float) -> Floats:
    """Edges from 0 to BULK, between which the integrand is over-estimated by about as much in each cell.

    A cell of width h costs h^2 times the slope: for e^(-u^2/2) they are narrowest near u = 1, and half as many do.
    """
    places = np.linspace(0.0, BULK, 4096)
    density = np.sqrt(places) * np.exp(-places * places / 4) + 0.01
    below = np.cumsum(density) - density[0]
    edges: Floats = np.interp(np.linspace(0.0, below[-1], math.ceil(3.2 / step) + 1), below, places)
    return edges


def integral_edges(step: float, hosts: float, widening: float | None = None) -> Floats:
    """Edges of cells in standard deviations of the integrand: from 0 to BULK, then they widen, up to 40 (hosts + 1)^.5.

    hosts: as in `HostProduct`. widening: how much wider each is than the one before; None: see `GROWTH`.
    """
    bulk, growth, end = _bulk(step), widening or 1 + GROWTH * step, 40 * math.sqrt(hosts + 1)
    more = max(1, math.ceil(math.log(max(end / BULK, 1.0)) / math.log(growth)))
    return np.concatenate([bulk, BULK * growth ** np.arange(1, more + 1)])


def _log_mean(exponent: Floats, log_mass: Floats) -> Floats:
    """Returns ln of the sum of e^(exponent + log_mass) over the last axis; the largest term never underflows."""
    terms = exponent + log_mass
    top = terms.max(-1)
    logarithm: Floats = top + np.log(np.exp(terms - top[..., None]).sum(-1))
    return logarithm
