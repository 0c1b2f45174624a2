"""The contract between randomizers and the search for epsilon: a curve of certified upper bounds on delta.

A randomizer turns (victim, others) into a `DeltaCurve`; `smallest_epsilon` inverts any of them. `CountCurve` is the
curve of every randomizer with a closed form: delta(m) averaged over the law of the blanket count. Which tiers to ask
for, and what the answer is called, is left to `certify`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol

from accountant.numerics.binomial import UNIT, Floats, Ints
from accountant.numerics.count_law import CountLaw
from accountant.numerics.gaussian import gaussian_epsilon
from accountant.results import check_delta, check_epsilon


@dataclass(frozen=True)
class Bounded:
    """An upper bound on delta, and the part of it that stands for truncation and rounding. 0 <= slack <= value <= 1."""

    value: float
    slack: float

    def __post_init__(self) -> None:
        check_delta(self.value, "value")
        check_delta(self.slack, "slack")


@dataclass(frozen=True)
class Victim:
    """The user whose data changes: the local budget that its report spends.

    Where users are answered together, least_epsilon is the smallest local epsilon among them, and a curve has to hold
    for every local epsilon from there to local_epsilon.
    """

    local_epsilon: float
    local_delta: float = 0.0
    least_epsilon: float | None = None

    def __post_init__(self) -> None:
        check_epsilon(self.local_epsilon, "local_epsilon")
        check_delta(self.local_delta, "local_delta")


@dataclass(frozen=True, eq=False)
class Others:
    """The other users: arrays of shape (T,), of whom the `dishonest` most helpful ones are not to be counted on."""

    local_epsilon: Floats
    local_delta: Floats
    count: Ints
    dishonest: int
    thorough: bool = False
    """Whether seconds may be spent where a quick bound would be looser."""
    laws: dict[Hashable, CountLaw] = field(default_factory=dict, repr=False)
    """Count laws already computed for these users, by whoever computed them."""
    crowds: dict[Hashable, Any] = field(default_factory=dict, repr=False)
    """The users as a randomizer with densities sees them, made once."""

    @property
    def honest(self) -> int:
        """How many of them can be counted on."""
        return max(0, int(self.count.sum()) - self.dishonest)


class DeltaCurve(Protocol):
    """Certified upper bounds on the hockey-stick divergence of one victim among the others, as epsilon varies."""

    @property
    def method(self) -> str:
        """How the bound is proved, in the words of a certificate."""
        ...

    def delta(self, epsilon: float) -> Bounded:
        """H_{e^epsilon} <= .value for every epsilon >= 0, replace-one neighbours, both directions."""
        ...

    def guess(self, delta: float) -> float:
        """Where delta(epsilon) = delta roughly is; any number is sound, a good one is fast."""
        ...

    def explain(self) -> tuple[str, ...]:
        """One line per step: blanket, count of blanket messages, mass lost, errors."""
        ...


@dataclass(frozen=True, eq=False)
class CountCurve:
    """delta(epsilon) = E[delta(M)] under `law`, plus everything that was cut or rounded.

    averaged(epsilon) returns that mean and a bound on its absolute error; delta(m) must be non-increasing in m.
    """

    law: CountLaw
    averaged: Callable[[float], tuple[float, float]]
    divergence: float
    """The chi-square like integral of (p0 - p1)^2 / omega, for the first guess."""
    description: str

    @property
    def method(self) -> str:
        """For the certificate."""
        return "personalised common blanket, closed form"

    def delta(self, epsilon: float) -> Bounded:
        """See `DeltaCurve`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        total, error = self.averaged(epsilon)
        relative = self.law.relative_error + self.law.counts.size * UNIT
        slack = (total + error) * relative + error
        if total > 0:  # where delta(m) is 0 for every m, no mass that was cut can add to it
            slack += self.law.lost
        return Bounded(min(1.0, total + slack), min(1.0, slack))

    def guess(self, delta: float) -> float:
        """The Gaussian limit: mu^2 = divergence / (mean blanket count + 1)."""
        return gaussian_epsilon(math.sqrt(self.divergence / (self.law.mean + 1)), delta)

    def explain(self) -> tuple[str, ...]:
        """One line per step."""
        law = self.law
        return (
            self.description,
            f"blanket messages: {law.mean:.6g} on average, {law.counts.size} counts kept from {law.counts[0]} to "
            f"{law.counts[-1]}; mass cut and added to delta {law.lost:.3g}; relative error {law.relative_error:.3g}",
        )


@dataclass(frozen=True)
class Inverse:
    """The epsilon found for a target delta: delta(epsilon) = reached <= target was evaluated, not extrapolated."""

    epsilon: float
    reached: Bounded | None
    evaluations: int


def smallest_epsilon(curve: DeltaCurve, delta: float, ceiling: float, tolerance: float = 1e-6) -> Inverse:
    """The upper end of a bracket around the least epsilon with curve.delta(epsilon) <= delta.

    Args:
        delta: target, in (0, 1).
        ceiling: an epsilon already known to be enough (the local budget); returned, with reached None, if none is
            found below it.
        tolerance: the bracket's relative width, or that of delta(epsilon) below its target, at which to stop.

    Direction of error: the result is never too small; its own delta was evaluated. Since sqrt(-2 ln delta(epsilon)) is
    nearly a straight line, secants on it converge in a few steps; bisection guards them.
    """
    check_epsilon(ceiling, "ceiling")
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta!r}; allowed is 0 < delta < 1")
    # A little below the target, so that the secants come to rest on the side that is allowed.
    aim = math.sqrt(-2 * math.log(delta) - 2 * math.log1p(-tolerance / 3))
    at_zero = curve.delta(0.0)
    if at_zero.value <= delta:
        return Inverse(0.0, at_zero, 1)
    low, low_height = 0.0, _height(at_zero.value)
    high, high_height = ceiling, math.inf
    best: Bounded | None = None
    point = curve.guess(delta)
    if not 0 < point < ceiling:
        point = ceiling / 2
    for evaluations in range(2, 200):
        bound = curve.delta(point)
        width = high - low
        if bound.value <= delta:
            high, high_height, best = point, _height(bound.value), bound
            if bound.value >= delta * (1 - tolerance):
                break
        else:
            low, low_height = point, _height(bound.value)
        if high - low <= tolerance * high + 1e-15:
            break
        slow = evaluations > 6 and high - low > width / 2
        point = (low + high) / 2 if slow else _next(low, low_height, high, high_height, aim, _height(at_zero.value))
    return Inverse(high, best, evaluations)


def _height(delta: float) -> float:
    return math.inf if delta <= 0 else math.sqrt(max(0.0, -2 * math.log(delta)))


def _next(low: float, low_height: float, high: float, high_height: float, aim: float, base: float) -> float:
    middle = (low + high) / 2
    if math.isinf(high_height):  # nothing computed above yet: go on along the line from 0, a little further
        if low <= 0 or low_height <= base:
            return middle
        further = low * (aim - base) / (low_height - base)
        return min(middle, max(low + 1.02 * (further - low), low * 1.0001), 4 * low)
    if high_height <= low_height:
        return middle
    point = low + (high - low) * (aim - low_height) / (high_height - low_height)
    margin = 1e-9 * (high - low)
    return min(max(point, low + margin), high - margin)
