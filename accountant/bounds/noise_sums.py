"""Sums over hosts with Laplace noise: the hosts' clocks, and factors from a few tilted moments of every law.

In a row Y = sum_i alpha_i X_i every X_i is below the worst of a few laws (docs/paper, section 1). |phi| of each law is
over-estimated on a whole line by a polynomial (section 5, "Many integrals at once"), so that hundreds of sums are
evaluated together. The laws are in `laplace_laws` and `split_laws`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from croupier.accountant.bounds.exchange import EXPONENT, edges_of, integral
from croupier.accountant.bounds.laplace_laws import AT_ONCE, Family
from croupier.accountant.numerics.binomial import UNIT, Floats, Ints
from croupier.accountant.numerics.clock_stages import stages

LONGEST, SPENT = 0.5, 0.7
"""Until its clocks stop, a group of hosts gives at most the first fraction of its total gamma, and each host at most
the second fraction of its own. More leaves a host so little of its own law that its moments grow; less leaves clocks
that may not ring among few hosts."""
LARGEST, SMALLEST, MOST_TERMS = 8.0, 100.0, 1e8
"""The largest |theta alpha X|, theta^2 Var(Y) and theta times the terms of E[Y]. Beyond them the series ends too early,
the remaining mass is too small to matter, or rounding would show."""
TILTS = ((0.7, 9, 6), (0.2, 9, 1), (0.04, 7, 1))
"""The stages of the search for theta: the distance from the best theta so far, in ln theta; the number of places; and
the largest number of moves. A theta 10 % from the best one costs less than 0.1 % of epsilon."""
INEXACT = 1e-12
"""A bound on the rounding of every value of X, and of its mean over a cell, relative to the largest |X|."""


@dataclass(frozen=True, eq=False)
class Clocks:
    """The clocks of T tiers of hosts (theorem, step 1, and "Stages"), in N settings."""

    weights: Floats
    """alpha, (N, T)."""
    left: Floats
    """The factor by which every host is thinned in each stage (T4), (N, T, S); rounded down."""
    log_mass: Floats
    """ln of the chance of every stage, (N, S)."""
    silent: Floats
    """The probability that no clock rings before the horizon, (N,)."""

    @classmethod
    def of(cls, count: Floats, blanket: Floats, second: Floats, horizons: Floats) -> Clocks:
        """Returns clocks for hosts with these gamma and rough second moments of X, (N, T), and horizons, (N,).

        alpha is proportional to 1/second, unless the horizon would take more than SPENT of gamma.
        """
        weights, left, log_mass = [], [], []
        for gamma, variance, until in zip(blanket, second, horizons.tolist(), strict=True):
            alpha = spread(1 / variance, count, gamma * (SPENT / until))
            ends, mass = stages(until)
            weights.append(alpha)
            left.append(np.stack([_left_of_host(alpha, gamma, end) for end in ends.tolist()], axis=1))
            log_mass.append(mass)
        return cls(np.stack(weights), np.stack(left), np.stack(log_mass), np.exp(-horizons))


def spread(precision: Floats, count: Floats, most: Floats) -> Floats:
    """Returns alpha, proportional to `precision` and at most `most`, with a sum of 1 over the hosts."""
    free = np.ones(most.size, dtype=np.bool_)
    for _ in range(most.size):
        rest = 1 - float(count[~free] @ most[~free])
        weights = np.where(free, precision * rest / max(float(count[free] @ precision[free]), 1e-300), most)
        if (weights <= most).all():
            break
        free &= weights <= most
    weights = np.minimum(weights, most)
    return weights / float(count @ weights)


def _left_of_host(weights: Floats, blanket: Floats, end: float) -> Floats:
    """Returns a host's residual density when its clock has not rung by `end` (T4), rounded down; to a few ulp."""
    left: Floats = (1 + np.expm1(-end * weights) / blanket) * np.exp(end * weights) * (1 - 64 * UNIT)
    return left


@dataclass(frozen=True, eq=False)
class NoiseSums:
    """N sums Y over the same T tiers of hosts, for the worst data, and the S stages of their clocks.

    The laws of the summands have known moments.
    """

    count: Floats
    """Hosts of every tier, (T,)."""
    weights: Floats
    """alpha, (N, T), which adds up to 1 over the hosts."""
    log_mass: Floats
    """ln of the chance of every stage, (N, S): see `stages`."""
    mean: Floats
    """E[Y], (N,)."""
    terms: Floats
    """The sum of the sizes of the terms of E[Y], (N,); the error of E[Y] is 16 ulp of it."""
    left: Floats
    """See `Clocks`."""
    families: tuple[Family, ...]
    """The laws of every tier: N J of them, row by row."""

    def positive_parts(self, step: float) -> Floats:
        """Returns upper bounds on E[Y]_+, averaged over the stages: the theorem's integral, section 1, (3).

        step: the cells are as good as cells whose width is this many standard deviations of the integrand; the bound
        exceeds the integral by a fraction of about 0.4 step. (N,), infinite if there is no proof.
        """
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            theta = self.tilt()
            spread = theta * self.deviation
            hosts = np.maximum(1 / self.weights.max(1) / 4, 1.0)
            edges = edges_of(step, float(hosts.max())) / spread[:, None]
            stage = self.logarithms(theta, edges) + self.log_mass[..., None]
            top = stage.max(1)
            exponent = top + np.log(np.exp(stage - top[:, None]).sum(1))
            exponent += EXPONENT * (1 + np.abs(top) + float(np.abs(self.log_mass).max()))
            return integral(theta, spread, hosts, edges, exponent)

    def tilt(self) -> Floats:
        """Returns about the best theta of each row, where the integrand is least at r = 0; any theta is sound."""
        deviation = self.deviation
        drift = -self.mean / deviation
        most = self.largest_theta
        theta: Floats = np.minimum(
            (drift + np.hypot(drift, math.sqrt(8))) / (2 * deviation), most
        )  # best for Gaussian Y
        for reach, places, moves in TILTS:
            rows = np.arange(theta.size)
            for _ in range(moves):
                thetas = np.minimum(theta[rows, None] * np.exp(np.linspace(-reach, reach, places)), most[rows, None])
                height = self.at_rest(rows, thetas) - 2 * np.log(thetas)
                best = np.argmin(np.where(np.isfinite(height), height, math.inf), axis=1)
                theta[rows] = thetas[np.arange(rows.size), best]
                rows = rows[(best == 0) | (best == places - 1)]  # skewed laws have their best theta further off
                if rows.size == 0:
                    break
        return theta

    @cached_property
    def deviation(self) -> Floats:
        """The approximate standard deviation of every sum, (N,), which decides where to evaluate."""
        second = np.stack([f.largest_second(self.mean.size) for f in self.families], axis=1)
        deviation: Floats = np.sqrt((self.count * self.weights**2 * second).sum(1))
        return deviation

    @property
    def largest_theta(self) -> Floats:
        """The largest theta at which the factors can be evaluated, (N,)."""
        scale = np.stack([family.scale.reshape(self.mean.size, -1).max(1) for family in self.families], axis=1)
        known = LARGEST / (self.weights * scale).max(1), math.sqrt(SMALLEST) / self.deviation, MOST_TERMS / self.terms
        least: Floats = np.min(known, axis=0)
        return least

    def at_rest(self, rows: Ints, theta: Floats) -> Floats:
        """Returns about ln of the product at theta, (R, M), for these rows, (R,), to decide where to evaluate.

        With the first and the last law of every tier, in the worse of two stages.
        """
        sums = self._coarse._rows(np.repeat(rows, theta.shape[1]))
        total = sums.log_mass - sums.log_mass[:, :1]
        for tier, family in enumerate(sums.families):
            laws = Tilted.of(sums, tier, family, theta.ravel())
            total = total + self.count[tier] / 2 * np.log1p(laws.rest.max(1))
        most: Floats = total.max(1).reshape(theta.shape)
        return most

    def logarithms(self, theta: Floats, edges: Floats) -> Floats:
        """Returns upper bounds on ln of the product of |phi(theta (1 + ir))| over every cell of r: (N, S, L).

        theta: (N,). edges: (N, L+1), increasing from 0. The bound of the first cell holds for every r >= 0.
        """
        total = np.zeros((theta.size, self.log_mass.shape[1], edges.shape[1] - 1))
        squares = edges**2
        for tier, family in enumerate(self.families):
            laws = Tilted.of(self, tier, family, theta)
            at = laws.at(squares)
            most = laws.rest.max(1)[..., None]
            cells = np.minimum(np.maximum(at[..., 1:], at[..., :-1]), most)
            logarithm = np.log1p(np.maximum(cells, -1 + 1e-15))
            size = laws.size.max(1)[..., None] + np.abs(logarithm)
            total += self.count[tier] * (logarithm / 2 + EXPONENT * size)
        return total

    @cached_property
    def _coarse(self) -> NoiseSums:
        """The sums with the first and last law of every tier only, in the middle stage and the last one."""
        families = tuple(family.part(self.mean.size, slice(None), [0, -1]) for family in self.families)
        at = [self.log_mass.shape[1] // 2, -1]
        return replace(self, families=families, left=self.left[:, :, at], log_mass=self.log_mass[:, at])

    def _rows(self, rows: Ints) -> NoiseSums:
        """Returns these rows, which may repeat."""
        of_rows = (self.weights, self.log_mass, self.mean, self.terms, self.left)
        weights, log_mass, mean, terms, left = (x[rows] for x in of_rows)
        families = tuple(family.part(self.mean.size, rows) for family in self.families)
        return NoiseSums(self.count, weights, log_mass, mean, terms, left, families)


@dataclass(frozen=True, eq=False)
class Tilted:
    """|phi(w (1 + ir))|^2 - 1 <= rest - first r^2 + second r^4 for all r; each (N, J, S).

    |phi|^2 = E e^(w(X+X')) cos(w r (X-X')), and cos x <= 1 - x^2/2 + x^4/24.
    """

    rest: Floats
    first: Floats
    second: Floats
    size: Floats
    """The sizes of the terms of `rest`."""

    def at(self, squares: Floats) -> Floats:
        """Returns the bound for the worst law at these r^2, (N, L): (N, S, L); convex, so a cell's ends bound it."""
        number, laws, stage = self.rest.shape
        worst = np.empty((number, stage, squares.shape[1]))
        block = max(1, AT_ONCE // (laws * stage * squares.shape[1]))
        for start in range(0, number, block):
            part = slice(start, start + block)
            square = squares[part, None, None, :]
            value = square * self.second[part, ..., None]
            value -= self.first[part, ..., None]
            value *= square
            value += self.rest[part, ..., None]
            np.maximum.reduce(value, axis=1, out=worst[part])
        return worst

    @classmethod
    def of(cls, sums: NoiseSums, tier: int, family: Family, theta: Floats) -> Tilted:
        """Returns the tilted laws of a tier, with rounding and a bound on the omitted terms of the series."""
        number = theta.size
        w = (theta * sums.weights[:, tier])[:, None, None]
        left = sums.left[:, None, tier, :]
        size = w / left * (1 + 4 * UNIT) * family.scale.reshape(number, -1, 1)
        moments = family.moments.reshape(number, size.shape[1], 1, -1)
        second, most = left * moments[..., 0], terms_needed(float(size.max()), moments.shape[-1] + 1)
        # sums[k] = E (wX)^k e^(wX), without 1 and the mean in the first two.
        series = []
        for k in range(5):
            total = np.zeros_like(size)
            for j in range(most, max(k, 2) - 1, -1):
                total = total * size + moments[..., j - 2] / math.factorial(j - k)
            series.append(left * total * size ** max(k, 2))
        growth, drift = np.exp(size) * second, w * sums.terms[:, None, None]
        lost = growth * size ** (most + 1) / math.factorial(most + 1)
        rounded = INEXACT / np.sqrt(second) * growth * size * size
        inexact = rounded + 32 * UNIT * drift + lost
        mean = w * sums.mean[:, None, None]
        change = mean + series[0] + inexact
        phi = 1 + change
        # Of all five: derivatives multiply the rounded and omitted parts by at most this.
        error = 16 * rounded * np.maximum(size, 1.0) ** 3 + 32 * UNIT * drift + lost * (most + 1) ** 4
        d1, d2, d3, d4 = mean + series[1], series[2], series[3], series[4]
        spare = 8 * error * (phi + np.abs(d1) + d2 + np.abs(d3) + d4 + error)
        first = phi * d2 - d1 * d1
        second = phi * d4 - 4 * d1 * d3 + 3 * d2 * d2
        return cls(
            2 * change + change * change + 8 * UNIT * (np.abs(change) + drift),
            np.maximum(first - spare - 32 * UNIT * (phi * d2 + d1 * d1), 0.0),
            (np.maximum(second, 0.0) + spare + 32 * UNIT * (phi * d4 + np.abs(4 * d1 * d3) + 3 * d2 * d2)) / 12,
            drift + growth * size * size,
        )


def terms_needed(size: float, most: int) -> int:
    """Returns how many terms of the series of e^size matter, at least 6; the remainder is added in any case."""
    terms, size = 6, min(size, 1e3)
    while terms < most and size ** (terms - 5) / math.factorial(terms - 3) > UNIT:
        terms += 1
    return terms
