"""The exchange bound for Laplace noise on a lattice, as deployments draw it, from the bound for continuous noise.

Noise on a lattice is continuous noise rounded to it, except with a small probability that it is 0. By that the victim
shows a little more and a host everything (docs/paper, section 5, "On a lattice").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from croupier.accountant.bounds.exchange import TUNING_DELTA, UNHEARD
from croupier.accountant.bounds.profile import Curve, Others
from croupier.accountant.numerics.binomial import UNIT
from croupier.accountant.numerics.inversion import Inverse
from croupier.accountant.privacy_curve import Bounded, Proof
from croupier.accountant.ranges import check_epsilon
from croupier.protocol.codes import ProofStep
from croupier.protocol.statements import Statement


@dataclass(frozen=True, eq=False)
class ExchangeLatticeProfile(Curve):
    """The bound for noise on a lattice that follows from one for continuous noise. See `PrivacyProfile`."""

    continuous: Curve
    """The curve of continuous noise with `most_shown` hosts fewer."""
    local_epsilon: float
    """The victim's local budget, or the largest of its span; delta is 0 from there on."""
    steps: int
    """The number of steps of the lattice from 0 to 1."""
    most_shown: int
    """The number of hosts that show their value, except with probability `shown`."""
    shown: float
    """The probability that more than `most_shown` hosts show their value."""

    @property
    def method(self) -> Proof:
        """See `PrivacyProfile`."""
        return self.continuous.method

    def to_compose(self, delta: float, ceiling: float) -> Curve | None:
        """See `Curve.to_compose`: the form for continuous noise, on the lattice."""
        continuous = self.continuous.to_compose(delta, ceiling)
        return None if continuous is None else replace(self, continuous=continuous)

    @cached_property
    def log_ratio(self) -> float:
        """The logarithm of (1 + e^(v/(2 steps)))/2, rounded up."""
        return math.log1p(math.expm1(self.local_epsilon / (2 * self.steps)) / 2) * (1 + 16 * UNIT)

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        if epsilon >= self.local_epsilon:
            return Bounded(0.0, 0.0)
        left = (epsilon - self.log_ratio) * (1 - 4 * UNIT)
        if left < 0:  # only if E' < 1: H_E' <= H_1 + 1 - E'
            return self._raised(self.continuous.delta(0.0), -math.expm1(left * (1 + 8 * UNIT)))
        return self._raised(self.continuous.delta(left))

    def _raised(self, bound: Bounded, more: float = 0.0) -> Bounded:
        value = math.exp(self.log_ratio) * (bound.value + more) * (1 + 8 * UNIT) + self.shown
        return Bounded(min(1.0, value), min(1.0, value, value - bound.value + bound.slack))

    def smallest_epsilon(self, delta: float, ceiling: float, *, floor: float = 0.0) -> Inverse:
        """See `Curve.smallest_epsilon`."""
        target = (delta - self.shown) * math.exp(-self.log_ratio) * (1 - 16 * UNIT)
        most = (ceiling - self.log_ratio) * (1 - 4 * UNIT)
        if target <= 0 or most <= 0:
            return Inverse(ceiling, None, 0)
        lowest = min(most, max(0.0, floor - self.log_ratio))
        inverse = self.continuous.smallest_epsilon(target, most, floor=lowest)
        if inverse.reached is None:
            return replace(inverse, epsilon=ceiling)
        epsilon = (inverse.epsilon + self.log_ratio) * (1 + 4 * UNIT)
        return Inverse(min(ceiling, epsilon), self._raised(inverse.reached), inverse.evaluations)

    def guess(self, delta: float) -> float:
        """Returns the guess for continuous noise plus the cost of the lattice."""
        target = (delta - self.shown) * math.exp(-self.log_ratio)
        return self.local_epsilon if target <= 0 else self.continuous.guess(target) + self.log_ratio

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """See `PrivacyProfile`."""
        added, chance = self.log_ratio, self.shown
        line = Statement.of(ProofStep.ON_LATTICE, lattice=self.steps, added=added, shown=self.most_shown, chance=chance)
        return (*self.continuous.explain(), line)


def on_lattice(
    make: Callable[[Others], Curve],
    victim: float,
    others: Others,
    steps: int,
    delta: float | None,
) -> Curve:
    """Returns the bound for noise on multiples of 1/steps.

    Args:
        make: returns the bound for continuous noise, for a victim among others.
        victim: the local epsilon, or the largest of a span.
        others: the other users.
        steps: of the lattice, at least 1.
        delta: the target, or None if it is unknown.
    """
    most, chance = most_unhidden(others, steps, UNHEARD * (TUNING_DELTA if delta is None else delta))
    fewer = replace(others, dishonest=others.dishonest + most)
    continuous = make(fewer)
    if continuous.no_bound is not None:
        return continuous
    return ExchangeLatticeProfile(continuous, victim, steps, most, chance)


def most_unhidden(others: Others, steps: int, target: float) -> tuple[int, float]:
    """Returns a number of others and the probability, about `target` at most, that more than these show their value.

    Each shows it with probability 1 - 1/cosh(y) <= y^2/2, y = its budget/(2 steps), independently. By Chernoff at least
    k do with probability at most e^(k - mean) (mean/k)^k, k >= mean.
    """
    each = np.minimum(1.0, (others.local_epsilon / (2 * steps)) ** 2 / 2)
    mean = float(others.count @ each) * (1 + 1e-9) + 5e-324
    number = int(others.count.sum())

    def log_chance(k: int) -> float:
        return k - mean + k * math.log(mean / k)

    k = max(1, math.ceil(mean))
    while k <= number and log_chance(k) > math.log(target):
        k += max(1, math.isqrt(k) // 4)  # a quarter of a standard deviation
    if k > number:
        return number, 0.0
    return k - 1, math.exp(log_chance(k) * (1 - 1e-12) + 1e-12)
