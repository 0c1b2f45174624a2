"""Bounds that take personal budgets: GSPA's Theorems 1 and 2, Definition 6 of the same paper, and Echo.

Theorem 1 is proved for randomizers that are bits among fair bits and evaluated without loss; Theorem 2 is asymptotic.
Definition 6 is not a bound: it says whose data a budget protects. What each is worth is said in `table`.
"""

from __future__ import annotations

import math

import numpy as np

from croupier.accountant.budgets import Budgets
from croupier.accountant.numerics.binomial import Floats
from croupier.accountant.numerics.gaussian import gaussian_epsilon
from croupier.accountant.published.clones import Pools, all_but_last, among_clones
from croupier.accountant.published.validity import OutOfRangeError, largest_budget, need, need_delta, need_users


def _log_flip(epsilon: Floats) -> Floats:
    """Returns ln(1/(1 + e^epsilon)), concave and decreasing."""
    return np.asarray(-epsilon - np.log1p(np.exp(-epsilon)))


def gspa_numeric(budgets: Budgets, delta: float) -> float:
    """GSPA Theorem 1: the bit of the largest budget among PB(2 p_i) clones; replace-one, at most that budget.

    The victim of the largest local epsilon is the worst one. Never below the pair of the theorem: a local delta makes
    fewer clones, and the part of the victim's report that it takes out of the pair stays in.
    Raises OutOfRangeError unless 0 < delta < 1 and there are at least 2 users.
    """
    need_delta(delta)
    need_users(budgets)
    others = Pools.of(budgets, all_but_last(budgets))
    # The logarithms are good to an ulp of at most 500.
    p = others.geometric_mean(_log_flip) * (1 - others.local_delta) * (1 - 1e-12)
    local = float(budgets.local_epsilon[-1])
    return among_clones(local, 2 * p, others.count).smallest_epsilon(delta, local).epsilon


def gspa_mu(budgets: Budgets) -> float:
    """Returns mu = sqrt(2 / (sum p_i - max p_i)) with p_i = (1 - delta_i)/(1 + e^epsilon_i).

    Raises OutOfRangeError for a single user.
    """
    decay = np.exp(-budgets.local_epsilon)
    p = (1 - budgets.local_delta) * decay / (1 + decay)
    rest = float(p @ budgets.count) - float(p.max())
    if budgets.num_users < 2 or not rest > 0:
        raise OutOfRangeError(f"{budgets.num_users} users; valid: at least two users, one of them with a finite budget")
    return math.sqrt(2 / rest)


def gspa_asymptotic(budgets: Budgets, delta: float) -> float:
    """GSPA Theorem 2: epsilon at delta of mu-GDP. ASYMPTOTIC: the constant of its C/sqrt(n) term is never given."""
    need_delta(delta)
    return gaussian_epsilon(gspa_mu(budgets), delta)


def gspa_positions(budgets: Budgets, delta: float) -> float:
    """The local guarantee of a person under GSPA's Definition 6: the largest local epsilon.

    The definition permutes the data and keeps the randomizers in place, so that a budget belongs to a position: a
    person's report may be made with any of them. Raises OutOfRangeError for a delta below the largest local delta.
    """
    need_delta(delta)
    spent = float(budgets.local_delta.max())
    need(delta >= spent, f"delta {delta:g}", f"at least the largest local delta, {spent:g}")
    return float(budgets.local_epsilon[-1])


def echo(budgets: Budgets, delta: float) -> float:
    """Echo of neighbours (Liu 2023): clones with p_i = (eps_i/eps_v)(1-e^-eps_v)/(1-e^-eps_i) e^-max(eps_v, eps_i).

    With S the sum of p_i over the others, averaged over all victims v, and v the largest budget:
    ln(1 + (e^v - 1)/(e^v + 1) (8 sqrt(ln(4/delta)/S) + 8/S)). Proved for its own Clip-Laplace randomizer only.
    More than 2048 different budgets are pooled at their means, which moves S by less than 1e-4 of it.
    Raises OutOfRangeError unless the budgets are pure, 0 < delta < 1 and S >= 16 ln(4/delta).
    """
    need_delta(delta)
    local, n = largest_budget(budgets)
    pools = Pools.of(budgets, budgets.count)
    eps, count = pools.mean, pools.count.astype(np.float64)
    decay = np.exp(-eps)
    ratio = eps / -np.expm1(-eps)
    # For a victim of tier t: users up to t weigh ratio_i e^-eps_t / ratio_t, those above ratio_i e^-eps_i / ratio_t.
    weight = count * ratio
    heavy = weight * decay
    total = (np.cumsum(weight) * decay + heavy.sum() - np.cumsum(heavy)) / ratio - decay
    mean = float(total @ count) / n
    log = math.log(4 / delta)
    need(mean >= 16 * log, f"sum of p is {mean:.4g}", f"at least 16 ln(4/delta) = {16 * log:.4g}")
    return math.log1p(math.tanh(local / 2) * (8 * math.sqrt(log / mean) + 8 / mean))
