"""Bounds for equal budgets: EFMRTT19, and the privacy blanket, with Bennett's inequality (BBGN19) or exactly.

All are theorems: never below the truth. `randomizer` enters BBGN19 by the total mass gamma of its blanket, the
least density over the inputs; the rest follows from p/omega lying in [gamma, gamma e^v] with mean 1, for whatever pair
of values the victim has. Different budgets are out of their range.
"""

from __future__ import annotations

import math

import numpy as np

from croupier.accountant.bounds.profile import Others, Victim
from croupier.accountant.budgets import Budgets
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.numerics.binomial import UNIT
from croupier.accountant.published.validity import OutOfRangeError, common_budget, need, need_delta, need_users, solve

_ROUNDING = 1 + 1e-10
"""On every delta below: a few hundred rounded operations and the n-th power of a number good to an ulp or two."""


def efmrtt(budgets: Budgets, delta: float) -> float:
    """12 eps0 sqrt(ln(1/delta)/n): Erlingsson et al. 2019, Theorem 7, replace-one. Never below the truth.

    Raises OutOfRangeError unless the budgets are equal and pure, eps0 <= 1/2, n >= 1000 and 0 < delta <= 0.01.
    """
    local, n = common_budget(budgets)
    need(local <= 0.5, f"local epsilon {local:g}", "local epsilon <= 1/2")
    need(n >= 1000, f"{n} users", "at least 1000 users")
    need(0 < delta <= 0.01, f"delta {delta:g}", "0 < delta <= 0.01")
    return 12 * local * math.sqrt(math.log(1 / delta) / n)


def least_mass(randomizer: Randomizer, local_epsilon: float) -> float:
    """gamma, the mass of the least density over the inputs, rounded down: 1 - gamma is the worst total variation.

    Raises OutOfRangeError for a randomizer that is not pure or whose blanket is not known.
    """
    need(not randomizer.spends_local_delta, f"randomizer {randomizer.name}", "a pure randomizer")
    mass = randomizer.least_mass(local_epsilon)
    if mass is None:
        raise OutOfRangeError(f"randomizer {randomizer.name}; valid: a randomizer of known blanket")
    return mass


def _blanket(budgets: Budgets, randomizer: Randomizer, delta: float) -> tuple[float, float, float, int]:
    """(gamma, an upper bound on gamma e^v, v, n)."""
    need_delta(delta)
    local, n = common_budget(budgets)
    gamma = least_mass(randomizer, local)
    return gamma, gamma * math.exp(local) * (1 + 64 * UNIT), local, n


def _over_counts(gamma: float, n: int, rate: float) -> float:
    """The mean of e^(-rate M)/(gamma n) with M ~ Bin(n, gamma)."""
    return math.exp(n * math.log1p(gamma * math.expm1(-rate))) / (gamma * n)


def bbgn_bennett(budgets: Budgets, randomizer: Randomizer, delta: float) -> float:
    """Balle, Bell, Gascon, Nissim 2019: the privacy blanket with Bennett's inequality, replace-one.

    L has mean -a = 1 - e^eps, and E[sum of m terms]_+ <= b/ln(1+u) exp(-m (c/b^2) phi(u)), u = a b/c, with
    b = max L + a and phi(u) = (1+u) ln(1+u) - u. The variance c of L = x - e^eps y is taken from what is known of
    x = p0/omega and y = p1/omega: Var x, Var y <= (gamma e^v - 1)(1 - gamma) by Bhatia and Davis, and
    Cov(x, y) >= -(1-gamma)^2 because (x-gamma)(y-gamma) >= 0. Both are equalities for k-RR.
    Never below the truth, never above the local budget.
    Raises OutOfRangeError unless 0 < delta < 1, the budgets are equal and the randomizer is pure, of known blanket.
    """
    gamma, top, local, n = _blanket(budgets, randomizer, delta)
    spread, rest = (top - 1) * (1 - gamma), 1 - gamma

    def delta_at(epsilon: float) -> float:
        if epsilon <= 0:
            return 1.0
        # All of it in units of e^eps, so that nothing overflows.
        shrink = math.exp(-epsilon)
        a = -math.expm1(-epsilon)
        b = (top - 1) * shrink + rest
        c = spread * (1 + shrink * shrink) + 2 * shrink * rest * rest
        u = a * b / c
        rate = c / (b * b) * ((1 + u) * math.log1p(u) - u) * (1 - 1e-12)
        return b / shrink / math.log1p(u) * _over_counts(gamma, n, rate) * _ROUNDING

    return solve(delta_at, delta, local, local / 8)


def optimal_decomposition(budgets: Budgets, randomizer: Randomizer, delta: float) -> float:
    """The least upper bound of any decomposition (Su, Cheng, Wang): E over M ~ 1 + Bin(n-1, gamma) of E[ΣL]_+ / M.

    L = (p0 - e^eps p1)/omega under omega, the normalised least density, for the worst pair of values; replace-one.
    Never below the truth, and at most 0.01 % above the number of the paper's algorithm, by directed rounding. Raises
    OutOfRangeError unless 0 < delta < 1, there are two users or more, the budgets are equal, and the randomizer is pure
    with a least density of closed form.
    """
    need_delta(delta)
    local, n = common_budget(budgets)
    need_users(budgets)
    need(not randomizer.spends_local_delta, f"randomizer {randomizer.name}", "a pure randomizer")
    others = Others(np.array([local]), np.zeros(1), np.array([n - 1], dtype=np.int64), 0)
    profile = randomizer.profile(Victim(local), others, delta)
    if profile.closed_divergence is None:
        raise OutOfRangeError(f"randomizer {randomizer.name}; valid: one whose least density has a closed form")
    return profile.smallest_epsilon(delta, local).epsilon
