"""The clones: FMT22 in closed form and evaluated, and the pair with a leftover part (FMT23, variation ratio).

The clone pair of a victim of local epsilon v among C clones is a bit of local epsilon v among C fair bits, so that the
blanket bound of bits is its divergence; only the law of C differs from paper to paper. The leftover pair gives the
victim a third answer, which is not the value of any user; no theorem supports it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from flint import arb

from croupier.accountant.bounds.blanket import FiniteBlanket, grouped
from croupier.accountant.budgets import Budgets
from croupier.accountant.kernel import BITS
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.numerics.binomial import UNIT, Floats, Ints, binomial_pmf, half_tail
from croupier.accountant.numerics.tail_radii import bernstein_radius
from croupier.accountant.published.validity import largest_budget, need, need_delta, need_users, solve
from croupier.protocol.codes import ProofStep
from croupier.protocol.statements import Statement

MAX_DISTINCT = 2048
"""More distinct budgets than this are pooled first."""
POOL_WIDTH = 0.05
"""In local epsilon. A pool at its geometric mean loses at most width^2/8 of its clones."""
MAX_SEEN = 4096
"""Longer sums over the number of messages seen are taken at every few of them (no certificate rests on that one)."""


@dataclass(frozen=True, eq=False)
class Pools:
    """Users of nearly the same local epsilon taken together: arrays of shape (P,), sorted; a pool of one tier is exact.

    low <= mean <= high bound and average the local epsilons of a pool, local_delta is its largest, count its users.
    """

    low: Floats
    mean: Floats
    high: Floats
    local_delta: Floats
    count: Ints

    @classmethod
    def of(cls, budgets: Budgets, count: Ints) -> Pools:
        """`count` users of each tier of `budgets`, int64 (T,), >= 0; up to MAX_DISTINCT tiers are not pooled at all."""
        epsilons, deltas = budgets.local_epsilon, budgets.local_delta
        if epsilons.size <= MAX_DISTINCT:
            used = count > 0
            exact = epsilons[used]
            return cls(exact, exact, exact, deltas[used], count[used])
        span = float(epsilons[-1] - epsilons[0])
        pools = int(np.clip(span / POOL_WIDTH, 1, MAX_DISTINCT))
        edges = np.searchsorted(epsilons, epsilons[0] + span / pools * np.arange(pools))
        starts = np.unique(edges[edges < epsilons.size])
        size = np.add.reduceat(count, starts)
        low, high = epsilons[starts], epsilons[np.append(starts[1:], epsilons.size) - 1]
        total = np.add.reduceat(epsilons * count, starts)
        # A sum of T terms of one sign has a relative error of at most T/2 ulp; a larger mean is the safe side.
        mean = np.clip(total / np.maximum(size, 1) * (1 + (16 + epsilons.size) * UNIT), low, high)
        used = size > 0
        worst = np.maximum.reduceat(deltas, starts)
        return cls(low[used], mean[used], high[used], worst[used], size[used])

    def geometric_mean(self, log: Callable[[Floats], Floats]) -> Floats:
        """A lower bound on the geometric mean of e^log(epsilon) over each pool, for a concave and decreasing log.

        By the chord, which a concave function lies above. Not rounded in any direction.
        """
        width = self.high - self.low
        share = np.divide(self.mean - self.low, width, out=np.zeros_like(width), where=width > 0)
        return np.asarray(np.exp((1 - share) * log(self.low) + share * log(self.high)))


def among_clones(local: float, probability: Floats, count: Ints) -> FiniteBlanket:
    """Returns the curve of a bit of this local epsilon among C ~ PB(probability_t with multiplicity count_t) fair bits.

    probability: float64 (T,), in [0, 1], good to 16 ulp. count: int64 (T,), >= 1.
    """
    lowered = (probability * (1 - 32 * UNIT)).tolist()
    weights = [(arb(p), n) for p, n in zip(lowered, count.tolist(), strict=True) if p > 0]
    return FiniteBlanket(grouped(weights), local, BITS, Statement.of(ProofStep.NO_BLANKET, randomizer="clones"))


def all_but_last(budgets: Budgets) -> Ints:
    """The multiplicities of the other users when the victim has the largest budget. int64 (T,), >= 0."""
    count = budgets.count.copy()
    count[-1] -= 1
    return count


def fmt22_closed_form(budgets: Budgets, delta: float) -> float:
    """Feldman, McMillan, Talwar 2021, Theorem 3.1, every user taken at the largest local epsilon eps0; replace-one.

    ln(1 + (e^eps0 - 1)/(e^eps0 + 1) (8 sqrt(e^eps0 ln(4/delta)/n) + 8 e^eps0/n)). Never below the truth where a report
    of another user contains a clone of the victim's with probability e^-eps0: for equal pure budgets, and for
    randomised response of any.
    Raises OutOfRangeError unless the budgets are pure, 0 < delta < 1 and eps0 <= ln(n/(16 ln(4/delta))).

    The paper has ln(2/delta) in the condition and ln(4/delta) in the bound; the stricter condition is taken.
    """
    need_delta(delta)
    local, n = largest_budget(budgets)
    limit = n / (16 * math.log(4 / delta))
    need(limit > 1 and local <= math.log(limit), f"local epsilon {local:g}", "at most ln(n/(16 ln(4/delta)))")
    root = 8 * math.sqrt(math.exp(local) * math.log(4 / delta) / n)
    return math.log1p(math.tanh(local / 2) * (root + 8 * math.exp(local) / n))


def fmt22_numeric(budgets: Budgets, delta: float) -> float:
    """The clone pair of the same paper, evaluated: C ~ Bin(n-1, e^-eps0), every user at the largest local epsilon.

    Never below that pair, hence as `fmt22_closed_form` never below the truth; at most eps0.
    Raises OutOfRangeError unless the budgets are pure, 0 < delta < 1 and n >= 2.
    """
    need_delta(delta)
    local, n = largest_budget(budgets)
    need_users(budgets)
    curve = among_clones(local, np.array([math.exp(-local)]), np.array([n - 1], dtype=np.int64))
    return curve.smallest_epsilon(delta, local).epsilon


def leftover_clones_delta(alpha: float, local: float, n: int, epsilon: float) -> float:
    """Returns delta of the pair with a leftover part (Feldman et al. 2023; Wang et al. 2023, "variation ratio").

    Not a guarantee.

    The victim shows its own value with probability alpha e^v, the other with alpha, and otherwise nothing, among
    C ~ Bin(n-1, 2 alpha) fair clones. With t messages seen, c_j = Pr[C = j], q = alpha (e^v + 1), E = e^eps,
    rho = c_t/c_(t-1), slope = alpha (e^v - 1)(1 + E) and excess = alpha (e^v - E) - (E - 1)(1 - q) rho/2, the sum over
    the split of t has its threshold at a = t - ceil(t excess/slope) + 1 and is

        c_(t-1) ( Pr[Bin(t-1, 1/2) = a-1] excess - Pr[Bin(t-1, 1/2) >= a] (E - 1)(q + (1 - q) rho) ).

    0 < alpha <= 1/(1 + e^v), v = local in (0, 500], epsilon >= 0. Good to about ten digits; where more than MAX_SEEN
    values of t matter, every few of them stand for their neighbours. Raises OutOfRangeError for an alpha or n outside.
    """
    up, gain, growth = math.exp(local), math.exp(epsilon), math.expm1(epsilon)
    need(0 < alpha <= (1 + 1e-12) / (1 + up), f"alpha {alpha:g}", "0 < alpha <= 1/(1 + e^eps0)")
    need(n >= 2, f"{n} users", "at least 2 users")
    shown = alpha * (up + 1)
    nothing = 1 - shown if shown < 1 - 1e-12 else 0.0
    chance = min(2 * alpha, 1 - 1e-15)
    mean, variance = (n - 1) * chance, (n - 1) * chance * (1 - chance)
    reach = bernstein_radius(variance, 92.0)  # a mass of 1e-40 on each side
    low, high = max(1, math.floor(mean - reach)), min(n, math.ceil(mean + reach) + 1)
    stride = -(-(high - low + 1) // MAX_SEEN)
    seen = np.arange(low + stride // 2, high + 1, stride, dtype=np.int64)
    rho = (n - seen) / seen * (chance / (1 - chance))
    excess = alpha * (up - gain) - growth * nothing * rho / 2
    slope = alpha * math.expm1(local) * (1 + gain)
    matters = excess > 0
    seen, rho, excess = seen[matters], rho[matters], excess[matters]
    threshold = seen - np.ceil(seen * (excess / slope)).astype(np.int64) + 1
    head = binomial_pmf(threshold - 1, seen - 1, 0.5) * excess
    rest = half_tail(threshold, seen - 1) * growth * (shown + nothing * rho)
    weight = binomial_pmf(seen - 1, n - 1, chance) * stride
    return float(weight @ np.maximum(head - rest, 0.0))


def leftover_clones(budgets: Budgets, randomizer: Randomizer, delta: float) -> float:
    """Returns epsilon of that pair, every user at the largest local epsilon v, at most v. Refuted for k-RR.

    alpha = beta/(e^v - 1), beta being the total variation of the randomizer: the mass that the blanket leaves, where it
    is known (for k-RR this makes alpha 1/(e^v + k - 1)), else the largest that v allows.
    Raises OutOfRangeError unless the budgets are pure, 0 < delta < 1 and n >= 2.
    """
    need_delta(delta)
    local, n = largest_budget(budgets)
    need_users(budgets)
    alpha = 1 / (1 + math.exp(local))
    mass = randomizer.least_mass(local)
    if mass is not None:
        alpha = min(alpha, (1 - mass) / math.expm1(local))
    variation = alpha * math.expm1(local)
    first = 5 * variation / math.sqrt(2 * alpha * n)  # 5 standard deviations of the Gaussian limit
    return solve(lambda epsilon: leftover_clones_delta(alpha, local, n, epsilon), delta, local, first)
