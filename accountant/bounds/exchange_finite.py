"""The exchange bound for reports that have one of finitely many values, likely and unlikely ones, as those of pgr.

All honest others are hosts: the first host whose clock rings reports a draw of the uniform blanket in place of its own
report. `kernel` says how another report's likely values may lie among the victim's, `exchange` proves the bound for all
of these kinds of hosts at once (docs/paper, section 7). It does not cover the sequential order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Sequence
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
from croupier.accountant.exchange import LikelySets, Path, Reports, TableReports, exchange
from croupier.accountant.kernel import FiniteLaw, above
from croupier.accountant.numerics.binomial import Floats, Ints
from croupier.accountant.numerics.clock_stages import stages
from croupier.accountant.numerics.gaussian import gaussian_epsilon
from croupier.accountant.numerics.groups import group_starts
from croupier.accountant.numerics.poisson_binomial import Complexes
from croupier.accountant.privacy_curve import Bounded
from croupier.accountant.ranges import check_epsilon
from croupier.protocol.codes import Method, ProofStep
from croupier.protocol.statements import Statement

MAX_GROUPS = 16
"""More budgets of hosts than this are rounded up into this number of groups: time grows with them."""
BULK, CELLS, WIDER, MORE_CELLS = 7.0, 96, 1.09, 43
"""The number of cells up to BULK deviations of the integrand, and of those beyond, each wider by a factor."""
MOST_ATOMS = 500
"""Pairs of a table's rows that differ, times the rows and outputs of all tables: with more the bound takes long."""
STAGES = 9
"""Stages of the clocks. Twelve make epsilon of some hundred people up to 0.2 % smaller, and take a third longer."""
FEW_POINTS = 12
"""Points of the curve to compose, of which each takes a tenth of a second or more."""
SMOOTHING = 0.02
"""Deviation of the Gaussian that is added to the sum, as a part of the sum's own."""
PLACES = np.exp(np.linspace(-3.0, 3.0, 61)), np.exp(np.linspace(-0.1, 0.1, 11))


@dataclass(frozen=True, eq=False)
class _Pair:
    """Two values of the victim among hosts.

    count: hosts of every tier, (T,). target: the delta that decides how long the clocks run.
    """

    reports: Reports
    count: Ints
    target: float | None

    @cached_property
    def rates(self) -> Floats:
        """The rates of the hosts' clocks, (T,); those of all hosts add up to 1."""
        gamma = self._gamma
        return spread(1 / self._moments(arb(0), 0.0)[1], self.count.astype(np.float64), gamma * (SPENT / self.horizon))

    @cached_property
    def _gamma(self) -> Floats:
        return np.array([float(self.reports.gamma(tier)) for tier in range(self.count.size)])

    @cached_property
    def horizon(self) -> float:
        """The time at which the clocks stop."""
        return horizon(self.target, float(self._gamma @ self.count) * LONGEST)

    def _kinds(self, epsilon: arb, time: float) -> list[list[tuple[Floats, Floats]]]:
        """Returns the laws of X of every tier in floats, if no clock has rung by this time."""
        tiers = []
        for tier in range(self.count.size):
            rung = -math.expm1(-float(self.rates[tier]) * time) if time else 0.0
            laws = (law.atoms for law in self.reports.kinds(epsilon, tier, arb(rung)))
            tiers.append([(np.array([float(w) for w, _ in law]), np.array([float(x) for _, x in law])) for law in laws])
        return tiers

    def _moments(self, epsilon: arb, time: float) -> tuple[Floats, Floats]:
        """Returns the mean and the second moment of X of every tier, (T,), for the kind with the largest."""
        tiers = self._kinds(epsilon, time)
        moments = [max(((w @ x, w @ x**2) for w, x in tier), key=lambda pair: float(pair[1])) for tier in tiers]
        mean, second = np.array(moments).T
        return mean, second

    def path(self, epsilon: arb) -> Path:
        """Returns where the integral should be evaluated."""
        time, rates = min(1.0, self.horizon / 2), self.rates
        mean, second = self._moments(epsilon, time)
        deviation = math.sqrt(float(self.count @ (rates**2 * (second - mean**2))))
        drift = float(epsilon.expm1())
        theta = np.float64((drift + math.hypot(drift, math.sqrt(8) * deviation)) / (2 * deviation**2))
        kinds = self._kinds(epsilon, time)
        for places in PLACES:
            tried = theta * places
            with np.errstate(all="ignore"):
                height = self._logarithm(kinds, tried) - 2 * np.log(tried)
            theta = tried[int(np.argmin(np.nan_to_num(height, nan=np.inf)))]
        bulk = np.linspace(0.0, BULK, CELLS + 1)[1:]
        edges = np.concatenate([bulk, BULK * WIDER ** np.arange(1, MORE_CELLS + 1)]) / (theta * deviation)
        return Path(float(theta), SMOOTHING * deviation, edges.tolist(), stages(self.horizon, STAGES)[0].tolist())

    def _logarithm(self, kinds: list[list[tuple[Floats, Floats]]], z: Floats | Complexes) -> Floats:
        """Returns the logarithm of the product of the largest factors at these z."""
        total: Floats = np.zeros(z.size)
        for number, rate, tier in zip(self.count.tolist(), self.rates.tolist(), kinds, strict=True):
            total = total + number * np.max(
                [np.log(np.abs(np.exp(rate * np.multiply.outer(z, x)) @ w)) for w, x in tier], 0
            )
        return total

    def estimate(self, epsilon: arb) -> float:
        """Returns about the bound."""
        path = self.path(epsilon)
        r, times = np.concatenate([[0.0], path.edges]), np.concatenate([[0.0], path.ends])
        total = 0.0
        with np.errstate(all="ignore"):
            for mass, end in zip((-np.diff(np.exp(-times))).tolist(), path.ends, strict=True):
                logarithm = self._logarithm(self._kinds(epsilon, end), path.theta * (1 + 1j * r))
                total += mass * float(np.diff(r) @ (np.exp(logarithm[:-1]) / (1 + r[:-1] ** 2)))
            total *= math.exp((path.theta * path.sigma) ** 2 / 2) / (math.pi * path.theta)
        return total + math.exp(-self.horizon) * above(self.reports.alone(epsilon))

    def proved(self, epsilon: arb) -> arb:
        """Returns the bound."""
        return exchange(self.reports, self.count.tolist(), self.rates.tolist(), epsilon, self.path(epsilon))


@dataclass(frozen=True, eq=False)
class FiniteExchange(ProvedCurve):
    """The exchange bound of a victim among hosts (one at least), the worst of pairs of its values.

    local_epsilon: the victim's local budget; delta is 0 from there on.
    """

    proved_by: ClassVar[Method] = Method.EXCHANGE
    local_epsilon: float
    pairs: tuple[_Pair, ...]

    @classmethod
    def among(cls, local_epsilon: float, pairs: Iterable[Reports], count: Ints, target: float | None) -> FiniteExchange:
        """Returns the bound for these pairs of values, among hosts in tiers."""
        return cls(local_epsilon, tuple(_Pair(reports, count, target) for reports in pairs))

    def estimate(self, epsilon: float) -> float:
        """See `ProvedCurve`."""
        if epsilon >= self.local_epsilon:
            return 0.0
        value = max(pair.estimate(arb(epsilon)) for pair in self.pairs)
        return min(1.0, value) if value == value else 1.0

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        if epsilon >= self.local_epsilon:
            return Bounded(0.0, 0.0)
        with ctx.workprec(kernel.precision_for(self.local_epsilon)):
            at = arb(epsilon)
            worst = arb(0)
            for pair in self.pairs:
                bound, alone = pair.proved(at), pair.reports.alone(at)
                worst = worst.max(bound.min(alone) if bound.is_finite() else alone)
        value = min(1.0, above(worst))
        return Bounded(value, min(value, above(2 * worst.rad())))

    def guess(self, delta: float) -> float:
        """The Gaussian limit with the largest deviation of the hosts' sum, at epsilon = 0."""
        pairs = ((pair.count, pair.rates, pair._moments(arb(0), 0.0)[1]) for pair in self.pairs)
        return gaussian_epsilon(max(math.sqrt(float(n @ (rates**2 * second))) for n, rates, second in pairs), delta)

    def to_compose(self, delta: float, ceiling: float) -> Curve:
        """See `Curve.to_compose`: few chords; between them the blanket's curve may be smaller."""
        return ChordProfile(self, delta, ceiling, FEW_POINTS)

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """See `PrivacyProfile`."""
        pair = self.pairs[0]
        return (
            Statement.of(ProofStep.HOSTS, users=int(pair.count.sum()), tiers=pair.count.size),
            Statement.of(ProofStep.CLOCKS, horizon=pair.horizon),
        )


def likely_sets_exchange(law: FiniteLaw, victim: Victim, others: Others, delta: float | None) -> Curve:
    """Returns the exchange bound of a report with a set of likely values, or the reason why there is none.

    The f dishonest users are those of the f smallest budgets, and the victims of a span get its upper end: a report of
    a smaller budget is a mixture of those of a larger one.
    """
    epsilons, count = honest(others)
    if epsilons.size == 0:
        return NoAmplification(Statement.of(ProofStep.NO_OTHERS))
    first = group_starts(epsilons, count, MAX_GROUPS)
    budgets = epsilons[np.append(first[1:], epsilons.size) - 1].tolist()
    reports = LikelySets(law, arb(victim.local_epsilon), [arb(budget) for budget in budgets])
    return FiniteExchange.among(victim.local_epsilon, [reports], np.add.reduceat(count, first), delta)


def table_exchange(
    own: Floats, tables: Sequence[Floats], count: Ints, local_epsilon: float, delta: float | None
) -> Curve | None:
    """Returns the exchange bound of a report from a table, for every pair of its rows; None where it has none.

    Args:
        own: the victim's table, (inputs, outputs); rows stand for themselves divided by their sums.
        tables: those of the hosts, (T, inputs, outputs).
        count: the hosts of each, (T,).
        local_epsilon: the ratio of the victim's rows is at most e to it.
        delta: decides how long the clocks run.
    """
    floors = np.stack([table.min(axis=0) for table in tables])
    shown = own.max(axis=0) > 0
    different = {_law_of(own[i], own[j], tables): (i, j) for i, j in itertools.permutations(range(len(own)), 2)}
    if len(different) * own.size * len(tables) > MOST_ATOMS or (floors[:, shown] == 0).any():
        return None
    raw = [arb(float(mass)) for mass in np.where(shown, count @ floors, 0.0)]
    omega = [mass / sum(raw, arb(0)) for mass in raw]
    rows, hosts = _rows(own), [_rows(table) for table in tables]
    reports = [TableReports(rows[i], rows[j], hosts, omega) for i, j in different.values()]
    return FiniteExchange.among(local_epsilon, reports, count, delta)


def _law_of(first: Floats, second: Floats, tables: Sequence[Floats]) -> Hashable:
    """Returns the same for pairs of the victim's rows among which hosts of every table have the same laws of X."""
    kinds = ([sorted(zip(row, first, second, strict=True)) for row in table] for table in tables)
    return tuple(tuple(map(tuple, sorted(of_table))) for of_table in kinds)


def _rows(table: Floats) -> list[list[arb]]:
    rows = [[arb(mass) for mass in row] for row in table.tolist()]
    return [[mass / sum(row, arb(0)) for mass in row] for row in rows]
