"""Oracles for the accountant's tests that share no code with it: brute force over data sets, and 50-digit sums.

Everything here is written from the definitions, for tiny n, with no thought of speed.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "accounting.json").read_text(encoding="utf-8")
)


def histogram_law(budgets: Sequence[float], values: Sequence[int], k: int) -> dict[tuple[int, ...], float]:
    """The law of the histogram of the shuffled k-RR reports of one data set."""
    law: dict[tuple[int, ...], float] = {(0,) * k: 1.0}
    for budget, value in zip(budgets, values, strict=True):
        keep = np.exp(budget) / (np.exp(budget) + k - 1)
        other = 1 / (np.exp(budget) + k - 1)
        following: dict[tuple[int, ...], float] = {}
        for histogram, mass in law.items():
            for report in range(k):
                bumped = tuple(c + (j == report) for j, c in enumerate(histogram))
                following[bumped] = following.get(bumped, 0.0) + mass * (keep if report == value else other)
        law = following
    return law


def hockey_stick(p: dict[tuple[int, ...], float], q: dict[tuple[int, ...], float], epsilon: float) -> float:
    """Sum of [p - e^epsilon q]_+."""
    return float(sum(max(0.0, mass - np.exp(epsilon) * q.get(outcome, 0.0)) for outcome, mass in p.items()))


def worst_delta(budgets: Sequence[float], victim: int, k: int, epsilon: float) -> float:
    """The exact central delta of one victim: the maximum over all data sets and all pairs of its values."""
    rest = [b for i, b in enumerate(budgets) if i != victim]
    worst = 0.0
    # By symmetry of the values, the victim moves between 0 and 1.
    for others in itertools.product(range(k), repeat=len(rest)):
        p, q = (histogram_law([*rest, budgets[victim]], [*others, x], k) for x in (0, 1))
        worst = max(worst, hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))
    return worst


def blanket_delta(budgets: Sequence[float], victim: int, k: int, epsilon: float, digits: int = 50) -> Any:
    """The blanket bound of k-RR by enumerating every outcome of m+1 uniform messages, in `digits` digits."""
    with mpmath.workdps(digits):
        v = mpmath.mpf(budgets[victim])
        gain = mpmath.exp(mpmath.mpf(epsilon))
        law = [mpmath.mpf(1)]
        for i, budget in enumerate(budgets):
            if i == victim:
                continue
            gamma = k / (mpmath.exp(mpmath.mpf(budget)) + k - 1)
            law = [
                (law[m] if m < len(law) else 0) * (1 - gamma) + (law[m - 1] * gamma if m else 0)
                for m in range(len(law) + 1)
            ]
        scale = mpmath.exp(v) + k - 1
        terms = [(mpmath.exp(v) - gain) * k / scale, (1 - gain * mpmath.exp(v)) * k / scale, (1 - gain) * k / scale]
        total = mpmath.mpf(0)
        for m, mass in enumerate(law):
            size = m + 1
            mean = mpmath.mpf(0)
            for zeros in range(size + 1):
                for ones in range(size - zeros + 1):
                    if k == 2 and zeros + ones < size:
                        continue
                    value = zeros * terms[0] + ones * terms[1] + (size - zeros - ones) * terms[2]
                    if value > 0:
                        ways = mpmath.binomial(size, zeros) * mpmath.binomial(size - zeros, ones)
                        mean += ways * mpmath.mpf(k - 2) ** (size - zeros - ones) / mpmath.mpf(k) ** size * value
            total += mass * mean / size
        return total


def count_law(shares: list[tuple[float, int]]) -> Floats:
    """The law of a sum of independent bits, multiplied out; equal ones by squaring their law: no FFT, no window."""
    law = np.ones(1)
    for share, count in shares:
        power, left = np.array([1 - share, share]), count
        while left:
            if left % 2:
                law = np.convolve(law, power)
            left //= 2
            if left:
                power = np.convolve(power, power)
    return law
