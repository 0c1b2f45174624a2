"""The exchange bound for bits and for randomizers that reduce to bits: rr, onebit, krr with two values, hemisphere.

All honest others are hosts, of two kinds: a host agrees with the victim's first value or does not. The first host whose
clock rings reports a fair bit instead of its own; the others keep their residual noise. The formulas are those of
docs/paper, section 2, in forms without cancellation, with the error of every step (section 3). The theorem and the
integral are in `exchange`. The bound does not cover the sequential order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from croupier.accountant.bounds.blanket import honest
from croupier.accountant.bounds.exact_binary import bit_probabilities, shown_alone
from croupier.accountant.bounds.exchange import ExchangeProfile, HostSums, horizon
from croupier.accountant.bounds.least import MANY_POINTS, ChordProfile
from croupier.accountant.bounds.profile import UNDERFLOW, Curve, NoAmplification, Others, Victim
from croupier.accountant.numerics.binomial import UNIT, Floats, Ints
from croupier.accountant.numerics.clock_stages import stages
from croupier.accountant.numerics.gaussian import gaussian_epsilon
from croupier.accountant.numerics.groups import group_starts
from croupier.accountant.privacy_curve import Bounded
from croupier.protocol.codes import ProofStep
from croupier.protocol.statements import Statement

MAX_TIERS = 64
"""More budgets of hosts than this are rounded up into this many groups: time grows with them, and 64 lose 0.01 %."""
MOST_SPENT = 0.3
"""The largest part of its rarer answer that a host may give to the blanket: more leaves it little noise of its own."""


@dataclass(frozen=True, eq=False)
class _Hosts:
    """keep, flip = p, q = e^v/(1+e^v), 1/(1+e^v) for each tier's budget v; count: users. float64 (T,)."""

    local_epsilon: Floats
    count: Floats
    keep: Floats
    flip: Floats

    @property
    def variance(self) -> float:
        """The sum of p q over all hosts."""
        return float((self.count * self.keep * self.flip).sum())

    def after(self, time: float) -> _Hosts:
        """Returns RR at least as truthful as the hosts' residual law, no clock having rung by then; time <= most_time.

        Section 2, "Weights": flip q(1 - s p), s(1 - s) >= time/(2 variance), and clocks of the rates p q / variance of
        the result.
        """
        need = time / (2 * self.variance) * (1 + 1e-9)
        spent = 2 * need / (1 + math.sqrt(1 - 4 * need))
        gain, loss = spent * self.flip, spent * self.keep
        return _Hosts(
            self.local_epsilon + np.log1p(gain) - np.log1p(-loss),
            self.count,
            self.keep * (1 + gain),
            self.flip * (1 - loss),
        )

    @property
    def most_time(self) -> float:
        """The largest horizon of the clocks: by then each host has given MOST_SPENT away."""
        return 2 * self.variance * MOST_SPENT * (1 - MOST_SPENT)


@dataclass(frozen=True, eq=False)
class _Stage:
    """The factors of one stage of the clocks, with weights alpha = p q / V, V the sum of p q over the hosts."""

    hosts: _Hosts
    drift: float
    """e^epsilon - 1."""
    gap: Floats
    """kappa (T, 2): p_v - e^epsilon q_v + (e^epsilon - 1) r, r = p for a host that agrees, q for one that does not."""

    @property
    def shares(self) -> Floats:
        """The share of every tier in the variance."""
        hosts = self.hosts
        return hosts.count * hosts.keep * hosts.flip / hosts.variance

    def over(self, theta: float, edges: Floats) -> Floats:
        """Returns upper bounds on ln |product| at theta (1 + ir) for all r of each cell, rounding included: (L,)."""
        rounding = (64 + self.hosts.count.size) * UNIT
        exponents, shifts, terms = self.exponents(np.array([theta]))
        factor = (exponents[:, 0, :, None] + self._drop(shifts[:, 0], edges, rounding)).max(1)
        error = float((terms * (4 + shifts.max((1, 2))) * rounding).max()) + 64 * UNIT
        total: Floats = self.shares @ factor + self.shares @ np.abs(factor) * (4 * rounding) + error
        return total

    def _drop(self, shift: Floats, edges: Floats, rounding: float) -> Floats:
        """Returns upper bounds on ln(|phi(z)| / phi(theta)) V / (p q) over every cell, (T, 2, L), for shift (T, 2).

        |phi(z)|^2 / phi(theta)^2 = 1 - sin^2(r shift / 2) / cosh^2((shift +- v) / 2), both factors rounded down.
        """
        hosts = self.hosts
        v = hosts.local_epsilon[:, None]
        height = 1 / np.cosh(np.minimum((shift + v * np.array([1.0, -1.0])) / 2, 350.0)) ** 2
        height *= 1 - np.minimum(1.0, (4 + shift.max(1)[:, None] + v) * rounding)
        angle = edges / 2 * shift[:, :, None]
        sine = np.maximum(np.abs(np.sin(angle)) - angle * rounding, 0.0)
        turns = np.floor(angle / math.pi)
        least = np.where(turns[..., 1:] == turns[..., :-1], np.minimum(sine[..., 1:], sine[..., :-1]), 0.0)
        half_rate = hosts.variance / (2 * hosts.keep * hosts.flip) * (1 - rounding)
        logarithm: Floats = np.log1p(-height[:, :, None] * least * least) * half_rate[:, None, None]
        return logarithm

    def exponents(self, theta: Floats) -> tuple[Floats, Floats, Floats]:
        """Returns three arrays for each tier, theta (n,) and kind of host, T x n x 2.

        They are ln phi(theta) V / (p q); the shift theta kappa / V; and the size of the terms of the former, (T,).
        """
        hosts = self.hosts
        theta = theta[:, None]
        shift = theta * (self.gap[:, None, :] / hosts.variance)
        up = np.stack([hosts.keep, hosts.flip], axis=1)[:, None, :]
        down = up[:, :, ::-1]
        growth = up * _excess(shift * down) + down * _excess(-shift * up)
        gain = np.log1p(growth) * (hosts.variance / (hosts.keep * hosts.flip))[:, None, None]
        loss = self.drift * theta
        return gain - loss, shift, (gain + loss).max((1, 2))


def _excess(t: Floats) -> Floats:
    """Returns e^t - 1 - t >= 0, to 12 ulp: by a series near 0, where the difference would cancel."""
    near = np.abs(t) < 0.5
    small = np.where(near, t, 0.0)
    series: Floats = np.ones_like(small)
    for k in range(16, 2, -1):  # the first term left out is below 0.5^15 / 17! of the first, or 1e-19
        series = 1 + series * small / k
    excess: Floats = np.where(near, series * small * small / 2, np.expm1(t) - t)
    return excess


@dataclass(frozen=True, eq=False)
class BitSums(HostSums):
    """See `HostSums`: one row, and every stage with its own randomised response."""

    stages: tuple[_Stage, ...]

    @property
    def deviation(self) -> Floats:
        """See `HostSums`: the deviation of the first stage."""
        first = self.stages[0]
        return np.array([float(first.gap.max()) / math.sqrt(first.hosts.variance)])

    @property
    def largest_theta(self) -> float:
        """See `HostSums`: there is no limit."""
        return math.inf

    def at_rest(self, rows: Ints, theta: Floats) -> Floats:
        """See `HostSums`: the middle stage stands for all of them."""
        stage = self.stages[len(self.stages) // 2]
        total: Floats = stage.shares @ stage.exponents(theta[0])[0].max(-1)
        return total[None]

    def logarithms(self, theta: Floats, edges: Floats) -> Floats:
        """See `HostSums`."""
        return np.stack([stage.over(float(theta[0]), edges[0]) for stage in self.stages])[None]


@dataclass(frozen=True, eq=False)
class ExchangeBinaryProfile(ExchangeProfile):
    """The exchange bound of a victim among hosts (one at least)."""

    step: ClassVar[float] = 0.004
    hosts: _Hosts

    def guess(self, delta: float) -> float:
        """The Gaussian limit: mu^2 = tanh^2(v/2) / (sum of p q)."""
        return gaussian_epsilon(math.tanh(self.local_epsilon / 2) / math.sqrt(self.hosts.variance), delta)

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """See `PrivacyProfile`."""
        hosts = self.hosts
        return (
            Statement.of(ProofStep.HOSTS, users=int(hosts.count.sum()), tiers=hosts.count.size),
            Statement.of(ProofStep.HOST_VARIANCE, variance=hosts.variance),
            Statement.of(ProofStep.CLOCKS, horizon=self.horizon),
        )

    def to_compose(self, delta: float, ceiling: float) -> Curve:
        """See `Curve.to_compose`: many chords."""
        return ChordProfile(self, delta, ceiling, MANY_POINTS)

    def _alone(self, epsilon: float) -> Bounded:
        """p_v - e^epsilon q_v, rounded up."""
        value = shown_alone(self.local_epsilon, epsilon)
        return Bounded(min(1.0, value + UNDERFLOW), min(1.0, value * 8 * UNIT + UNDERFLOW))

    def sums(self, epsilon: float) -> BitSums:
        """Returns the sums over the hosts in every stage of their clocks, for one victim."""
        decay, growth = math.exp(-self.local_epsilon), math.expm1(epsilon)
        head = -math.expm1(epsilon - self.local_epsilon) / (1 + decay)  # p_v - e^epsilon q_v
        ends, log_mass = stages(self.horizon)
        parts = []
        for end in ends.tolist():
            hosts = self.hosts.after(end)
            parts.append(_Stage(hosts, growth, head + growth * np.stack([hosts.keep, hosts.flip], axis=1)))
        hosts = parts[0].hosts
        weights = (hosts.keep * hosts.flip / hosts.variance)[None]
        return BitSums(hosts.count, weights, log_mass[None], np.array([-growth]), tuple(parts))


def exchange_binary_profile(
    victim: Victim, others: Others, delta: float | None
) -> ExchangeBinaryProfile | NoAmplification:
    """Returns the exchange bound for a victim among the others, or the reason why there is none.

    The f dishonest users are those of the f smallest budgets, the hosts' budgets are rounded up, and the victims of a
    span get its upper end. Each of these is at least as bad as the truth, because randomised response with a smaller
    budget is a mixture of those with a larger one (docs/paper). delta decides how long the clocks run.
    """
    epsilons, count = others.once(_rounded_up, _rounded_up)
    if epsilons.size == 0:
        return NoAmplification(Statement.of(ProofStep.NO_OTHERS))
    hosts = _Hosts(epsilons, count.astype(np.float64), *bit_probabilities(epsilons))
    return ExchangeBinaryProfile(victim.local_epsilon, horizon(delta, hosts.most_time), hosts)


def _rounded_up(others: Others) -> tuple[Floats, Ints]:
    """Returns the budgets without the smallest ones, at most MAX_TIERS, rounded up ("The other users", section 2)."""
    epsilons, count = honest(others)
    if epsilons.size == 0:
        return epsilons, count
    keep, flip = bit_probabilities(epsilons)
    first = group_starts(-keep * flip, count, MAX_TIERS)  # a group loses about its users times its width in p q
    return epsilons[np.append(first[1:], epsilons.size) - 1], np.add.reduceat(count, first)
