"""The exchange bound for reports that have one of finitely many values, likely and unlikely ones, as those of pgr.

All honest others are hosts: the first host whose clock rings reports a draw of the uniform blanket in place of its own
report. `kernel` says how another report's likely values may lie among the victim's, `exchange` proves the bound for all
of these kinds of hosts at once (docs/paper, section 7). It does not cover the sequential order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from flint import arb, ctx

from croupier.accountant import kernel
from croupier.accountant.bounds.blanket import honest
from croupier.accountant.bounds.exchange import horizon
from croupier.accountant.bounds.least import ChordProfile
from croupier.accountant.bounds.noise_sums import LONGEST, SPENT, spread
from croupier.accountant.bounds.profile import Curve, NoAmplification, Others, Victim
from croupier.accountant.bounds.proved import ProvedCurve
from croupier.accountant.exchange import Hosts, Path, exchange
from croupier.accountant.kernel import FiniteLaw, above
from croupier.accountant.numerics.binomial import Floats, Ints
from croupier.accountant.numerics.clock_stages import stages
from croupier.accountant.numerics.gaussian import gaussian_epsilon
from croupier.accountant.numerics.groups import group_starts
from croupier.accountant.privacy_curve import Bounded
from croupier.accountant.ranges import check_epsilon
from croupier.protocol.codes import Method, ProofStep
from croupier.protocol.statements import Statement

MAX_GROUPS = 16
"""More budgets of hosts than this are rounded up into this number of groups: time grows with them."""
BULK, CELLS, WIDER, MORE_CELLS = 7.0, 160, 1.06, 65
"""The number of cells up to BULK deviations of the integrand, and of those beyond, each wider by a factor."""
SMOOTHING = 0.02
"""Deviation of the Gaussian that is added to the sum, as a part of the sum's own."""
PLACES = np.exp(np.linspace(-3.0, 3.0, 61)), np.exp(np.linspace(-0.1, 0.1, 11))


@dataclass(frozen=True, eq=False)
class FiniteExchange(ProvedCurve):
    """The exchange bound of a victim among hosts (one at least). See `PrivacyProfile`."""

    proved_by: ClassVar[Method] = Method.EXCHANGE
    law: FiniteLaw
    local_epsilon: float
    """The victim's local budget; delta is 0 from there on."""
    budgets: Floats
    """Local budgets of the hosts, (T,)."""
    count: Ints
    target: float | None
    """The delta that decides how long the clocks run."""

    @cached_property
    def _weights(self) -> tuple[Floats, float]:
        """The rates of the hosts' clocks, which add up to 1, and the time at which they stop."""
        gamma = np.array([float(self.law.gamma(arb(v))) for v in self.budgets.tolist()])
        count = self.count.astype(np.float64)
        until = horizon(self.target, float(gamma @ count) * LONGEST)
        second = np.array([max(_moments(kind)[1] for kind in kinds) for kinds in self._kinds(0.0, None)])
        return spread(1 / second, count, gamma * (SPENT / until)), until

    @cached_property
    def _hosts(self) -> list[Hosts]:
        rates = self._weights[0].tolist()
        tiers = zip(self.count.tolist(), rates, self.budgets.tolist(), strict=True)
        return [Hosts(count, arb(rate), arb(budget)) for count, rate, budget in tiers]

    def _kinds(self, epsilon: float, time: float | None) -> list[list[tuple[Floats, Floats]]]:
        """Returns the laws of X of every tier in floats, if no clock has rung by this time."""
        rates = np.zeros(self.budgets.size) if time is None else self._weights[0]
        kinds = []
        for budget, rate in zip(self.budgets.tolist(), rates.tolist(), strict=True):
            rung = -math.expm1(-rate * (time or 0.0))
            laws = self.law.kinds(arb(self.local_epsilon), arb(epsilon), arb(budget), arb(rung))
            kinds.append(
                [(np.array([float(w) for w, _ in a.atoms]), np.array([float(x) for _, x in a.atoms])) for a in laws]
            )
        return kinds

    def _path(self, epsilon: float) -> Path:
        """Returns where the integral should be evaluated."""
        rates, until = self._weights
        kinds = self._kinds(epsilon, min(1.0, until / 2))
        means, seconds = zip(
            *(max((_moments(kind) for kind in tier), key=lambda m: m[1]) for tier in kinds), strict=True
        )
        deviation = math.sqrt(float(self.count @ (rates**2 * (np.array(seconds) - np.array(means) ** 2))))
        drift = math.expm1(epsilon)
        theta = np.float64((drift + math.hypot(drift, math.sqrt(8) * deviation)) / (2 * deviation**2))
        for places in PLACES:
            tried = theta * places
            height = -2 * np.log(tried)
            with np.errstate(over="ignore", invalid="ignore"):
                for number, rate, tier in zip(self.count.tolist(), rates.tolist(), kinds, strict=True):
                    logs = [np.log(np.exp(rate * np.multiply.outer(tried, x)) @ w) for w, x in tier]
                    height = height + number * np.max(logs, axis=0)
            theta = tried[int(np.argmin(np.nan_to_num(height, nan=np.inf)))]
        bulk = np.linspace(0.0, BULK, CELLS + 1)[1:]
        edges = np.concatenate([bulk, BULK * WIDER ** np.arange(1, MORE_CELLS + 1)]) / (theta * deviation)
        return Path(float(theta), SMOOTHING * deviation, edges.tolist(), stages(until)[0].tolist())

    def estimate(self, epsilon: float) -> float:
        """See `ProvedCurve`."""
        if epsilon >= self.local_epsilon:
            return 0.0
        path, rates = self._path(epsilon), self._weights[0]
        r = np.concatenate([[0.0], path.edges])
        masses = -np.diff(np.exp(-np.concatenate([[0.0], path.ends])))
        total = 0.0
        with np.errstate(all="ignore"):
            for mass, end in zip(masses.tolist(), path.ends, strict=True):
                logarithm = np.zeros(r.size)
                for number, rate, tier in zip(
                    self.count.tolist(), rates.tolist(), self._kinds(epsilon, end), strict=True
                ):
                    z = path.theta * rate * (1 + 1j * r)
                    logs = [np.log(np.abs(np.exp(np.multiply.outer(z, x)) @ w)) for w, x in tier]
                    logarithm = logarithm + number * np.max(logs, axis=0)
                total += mass * float(np.diff(r) @ (np.exp(logarithm[:-1]) / (1 + r[:-1] ** 2)))
            alone = math.exp(-path.ends[-1]) * above(self.law.alone(arb(self.local_epsilon), arb(epsilon)))
            value = total * math.exp((path.theta * path.sigma) ** 2 / 2) / (math.pi * path.theta) + alone
        return min(1.0, value) if value == value else 1.0

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        if epsilon >= self.local_epsilon:
            return Bounded(0.0, 0.0)
        with ctx.workprec(kernel.precision_for(self.local_epsilon)):
            v, at = arb(self.local_epsilon), arb(epsilon)
            bound = exchange(self.law, self._hosts, v, at, self._path(epsilon))
            value = min(1.0, above(bound), above(self.law.alone(v, at)))
        return Bounded(value, min(value, above(2 * bound.rad())))

    def guess(self, delta: float) -> float:
        """The Gaussian limit with the largest deviation of the hosts' sum, at epsilon = 0."""
        rates = self._weights[0]
        seconds = np.array([max(_moments(kind)[1] for kind in tier) for tier in self._kinds(0.0, None)])
        return gaussian_epsilon(math.sqrt(float(self.count @ (rates**2 * seconds))), delta)

    def to_compose(self, delta: float, ceiling: float) -> Curve:
        """See `Curve.to_compose`: chords."""
        return ChordProfile(self, delta, ceiling)

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """See `PrivacyProfile`."""
        return (
            Statement.of(ProofStep.HOSTS, users=int(self.count.sum()), tiers=self.count.size),
            Statement.of(ProofStep.CLOCKS, horizon=self._weights[1]),
        )


def _moments(kind: tuple[Floats, Floats]) -> tuple[float, float]:
    chance, value = kind
    return float(chance @ value), float(chance @ value**2)


def finite_exchange(law: FiniteLaw, victim: Victim, others: Others, delta: float | None) -> Curve:
    """Returns the exchange bound of a victim among the others, or the reason why there is none.

    The f dishonest users are those of the f smallest budgets, and the victims of a span get its upper end: a report of
    a smaller budget is a mixture of those of a larger one.
    """
    epsilons, count = honest(others)
    if epsilons.size == 0:
        return NoAmplification(Statement.of(ProofStep.NO_OTHERS))
    first = group_starts(epsilons, count, MAX_GROUPS)
    budgets = epsilons[np.append(first[1:], epsilons.size) - 1]
    return FiniteExchange(law, victim.local_epsilon, budgets, np.add.reduceat(count, first), delta)
