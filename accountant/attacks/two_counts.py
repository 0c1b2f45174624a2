"""A test of k-ary randomised response by two counts: those of the victim's two categories, the others all at a third.

With the others at a third category x2, their other reports are uniform on the remaining categories, so the observer
loses nothing by using only h0 and h1 (the counts of the victim's categories) and d (all reports except those of x2).
For equal budgets the attack meets the blanket certificate to six digits. The laws and the best event are derived in
docs/lower-bounds.md, section 6.1; `event_tests` turns events into lower bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from croupier.accountant.attacks.event_tests import NO_WITNESS, Target, Witness
from croupier.accountant.numerics.binomial import (
    UNIT,
    Floats,
    Ints,
    binomial_pmf,
    half_tail,
    half_tail_error,
    pmf_error,
)
from croupier.accountant.numerics.poisson_binomial import SUM_ERROR, PoissonBinomial
from croupier.accountant.numerics.roots import root_between

MAX_WINDOW = 2**20
"""The most values that the count of the two categories may take in a test."""
MAX_CELLS = 50_000
"""The count of all reports outside the third category is used too if that makes at most this many cells."""
ROUGH_ROWS = 512
"""The number of rows on which thresholds are searched before the sum over all of them."""


@dataclass(frozen=True, eq=False)
class _Law:
    """Bounds on the law of a sum of bits: Pr[X = first + i] lies in [least_i, most_i]; `far` bounds any other mass."""

    first: int
    least: Floats
    most: Floats
    far: float

    @classmethod
    def of(cls, bits: PoissonBinomial, tilt: float) -> _Law | None:
        """Returns the bounds from the tilted law; None if the window is too long."""
        window = bits.window(tilt)
        if window.length > MAX_WINDOW:
            return None
        mass, error = window.masses()
        size = min(window.length, window.highest - window.low + 1)
        scale, rounding = window.scale(window.low + np.arange(size, dtype=np.int64))
        least = np.maximum(mass[:size] - error, 0.0) * scale * (1 - rounding)
        most = (np.maximum(mass[:size], 0.0) + error) * scale * (1 + rounding)
        return cls(window.low, least, most, 1.0)

    def pairs(self) -> tuple[Ints, Floats, Floats, Floats, Floats]:
        """Returns all c = first+1 .. last with bounds on Pr[X = c-1] (least > 0 throughout) and on Pr[X = c].

        An event may omit any other c.
        """
        c = self.first + 1 + np.arange(self.least.size - 1, dtype=np.int64)
        used = self.least[:-1] > 0
        parts = (self.least[:-1], self.most[:-1], self.least[1:], self.most[1:])
        before_least, before_most, at_least, at_most = (part[used] for part in parts)
        return c[used], before_least, before_most, at_least, at_most


@dataclass(frozen=True, eq=False)
class _Rows:
    """Outcomes (row, h0) with Z Pr0 = B(c, h0) (alpha + beta (2/c) (e^v h0 + h1)), c = h0 + h1, B the fair binomial.

    Pr1 has h0 and h1 exchanged, Z = e^v + k - 1. For each row the likelihood ratio grows with h0: {h0 >= a(row)} is the
    best event (docs/lower-bounds.md, 6.1). All arrays have shape (R,), counts >= 1; alpha and beta from below and
    from above.
    """

    local_epsilon: float
    k: float
    counts: Ints
    alpha_least: Floats
    alpha_most: Floats
    beta_least: Floats
    beta_most: Floats
    error: float

    def search(self, target: Target) -> float:
        """Returns the epsilon whose best event proves it (Dinkelbach's steps), on a sample of the rows."""
        if target.epsilon is not None:
            return target.epsilon
        step = max(1, self.counts.size // ROUGH_ROWS)
        epsilon = 0.0
        for _ in range(30):
            first, second = self.event(epsilon, step)
            score = float(target.score(np.array(first.sum() * step), np.array(second.sum() * step)))
            if not score > epsilon * (1 + 1e-9):
                break
            epsilon = score
        return epsilon

    def event(self, epsilon: float, step: int = 1) -> tuple[Floats, Floats]:
        """Returns Pr0 from below and Pr1 from above of {h0 >= a}, for every step-th row, a(row) the best at epsilon.

        With m = c-1, B = Pr[Bin(m,1/2) = a-1] and T = Pr[Bin(m,1/2) >= a]:
        Z Pr0 = alpha (T + B/2) + beta (e^v (T + B) + T), Z Pr1 = alpha (T + B/2) + beta (e^v T + T + B).
        """
        c, v = self.counts[::step], self.local_epsilon
        if epsilon >= v or c.size == 0:
            return np.zeros(c.size), np.zeros(c.size)
        alpha, beta = self.alpha_least[::step], self.beta_least[::step]
        decay, gain = math.exp(-v), math.exp(epsilon)
        drift = math.expm1(epsilon) * decay * alpha / (2 * beta)
        cut = c * (drift + gain - decay) / ((1 + gain) * -math.expm1(-v))
        inside = cut < c
        a = np.where(inside, np.floor(np.minimum(cut, c)), 0).astype(np.int64) + 1
        above, at = half_tail(a, c - 1), binomial_pmf(a - 1, c - 1, 0.5)
        reach = float(np.max(np.abs(a - 1 - (c - 1) / 2)))
        error = self.error + max(half_tail_error(float(c.max())), pmf_error(reach)) + 16 * UNIT + SUM_ERROR
        weight = inside / (1 + (self.k - 1) * decay)  # e^v/Z; all else is in multiples of e^-v
        both = decay * (above + at / 2)
        first = both * alpha + beta * (above + at + decay * above)
        second = both * self.alpha_most[::step] + self.beta_most[::step] * (above + decay * (above + at))
        return first * weight * (1 - error), second * weight * (1 + error)


@dataclass(frozen=True, eq=False)
class TwoCountTest:
    """k-RR, k >= 3, the victim at one of two categories, all others at a third.

    pair: the law of the number of the others' reports in one of the two: bits of 2/(e^eps_i + k - 1).
    away: the law of the number outside the third: bits of (k-1)/(e^eps_i + k - 1); None: it is not used.
    k: may be any number above 2 without `away`: the victim is in neither of the two with (k-2)/(e^v + k - 1).
    """

    pair: PoissonBinomial
    away: PoissonBinomial | None
    local_epsilon: float
    k: float

    def best(self, target: Target) -> Witness:
        """Returns the best event found: by c alone, tilted to the counts that matter most, or by (d, c)."""
        witness, centre = self._by_pair(0.0, target)
        _, mean, variance = (float(x[0]) for x in self.pair.cumulants(np.zeros(1)))
        if centre > 0 and abs(centre - mean) > 1.5 * math.sqrt(variance):
            again, _ = self._by_pair(self._tilt(centre), target)
            witness = max(witness, again, key=lambda candidate: candidate.score)
        if self.k > 3 and self.away is not None:
            witness = max(witness, self._by_both(self.away, target), key=lambda candidate: candidate.score)
        return witness

    def _by_pair(self, tilt: float, target: Target) -> tuple[Witness, float]:
        """Returns the event by c = h0 + h1 alone, and the mean of c weighted by its gain."""
        law = _Law.of(self.pair, tilt)
        if law is None:
            return NO_WITNESS, 0.0
        c, before_least, before_most, at_least, at_most = law.pairs()
        k = self.k
        rows = _Rows(self.local_epsilon, k, c, (k - 2) * at_least, (k - 2) * at_most, before_least, before_most, 0.0)
        return _witness(rows, target, "counts of the victim's two categories")

    def _by_both(self, away: PoissonBinomial, target: Target) -> Witness:
        """Returns the event by (d, c): given d, c ~ Bin(d, 2/(k-1)); the victim's report may be outside the two."""
        _, _, variance = (float(x[0]) for x in away.cumulants(np.zeros(1)))
        if 20 * math.sqrt(variance) > MAX_CELLS**0.5 * 4:
            return NO_WITNESS
        law = _Law.of(away, 0.0)
        if law is None:
            return NO_WITNESS
        d, before_least, before_most, at_least, at_most = law.pairs()
        if d.size == 0:
            return NO_WITNESS
        p, k = 2 / (self.k - 1), self.k
        spread = 9 * math.sqrt(float(d[-1]) * p * (1 - p)) + 30
        low, high = max(1, math.floor(float(d[0]) * p - spread)), min(int(d[-1]), math.ceil(float(d[-1]) * p + spread))
        if d.size * (high - low + 1) > 8 * MAX_CELLS:
            return NO_WITNESS
        c = np.arange(low, high + 1, dtype=np.int64)
        place, column = np.nonzero((c <= d[:, None]) & (np.abs(c - d[:, None] * p) <= spread))
        if place.size == 0 or place.size > MAX_CELLS:
            return NO_WITNESS
        total, count = d[place], c[column]
        given = binomial_pmf(count, total, p)
        share = given * (k - 1) / total
        used = (given > 0) & (before_least[place] * given > 0)
        rows = _Rows(
            self.local_epsilon,
            k,
            count[used],
            (given * at_least[place] + share * (total - count) * before_least[place])[used],
            (given * at_most[place] + share * (total - count) * before_most[place])[used],
            (share * count / 2 * before_least[place])[used],
            (share * count / 2 * before_most[place])[used],
            pmf_error(spread) + 8 * UNIT,
        )
        return _witness(rows, target, "counts of the victim's two categories and of the third")[0]

    def _tilt(self, centre: float) -> float:
        """Returns the tilt at which the mean of the pair's law is about `centre`; any tilt is sound."""

        def excess(tilt: float) -> float:
            return float(self.pair.cumulants(np.array([tilt]))[1][0]) - centre

        return root_between(excess, -30.0, 30.0)


def _witness(rows: _Rows, target: Target, event: str) -> tuple[Witness, float]:
    if rows.counts.size == 0:
        return NO_WITNESS, 0.0
    epsilon = rows.search(target)
    first, second = rows.event(epsilon)
    score = float(target.score(np.array(first.sum()), np.array(second.sum())))
    gain = np.maximum(first - math.exp(min(epsilon, 700.0)) * second, 0.0)
    total = float(gain.sum())
    return Witness(score, event), float(gain @ rows.counts) / total if total > 0 else 0.0
