"""Oracles for the accountant's tests that share no code with it: brute force over data sets, and 50-digit sums.

Everything here is written from the definitions, for tiny n, with no thought of speed.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

Floats = NDArray[np.float64]

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "accounting.json").read_text(encoding="utf-8")
)


Table = Sequence[Sequence[Any]]
"""The probabilities of all reports (columns) for every value (rows): floats, or numbers of mpmath."""


def response(epsilon: Any, k: int, exp: Callable[[Any], Any] = math.exp) -> Table:
    """The table of k-ary randomised response."""
    total = exp(epsilon) + k - 1
    return [[(exp(epsilon) if report == value else 1) / total for report in range(k)] for value in range(k)]


def histogram_law(laws: Sequence[Sequence[Any]]) -> dict[tuple[int, ...], Any]:
    """The law of the histogram of shuffled reports, each of which has one of these laws."""
    law: dict[tuple[int, ...], Any] = {(0,) * len(laws[0]): 1}
    for report_law in laws:
        following: dict[tuple[int, ...], Any] = {}
        for histogram, mass in law.items():
            for report, share in enumerate(report_law):
                bumped = (*histogram[:report], histogram[report] + 1, *histogram[report + 1 :])
                following[bumped] = following.get(bumped, 0) + mass * share
        law = following
    return law


def one_option(epsilon: Any, k: int, exp: Callable[[Any], Any] = math.exp) -> Table:
    """The table of all sets of k options: one option is drawn, and its bit reported by randomised response."""
    bit = response(epsilon, 2, exp)
    return [[share / k for option in range(k) for share in bit[chosen >> option & 1]] for chosen in range(1 << k)]


def worst_divergences(victim: Table, others: Sequence[Table], gains: Sequence[Any]) -> list[Any]:
    """For each gain the largest sum of [p - gain q]_+ over all data sets and all pairs of the victim's rows."""
    worst = [0] * len(gains)
    for rest in itertools.product(*others):
        laws = [histogram_law([*rest, own]) for own in victim]
        for p, q in itertools.permutations(laws, 2):
            sums = (sum(max(0, mass - gain * q[outcome]) for outcome, mass in p.items()) for gain in gains)
            worst = list(map(max, worst, sums))
    return worst


def worst_delta(budgets: Sequence[float], victim: int, k: int, epsilon: float) -> float:
    """The exact central delta of one victim of k-RR: the maximum over all data sets and all pairs of its values."""
    tables = [response(budget, k) for budget in budgets]
    own = tables.pop(victim)
    return float(*worst_divergences(own[:2], tables, [math.exp(epsilon)]))  # all pairs of values are alike


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


def sigma_of(epsilon: float, delta: float) -> float:
    """The noise of a Gaussian mechanism with sensitivity 1, by a scan that stops at most a thousandth above it."""
    sigmas = np.geomspace(0.05, 50, 20_001)
    spent = norm.sf(sigmas * epsilon - 1 / (2 * sigmas)) - np.exp(epsilon) * norm.sf(
        sigmas * epsilon + 1 / (2 * sigmas)
    )
    return float(sigmas[np.argmax(spent <= delta)])


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
