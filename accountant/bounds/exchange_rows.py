"""The integral of the exchange bound for many sums at once, from a few tilted moments of every law.

A row is a sum Y = sum_i alpha_i X_i over hosts in tiers, where every X_i is below the worst of a few laws
(docs/exchange-bound.md, section 1). `exchange` evaluates one such sum, along a line in the complex plane; where one
bound is made of hundreds of them, |phi| on that line is over-estimated by a polynomial instead (section 6). What the
laws are is left to those who ask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from croupier.accountant.bounds.exchange import LEAST, SMOOTHING, integral_edges
from croupier.accountant.bounds.exchange_laplace import INEXACT
from croupier.accountant.bounds.laplace_laws import Family
from croupier.accountant.numerics.binomial import UNIT, Floats, Ints

__all__ = ["HostSums", "terms_needed"]

TILTS = ((0.7, 9, 6), (0.12, 5, 1))
"""The search for the tilt: how far around the best one so far, in ln theta; at how many places; and how many times it
moves further down. The second search is a finer one."""
MUCH_LEFT = 0.9
"""Where less than this part of a host is left in the last stage, that stage counts in the choice of the tilt, too."""
LARGEST, SMALLEST, MOST_TERMS = 5.0, 100.0, 1e8
"""The most that |theta alpha X|, theta^2 Var(Y) and theta times the terms of E[Y] may be: further out the series ends
too early, so little mass is left that it does not matter, or rounding would show."""
EXPONENT = 512 * UNIT
"""To this part of the sizes of its terms, and one of every logarithm's, an exponent is good."""
ELEMENTS = 1 << 16
"""How many numbers are dealt with at once: as many as fit into the processor's cache."""
WIDENING = 1.4
"""Beyond the bulk each cell of the integral is this many times as wide as the one before it."""
NEGLIGIBLE = 1e-13
"""Terms of the series below this, in units of the second, are left out; the remainder is added in any case."""


@dataclass(frozen=True, eq=False)
class HostSums:
    """N sums over the same T tiers of hosts, and the S stages of their clocks."""

    count: Floats
    """(T,)."""
    weights: Floats
    """alpha, (N, T)."""
    left: Floats
    """By what every host is thinned in each stage, (N, T, S); rounded down."""
    log_mass: Floats
    """ln of the chance of each stage, (N, S)."""
    families: tuple[Family, ...]
    """Of every tier, N J laws, those of a row one after the other."""
    mean: Floats
    """E[X_i], the same for all hosts of a row, (N,)."""
    terms: Floats
    """The sum of the sizes of its terms, of which it is good to 16 ulp, (N,)."""

    @property
    def deviation(self) -> Floats:
        """About the standard deviation of every sum, (N,); only to choose where to look."""
        second = np.stack([self._by_row(f.scale**2 * f.moments[:, 0]).max(1) for f in self.families], axis=1)
        deviation: Floats = np.sqrt((self.count * self.weights**2 * second).sum(1))
        return deviation

    def positive_parts(self, step: float) -> Floats:
        """Upper bounds on E[Y]_+, (N,), averaged over the stages; infinite where nothing is claimed.

        step: see `exchange_bound`.
        """
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            theta = self._tilt()
            spread = theta * self.deviation
            hosts = np.maximum(1 / self.weights.max(1) / 4, 1.0)
            edges = integral_edges(step, float(hosts.max()), WIDENING) / spread[:, None]
            exponent = self._exponents(theta, edges)
            return self._integral(theta, spread, hosts, edges, exponent)

    def _integral(self, theta: Floats, spread: Floats, hosts: Floats, edges: Floats, exponent: Floats) -> Floats:
        """(1/pi theta) e^(theta^2 s^2/2) times the integral of e^(-theta^2 s^2 r^2/2)/(1 + r^2) e^exponent dr."""
        left, end = edges[:, :-1], edges[:, -1]
        top = exponent.max(1)
        # Each cell is charged at its left end for the explicit decreasing factors.
        body = np.exp(exponent - top[:, None]) * np.diff(edges, axis=1) / (1 + left * left)
        rest = np.exp(exponent[:, 0] - top) / end
        best = np.full(theta.shape, math.inf)
        for variance in SMOOTHING:
            rate = variance / hosts * spread * spread / 2
            whole = (body * np.exp(-rate[:, None] * left * left)).sum(1) + rest * np.exp(-rate * end * end)
            best = np.minimum(best, rate + np.log(whole) + EXPONENT * (1 + rate))
        found = best + top - np.log(math.pi * theta)
        found += EXPONENT * (1 + np.abs(best) + np.abs(top) + np.abs(np.log(theta))) + 2 * edges.shape[1] * UNIT
        bounds: Floats = np.where(np.isfinite(found), np.exp(found) + LEAST, math.inf)
        return bounds

    def _exponents(self, theta: Floats, edges: Floats) -> Floats:
        """Upper bounds on the logarithm of the mean of the products at theta (1 + ir), for all r of a cell: (N, L).

        The first cell begins at 0: its bound is one for every r >= 0.
        """
        total = np.zeros((theta.size, self.log_mass.shape[1], edges.shape[1] - 1))
        squares = edges**2
        for tier, family in enumerate(self.families):
            laws = _Tilted.of(self, tier, family, theta)
            at = laws.at(squares)
            most = laws.rest.max(1)[..., None]
            cells = np.minimum(np.maximum(at[..., 1:], at[..., :-1]), most)
            logarithm = np.log1p(np.maximum(cells, -1 + 1e-15))
            size = laws.size.max(1)[..., None] + np.abs(logarithm)
            total += self.count[tier] * (logarithm / 2 + EXPONENT * size)
        total += self.log_mass[..., None]
        top = total.max(1)
        found: Floats = top + np.log(np.exp(total - top[:, None]).sum(1))
        found += EXPONENT * (1 + np.abs(top) + float(np.abs(self.log_mass).max()))
        return found

    def _tilt(self) -> Floats:
        """About the theta with the smallest bound for each row, > 0; any is sound."""
        deviation = self.deviation
        drift = -self.mean / deviation
        theta: Floats = (drift + np.hypot(drift, math.sqrt(8))) / (2 * deviation)
        # Further out the series ends too early, or so little is left that it does not matter.
        largest = np.stack([self._by_row(family.scale).max(1) for family in self.families], axis=1)
        room = np.minimum(LARGEST / (self.weights * largest).max(1), math.sqrt(SMALLEST) / deviation)
        room = np.minimum(room, MOST_TERMS / self.terms)
        theta = np.minimum(theta, room)
        few = self._few()
        for reach, places, moves in TILTS:
            rows = np.arange(theta.size)
            for _ in range(moves):
                thetas = np.minimum(theta[rows, None] * np.exp(np.linspace(-reach, reach, places)), room[rows, None])
                flat = few._some(np.repeat(rows, places))._at_rest(thetas.ravel()).reshape(thetas.shape)
                height = flat - 2 * np.log(thetas)
                best = np.argmin(np.where(np.isfinite(height), height, math.inf), axis=1)
                theta[rows] = thetas[np.arange(rows.size), best]
                rows = rows[best == 0]  # where the laws are lopsided it is much smaller
                if rows.size == 0:
                    break
        return theta

    def _few(self) -> HostSums:
        """With the first and the last law of every tier only, in the stage in the middle.

        Where in the last stage little is left of a host, its laws are wider, and it counts, too.
        """
        families = []
        for family in self.families:
            laws = np.arange(family.scale.size).reshape(self.mean.size, -1)
            families.append(family.only(laws[:, [0, -1]].ravel()))
        at = [self.log_mass.shape[1] // 2, *((-1,) if float(self.left.min()) < MUCH_LEFT else ())]
        return replace(self, families=tuple(families), left=self.left[:, :, at], log_mass=self.log_mass[:, at])

    def _some(self, rows: Ints) -> HostSums:
        """These rows."""
        families = []
        for family in self.families:
            laws = np.arange(family.scale.size).reshape(self.mean.size, -1)
            families.append(family.only(laws[rows].ravel()))
        return HostSums(
            self.count,
            self.weights[rows],
            self.left[rows],
            self.log_mass[rows],
            tuple(families),
            self.mean[rows],
            self.terms[rows],
        )

    def _at_rest(self, theta: Floats) -> Floats:
        """About the logarithm of the product at theta, that of the stage in which it is largest."""
        total = self.log_mass - self.log_mass[:, :1]
        for tier, family in enumerate(self.families):
            laws = _Tilted.of(self, tier, family, theta)
            total += self.count[tier] / 2 * np.log1p(laws.rest.max(1))
        most: Floats = total.max(1)
        return most

    def _by_row(self, of_laws: Floats) -> Floats:
        return of_laws.reshape(self.mean.size, -1)


@dataclass(frozen=True, eq=False)
class _Tilted:
    """|phi(w (1 + ir))|^2 - 1 <= rest - first r^2 + second r^4 for all r; each (N, J, S).

    |phi|^2 = E e^(w(X+X')) cos(w r (X-X')), and cos x <= 1 - x^2/2 + x^4/24.
    """

    rest: Floats
    first: Floats
    second: Floats
    size: Floats
    """Of the terms of `rest`."""

    def at(self, squares: Floats) -> Floats:
        """For the worst law at these r^2, (N, L): (N, S, L). Convex in r^2, so that a cell's ends bound it."""
        number, laws, stages = self.rest.shape
        found = np.empty((number, stages, squares.shape[1]))
        block = max(1, ELEMENTS // (laws * stages * squares.shape[1]))
        for start in range(0, number, block):
            part = slice(start, start + block)
            square = squares[part, None, None, :]
            value = square * self.second[part, ..., None]
            value -= self.first[part, ..., None]
            value *= square
            value += self.rest[part, ..., None]
            np.maximum.reduce(value, axis=1, out=found[part])
        return found

    @classmethod
    def of(cls, rows: HostSums, tier: int, family: Family, theta: Floats) -> _Tilted:
        """Those of a tier: with rounding and the terms of the series that are left out."""
        number = theta.size
        w = (theta * rows.weights[:, tier])[:, None, None]
        left = rows.left[:, None, tier, :]
        size = w / left * (1 + 4 * UNIT) * family.scale.reshape(number, -1, 1)
        moments = family.moments.reshape(number, size.shape[1], 1, -1)
        second, most = left * moments[..., 0], terms_needed(float(size.max()), moments.shape[-1] + 1)
        # sums[k] = E (wX)^k e^(wX), but for 1 and the mean in the first two.
        sums = []
        for k in range(5):
            total = np.zeros_like(size)
            for j in range(most, max(k, 2) - 1, -1):
                total = total * size + moments[..., j - 2] / math.factorial(j - k)
            sums.append(left * total * size ** max(k, 2))
        growth, drift = np.exp(size) * second, w * rows.terms[:, None, None]
        lost = growth * size ** (most + 1) / math.factorial(most + 1)
        rounded = INEXACT / np.sqrt(second) * growth * size * size
        inexact = rounded + 32 * UNIT * drift + lost
        mean = w * rows.mean[:, None, None]
        change = mean + sums[0] + inexact
        phi = 1 + change
        # Of all five: derivatives have at most so many times as much of what is rounded and left out.
        error = 16 * rounded * np.maximum(size, 1.0) ** 3 + 32 * UNIT * drift + lost * (most + 1) ** 4
        one, two, three, four = mean + sums[1], sums[2], sums[3], sums[4]
        spare = 8 * error * (phi + np.abs(one) + two + np.abs(three) + four + error)
        first = phi * two - one * one
        second = phi * four - 4 * one * three + 3 * two * two
        return cls(
            2 * change + change * change + 8 * UNIT * (np.abs(change) + drift),
            np.maximum(first - spare - 32 * UNIT * (phi * two + one * one), 0.0),
            (np.maximum(second, 0.0) + spare + 32 * UNIT * (phi * four + np.abs(4 * one * three) + 3 * two * two)) / 12,
            drift + growth * size * size,
        )


def terms_needed(size: float, most: int) -> int:
    """How many terms of the series of e^size matter, from 6 on."""
    terms, size = 6, min(size, 1e3)
    while terms < most and size ** (terms - 5) / math.factorial(terms - 3) > NEGLIGIBLE:
        terms += 1
    return terms
