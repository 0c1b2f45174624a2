"""Published bounds, computed for comparison and never able to open a round unless their grade is CERTIFIED."""

from __future__ import annotations

import math

from accountant.budgets import Budgets
from accountant.results import Comparison, Grade

__all__ = ["gaussian_dp_delta", "gspa_theorem_2"]

_GSPA = "Chen, Cao, Ge: A Generalized Shuffle Framework for Privacy Amplification (AAAI 2024)"


def gaussian_dp_delta(epsilon: float, mu: float) -> float:
    """Returns δ(ε) of μ-Gaussian differential privacy: Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).

    Source: Dong, Roth, Su (JRSS-B 2022), Corollary 2.13.
    """
    from scipy.special import log_ndtr, ndtr

    second = math.exp(epsilon + float(log_ndtr(-epsilon / mu - mu / 2)))
    return max(0.0, float(ndtr(-epsilon / mu + mu / 2)) - second)


def gspa_theorem_2(budgets: Budgets, delta: float) -> Comparison:
    """Returns what Theorem 2 of GSPA says: approximately μ-GDP with μ = √(2/(Σp_i − max p_i)), p_i = 1/(1+e^ε_i).

    ASYMPTOTIC: the constant of its C/√n term is never given, and at finite n it is refuted by attacks.
    """
    flips = [(1 / (1 + math.exp(tier.local_epsilon)), tier.count) for tier in budgets.tiers]
    total = sum(flip * count for flip, count in flips) - max(flip for flip, _ in flips)
    name, reference = "GSPA Thm 2", f"{_GSPA}, Theorem 2"
    if total <= 0:
        return Comparison(name, None, Grade.ASYMPTOTIC, reference, "out of range", "it needs at least two users")
    mu = math.sqrt(2 / total)
    low, high = 0.0, 1.0
    while gaussian_dp_delta(high, mu) > delta:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_dp_delta(middle, mu) > delta else (low, middle)
    return Comparison(name, high, Grade.ASYMPTOTIC, reference)
