"""The exchange bound for Laplace noise on values in [0, 1]: all pairs of values, all data, personal budgets.

All users whose budget is at most the victim's are hosts. They keep their own noise apart from a small part, which goes
to the common blanket omega, flat around [0, 1] and then proportional to e^(-a distance). The lemmas that reduce all
data to a few laws per budget, T1 to T5 and L1 to L3, are in docs/paper, section 5. The integral is in `exchange`, the
factors are in `noise_sums`, the laws in `laplace_laws`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from croupier.accountant.bounds.exchange import horizon, rounded_up
from croupier.accountant.bounds.laplace_laws import family_of, second_moments
from croupier.accountant.bounds.least import ChordProfile
from croupier.accountant.bounds.noise_sums import LONGEST, Clocks, NoiseSums
from croupier.accountant.bounds.profile import UNDERFLOW, Curve, NoAmplification, Others, Victim
from croupier.accountant.bounds.spans import SpanProfile
from croupier.accountant.numerics.binomial import UNIT, Floats, Ints
from croupier.accountant.numerics.gaussian import gaussian_epsilon
from croupier.accountant.numerics.groups import group_starts
from croupier.accountant.privacy_curve import Bounded
from croupier.accountant.ranges import check_epsilon
from croupier.protocol.codes import Method, ProofStep
from croupier.protocol.statements import Statement

MAX_LOCAL_EPSILON = 30.0
"""Above this likelihood ratios leave the range in which they are evaluated, and there is no amplification either."""
MAX_TIERS, GROUPS = 8, 48
"""If the others have more budgets than the first number, these are put into as many groups as the second, and a
certificate takes some seconds. A group costs about its relative width."""
STEP = 0.02
"""See `NoiseSums.positive_parts`. Half of it takes twice the time, for less than 0.1 % of epsilon, or up to 1 % for a
delta of 10^-3."""
FIRST_PART = 0.03
"""The relative width of the first part of a span of victims, which loses the same fraction of its hosts."""
PLATEAUS = (0.5, 1.0)
"""The distances from the middle up to which the blanket may be flat. A blanket that is flat beyond the ends costs less
for small budgets among large ones; without it 9,000 x .01 + 1,000 x 5 are certified 15 % more."""


@dataclass(frozen=True, eq=False)
class ExchangeLaplaceProfile(Curve):
    """The exchange bound of a victim with Laplace noise."""

    proved_by: ClassVar[Method] = Method.EXCHANGE
    local_epsilon: float
    """The victim's local budget; delta is 0 from there on."""
    horizon: float
    """The time at which the hosts' clocks stop; the victim counts as exposed if none has rung by then."""
    rates: Floats
    """Budgets of the hosts, (T,): the largest of each group."""
    kept: Floats
    """The smallest budget of each group, in units of the largest."""
    count: Floats

    @classmethod
    def among(
        cls, victim: float, rates: Floats, kept: Floats, count: Floats, delta: float | None
    ) -> ExchangeLaplaceProfile:
        """Returns the bound with clocks that run until a horizon which these hosts can pay for."""
        curve = cls(victim, math.inf, rates, kept, count)
        return replace(curve, horizon=horizon(delta, float(curve.blanket @ count) * LONGEST))

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        if epsilon >= self.local_epsilon:
            return Bounded(0.0, 0.0)
        local = shown_by_noise(self.local_epsilon, epsilon)
        lost = math.exp(-self.horizon) * local.value * (1 + 64 * UNIT)
        value = float(self.sums(epsilon).positive_parts(STEP)[0]) + lost
        return rounded_up(value) if value < local.value else local

    @property
    def tolerance(self) -> float:
        """See `Curve.tolerance`: with many budgets every evaluation takes a tenth of a second or more."""
        return 1e-3 if self.count.size > MAX_TIERS else 1e-4

    def guess(self, delta: float) -> float:
        """The Gaussian limit, as if all hosts were at one of the victim's values, at epsilon = 0."""
        v, end = self.local_epsilon, np.zeros(1)
        second = np.concatenate([second_moments(v, 0.0, rate, end) for rate in self.rates.tolist()])
        return gaussian_epsilon(1 / math.sqrt(float(self.count @ (1 / second))), delta)

    @cached_property
    def blanket(self) -> Floats:
        """T4: gamma, (T,), for about the cheapest plateau of omega; any plateau is sound."""
        share = self.rates * np.exp(-self.rates)  # about in proportion to the weights
        tried = [gamma_of(self.rates, self.kept, m) for m in PLATEAUS]
        return min(tried, key=lambda gamma: float(self.count @ (share**2 / gamma)))

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """See `PrivacyProfile`."""
        return (
            Statement.of(ProofStep.HOSTS, users=int(self.count.sum()), tiers=self.count.size),
            Statement.of(ProofStep.CLOCKS, horizon=self.horizon),
        )

    def to_compose(self, delta: float, ceiling: float) -> Curve:
        """See `Curve.to_compose`: chords."""
        return ChordProfile(self, delta, ceiling)

    def sums(self, epsilon: float) -> NoiseSums:
        """Returns the sums of the laws of T3, thinned by the clocks (T4)."""
        families = tuple(
            family_of(self.local_epsilon, epsilon, rate, kept)
            for rate, kept in zip(self.rates.tolist(), self.kept.tolist(), strict=True)
        )
        drift = np.array([math.expm1(epsilon)])
        second = np.array([[float(family.largest_second(1)[0]) for family in families]])
        clocks = Clocks.of(self.count, self.blanket[None], second, np.array([self.horizon]))
        return NoiseSums(self.count, clocks.weights, clocks.log_mass, -drift, drift, clocks.left, families)


def gamma_of(rates: Floats, kept: Floats | float = 1.0, m: float = 0.5) -> Floats:
    """Returns gamma of T4, rounded down: a host's density is at least gamma omega for any value, omega flat to m.

    gamma = (e/2) (2m - 1 + 2/a) e^(-em), a the largest of the rates, is least at an end of a group [kept e, e].
    """
    area = 2 * m - 1 + 2 / float(rates.max())
    ends = [e / 2 * area * np.exp(-e * m) for e in (rates * kept, rates)]
    gamma: Floats = np.minimum(*ends) * (1 - 64 * UNIT)
    return gamma


def shown_by_noise(local_epsilon: float, epsilon: float) -> Bounded:
    """Returns the divergence of the victim's report alone, 1 - e^((epsilon - v)/2), rounded up; epsilon < v."""
    value = min(1.0, -math.expm1((epsilon - local_epsilon) / 2) * (1 + 8 * UNIT) + UNDERFLOW)
    return Bounded(value, min(value, value * 8 * UNIT + UNDERFLOW))


def exchange_laplace_profile(
    victim: Victim, others: Others, delta: float | None
) -> ExchangeLaplaceProfile | SpanProfile | NoAmplification:
    """Returns the exchange bound for a victim among the others, or for all victims of a span; or the reason for none.

    Users whose budget is at most the victim's are hosts; the reports of the others are given away. Any f users may be
    dishonest, so f users of every budget (or group of budgets) are omitted. delta decides how long the clocks run.
    """
    if victim.local_epsilon > MAX_LOCAL_EPSILON:
        return NoAmplification(
            Statement.of(ProofStep.EXCHANGE_BUDGET_LARGE, local_epsilon=victim.local_epsilon, most=MAX_LOCAL_EPSILON)
        )
    order = np.argsort(others.local_epsilon, kind="stable")
    crowd = Crowd(others.local_epsilon[order], others.count[order], others.dishonest)
    if victim.span is None:
        profile = crowd.hosts(victim.local_epsilon, victim.local_epsilon, delta)
        return profile or NoAmplification(Statement.of(ProofStep.EXCHANGE_NO_SMALL_BUDGETS))
    low, high = sorted(epsilon for epsilon, _ in victim.span)
    leader = crowd.hosts(high, max(low, high * (1 - FIRST_PART)), delta)
    if leader is None:
        return NoAmplification(Statement.of(ProofStep.EXCHANGE_NO_SMALL_BUDGETS))
    covered = Statement.of(ProofStep.BUDGETS_COVERED, least=low, most=high)

    def part(least: float, most: float) -> ExchangeLaplaceProfile | None:
        return crowd.hosts(most, least, delta)

    return SpanProfile(leader, low, high, FIRST_PART, part, covered, are_budgets=True)


@dataclass(frozen=True, eq=False)
class Crowd:
    """The others by increasing budget, rates and count (T,), of whom any `dishonest` hide nothing."""

    rates: Floats
    count: Ints
    dishonest: int

    def hosts(self, victim: float, least: float, delta: float | None) -> ExchangeLaplaceProfile | None:
        """Returns the profile of hosts for all victims from `least` to `victim` (T5); None without such hosts."""
        used = int(np.searchsorted(self.rates, least, "right"))
        rates, count, dishonest = self.rates[:used], self.count[:used], self.dishonest
        if count.size == 0:
            return None
        # A user counts for about its budget, and a group loses its relative width.
        first = np.arange(used) if used <= MAX_TIERS else group_starts(np.log(rates), rates * count, GROUPS)
        hosts, kept = rates[np.append(first[1:], rates.size) - 1], rates[first]
        number = np.maximum(np.add.reduceat(count, first) - dishonest, 0)
        hosts, kept, number = hosts[number > 0], kept[number > 0], number[number > 0].astype(np.float64)
        if hosts.size == 0:
            return None
        kept = np.where(kept == hosts, 1.0, kept / hosts * (1 - 2 * UNIT))
        return ExchangeLaplaceProfile.among(victim, hosts, kept, number, delta)
