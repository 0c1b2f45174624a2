"""The games an attacker plays on a shuffled batch: which events to bet on, and the two probabilities of each.

For every event S, H_{e^epsilon} >= Pr0[S] - e^epsilon Pr1[S]. So an attack is an event with Pr0 bounded from below and
Pr1 from above, and every choice made on the way (thresholds, windows, tilts) may be approximate. Three games:
`CountGame` (how many reports fall into a set), `PairGame` (the two letters of k-RR, the others at a third) and
`histogram_game` (everything a reader of k-RR sees, for a handful of users). Which data sets to try is left to
`attack_data`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accountant.binomial import UNIT, Floats, Ints, binomial_pmf, half_tail, half_tail_error, pmf_error
from accountant.bit_sums import BitSum, Window

__all__ = ["Bet", "CountGame", "Goal", "PairGame", "histogram_game", "saddle_points"]

LEAST = 1e-290
"""A Pr1 below this is taken as this: larger is sound."""
MAX_POINTS = 512
"""At most this many thresholds are tried at once; further ones around the best of them."""
MAX_PAIR_WINDOW = 2**20
"""The pair game is not played where the count of the two letters takes more values than this."""
ROUGH_PAIR_COUNTS = 512
"""The pair game looks for its thresholds on about this many counts before it sums over all of them."""


@dataclass(frozen=True)
class Goal:
    """Either the largest epsilon at a delta, or the largest delta at an epsilon: exactly one is given."""

    delta: float | None = None
    epsilon: float | None = None

    def __post_init__(self) -> None:
        if (self.delta is None) == (self.epsilon is None):
            raise ValueError(f"delta is {self.delta!r} and epsilon is {self.epsilon!r}; give exactly one")
        if self.delta is not None and not 0 < self.delta < 1:
            raise ValueError(f"delta is {self.delta!r}; allowed is 0 < delta < 1")
        if self.epsilon is not None and not (math.isfinite(self.epsilon) and self.epsilon >= 0):
            raise ValueError(f"epsilon is {self.epsilon!r}; allowed is a finite number >= 0")

    def score(self, first: Floats, second: Floats) -> Floats:
        """What events of Pr0 >= first and Pr1 <= second show: an epsilon (-inf for none) or a delta. Any shape."""
        if self.delta is None:
            return first - np.exp(self.epsilon or 0.0) * second
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.log(np.maximum(first - self.delta, 0.0)) - np.log(np.maximum(second, LEAST))
        return np.where(first > self.delta, found, -np.inf)

    @property
    def log_odds(self) -> float:
        """-ln of the delta that is aimed at, roughly."""
        return 40.0 if self.delta is None else -math.log(self.delta)


@dataclass(frozen=True)
class Bet:
    """A proved score (see `Goal.score`) and the event that reaches it, in words."""

    score: float
    event: str


NOTHING = Bet(-math.inf, "no event")


def saddle_points(
    value: Floats, slope: Floats, curvature: Floats, tilts: Floats, high: Floats | float, low: Floats | float
) -> tuple[Floats, Floats]:
    """Approximate Pr0 and Pr1 of {V + X > K'(tilt)}, V a bit with Pr0[V=1] = high and Pr1[V=1] = low, tilt > 0.

    The saddle-point approximation from K, K' and K''; only for choosing where to look.
    """
    from scipy.special import erfcx

    curvature = np.maximum(curvature, 1e-12)
    mass = np.exp(value - tilts * slope) / np.sqrt(1 + 2 * math.pi * curvature)
    smooth = np.sqrt(math.pi * curvature / 2) * erfcx(tilts * np.sqrt(curvature / 2))
    tail = mass * np.maximum(np.minimum(smooth - 0.5, 1 / np.expm1(np.maximum(tilts, 1e-9))), 0.0)
    return high * mass + tail, low * mass + tail


@dataclass(frozen=True, eq=False)
class CountGame:
    """S = V + X: the victim's bit among the others' bits, Pr0[V=1] = high > low = Pr1[V=1], X = others + constant.

    The others' sum is log-concave, so the likelihood ratio of S is monotone and {S > t} is the best kind of event.
    """

    others: BitSum
    constant: int
    high: float
    low: float
    share_error: float = 8 * UNIT

    def reflected(self) -> CountGame:
        """The same count seen from the other end, the victim's two values exchanged."""
        return CountGame(self.others.reflected(), -self.constant - 1, 1 - self.low, 1 - self.high, self.share_error)

    def tilts(self, goal: Goal) -> Floats:
        """Tilts between which the best one lies."""
        _, _, curvature = self.others.cumulants(np.zeros(1))
        width = math.sqrt(max(float(curvature[0]), 1e-6))
        reach = math.sqrt(2 * goal.log_odds) + 2
        share = self.others.share
        rarest = float(np.max(np.where(self.others.sign > 0, -np.log(share), -np.log1p(-share)), initial=1.0))
        top = max(1.5 * reach / width, 1.0 if width > 30 else min(rarest, goal.log_odds) + 5.0)
        return np.geomspace(0.05 / width, min(max(top, 0.1 / width), 500.0), 32)

    def best(self, goal: Goal) -> Bet:
        """The best threshold that was found."""
        if self.high <= self.low:
            return NOTHING
        tilts = self.tilts(goal)
        scores = goal.score(*saddle_points(*self.others.cumulants(tilts), tilts, self.high, self.low))
        window = self.others.window(float(tilts[int(np.argmax(scores))]))
        low, high = window.low, min(window.low + window.length - 1, window.highest)
        step = max(1, -(-(high - low + 1) // MAX_POINTS))
        best, at = self._points(window, goal, np.arange(low, high + 1, step, dtype=np.int64))
        while step > 1:
            around = np.arange(max(low, at - 2 * step), min(high, at + 2 * step) + 1, max(1, step // 64))
            step = max(1, step // 64)
            better, place = self._points(window, goal, around)
            if better > best:
                best, at = better, place
        return Bet(best, f"count > {at + self.constant}")

    def _points(self, window: Window, goal: Goal, t: Ints) -> tuple[float, int]:
        """The best score of the events {S > t + constant} and its t."""
        point, point_error, tail, tail_error = window.upper(t)
        scale, rounding = window.scale(t)
        rounding = rounding + 2 * self.share_error + 8 * UNIT
        first = self.high * np.maximum(point - point_error, 0) + np.maximum(tail - tail_error, 0)
        second = self.low * (np.maximum(point, 0) + point_error) + np.maximum(tail, 0) + tail_error
        scores = goal.score(first * scale * (1 - rounding), second * scale * (1 + rounding))
        best = int(np.argmax(scores))
        return float(scores[best]), int(t[best])


@dataclass(frozen=True, eq=False)
class PairGame:
    """k-RR, k >= 3, all others at a third letter: the counts h0, h1 of the victim's two letters.

    others: the law of C, how many of the others' reports are one of the two letters (each then is either with
    probability 1/2). With B the fair binomial law, h0 + h1 = c, v the victim's budget and Z = e^v + k - 1,

        Z Pr0 = B(c, h0) ((k-2) Pr[C=c] + Pr[C=c-1] (2/c) (e^v h0 + h1)),

    and Pr1 with h0 and h1 exchanged. For each c the likelihood ratio grows with h0: the event is h0 >= a(c).
    """

    others: BitSum
    local_epsilon: float
    k: int

    def best(self, goal: Goal) -> Bet:
        """The best thresholds a(c) that were found; a second time around the counts that mattered most."""
        bet, centre, width = self._at(0.0, goal)
        _, mean, variance = (float(x[0]) for x in self.others.cumulants(np.zeros(1)))
        if abs(centre - mean) > 1.5 * math.sqrt(variance) and width > 0:
            tilt = float(np.clip(_tilt_for(self.others, centre), -30, 30))
            again, _, _ = self._at(tilt, goal)
            return max(bet, again, key=lambda one: one.score)
        return bet

    def _at(self, tilt: float, goal: Goal) -> tuple[Bet, float, float]:
        window = self.others.window(tilt)
        if window.length > MAX_PAIR_WINDOW:
            return NOTHING, 0.0, 0.0
        mass, error = window.masses()
        counts = window.low + np.arange(window.length, dtype=np.int64)
        with np.errstate(over="ignore"):
            scale, rounding = window.scale(counts)
        kept = (mass > 4 * error) & (counts <= window.highest)
        least = np.where(kept, np.maximum(mass - error, 0.0) * scale * (1 - rounding), 0.0)
        most = np.where(kept, (mass + error) * scale * (1 + rounding), (error + np.maximum(mass, 0.0)) * scale)
        # Index i now stands for c = counts[i] + 1: the victim's report may be one more of the two letters.
        before_least, before_most = least, most
        at_least, at_most = np.append(least[1:], 0.0), np.append(most[1:], error * scale[-1])
        used = np.flatnonzero(before_least > 0)
        if used.size == 0:
            return NOTHING, 0.0, 0.0
        table = _PairTable(
            counts[used] + 1, before_least[used], before_most[used], at_least[used], at_most[used], self
        )
        epsilon = goal.epsilon if goal.epsilon is not None else table.search(goal)
        first, second = table.event(epsilon or 0.0, 1)
        score = float(goal.score(np.array(first.sum()), np.array(second.sum())))
        gain = np.maximum(first - math.exp(epsilon or 0.0) * second, 0.0)
        centre = float(gain @ table.counts / gain.sum()) if gain.sum() > 0 else 0.0
        low, high = int(table.counts[0]), int(table.counts[-1])
        return Bet(score, f"counts of both letters, {low} to {high} in all"), centre, float(gain.sum())


@dataclass(frozen=True, eq=False)
class _PairTable:
    counts: Ints
    before_least: Floats
    before_most: Floats
    at_least: Floats
    at_most: Floats
    game: PairGame

    def search(self, goal: Goal) -> float:
        """The epsilon whose best event proves that epsilon (Dinkelbach), on every few counts only."""
        step = max(1, self.counts.size // ROUGH_PAIR_COUNTS)
        epsilon = 0.0
        for _ in range(30):
            first, second = self.event(epsilon, step)
            found = float(goal.score(np.array(first.sum() * step), np.array(second.sum() * step)))
            if not found > epsilon * (1 + 1e-9):
                break
            epsilon = found
        return epsilon

    def event(self, epsilon: float, step: int) -> tuple[Floats, Floats]:
        """Pr0 from below and Pr1 from above of {h0 >= a(c)}, for every step-th c, with a(c) the best at epsilon."""
        c = self.counts[::step]
        before_least, before_most = self.before_least[::step], self.before_most[::step]
        at_least, at_most = self.at_least[::step], self.at_most[::step]
        v, k = self.game.local_epsilon, self.game.k
        decay, gain = math.exp(-v), math.exp(epsilon)
        if epsilon >= v:
            return np.zeros(c.size), np.zeros(c.size)
        drift = (k - 2) * math.expm1(epsilon) * decay * at_least / (2 * before_least)
        cut = c * (drift + gain - decay) / ((1 + gain) * -math.expm1(-v))
        inside = cut < c
        a = np.where(inside, np.floor(np.minimum(cut, c)), 0).astype(np.int64) + 1
        above = half_tail(a, c - 1)
        at = binomial_pmf(a - 1, c - 1, 0.5)
        reach = float(np.max(np.abs(a - 1 - (c - 1) / 2)))
        error = max(half_tail_error(float(c[-1])), pmf_error(reach)) + 16 * UNIT + c.size * UNIT
        weight = 1 / (1 + (k - 1) * decay)  # e^v/Z; the others are multiples of e^-v
        both = (k - 2) * decay * (above + at / 2)
        first = both * at_least + before_least * (above + at + decay * above)
        second = both * at_most + before_most * (above + decay * (above + at))
        return (
            np.where(inside, first * (weight * (1 - error)), 0.0),
            np.where(inside, second * (weight * (1 + error)), 0.0),
        )


def _tilt_for(others: BitSum, target: float) -> float:
    """The tilt whose mean is the target, by bisection; a few digits are enough."""
    low, high = -30.0, 30.0
    for _ in range(40):
        middle = (low + high) / 2
        if float(others.cumulants(np.array([middle]))[1][0]) < target:
            low = middle
        else:
            high = middle
    return low


def histogram_game(first: NDArray[np.float64], second: NDArray[np.float64], goal: Goal, users: int) -> float:
    """The best score from all that is seen: the two laws over the same outcomes, made by `users` positive steps each.

    The best event at epsilon is {Pr0 > e^epsilon Pr1}; for a given delta the epsilon is found by Dinkelbach's steps.
    """
    error = (16 + 4 * users + first.size) * UNIT

    def bet(epsilon: float) -> float:
        event = first > math.exp(epsilon) * second
        return float(
            goal.score(np.array(first[event].sum() * (1 - error)), np.array(second[event].sum() * (1 + error)))
        )

    if goal.epsilon is not None:
        return bet(goal.epsilon)
    epsilon = 0.0
    for _ in range(60):
        found = bet(epsilon)
        if not found > epsilon * (1 + 1e-12) + 1e-15:
            return max(epsilon, found)
        epsilon = found
    return epsilon
