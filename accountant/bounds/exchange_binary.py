"""The exchange bound for bits and for randomizers that reduce to bits: rr, onebit, krr with two values, hemisphere.

All honest others are hosts: the first host whose clock rings reports a fair bit instead of its own, the others keep
their residual noise (docs/paper, section 2). `search` finds in floats where to evaluate, and `exchange_bits` proves the
bound, which does not cover the sequential order.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from flint import arb, ctx

from croupier.accountant import kernel
from croupier.accountant.bounds.blanket import honest_cells, shown_alone
from croupier.accountant.bounds.exchange import horizon
from croupier.accountant.bounds.least import MANY_POINTS, ChordProfile
from croupier.accountant.bounds.profile import Curve, NoAmplification, Others, Victim
from croupier.accountant.exchange_bits import Hosts, exchange
from croupier.accountant.kernel import above
from croupier.accountant.numerics.gaussian import gaussian_epsilon
from croupier.accountant.numerics.groups import group_starts
from croupier.accountant.privacy_curve import Bounded
from croupier.accountant.ranges import check_epsilon
from croupier.accountant.search import FloatedHosts
from croupier.accountant.witness import Witness
from croupier.protocol.codes import Method, ProofStep
from croupier.protocol.statements import Statement

MAX_GROUPS = 24
"""More budgets of hosts than this are put into groups, which lose 0.01 to 0.1 %: time grows with their number."""
MOST_TIME = 0.8
"""The horizon of the clocks is at most this part of the variance: longer ones leave a host little noise of its own."""


@dataclass(frozen=True, eq=False)
class ExchangeBinaryProfile(Curve):
    """The exchange bound of a victim among hosts (one at least)."""

    proved_by: ClassVar[Method] = Method.EXCHANGE
    local_epsilon: float
    """The victim's local budget; delta is 0 from there on."""
    horizon: float
    """The time at which the hosts' clocks stop; the victim counts as exposed if none has rung by then."""
    groups: tuple[Hosts, ...]

    @cached_property
    def floats(self) -> FloatedHosts:
        """The hosts for the search."""
        each = [(group.count, sum(float(part * q) for part, q in group.flips), group.weight) for group in self.groups]
        count, flip, weight = np.array(each, dtype=np.float64).T
        return FloatedHosts(count, flip, weight, self.local_epsilon, self.horizon)

    @property
    def tolerance(self) -> float:
        """See `Curve.tolerance`."""
        return 2e-5

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        if epsilon >= self.local_epsilon:
            return Bounded(0.0, 0.0)
        with ctx.workprec(kernel.precision_for(self.local_epsilon)):
            grid = self.floats.grid(epsilon)
            bound = exchange(self.groups, arb(self.local_epsilon), arb(epsilon), grid)
        value = min(1.0, above(bound), shown_alone(self.local_epsilon, epsilon))
        return Bounded(value, min(value, above(2 * bound.rad())))

    def guess(self, delta: float) -> float:
        """The Gaussian limit: mu^2 = tanh^2(v/2) / (sum of p q)."""
        return gaussian_epsilon(math.tanh(self.local_epsilon / 2) / math.sqrt(self.floats.variance), delta)

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """See `PrivacyProfile`."""
        users = sum(group.count for group in self.groups)
        return (
            Statement.of(ProofStep.HOSTS, users=users, tiers=len(self.groups)),
            Statement.of(ProofStep.HOST_VARIANCE, variance=self.floats.variance),
            Statement.of(ProofStep.CLOCKS, horizon=self.horizon),
        )

    def witness(self, epsilon: float) -> Witness:
        """See `Curve.witness`: where the integral is evaluated, and the ends of the stages of the clocks."""
        grid = self.floats.grid(epsilon)
        return Witness.of(self.proved_by, {"theta": [grid.theta], "sigma": [grid.sigma], "stages": list(grid.ends)})

    def to_compose(self, delta: float, ceiling: float) -> Curve:
        """See `Curve.to_compose`: many chords."""
        return ChordProfile(self, delta, ceiling, MANY_POINTS)


def exchange_binary_profile(
    victim: Victim, others: Others, delta: float | None
) -> ExchangeBinaryProfile | NoAmplification:
    """Returns the exchange bound for a victim among the others, or the reason why there is none.

    The f dishonest users are those of the f smallest budgets, and the victims of a span get its upper end. Both are at
    least as bad as the truth, because randomised response with a smaller budget is a mixture of those with a larger one
    (docs/paper). delta decides how long the clocks run.
    """
    groups = others.once(_groups, _groups)
    if not groups:
        return NoAmplification(Statement.of(ProofStep.NO_OTHERS))
    curve = ExchangeBinaryProfile(victim.local_epsilon, math.inf, groups)
    return replace(curve, horizon=horizon(delta, MOST_TIME * curve.floats.variance))


def _groups(others: Others) -> tuple[Hosts, ...]:
    """Returns the hosts, of many budgets in groups."""
    epsilons, count = honest_cells(others)
    decay = np.exp(-epsilons)
    starts = group_starts(-decay / (1 + decay) ** 2, count, MAX_GROUPS).tolist()
    with ctx.workprec(kernel.PRECISION):
        budgets = [(arb(v), n) for v, n in zip(epsilons.tolist(), count.tolist(), strict=True)]
        return tuple(Hosts.of(budgets[start:end]) for start, end in itertools.pairwise([*starts, len(budgets)]))
