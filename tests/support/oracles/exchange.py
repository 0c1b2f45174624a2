"""Oracles for the exchange bound that share no code with the accountant: exact enumeration, and plain quadrature.

Everything is written from the definitions, for bits: p = e^v/(1+e^v) is the probability that a bit is kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

Floats = NDArray[np.float64]


def worst_bits(budgets: Sequence[float], victim: int, epsilon: float, dishonest: int = 0, digits: int = 40) -> Any:
    """The largest divergence of the number of ones over all data sets, directions, and choices of dishonest others."""
    others = sorted(b for i, b in enumerate(budgets) if i != victim)
    kept = max(0, len(others) - dishonest)
    # The rarer bit has a probability of about e^-v, and is computed as 1 - p.
    with mpmath.workdps(digits + int(max(budgets))):
        gain = mpmath.exp(mpmath.mpf(epsilon))
        worst = mpmath.mpf(0)
        for honest in set(itertools.combinations(others, kept)):
            for law in _laws(honest):
                worst = max(worst, *_divergences(law, mpmath.mpf(budgets[victim]), gain))
        return worst


def _laws(honest: Sequence[float]) -> list[list[Any]]:
    """The laws of the number of ones, for every data set up to the order within a budget."""
    laws = [[mpmath.mpf(1)]]
    for budget in sorted(set(honest)):
        size = honest.count(budget)
        keep = 1 / (1 + mpmath.exp(-mpmath.mpf(budget)))
        parts = []
        for ones in range(size + 1):
            part = [mpmath.mpf(1)]
            for index in range(size):
                part = _one_more(part, keep if index < ones else 1 - keep)
            parts.append(part)
        laws = [_sum(law, part) for law in laws for part in parts]
    return laws


def _one_more(law: list[Any], share: Any) -> list[Any]:
    return [
        (law[k] * (1 - share) if k < len(law) else 0) + (law[k - 1] * share if k else 0) for k in range(len(law) + 1)
    ]


def _sum(first: list[Any], second: list[Any]) -> list[Any]:
    result = [mpmath.mpf(0)] * (len(first) + len(second) - 1)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            result[i + j] += a * b
    return result


def _divergences(law: list[Any], budget: Any, gain: Any) -> tuple[Any, Any]:
    keep = 1 / (1 + mpmath.exp(-budget))
    under_one, zero = _one_more(law, keep), _one_more(law, 1 - keep)
    forth = mpmath.fsum(max(mpmath.mpf(0), a - gain * b) for a, b in zip(under_one, zero, strict=True))
    back = mpmath.fsum(max(mpmath.mpf(0), b - gain * a) for a, b in zip(under_one, zero, strict=True))
    return forth, back


def divergence_of_split(
    tiers: Sequence[tuple[float, int]], ones: Sequence[int], victim: float, epsilon: float
) -> float:
    """The larger of both directions when ones[t] of the tiers[t] = (budget, count) others hold a 1; doubles, any n."""
    law = np.ones(1)
    for (budget, count), held in zip(tiers, ones, strict=True):
        keep = 1 / (1 + np.exp(-budget))
        law = np.convolve(law, binom.pmf(np.arange(held + 1), held, keep))
        law = np.convolve(law, binom.pmf(np.arange(count - held + 1), count - held, 1 - keep))
    keep, gain = 1 / (1 + np.exp(-victim)), np.exp(epsilon)
    under_one = np.convolve(law, [1 - keep, keep])
    zero = np.convolve(law, [keep, 1 - keep])
    return float(max(np.maximum(under_one - gain * zero, 0).sum(), np.maximum(zero - gain * under_one, 0).sum()))


def exchanged(
    keeps: Sequence[Fraction], values: Sequence[int], weights: Sequence[Fraction], keep: Fraction
) -> tuple[dict[int, tuple[Fraction, Fraction]], list[tuple[Fraction, Fraction, Fraction]]]:
    """Hosts with these values and keep probabilities (of what their clocks left them), one of which is replaced; exact.

    Returns the laws of the number of ones for the victim's two values, as the slots show it when they are forgotten;
    and for every outcome of the slots (P_1, P_0, Q), the laws of the theorem for both values, and the reference law.
    """
    half = Fraction(1, 2)
    hosts = len(keeps)
    counts: dict[int, tuple[Fraction, Fraction]] = {}
    outcomes = []
    for bits in itertools.product((0, 1), repeat=hosts + 1):
        chances = [_chance(p, x, y) for p, x, y in zip(keeps, values, bits, strict=False)]
        both = []
        for value in (1, 0):
            total = Fraction(0)
            for i in range(hosts):
                rest = math.prod(chances[:i] + chances[i + 1 :])
                total += weights[i] * _chance(keep, value, bits[i]) * half * rest
            both.append(total)
        outcomes.append((both[0], both[1], half * math.prod(chances)))
        before = counts.get(sum(bits), (Fraction(0), Fraction(0)))
        counts[sum(bits)] = (before[0] + both[0], before[1] + both[1])
    return counts, outcomes


def count_law(keeps: Sequence[float], values: Sequence[int]) -> Floats:
    """The law of the number of ones among bits with these values and keep probabilities."""
    law = np.ones(1)
    for keep, value in zip(keeps, values, strict=True):
        law = np.convolve(law, [1 - keep, keep] if value else [keep, 1 - keep])
    return law


def law_by_clocks(
    keeps: Sequence[float], values: Sequence[int], weights: Sequence[float], end: float, points: int = 1_000
) -> Floats:
    """The law of the number of ones, put together again from the time of the first clock and whose it is.

    When clock i rings first, at time t, report i is a fair bit and the others are what their clocks left. By midpoints.
    """

    def left(time: float) -> list[float]:
        rung = [-math.expm1(-rate * time) for rate in weights]
        return [(p - tau / 2) / (1 - tau) for p, tau in zip(keeps, rung, strict=True)]

    total = math.exp(-end) * count_law(left(end), values)
    for time in (np.arange(points) + 0.5) * (end / points):
        laws = left(time)
        for i, rate in enumerate(weights):
            law = count_law([*laws[:i], 0.5, *laws[i + 1 :]], values)
            total += rate * math.exp(-time) * (end / points) * law
    return total


def _chance(keep: Fraction, value: int, report: int) -> Fraction:
    return keep if value == report else 1 - keep


def expected_excess(
    tiers: Sequence[tuple[float, int, int]],
    ends: Sequence[float],
    victim: float,
    epsilon: float,
    theta: float,
    sigma: float,
) -> float:
    """The theorem's bound for one data set of bits, by 4,000 trapezoids.

    tiers: (budget, hosts that agree with the victim's first value, hosts that do not). Weights are proportional to p q.
    ends: of the stages of the clocks. sigma: the deviation of the Gaussian that is added.
    """
    p_v, gain = 1 / (1 + np.exp(-victim)), np.exp(epsilon)
    ahead, behind = p_v - gain * (1 - p_v), (1 - p_v) - gain * p_v
    flips = [1 / (1 + np.exp(budget)) for budget, _, _ in tiers]
    total = sum(q * (1 - q) * (m + k) for q, (_, m, k) in zip(flips, tiers, strict=True))
    line = np.linspace(0.0, 30 * (total + 1) / (gain - 1 + ahead), 4_001)
    z, product, start = theta + 1j * line, np.zeros(line.size), 0.0
    for end in ends:
        stage = np.ones(line.size)
        for q, (_, agree, oppose) in zip(flips, tiers, strict=True):
            w = q * (1 - q) / total
            left = (q - (1 - np.exp(-w * end)) / 2) / np.exp(-w * end)
            for up, size in ((1 - left, agree), (left, oppose)):
                phi = up * np.exp(z * w * ahead / up) + (1 - up) * np.exp(z * w * behind / (1 - up))
                stage *= np.abs(phi) ** size
        product += (np.exp(-start) - np.exp(-end)) * stage
        start = end
    values = product * np.exp((theta**2 - line * line) * sigma**2 / 2) / (theta**2 + line * line)
    return float(np.trapezoid(values, line) / np.pi + np.exp(-start) * ahead)
