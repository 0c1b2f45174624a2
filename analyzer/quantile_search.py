"""A quantile in a large range: one yes/no question after the other, each to a group of people that is asked once.

Each group says how many of it have a number of at most a threshold, which is chosen by the answers before it. Certified
is what one question costs (`accountant.composed_certificates.of_disjoint_groups`); this file needs the answers only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from croupier.analyzer.estimates import Fakes
from croupier.analyzer.laws import count_laws, weights_of
from croupier.analyzer.levels import isotonic
from croupier.analyzer.noised_tiers import TierErrors, TierNoise

__all__ = ["QuantileEstimate", "QuantileSearch", "QuantileStep"]


@dataclass(frozen=True)
class QuantileStep:
    """What one group has answered.

    Attributes:
        threshold: the question was whether a number is at most this.
        share: the unbiased estimate of the share of yes.
        standard_error: of the share around the truth of the group.
        interval: for the share among all people, at the level that all steps together need.
        people: how many answered.
    """

    threshold: float
    share: float
    standard_error: float
    interval: tuple[float, float]
    people: int


@dataclass(frozen=True)
class QuantileEstimate:
    """A quantile: the smallest number that at least the part q of the people do not exceed.

    Attributes:
        q: the part.
        estimate: read off the steps.
        interval: for all people, and for a population that they are a random sample of.
        confidence: of the interval.
        steps: in the order in which they were asked.
    """

    q: float
    estimate: float
    interval: tuple[float, float]
    confidence: float
    steps: tuple[QuantileStep, ...]


@dataclass
class QuantileSearch:
    """A search for one quantile: `threshold` says what to ask the next group, `add` takes its answer.

    Attributes:
        q: the part of the people, above 0 and below 1.
        low, high: between which all numbers are; finite, low < high.
        groups: how many groups of people are asked, one question each, at least 2.
        confidence: of the interval, above 0 and below 1.
        logarithmic: halve the logarithms of the numbers, for ranges of many orders of magnitude; low must be above 0.

    Raises:
        ValueError: at construction, with the value and its range.
    """

    q: float
    low: float
    high: float
    groups: int
    confidence: float = 0.95
    logarithmic: bool = False
    steps: list[QuantileStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name, value in (("q", self.q), ("confidence", self.confidence)):
            if not 0 < value < 1:
                raise ValueError(f"{name} is {value}; it must be above 0 and below 1")
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"the range is [{self.low}, {self.high}]; it must be finite with low < high")
        if self.groups < 2:
            raise ValueError(f"groups is {self.groups}; it must be at least 2")
        if self.logarithmic and self.low <= 0:
            raise ValueError(f"low is {self.low} for a logarithmic search; it must be above 0")

    def threshold(self) -> float:
        """Returns what to ask the next group about: the middle of where the answers so far see the quantile."""
        places, shares = self._fit()
        above = next(place for place, share in enumerate(shares) if share >= self.q)
        return self._middle(places[above - 1], places[above], 0.5)

    def add(
        self,
        threshold: float,
        share: float,
        tiers: Sequence[tuple[float, float]],
        fakes: Fakes | None = None,
        errors: TierErrors | None = None,
    ) -> QuantileStep:
        """Takes the answer of a group.

        Args:
            threshold: what it was asked.
            share: the unbiased estimate of the share of yes, as it is published.
            tiers: (local epsilon, number of reports) of the group.
            fakes: the fake reports of the hops; None without hop noise.
            errors: of the numbers of reports; None where they are exact.
        """
        epsilons, counts = np.array(tiers, dtype=np.float64).T
        laws = count_laws(np.zeros(1), 2, epsilons, counts, rounded=False)
        if errors is not None:
            laws = TierNoise.of(errors, weights_of(2, epsilons)[1], counts, 0.5).on(laws)
        if fakes is not None:
            laws = laws.with_fakes(fakes)
        total = np.array([laws.population.offset + laws.population.weight * share])
        # Each of the tests is wrong on one side only, so all of them together keep the level with this one each.
        level = 1 - 2 * (1 - self.confidence) / self.groups
        low, high = laws.population.interval(total, max(level, self.confidence))
        error = float(laws.participants.standard_error(np.array([share]))[0])
        step = QuantileStep(threshold, share, error, (float(low[0]), float(high[0])), int(counts.sum()))
        self.steps.append(step)
        return step

    def estimate(self) -> QuantileEstimate:
        """Returns the quantile by the steps so far: on the line between the two thresholds around it.

        The interval begins at the largest threshold of which the share is seen to be below q, and ends at the smallest
        of which it is seen to reach q.
        """
        places, shares = self._fit()
        above = next(place for place, share in enumerate(shares) if share >= self.q)
        part = (self.q - shares[above - 1]) / (shares[above] - shares[above - 1])
        estimate = self._middle(places[above - 1], places[above], part)
        low = max((step.threshold for step in self.steps if step.interval[1] < self.q), default=self.low)
        high = min((step.threshold for step in self.steps if step.interval[0] >= self.q), default=self.high)
        ends = min(low, high, estimate), max(low, high, estimate)
        return QuantileEstimate(self.q, estimate, ends, self.confidence, tuple(self.steps))

    def _fit(self) -> tuple[list[float], list[float]]:
        """Returns the thresholds, ascending, with the nearest shares that never fall, and the ends of the range."""
        steps = sorted(self.steps, key=lambda step: step.threshold)
        shares = np.clip(isotonic(np.array([step.share for step in steps])), 0.0, 1.0) if steps else np.zeros(0)
        return [self.low, *(step.threshold for step in steps), self.high], [-1e-9, *shares.tolist(), 1.0]

    def _middle(self, low: float, high: float, part: float) -> float:
        if self.logarithmic:
            return math.exp(math.log(low) + part * (math.log(high) - math.log(low)))
        return low + part * (high - low)
