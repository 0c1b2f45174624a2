"""The exchange bound for bits and for what reduces to bits: rr, onebit, krr with two values, hemisphere.

All honest others are hosts, in two kinds: a host agrees with the victim's first value or not. One of them, the first
whose clock rings, reports a fair bit instead of its own; the others keep what their clocks leave of their own noise.
The formulas are those of docs/exchange-bound.md, in forms without cancellation, with the error of every step. The
theorem itself, and the integral, are left to `exchange`. Not for the sequential order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from croupier.accountant.bounds.exact_binary import bit_probabilities, shown_alone
from croupier.accountant.bounds.exchange import FEW_STAGES, MANY_STAGES, ExchangeProfile, StagedProduct, horizon, stages
from croupier.accountant.bounds.profile import UNDERFLOW, Bounded, NoAmplification, Others, Victim
from croupier.accountant.numerics.binomial import UNIT, Floats, Ints
from croupier.accountant.numerics.count_law import without_largest
from croupier.accountant.numerics.gaussian import gaussian_epsilon
from croupier.protocol.codes import Step
from croupier.protocol.statements import Statement, state

__all__ = ["ExchangeBinaryProfile", "exchange_binary_profile"]

MAX_TIERS, MAX_SPAN_TIERS = 16, 64
"""More budgets of hosts than this are rounded up into this many groups; the second where few victims speak for all."""
MAX_BUDGETS = 4096
"""More budgets of others than this are rounded up to this many before anything else."""
MOST_SPENT = 0.3
"""What part of its rarer answer a host may give to the blanket, at most."""


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
        """RR at least as truthful as what is left of theirs when no clock rang until then; time <= most_time.

        With flip q(1 - s p), s(1 - s) >= time/(2 variance), and clocks of the rates p q / variance of the result.
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
        """Until when the clocks may run: then each has given MOST_SPENT away."""
        return 2 * self.variance * MOST_SPENT * (1 - MOST_SPENT)


@dataclass(frozen=True, eq=False)
class _BitProduct:
    """See `HostProduct`. With weights alpha = p q / V, V the sum of p q over the hosts."""

    hosts_: _Hosts
    drift: float
    """e^epsilon - 1."""
    gap: Floats
    """kappa (T, 2): p_v - e^epsilon q_v + (e^epsilon - 1) r, r = p for a host that agrees, q for one that does not."""

    @property
    def hosts(self) -> float:
        """See `HostProduct`."""
        return self.hosts_.variance

    @property
    def deviation(self) -> float:
        """See `HostProduct`."""
        return float(self.gap.max()) / math.sqrt(self.hosts_.variance)

    def at(self, theta: Floats) -> Floats:
        """See `HostProduct`."""
        exponent, _, _ = self._exponents(theta)
        total: Floats = self._shares @ exponent.max(-1)
        return total

    def over(self, theta: float, edges: Floats, bulk: int) -> tuple[Floats, float]:
        """See `HostProduct`."""
        rounding = (64 + self.hosts_.count.size) * UNIT
        exponents, shifts, terms = self._exponents(np.array([theta]))
        if not math.isfinite(float(terms.max())):
            return np.full(edges.size - 1, math.inf), math.inf
        factor = (exponents[:, 0, :, None] + self._drop(shifts[:, 0], edges, rounding)).max(1)
        total, size = self._shares @ factor, self._shares @ np.abs(factor)
        error = float((terms * (4 + shifts.max((1, 2))) * rounding).max())
        return total + size * (4 * rounding), error + UNIT * 64

    def _drop(self, shift: Floats, edges: Floats, rounding: float) -> Floats:
        """Upper bounds on ln(|phi(z)| / phi(theta)) V / (p q) over every cell, (T, 2, L), for shift (T, 2).

        |phi(z)|^2 / phi(theta)^2 = 1 - sin^2(r shift / 2) / cosh^2((shift +- v) / 2), both factors taken from below.
        """
        hosts = self.hosts_
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

    @property
    def _shares(self) -> Floats:
        hosts = self.hosts_
        return hosts.count * hosts.keep * hosts.flip / hosts.variance

    def _exponents(self, theta: Floats) -> tuple[Floats, Floats, Floats]:
        """For each tier, theta (n,) and both kinds of host, T x n x 2.

        Returns ln phi(theta) V / (p q); the shift theta kappa / V; and the size of the terms of the former, (T,).
        """
        hosts = self.hosts_
        theta = theta[:, None]
        shift = theta * (self.gap[:, None, :] / hosts.variance)
        up = np.stack([hosts.keep, hosts.flip], axis=1)[:, None, :]
        down = up[:, :, ::-1]
        growth = up * _excess(shift * down) + down * _excess(-shift * up)
        gain = np.log1p(growth) * (hosts.variance / (hosts.keep * hosts.flip))[:, None, None]
        loss = self.drift * theta
        return gain - loss, shift, (gain + loss).max((1, 2))


def _excess(t: Floats) -> Floats:
    """e^t - 1 - t >= 0, to 12 ulp: a series near 0, where the difference would cancel."""
    near = np.abs(t) < 0.5
    small = np.where(near, t, 0.0)
    series: Floats = np.ones_like(small)
    # The first term left out is below 0.5^15 / 17! of the first, or 1e-19.
    largest = float(np.abs(small).max(initial=0.0))
    terms = next((k for k in range(4, 16) if largest ** (k - 1) / math.factorial(k + 1) < 5e-20), 16)
    for k in range(terms, 2, -1):
        series = 1 + series * small / k
    excess: Floats = np.where(near, series * small * small / 2, np.expm1(t) - t)
    return excess


@dataclass(frozen=True, eq=False)
class ExchangeBinaryProfile(ExchangeProfile):
    """The exchange bound of a victim among hosts (one at least)."""

    hosts: _Hosts

    def guess(self, delta: float) -> float:
        """The Gaussian limit: mu^2 = tanh^2(v/2) / (sum of p q)."""
        return gaussian_epsilon(math.tanh(self.local_epsilon / 2) / math.sqrt(self.hosts.variance), delta)

    def explain(self) -> tuple[Statement[Step], ...]:
        """See `PrivacyProfile`."""
        hosts = self.hosts
        return (
            state(Step.HOSTS, users=int(hosts.count.sum()), tiers=hosts.count.size),
            state(Step.HOST_VARIANCE, variance=hosts.variance),
            state(Step.CLOCKS, horizon=self.horizon),
        )

    @property
    def _step(self) -> float:
        return 0.005 if self.hosts.count.size <= 4 else 0.04

    def _alone(self, epsilon: float) -> Bounded:
        """p_v - e^epsilon q_v, rounded up."""
        value = shown_alone(self.local_epsilon, epsilon)
        return Bounded(min(1.0, value + UNDERFLOW), min(1.0, value * 8 * UNIT + UNDERFLOW))

    def _product(self, epsilon: float) -> StagedProduct:
        decay, growth = math.exp(-self.local_epsilon), math.expm1(epsilon)
        head = -math.expm1(epsilon - self.local_epsilon) / (1 + decay)  # p_v - e^epsilon q_v
        ends, log_mass = stages(self.horizon, MANY_STAGES if self.hosts.count.size <= 4 else FEW_STAGES)
        products = []
        for end in ends.tolist():
            hosts = self.hosts.after(end)
            products.append(_BitProduct(hosts, growth, head + growth * np.stack([hosts.keep, hosts.flip], axis=1)))
        return StagedProduct(tuple(products), log_mass)


def exchange_binary_profile(
    victim: Victim, others: Others, delta: float | None
) -> ExchangeBinaryProfile | NoAmplification:
    """The exchange bound for a victim among the others, or the reason why there is none.

    The f dishonest are the f of the smallest budgets, budgets of hosts are rounded up, and victims of a span are given
    its upper end: each is at least as bad as the truth, because randomised response with a smaller budget is a mixture
    of those with a larger one (docs/exchange-bound.md). delta decides how long the clocks run.
    """
    epsilons, count = others.once(_honest, _honest)
    if epsilons.size == 0:
        return NoAmplification(state(Step.NO_OTHERS))
    epsilons, weights = _merged(epsilons, count, MAX_TIERS if victim.span is None else MAX_SPAN_TIERS)
    hosts = _Hosts(epsilons, weights, *bit_probabilities(epsilons))
    return ExchangeBinaryProfile(victim.local_epsilon, horizon(delta, hosts.most_time), hosts)


def _honest(others: Others) -> tuple[Floats, Ints]:
    """The budgets without the smallest ones, at most MAX_BUDGETS of them, rounded up."""
    epsilons, count = _without_smallest(others.local_epsilon, others.count, others.dishonest)
    if epsilons.size <= MAX_BUDGETS:
        return epsilons, count
    place = (epsilons - epsilons[0]) / max(float(epsilons[-1] - epsilons[0]), 1e-300) * MAX_BUDGETS
    group = place.astype(np.int64)  # increasing, as the budgets are
    last = np.flatnonzero(np.append(group[1:] != group[:-1], True))
    return epsilons[last], np.diff(np.concatenate([[0], np.cumsum(count)[last]]))


def _without_smallest(epsilons: Floats, count: Ints, remove: int) -> tuple[Floats, Ints]:
    negated, left = without_largest(-epsilons, count, remove)
    return -negated, left


def _merged(epsilons: Floats, count: Ints, tiers: int) -> tuple[Floats, Floats]:
    """At most `tiers` budgets of users, every one rounded up: groups in which about the same is lost."""
    epsilons, count = epsilons[count > 0], count[count > 0]
    weights = count.astype(np.float64)
    if epsilons.size <= tiers:
        return epsilons, weights
    keep, flip = bit_probabilities(epsilons)
    value = keep * flip  # falls as the budget grows; a group loses about its users times its width
    share = (value[0] - value) / max(float(value[0] - value[-1]), 1e-16)  # all alike if they differ by rounding only
    bins = np.clip(share * 4096, 0, 4095).astype(np.int64)
    density = np.sqrt(np.bincount(bins, weights=weights, minlength=4096))
    before = np.cumsum(density) - density / 2
    group = np.minimum((before[bins] / density.sum() * tiers).astype(np.int64), tiers - 1)
    last = np.flatnonzero(np.append(group[1:] != group[:-1], True))
    total = np.diff(np.concatenate([[0.0], np.cumsum(weights)[last]]))
    return epsilons[last], total
