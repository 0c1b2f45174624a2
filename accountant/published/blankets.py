"""The blanket's divergence for equal budgets: the optimal decomposition bound, and its limit by the shuffle index.

Su, Cheng and Wang (arXiv 2504.07414) show that of all decompositions into clones or a blanket the blanket gives the
least upper bound, and compute it. Takagi and Liew (arXiv 2601.19154) show that for many users it depends on one number
of the randomizer, the shuffle index. Both are about users with one budget.
"""

from __future__ import annotations

import math

import numpy as np

from croupier.accountant.bounds.profile import Curve, Others, Victim
from croupier.accountant.budgets import Budgets
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.published.equal_budgets import least_mass
from croupier.accountant.published.validity import OutOfRangeError, common_budget, need, need_delta, need_users, solve


def _blanket(budgets: Budgets, randomizer: Randomizer, delta: float | None) -> tuple[Curve, float, float, int]:
    """(the blanket's curve, its divergence, the budget, n). Raises OutOfRangeError outside the range of both bounds."""
    local, n = common_budget(budgets)
    need_users(budgets)
    need(not randomizer.spends_local_delta, f"randomizer {randomizer.name}", "a pure randomizer")
    others = Others(np.array([local]), np.zeros(1), np.array([n - 1], dtype=np.int64), 0)
    profile = randomizer.profile(Victim(local), others, delta)
    if profile.closed_divergence is None:
        raise OutOfRangeError(f"randomizer {randomizer.name}; valid: one whose least density has a closed form")
    return profile, profile.closed_divergence, local, n


def optimal_decomposition(budgets: Budgets, randomizer: Randomizer, delta: float) -> float:
    """The least upper bound of any decomposition: E over M ~ 1 + Bin(n-1, gamma) of E[L_1 + ... + L_M]_+ / M.

    L = (p0 - e^eps p1)/omega under omega, the normalised least density, for the worst pair of values; replace-one.
    Never below the truth, and at most 0.01 % above the number of the paper's algorithm, by directed rounding. Raises
    OutOfRangeError unless 0 < delta < 1, there are two users or more, the budgets are equal, and the randomizer is pure
    with a least density of closed form.
    """
    need_delta(delta)
    profile, _, local, _ = _blanket(budgets, randomizer, delta)
    return profile.smallest_epsilon(delta, local).epsilon


def shuffle_index(budgets: Budgets, randomizer: Randomizer) -> float:
    """The shuffle index, sqrt(gamma / Var((p0 - p1)/omega)) for the worst pair of values.

    The larger it is, the more shuffling hides. Raises OutOfRangeError as `optimal_decomposition`.
    """
    _, divergence, local, _ = _blanket(budgets, randomizer, None)
    need(divergence > 0, f"local budget {local:g}", "one at which the divergence of two values is not rounded to 0")
    return math.sqrt(least_mass(randomizer, local) / divergence)


def shuffle_index_limit(budgets: Budgets, randomizer: Randomizer, delta: float) -> float:
    """The blanket's epsilon in the limit of many users: E[G/(chi sqrt n) - eps]_+ = delta, G standard normal.

    No bound: its error at n users is not known, and it may lie on either side of the blanket's divergence. Raises
    OutOfRangeError as `optimal_decomposition`.
    """
    need_delta(delta)
    local, n = common_budget(budgets)
    deviation = 1 / (shuffle_index(budgets, randomizer) * math.sqrt(n))

    def delta_at(epsilon: float) -> float:
        x = epsilon / deviation
        density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        return deviation * (density - x * math.erfc(x / math.sqrt(2)) / 2)

    return solve(delta_at, delta, local, min(deviation, local / 2))
