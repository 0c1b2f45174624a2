"""Liu et al. 2024: errors of likelihood-ratio tests taken as mixture weights. A heuristic, refuted by attacks.

The victim's report is taken to show the other value with the probability p_1 of a wrong test between its two values,
and another user's to be a clone with the probability p_i of a wrong test against it, the others' value being the worse
end. A testing error is not a mixture weight, so nothing here is a bound unless the reports are bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from croupier.accountant.budgets import Budgets
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.gaussian import GaussianMechanism
from croupier.accountant.mechanisms.krr import KaryRandomizedResponse
from croupier.accountant.numerics.binomial import Floats
from croupier.accountant.published.clones import Pools, all_but_last, among_clones
from croupier.accountant.published.validity import OutOfRangeError, need, need_delta, need_users, solve

MAX_SIGMAS = 256
"""Gaussian noise is calibrated tier by tier, up to this many tiers."""


def laplace_errors(local_epsilon: Floats, largest: float) -> Floats:
    """Returns p_i = min(Pr[R_i(1) in U0], Pr[R_i(1) in U1]) for Laplace noise, the victim at the largest budget.

    U0 and U1 are where the victim's density around 0, or around 1, is the larger of its two and at least that of R_i.
    local_epsilon: float64 (T,), in (0, largest]. At the largest budget p = e^(-v/2)/2.
    """
    narrow = local_epsilon < largest
    rate = np.log(largest / local_epsilon)
    with np.errstate(divide="ignore", invalid="ignore"):
        below = np.where(narrow, (local_epsilon + rate) / (largest - local_epsilon), np.inf)
        around = np.where(narrow, rate / (largest - local_epsilon), np.inf)
    until = np.minimum(0.5, (local_epsilon + rate) / (largest + local_epsilon))
    first = (np.exp(-local_epsilon * (1 - until)) - np.exp(-local_epsilon * (1 + below))) / 2
    second = -(np.expm1(-local_epsilon * around) + np.expm1(-local_epsilon * np.minimum(0.5, around))) / 2
    return np.asarray(np.maximum(np.minimum(first, second), 0.0))


def gaussian_errors(sigma: Floats, local_delta: Floats, narrowest: float) -> Floats:
    """Returns the same for Gaussian noise on [0, 1], the victim at scale `narrowest`, less the failure set delta_i/2.

    sigma: float64 (T,), >= narrowest > 0.
    """
    from scipy.special import ndtr

    inverse, own = 1 / sigma**2, 1 / narrowest**2
    log = 2 * np.log(sigma / narrowest)
    a = own - inverse
    root = np.sqrt(inverse**2 + a * (inverse + log))
    with np.errstate(divide="ignore", invalid="ignore"):
        below = np.where(a > 0, -(inverse + root) / a, -np.inf)
        around = np.where(a > 0, np.sqrt(log / a), np.inf)
    until = np.where(a > 0, np.minimum(0.5, (inverse + log) / (inverse + root)), 0.5)
    first = ndtr((until - 1) / sigma) - ndtr((below - 1) / sigma)
    second = ndtr(around / sigma) - ndtr(-np.minimum(0.5, around) / sigma)
    return np.asarray(np.maximum(np.minimum(first, second) - local_delta / 2, 0.0))


def _bit_errors(randomizer: Randomizer, epsilons: Floats, deltas: Floats) -> Floats:
    decay = np.exp(-epsilons)
    return np.asarray(decay / (1 + decay))


def _category_errors(randomizer: KaryRandomizedResponse, epsilons: Floats, deltas: Floats) -> Floats:
    decay = np.exp(-epsilons)
    return np.asarray(decay / (1 + (randomizer.k - 1) * decay))


def _laplace_errors(randomizer: Randomizer, epsilons: Floats, deltas: Floats) -> Floats:
    return laplace_errors(epsilons, float(epsilons[-1]))


def _gaussian_errors(randomizer: GaussianMechanism, epsilons: Floats, deltas: Floats) -> Floats:
    need(randomizer.dimension == 1, f"randomizer {randomizer.name}", "gaussian noise on a number")
    least = float(deltas.min())
    need(least > 0, f"local delta {least:g}", "gaussian noise has a local delta > 0")
    need(epsilons.size <= MAX_SIGMAS, f"{epsilons.size} tiers", f"at most {MAX_SIGMAS} tiers of gaussian noise")
    sigma = np.sqrt(0.5 / randomizer.rates(epsilons, deltas))
    need(bool(sigma[-1] <= sigma.min()), f"victim's sigma {sigma[-1]:g}", f"the smallest, {sigma.min():g}")
    return gaussian_errors(sigma, deltas, float(sigma[-1]))


_ERRORS: dict[str, Callable[[Any, Floats, Floats], Floats]] = {
    "rr": _bit_errors,
    "onebit": _bit_errors,
    "hemisphere": _bit_errors,
    "krr": _category_errors,
    "levels": _category_errors,
    "laplace": _laplace_errors,
    "gaussian": _gaussian_errors,
}
"""p_i at each local (epsilon, delta), float64 (T,), against the victim of the largest budget, which comes last."""


def likelihood_test_clones(budgets: Budgets, randomizer: Randomizer, delta: float) -> float:
    """Returns epsilon at delta of Liu et al. 2024, Theorem 2, for the victim of the largest budget; at most its budget.

    With w = p_1 and C ~ PB(2 p_i): delta(eps) = (1 - 2w) H_F(P0 || Q0), F = (e^eps - 2w)/(1 - 2w), where P0 and Q0
    hide a certain 0 or 1 among C fair bits. That is the supremum over t of their Eq. (5), which their t_eps approaches
    from below: 0.4580 where their code gives 0.456. With a local delta, 2w stands for 2w(1 - delta_1) + delta_1.
    More than 2048 different budgets are pooled at their means. A lattice is ignored.
    Raises OutOfRangeError unless 0 < delta < 1, n >= 2 and the randomizer is one of those known.
    """
    need_delta(delta)
    need_users(budgets)
    others = Pools.of(budgets, all_but_last(budgets))
    local, spent = float(budgets.local_epsilon[-1]), float(budgets.local_delta[-1])
    spent = spent if randomizer.spends_local_delta else 0.0
    if randomizer.kind not in _ERRORS:
        raise OutOfRangeError(f"randomizer {randomizer.name}; valid: {', '.join(_ERRORS)}")
    p = _ERRORS[randomizer.kind](randomizer, np.append(others.mean, local), np.append(others.local_delta, spent))
    hidden = 2 * float(p[-1]) * (1 - spent) + spent
    # F = 1 + (e^eps - 1)/(1 - 2w); a local epsilon of 500 shows the bit.
    shown = among_clones(500.0, 2 * p[:-1], others.count)

    def delta_at(epsilon: float) -> float:
        inner = math.log1p(math.expm1(epsilon) / (1 - hidden)) if hidden < 1 else 500.0
        return (1 - hidden) * shown.estimate(inner)

    return solve(delta_at, delta, local, 5 * (1 - hidden) / math.sqrt(shown.mean + 1))
