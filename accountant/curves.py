"""The contract between randomizers and the search for epsilon: a curve of certified upper bounds on delta.

A randomizer turns (victim, others) into a `DeltaCurve`; `smallest_epsilon` inverts any of them. `CountCurve` is the
curve of every randomizer with a closed form: delta(m) averaged over the law of the blanket count. Which tiers to ask
for, and what the answer is called, is left to `certify`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from accountant.binomial import UNIT, Floats, Ints
from accountant.blanket_count import CountLaw
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
    """The user whose data changes: the local budget that its report spends."""

    local_epsilon: float
    local_delta: float = 0.0

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

    @property
    def honest(self) -> int:
        """How many of them can be counted on."""
        return max(0, int(self.count.sum()) - self.dishonest)


class DeltaCurve(Protocol):
    """Certified upper bounds on the hockey-stick divergence of one victim among the others, as epsilon varies."""

    def delta(self, epsilon: float) -> Bounded:
        """H_{e^epsilon} <= .value for every epsilon >= 0, replace-one neighbours, both directions."""
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
    description: str

    def delta(self, epsilon: float) -> Bounded:
        """See `DeltaCurve`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        total, error = self.averaged(epsilon)
        relative = self.law.relative_error + self.law.counts.size * UNIT
        slack = (total + error) * relative + error
        if total > 0:  # where delta(m) is 0 for every m, no mass that was cut can add to it
            slack += self.law.lost
        return Bounded(min(1.0, total + slack), min(1.0, slack))

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


def smallest_epsilon(
    curve: DeltaCurve, delta: float, ceiling: float, guess: float | None = None, tolerance: float = 1e-6
) -> Inverse:
    """The upper end of a bracket around the least epsilon with curve.delta(epsilon) <= delta.

    Args:
        delta: target, in (0, 1).
        ceiling: an epsilon already known to be enough (the local budget); returned, with reached None, if none is
            found below it.
        guess: where to look first; any value is allowed.
        tolerance: the bracket's relative width, or that of delta(epsilon) below its target, at which to stop.

    Direction of error: the result is never too small; its own delta was evaluated. Since sqrt(-2 ln delta(epsilon)) is
    nearly a straight line, secants on it converge in a few steps; bisection guards them.
    """
    check_epsilon(ceiling, "ceiling")
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta!r}; allowed: 0 < delta < 1")
    goal = math.sqrt(-2 * math.log(delta))
    aim = math.sqrt(-2 * math.log(delta) - 2 * math.log1p(-tolerance / 4))
    low, high = 0.0, ceiling
    at_zero = curve.delta(0.0)
    if at_zero.value <= delta:
        return Inverse(0.0, at_zero, 1)
    low_height, high_height = _height(at_zero.value), math.inf
    best: Bounded | None = None
    point = guess if guess is not None and 0 < guess < ceiling else min(ceiling / 2, 1.0)
    for evaluations in range(2, 200):
        bound = curve.delta(point)
        height = _height(bound.value)
        if bound.value <= delta:
            previous, previous_height = high, high_height
            high, high_height, best = point, height, bound
            if bound.value >= delta * (1 - tolerance):
                break
        else:
            previous, previous_height = low, low_height
            low, low_height = point, height
        if high - low <= tolerance * high + 1e-15:
            break
        point = _next(low, low_height, high, high_height, aim)
        if not math.isinf(previous_height) and abs(height - goal) < 0.5 * abs(previous_height - goal):
            continue
        if evaluations % 3 == 0:
            point = (low + high) / 2
    return Inverse(high, best, evaluations)


def _height(delta: float) -> float:
    return math.inf if delta <= 0 else math.sqrt(max(0.0, -2 * math.log(delta)))


def _next(low: float, low_height: float, high: float, high_height: float, aim: float) -> float:
    middle = (low + high) / 2
    if math.isinf(high_height):
        # Nothing known above: follow the line through the lower end and the shape of a Gaussian curve.
        return min(middle, max(2 * low, low + (high - low) / 64)) if low > 0 else middle
    if high_height <= low_height:
        return middle
    point = low + (high - low) * (aim - low_height) / (high_height - low_height)
    margin = 1e-9 * (high - low)
    return float(np.clip(point, low + margin, high - margin))
