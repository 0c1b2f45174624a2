"""The smallest epsilon of a curve: a search for the point at which an upper bound on delta meets a target.

A returned epsilon was evaluated, never extrapolated. The curves are in `bounds`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from croupier.accountant.privacy_curve import Bounded
from croupier.accountant.ranges import check_epsilon, check_target_delta


@dataclass(frozen=True)
class Inverse:
    """The epsilon found for a target delta: delta(epsilon) = reached <= target was evaluated, not extrapolated."""

    epsilon: float
    reached: Bounded | None
    evaluations: int


class Invertible(Protocol):
    """The part of a curve that `smallest_epsilon` uses."""

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`."""
        ...

    def guess(self, delta: float) -> float:
        """See `PrivacyProfile`."""
        ...


def smallest_epsilon(profile: Invertible, delta: float, ceiling: float, tolerance: float = 1e-6) -> Inverse:
    """Returns the upper end of a bracket around the least epsilon with profile.delta(epsilon) <= delta.

    The first point is the profile's own guess, then the guess stretched to fit the values found, which is nearly right.
    sqrt(-2 ln delta(epsilon)) is nearly straight, so secants on it converge in a few steps; bisection guards them.

    Args:
        profile: the curve.
        delta: target, in (0, 1).
        ceiling: an epsilon already known to be enough (the local budget); returned, with reached None, if none is
            found below it.
        tolerance: the bracket's relative width at which to stop, or a quarter of the distance of delta(epsilon) below
            its target: a small delta changes more than four times as fast as epsilon.

    Returns:
        The epsilon, with the bound that was evaluated there. Direction of error: never too small.

    Raises:
        ValueError: ceiling is not a finite number >= 0, or delta is outside (0, 1).
    """
    check_epsilon(ceiling, "ceiling")
    check_target_delta(delta)
    # A little below the target, so that the secants end on the sound side.
    aim = delta * (1 - 2 * tolerance)
    low, low_height = 0.0, -1.0  # -1: delta(0) is not known
    high, high_height = ceiling, math.inf
    best: Bounded | None = None
    point = profile.guess(delta)
    if not 0 < point < ceiling:
        point = 0.0
    for evaluations in range(1, 200):
        bound = profile.delta(point)
        width = high - low
        if bound.value <= delta:
            high, high_height, best = point, _height(bound.value), bound
            if point == 0 or bound.value >= delta * (1 - 4 * tolerance):
                break
        else:
            low, low_height = point, _height(bound.value)
        if high - low <= tolerance * high + 1e-15:
            break
        if low_height < 0:
            point = 0.0
        elif best is None:
            most = high * (1 - tolerance / 2)
            point = _further(profile, low, bound.value, most, aim)
            if evaluations > 3:  # from below in ever longer steps, because a bound far above may be useless
                point = min(max(point, low * (1 + tolerance * 10.0 ** (evaluations - 4))), most)
        elif evaluations > 6 and high - low > width / 2:
            point = (low + high) / 2
        else:
            point = _between(low, low_height, high, high_height, _height(aim))
    return Inverse(high, best, evaluations)


def _height(delta: float) -> float:
    return math.inf if delta <= 0 else math.sqrt(max(0.0, -2 * math.log(delta)))


def _further(profile: Invertible, low: float, delta_at_low: float, most: float, aim: float) -> float:
    """Returns the point where the guess, stretched to be right at `low`, reaches the aim; at most `most`."""
    if low <= 0:
        return most / 2
    guessed = profile.guess(delta_at_low) if delta_at_low < 1 else 0.0
    stretched = low * profile.guess(aim) / guessed if guessed > 0 else math.inf
    return min(max(stretched, low * (1 + 1e-9)), 4 * low, most)


def _between(low: float, low_height: float, high: float, high_height: float, aim: float) -> float:
    middle = (low + high) / 2
    if high_height <= low_height or math.isinf(high_height):
        return middle
    point = low + (high - low) * (aim - low_height) / (high_height - low_height)
    margin = 1e-9 * (high - low)
    return min(max(point, low + margin), high - margin)
