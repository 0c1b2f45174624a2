"""Common blankets for randomizers with densities: the choice of omega, the users' weights, and the privacy profile.

The output space is cut into cells, and omega is constant on each. Every user's weight
gamma = min over cells of (least density of that user in the cell) / omega is then exact arithmetic on cell values, and
the privacy loss of the victim is known in every cell. Any omega is sound; `best_blanket` looks for a good one. The
mathematics is in docs/bounds.md, section 2.3, the bound in `blanket`, mechanisms are in `additive_noise`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from flint import arb

from croupier.accountant.bounds.blanket import BlanketCurve, PairLosses, grouped
from croupier.accountant.kernel import Weights
from croupier.accountant.numerics.binomial import UNIT, Floats, Ints
from croupier.accountant.numerics.groups import group_starts
from croupier.protocol.codes import Method, ProofStep
from croupier.protocol.statements import Statement

MASS_ERROR = 4e-12
"""A bound on the relative error of the masses and densities in a `LossPair` (docs/numerics.md, section 3.2)."""
WEIGHT_ERROR = 1e-11
"""The logarithm of a weight is lowered by this times 1 + |ln gamma|, more than its rounding error (section 3.2)."""

REPRESENTATIVES = 6
"""The number of rates that shape the blanket. The search takes time for each; every rate counts in the result."""
MAX_RATES = 28
"""More rates than this are put into as many groups, because the law of the blanket count takes time for each."""
NEGLIGIBLE = 1e-85
"""omega is set to 0 below this fraction of its maximum, because quotients by it would leave the range of floats."""
LOG_DELTA = 14.0
"""The ln(1/delta) of the search for a blanket; any other delta has nearly the same best blanket."""
SHIFTS = (-2.0, 0.0, 2.0, 30.0)
"""ln of the first multiples of |p0 - p1| in the search, in units of its largest value: 30 cuts nothing."""
EVALUATIONS = 100
"""The largest number of omegas that the search evaluates per parameter. With the first omega alone, epsilon is up to
10 % larger where there are many budgets."""
NEARBY = 6
"""This limit for a victim close to one that has been searched for. Without any search, epsilon of the smallest
budgets is up to ten times as large."""


@dataclass(frozen=True, eq=False)
class LossPair:
    """Two densities of the victim, p0 and p1, on pieces of the output space, each inside one cell.

    cell: int64 (K,), the cell of the piece; width: its reference measure. mass0/1: the integrals of the densities;
    low0/1, high0/1: their least and largest value on the piece; all of these to a relative error of MASS_ERROR. tail0:
    the mass of p0 outside all cells, rounded up. extra: an addend of delta in units of e^epsilon (docs/bounds.md,
    section 2.3, worst pair).
    """

    cell: Ints
    width: Floats
    mass0: Floats
    low0: Floats
    high0: Floats
    mass1: Floats
    low1: Floats
    high1: Floats
    tail0: float = 0.0
    extra: float = 0.0


@dataclass(frozen=True, eq=False)
class Cells:
    """The division of the output space into cells for one victim.

    width: float64 (C,), reference measure of each cell. log_floor(rates) -> (T, C): ln of the least density, over cell
    and values, of users of each rate; concave in the rate. pairs: the victim's pairs of densities to be covered.
    shape: turns any function >= 0 on the cells (C,) into a valid omega that is nowhere larger. pool: averages the
    squares of such a function, so that its shape is valid. valid_epsilon: the largest central epsilon at which the
    pairs are the worst ones.
    """

    width: Floats
    log_floor: Callable[[Floats], Floats]
    pairs: tuple[LossPair, ...]
    shape: Callable[[Floats], Floats]
    pool: Callable[[Floats], Floats]
    valid_epsilon: float = math.inf


@dataclass(frozen=True, eq=False)
class BlanketProfile(BlanketCurve):
    """The privacy profile of one victim among the others, under one omega. See `PrivacyProfile`."""

    proved_by: ClassVar[Method] = Method.BLANKET_DENSITY
    cells: Cells
    omega: Floats
    description: tuple[Statement[ProofStep], ...]
    parameters: Floats
    """The result of the search for omega."""

    def pairs(self, epsilon: float) -> list[PairLosses]:
        """See `BlanketCurve`."""
        # Delta does not increase with epsilon, and e^epsilon overflows beyond 709.
        gain = math.exp(min(epsilon, self.cells.valid_epsilon, 700.0))
        return [self._losses(pair, gain) for pair in self.cells.pairs]

    def _losses(self, pair: LossPair, gain: float) -> PairLosses:
        """Returns the law of L = (p0 - e^epsilon p1)/omega under omega, and the victim's mass where omega = 0."""
        here = self.omega[pair.cell]
        covered = here > 0
        outside = float(np.maximum(pair.mass0[~covered] - gain * pair.mass1[~covered], 0.0).sum())
        # Inside a cell without omega, p0 - e^epsilon p1 may change its sign: charge the excess of p0 over the least p1.
        excess = np.maximum(pair.high0[~covered] - gain * pair.low1[~covered], 0.0) * pair.width[~covered]
        outside = max(outside, float(np.minimum(pair.mass0[~covered], excess).sum()))
        if pair.extra > 0:
            outside += gain * float(np.minimum(pair.mass0[~covered], pair.mass1[~covered]).sum())
        outside += MASS_ERROR * float((pair.mass0[~covered] + gain * pair.mass1[~covered]).sum())
        outside += (pair.tail0 + gain * pair.extra) * (1 + 1e-9)
        pick = np.flatnonzero(covered)
        w = here[pick]
        mass = w * pair.width[pick]
        low = (pair.low0[pick] - gain * pair.high1[pick]) / w
        high = (pair.high0[pick] - gain * pair.low1[pick]) / w
        blur = MASS_ERROR * (pair.mass0[pick] + gain * pair.mass1[pick]) / mass
        mean = (pair.mass0[pick] - gain * pair.mass1[pick]) / mass + blur
        return PairLosses.of_ranges(np.minimum(low, mean) - blur, np.maximum(high, mean) + blur, mean, mass, outside)

    @cached_property
    def divergence(self) -> float:
        """See `BlanketCurve`."""
        return max(_divergence(pair, self.omega) for pair in self.cells.pairs)

    def guess(self, delta: float) -> float:
        """See `BlanketCurve`; without the mass that the blanket misses."""
        return super().guess(max(delta - self._missed, delta * 1e-3))

    @property
    def _missed(self) -> float:
        return max(pair.tail0 + pair.extra for pair in self.cells.pairs)

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """See `PrivacyProfile`."""
        return (*self.description, Statement.of(ProofStep.BLANKET_MISSED, mass=self._missed), *super().explain())


def _divergence(pair: LossPair, omega: Floats) -> float:
    here = omega[pair.cell]
    covered = here * pair.width > 0
    difference = pair.mass0[covered] - pair.mass1[covered]
    return float((difference**2 / (here[covered] * pair.width[covered])).sum())


# ------------------------------------------------------------------ the search for omega


@dataclass(frozen=True, eq=False)
class RateBins:
    """The other users, binned by rate: count[b] from low[b] to high[b], mean[b] on average. float64/int64 (B,).

    Users in one bin are counted at the geometric mean of their weights, which is at least the chord of ln gamma at
    their mean rate; the number of blanket messages is then stochastically smallest (docs/numerics.md, section 3).
    """

    low: Floats
    high: Floats
    mean: Floats
    count: Ints
    dishonest: int

    @classmethod
    def of(cls, rates: Floats, count: Ints, dishonest: int) -> RateBins:
        """Returns bins for users of the given rates; each rate is a bin of its own if there are few."""
        order = np.argsort(rates, kind="stable")
        rates, count = rates[order], count[order]
        if rates.size <= MAX_RATES:
            return cls(rates, rates, rates, count, dishonest)
        first = group_starts(np.log(rates), count / rates, MAX_RATES)  # small rates make most of a blanket
        low, high = rates[first], rates[np.append(first[1:], rates.size) - 1]
        total = np.add.reduceat(count, first)
        mean = np.add.reduceat(rates * count, first) / total
        return cls(low, high, np.clip(mean, low, high), total, dishonest)

    def weights(self, log_weights: Callable[[Floats], Floats]) -> Weights:
        """Returns the weights of the honest others. log_weights maps rates to ln gamma, rounded down."""
        at_low, at_high = log_weights(self.low), log_weights(self.high)
        span = self.high - self.low
        part = np.where(span > 0, (self.mean - self.low) / np.where(span > 0, span, 1.0), 0.0)
        chord, gone = at_low + part * (at_high - at_low), self.dishonest
        # The users of a bin differ: without f of them, the mean of the others is at least (n mean - f most)/(n - f).
        rest = (self.count * chord - gone * np.maximum(at_low, at_high)) / np.maximum(self.count - gone, 1)
        least = np.minimum(at_low, at_high)
        chord = np.where(span > 0, np.where(self.count > 2 * gone, np.maximum(rest, least), least), chord)
        gamma = np.minimum(1.0, np.exp(chord - WEIGHT_ERROR * (1 + np.abs(chord))))
        expected = gamma * self.count
        used = expected > 1e-5 * expected.sum() / gamma.size  # others are not worth the time
        weights = []
        for share, count in sorted(zip(gamma[used].tolist(), self.count[used].tolist(), strict=True), reverse=True):
            if count > gone:
                weights.append((arb(share), count - gone))
            gone = max(0, gone - count)
        return grouped(weights)


def best_blanket(
    local_epsilon: float,
    cells: Cells,
    coarse: Cells,
    others: RateBins,
    description: Statement[ProofStep],
    start: Floats | None = None,
) -> BlanketProfile:
    """Returns the profile of the best omega found: a floor of the others' densities, cut at a multiple of |p0 - p1|.

    For given relative weights r_i, gamma_i proportional to r_i needs omega <= const * min_i floor_i / r_i. Under that
    limit the integral of (p0 - p1)^2 / omega is least for the smaller of the limit and a multiple of |p0 - p1|. The
    search for the r_i and the multiple uses coarse cells and Bernstein's inequality; the profile is computed on the
    fine cells, and is sound for any result of the search.

    Args:
        local_epsilon: the victim's.
        cells: the victim's cells for the profile.
        coarse: fewer cells of the same victim, for the search.
        others: the other users.
        description: the first step of the profile's explanation.
        start: parameters of a profile for the same others and a victim nearby, which make the search short.
    """
    representative, share = _representatives(others.mean, others.count)
    parameters = _search(coarse, representative, share, start)
    omega = _at_least_one(_cut(cells, cells.log_floor(representative), _wanted(cells), parameters), cells.width)

    def log_weights(rates: Floats) -> Floats:
        return _log_weights(cells.log_floor(rates), omega)

    if not (omega > 0).any():
        return BlanketProfile((), local_epsilon, cells, omega, (description,), parameters)
    gamma = np.exp(np.minimum(log_weights(others.mean), 0.0))
    steps = (description, Statement.of(ProofStep.BLANKET_WEIGHTS, least=gamma.min(), most=gamma.max()))
    return BlanketProfile(others.weights(log_weights), local_epsilon, cells, omega, steps, parameters)


def _representatives(rates: Floats, count: Ints) -> tuple[Floats, Floats]:
    """Returns at most REPRESENTATIVES rates and the number of users that each represents."""
    if rates.size <= REPRESENTATIVES:
        return rates, count.astype(np.float64)
    first = group_starts(np.log(rates), count / rates, REPRESENTATIVES)
    total = np.add.reduceat(count.astype(np.float64), first)
    return np.exp(np.add.reduceat(count * np.log(rates), first) / total), total


def _wanted(cells: Cells) -> Floats:
    """Returns the root mean square of |p0 - p1| on each cell, over the pieces and pairs; 1 if no pair differs."""
    square = np.zeros(cells.width.size)
    for pair in cells.pairs:
        difference = (pair.mass0 - pair.mass1) / np.maximum(pair.width, 1e-300)
        square += np.bincount(pair.cell, weights=difference**2 * pair.width, minlength=square.size)
    return cells.pool(np.sqrt(square / cells.width)) if square.any() else np.ones(square.size)


def _cut(cells: Cells, log_floor: Floats, wanted: Floats, parameters: Floats) -> Floats:
    """Returns omega for parameters (T+1,), ln r_i and ln of the multiple of |p0 - p1|; its integral is 1, or 0."""
    limit = np.min(log_floor - parameters[:-1, None], axis=0)
    if limit.max() == -np.inf:  # no output is common to all
        return np.zeros(wanted.size)
    with np.errstate(divide="ignore"):
        cut = np.minimum(parameters[-1] + np.log(wanted), 0.0)
    omega = cells.shape(np.exp(np.minimum(limit - limit.max(), cut)))
    top = float(omega.max())
    if top <= 0:
        return omega
    omega = omega / top  # before the sum, because floats near 0 have few digits
    omega = np.where(omega > NEGLIGIBLE, omega, 0.0)
    return omega / float(omega @ cells.width)


def _at_least_one(omega: Floats, width: Floats) -> Floats:
    """Returns omega scaled to an integral of at least 1, rounding included.

    An omega of integral 1 + e counts N losses (1 + e)^(N-1) times too much and its weights 1 + e times too little. That
    is sound for e >= 0 only.
    """
    total = math.fsum((omega * width).tolist()) * (1 - 4 * UNIT)
    return omega / total if total > 0 else omega


def _log_weights(log_floor: Floats, omega: Floats) -> Floats:
    """Returns the logarithms of the weights gamma: the minimum over the cells of floor/omega."""
    used = omega > 0
    return np.asarray(np.min(log_floor[:, used] - np.log(omega[used])[None, :], axis=1))


def _search(coarse: Cells, rates: Floats, share: Floats, start: Floats | None) -> Floats:
    """Returns good parameters for `_cut`: a scan over the tiers' own shapes, then a descent from the best of them."""
    from scipy.optimize import minimize

    log_floor, wanted = coarse.log_floor(rates), _wanted(coarse)
    pieces = []
    for pair in coarse.pairs:
        difference = np.abs(pair.mass0 - pair.mass1)
        pieces.append((pair.cell, difference**2 / pair.width, difference / pair.width))

    def cost(parameters: Floats) -> float:
        """Returns ln of epsilon by Bernstein's inequality: a term for the variance, one for the largest loss."""
        omega = _cut(coarse, log_floor, wanted, parameters)
        if not (omega > 0).any():
            return 1e9
        weight = float(share @ np.exp(np.minimum(_log_weights(log_floor, omega), 0.0))) + 1.0
        worst = 0.0
        for cell, square, height in pieces:
            here = np.maximum(omega[cell], 1e-300)
            variance, largest = float((square / here).sum()), float((height / here).max())
            worst = max(worst, math.sqrt(2 * variance * LOG_DELTA / weight) + largest * LOG_DELTA / (3 * weight))
        return min(1e9, math.log(worst + 1e-300))

    shapes = [np.zeros(rates.size)]
    for index in range(rates.size):
        with np.errstate(invalid="ignore"):
            excess = log_floor - log_floor[index][None, :]
        excess = np.nan_to_num(np.min(excess, axis=1, where=~np.isnan(excess), initial=np.inf), posinf=0, neginf=-1e6)
        shapes.append(np.maximum(excess - excess.max(), -1e6))
    level = -math.log(max(float(wanted.max()), 1e-300))
    starts = [np.append(shape, level + shift) for shape in shapes for shift in SHIFTS]
    best = min(starts if start is None else [start, *starts], key=cost)
    optimum = minimize(
        cost,
        best,
        method="Nelder-Mead",
        options={
            "maxfev": (EVALUATIONS if start is None else NEARBY) * best.size,
            "xatol": 1e-3,
            "fatol": 1e-6,
            "initial_simplex": np.vstack([best, *(best + 0.5 * row for row in np.eye(best.size))]),
        },
    )
    return np.asarray(optimum.x)
