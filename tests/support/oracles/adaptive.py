"""The largest delta of an adversary who chooses every round by the results so far, by enumeration of all results.

Shares no code with the product: laws are lists of probabilities, and divergences are sums of their positive parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Law = tuple[float, ...]


@dataclass(frozen=True)
class Pair:
    """The laws of one round's result under the two neighbouring data sets."""

    p: Law
    q: Law

    @classmethod
    def of(cls, left: Sequence[float], right: Sequence[float], weight: float) -> Pair:
        """Returns the pair of a law and its mixture with another, so that they are not far apart."""
        mixed = tuple(weight * a + (1 - weight) * b for a, b in zip(left, right, strict=True))
        return cls(tuple(map(float, left)), tuple(map(float, mixed)))


def randomized_response(epsilon: float, lost: float = 0.0) -> Pair:
    """Returns the pair of randomised response that shows the value itself with probability `lost`."""
    kept = (1 - lost) / (1 + math.exp(-epsilon))
    other = (1 - lost) / (1 + math.exp(epsilon))
    return Pair((lost, 0.0, kept, other), (0.0, lost, other, kept))


def shuffled_bits(epsilon: float, others: int) -> Pair:
    """Returns the pair of the number of ones when every other person holds a one, as randomised response reports it."""
    keep = 1 / (1 + math.exp(-epsilon))
    rest = [math.comb(others, k) * keep**k * (1 - keep) ** (others - k) for k in range(others + 1)]

    def with_victim(probability: float) -> Law:
        return tuple(
            (rest[k] * (1 - probability) if k <= others else 0.0) + (rest[k - 1] * probability if k else 0.0)
            for k in range(others + 2)
        )

    return Pair(with_victim(keep), with_victim(1 - keep))


def divergence(p: Law, q: Law, epsilon: float) -> float:
    """Returns the sum of [p - e^epsilon q]_+."""
    return math.fsum(max(0.0, a - math.exp(epsilon) * b) for a, b in zip(p, q, strict=True))


def profile_points(pair: Pair, count: int = 60) -> tuple[tuple[float, float], ...]:
    """Returns points of the exact profile, the larger of both directions, up to where only lost mass remains."""
    ratios = [abs(math.log(a / b)) for a, b in zip(pair.p, pair.q, strict=True) if a > 0 < b]
    end = max(ratios, default=0.0) + 1e-9
    grid = [end * step / count for step in range(count + 1)]
    values = [max(divergence(pair.p, pair.q, e), divergence(pair.q, pair.p, e)) * (1 + 1e-13) for e in grid]
    return tuple(zip(grid, (min(values[: i + 1]) for i in range(len(grid))), strict=True))


def largest_delta(epsilon: float, choices: Callable[[tuple[Pair, ...]], Sequence[Pair]]) -> float:
    """Returns the largest delta at epsilon over all ways to choose the next round by all results so far, or to stop.

    choices: which rounds may follow the rounds so far. The larger of both directions.
    """

    def best(history: tuple[Pair, ...], p: float, q: float, swapped: bool) -> float:
        worst = max(0.0, p - math.exp(epsilon) * q)
        for pair in choices(history):
            left, right = (pair.q, pair.p) if swapped else (pair.p, pair.q)
            results = [(a, b) for a, b in zip(left, right, strict=True) if a or b]
            worst = max(worst, math.fsum(best((*history, pair), p * a, q * b, swapped) for a, b in results))
        return worst

    return max(best((), 1.0, 1.0, False), best((), 1.0, 1.0, True))
