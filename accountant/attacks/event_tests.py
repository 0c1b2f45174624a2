"""From an event to a lower bound: tests of a shuffled batch, each with its two probabilities rounded the sound way.

For every event S, H_{e^epsilon} >= Pr0[S] - e^epsilon Pr1[S]. So an attack is an event with Pr0 bounded from below and
Pr1 from above, and every choice on the way (thresholds, windows, tilts) may be approximate. Two tests are here:
`CountTest` (the number of reports in a set) and `histogram_test` (the whole view of the observer, for a handful of
users). Tests by two counts and by scores have files of their own; `lower_bound` chooses the data sets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from croupier.accountant.numerics.binomial import UNIT, Floats, Ints
from croupier.accountant.numerics.poisson_binomial import PoissonBinomial, Window
from croupier.accountant.ranges import check_epsilon, check_target_delta

AlikeReports = tuple[tuple[int, float, float], ...]
"""Groups of report values: how many there are, and the probability of each at one answer and at another one."""
LEAST = 1e-290
"""A Pr1 below this counts as this, a Pr0 below it as 0, which is sound and lets no underflow pass."""
MAX_POINTS = 128
"""The most thresholds that are tried at once; further ones around the best follow."""


@dataclass(frozen=True)
class Target:
    """The objective of an attack: the largest epsilon at a given delta, or the largest delta at a given epsilon."""

    delta: float | None = None
    epsilon: float | None = None

    def __post_init__(self) -> None:
        """Raises ValueError unless exactly one of the two is given and in its range."""
        if (self.delta is None) == (self.epsilon is None):
            raise ValueError(f"delta is {self.delta!r} and epsilon is {self.epsilon!r}; give exactly one")
        if self.delta is not None:
            check_target_delta(self.delta)
        if self.epsilon is not None:
            check_epsilon(self.epsilon)

    def score(self, first: Floats, second: Floats) -> Floats:
        """Returns the bounds from events of Pr0 >= first and Pr1 <= second: epsilons (-inf for none) or deltas."""
        second = np.maximum(second, LEAST)
        if self.delta is None:
            with np.errstate(over="ignore"):
                scores = first - math.exp(min(self.epsilon or 0.0, 700.0)) * second
            return np.where(first > LEAST, scores, -np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = np.log(np.maximum(first - self.delta, 0.0)) - np.log(second)
        return np.where(first > self.delta, scores, -np.inf)

    @property
    def log_odds(self) -> float:
        """About -ln of the target delta."""
        return 40.0 if self.delta is None else -math.log(self.delta)


@dataclass(frozen=True)
class Witness:
    """An event, in words, and the score that it proves (see `Target.score`)."""

    score: float
    event: str


class Attacks(Protocol):
    """The attacks on one kind of randomizer around one victim: data sets to test, and variations of them.

    A data set is an immutable object that only its own attacks interpret.
    """

    def defaults(self) -> Iterator[Any]:
        """Yields the data sets to test first, few and cheap."""
        ...

    def vary(self, data: Any, generator: np.random.Generator) -> Any:
        """Returns another data set near a good one."""
        ...

    def test(self, data: Any, target: Target) -> Witness:
        """Returns the best event on this data set; its words describe data set and statistic."""
        ...


NO_WITNESS = Witness(-math.inf, "no event")


def saddle_points(
    value: Floats, slope: Floats, curvature: Floats, tilts: Floats, high: Floats | float, low: Floats | float
) -> tuple[Floats, Floats]:
    """Approximates Pr0 and Pr1 of {V + X > K'(tilt)}, V a bit with Pr0[V=1] = high and Pr1[V=1] = low, tilt > 0.

    The lattice saddle-point approximation (Daniels 1987) from value = K, slope = K' and curvature = K'' at the tilts.
    It only chooses candidates: no bound rests on it (docs/lower-bounds.md, section 6).
    """
    from scipy.special import erfcx

    curvature = np.maximum(curvature, 1e-12)
    # Counts are integers: for a narrow law, a threshold between two of them is useless.
    missed = np.round(slope) - slope
    mass = np.exp(value - tilts * (slope + missed) - missed**2 / (2 * curvature)) / np.sqrt(1 + 2 * math.pi * curvature)
    # The sum of e^(-tilt m - m^2/(2 curvature)) over m >= 1, as the integral from 1/2.
    start = (tilts * curvature + 0.5) / np.sqrt(2 * curvature)
    bend = np.exp(-tilts / 2 - 1 / (8 * curvature)) * (tilts / 2) / np.sinh(np.minimum(tilts / 2, 300.0))
    smooth = np.sqrt(math.pi * curvature / 2) * erfcx(start) * bend
    # A narrow law is nearly a Poisson law, whose next mass is at least this fraction of the mass.
    tail = mass * np.maximum(smooth, curvature / (1 + curvature) * np.exp(-tilts))
    return high * mass + tail, low * mass + tail


@dataclass(frozen=True, eq=False)
class Population:
    """A victim and the honest others, as tiers: float64 (T,), float64 (T,), int64 (T,) with counts >= 1; T may be 0."""

    local_epsilon: float
    local_delta: float
    others_epsilon: Floats
    others_delta: Floats
    others_count: Ints

    @property
    def others(self) -> int:
        """The number of other users."""
        return int(self.others_count.sum())

    def __str__(self) -> str:
        """Returns the description of the population in a witness."""
        return f"victim of local ε {self.local_epsilon:g} among {self.others:,}"


@dataclass(frozen=True)
class Probability:
    """The probabilities of an event and of its complement, each with a small relative error."""

    event: float
    complement: float

    def of_complement(self) -> Probability:
        """Returns the probabilities of the complement."""
        return Probability(self.complement, self.event)


@dataclass(frozen=True, eq=False)
class CountTest:
    """Events {S > t} of S = V + X: the victim's bit V, Pr[V=1] = high or low, and the others' X = others + constant.

    The others' sum is log-concave, so the likelihood ratio of S is monotone and {S > t} is the best kind of event.
    mirrored: S is the negative of the count.
    """

    others: PoissonBinomial
    constant: int
    high: Probability
    low: Probability
    probability_error: float = 8 * UNIT
    mirrored: bool = False

    def reflected(self) -> CountTest:
        """Returns the test of this count seen from the other end, with the victim's two values exchanged."""
        return CountTest(
            self.others.reflected(),
            -self.constant - 1,
            self.low.of_complement(),
            self.high.of_complement(),
            self.probability_error,
            not self.mirrored,
        )

    def best_of_both(self, target: Target) -> Witness:
        """Returns the better witness of the upper and the lower tail."""
        return max(self.best(target), self.reflected().best(target), key=lambda witness: witness.score)

    def tilts(self, target: Target) -> Floats:
        """Returns tilts with the best one between them."""
        _, _, curvature = self.others.cumulants(np.zeros(1))
        width = math.sqrt(max(float(curvature[0]), 1e-6))
        reach = math.sqrt(2 * target.log_odds) + 2
        probability = self.others.probability
        rarest = float(
            np.max(np.where(self.others.sign > 0, -np.log(probability), -np.log1p(-probability)), initial=1.0)
        )
        top = max(1.5 * reach / width, 1.0 if width > 30 else min(rarest, target.log_odds) + 5.0)
        return np.geomspace(0.05 / width, min(max(top, 0.1 / width), 500.0), 32)

    def best(self, target: Target) -> Witness:
        """Returns the best threshold found."""
        if self.high.event <= self.low.event:
            return NO_WITNESS
        tilts = self.tilts(target)
        scores = target.score(*saddle_points(*self.others.cumulants(tilts), tilts, self.high.event, self.low.event))
        promising = {int(np.argmax(scores))}
        if target.delta is None:
            # A difference of two nearly equal probabilities is beyond the approximation: try several windows.
            promising |= {8, 14, 20, 26}
        witnesses = [self._near(float(tilts[place]), target) for place in sorted(promising)]
        return max(witnesses, key=lambda witness: witness.score)

    def _near(self, tilt: float, target: Target) -> Witness:
        """Returns the best threshold in the window of one tilted law."""
        window = self.others.window(tilt)
        low, high = window.low, min(window.low + window.length - 1, window.highest)
        step = max(1, -(-(high - low + 1) // MAX_POINTS))
        best, at = self._points(window, target, np.arange(low, high + 1, step, dtype=np.int64))
        while step > 1:
            around = np.arange(max(low, at - 2 * step), min(high, at + 2 * step) + 1, max(1, step // 64))
            step = max(1, step // 64)
            better, place = self._points(window, target, around)
            if better > best:
                best, at = better, place
        threshold = at + self.constant
        return Witness(best, f"< {-threshold}" if self.mirrored else f"> {threshold}")

    def _points(self, window: Window, target: Target, t: Ints) -> tuple[float, int]:
        """Returns the best score of the events {S > t + constant} and its t."""
        point, point_error, tail, tail_error = window.upper(t)
        scale, rounding = window.scale(t)
        rounding = rounding + 2 * self.probability_error + 8 * UNIT
        first = self.high.event * np.maximum(point - point_error, 0) + np.maximum(tail - tail_error, 0)
        second = self.low.event * (np.maximum(point, 0) + point_error) + np.maximum(tail, 0) + tail_error
        scores = target.score(first * scale * (1 - rounding), second * scale * (1 + rounding))
        best = int(np.argmax(scores))
        return float(scores[best]), int(t[best])


def histogram_test(first: NDArray[np.float64], second: NDArray[np.float64], target: Target, users: int) -> float:
    """Returns the best score from the observer's whole view: two laws over the same outcomes of `users` reports.

    The best event at epsilon is {Pr0 > e^epsilon Pr1}; for a given delta the epsilon is found by Dinkelbach's steps.
    The error of either probability is relative: only positive numbers are multiplied and added, a handful of rounded
    operations per report, and numpy's pairwise sum adds fewer than 40.
    """
    error = (40 + 16 * users) * UNIT

    def best(epsilon: float) -> float:
        event = first > math.exp(min(epsilon, 700.0)) * second
        return float(
            target.score(np.array(first[event].sum() * (1 - error)), np.array(second[event].sum() * (1 + error)))
        )

    if target.epsilon is not None:
        return best(target.epsilon)
    epsilon = 0.0
    for _ in range(60):
        score = best(epsilon)
        if not score > epsilon * (1 + 1e-12) + 1e-15:
            return max(epsilon, score)
        epsilon = score
    return epsilon
