"""What the exchange bound of finite reports rests on: an integral over cells, evaluated in ball arithmetic.

As in `kernel`, every number is a ball that contains the exact value, and where the integral is evaluated comes from
floats: any choice is sound. The theorem and the mechanisms' lemmas are in docs/paper, sections 1 and 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

from flint import arb

from croupier.accountant.kernel import Atoms, FiniteLaw


@dataclass(frozen=True)
class Path:
    """Where the integral is evaluated, along z = theta (1 + ir). Any positive numbers are sound, if they increase.

    Attributes:
        theta: the part of z that is real.
        sigma: the deviation of a Gaussian that is added to the sum.
        edges: the ends of the cells of r; the first one begins at 0.
        ends: the times at which the stages of the hosts' clocks end.
    """

    theta: float
    sigma: float
    edges: Sequence[float]
    ends: Sequence[float]


class Reports(Protocol):
    """A victim's report for two values, among the reports of hosts in tiers."""

    def gamma(self, tier: int) -> arb:
        """Returns the weight of a common blanket omega in every report of the tier."""
        ...

    def kinds(self, epsilon: arb, tier: int, rung: arb) -> Sequence[Atoms]:
        """Returns laws of which a mixture is at least that of X = D/R under R, in convex order, for each host's value.

        R: the report of a host of the tier, less a part `rung` of omega. D = p0 - e^epsilon p1, of the victim.
        """
        ...

    def alone(self, epsilon: arb) -> arb:
        """Returns the divergence of the victim's report by itself."""
        ...


@dataclass(frozen=True)
class LikelySets:
    """Reports of which a set of values is more likely than the others: of the victim's budget v, and the hosts'."""

    law: FiniteLaw
    v: arb
    budgets: Sequence[arb]

    def gamma(self, tier: int) -> arb:
        """See `Reports`."""
        return self.law.gamma(self.budgets[tier])

    def kinds(self, epsilon: arb, tier: int, rung: arb) -> list[Atoms]:
        """See `Reports`."""
        return self.law.kinds(self.v, epsilon, self.budgets[tier], rung)

    def alone(self, epsilon: arb) -> arb:
        """See `Reports`."""
        return self.law.alone(self.v, epsilon)


@dataclass(frozen=True)
class TableReports:
    """Reports from tables: the victim's two rows, the hosts' tables, and the blanket.

    A host's report less a part of the blanket is at least c times the report, so that its X is at most the report's,
    thinned by c (docs/paper, section 5, T1 and T4).
    """

    first: Sequence[arb]
    second: Sequence[arb]
    tables: Sequence[Sequence[Sequence[arb]]]
    omega: Sequence[arb]

    def gamma(self, tier: int) -> arb:
        """See `Reports`."""
        shares = [
            chance / omega
            for row in self.tables[tier]
            for chance, omega in zip(row, self.omega, strict=True)
            if omega != 0
        ]
        return reduce(lambda least, share: least.min(share), shares)

    def kinds(self, epsilon: arb, tier: int, rung: arb) -> list[Atoms]:
        """See `Reports`."""
        kept, gain = (1 - rung / self.gamma(tier)) / (1 - rung), epsilon.exp()
        differences = [p0 - gain * p1 for p0, p1 in zip(self.first, self.second, strict=True)]
        laws = []
        for row in self.tables[tier]:
            pairs = [(chance, d) for chance, d in zip(row, differences, strict=True) if not (chance == 0 and d == 0)]
            laws.append(Atoms([*((kept * chance, d / (kept * chance)) for chance, d in pairs), (1 - kept, arb(0))]))
        return laws

    def alone(self, epsilon: arb) -> arb:
        """See `Reports`."""
        gain = epsilon.exp()
        return sum(((p0 - gain * p1).max(arb(0)) for p0, p1 in zip(self.first, self.second, strict=True)), arb(0))


def exchange(reports: Reports, count: Sequence[int], rates: Sequence[float], epsilon: arb, path: Path) -> arb:
    """Returns a bound on the divergence of a victim's report among those of hosts, for all of their data.

    count: hosts of every tier. rates: of their clocks, in units in which those of all hosts add up to anything. The
    divergence is at most the mean of E[Y]_+ over the stages of the first ring, and that of the victim's report alone if
    none has rung at the end.
    """
    whole = sum((n * arb(rate) for n, rate in zip(count, rates, strict=True)), arb(0))
    total, start = arb(0), arb(0)
    for end in map(arb, path.ends):
        factors = []
        for tier, (number, rate) in enumerate(zip(count, rates, strict=True)):
            alpha = rate / whole
            rung = -(-alpha * end).expm1()
            if not rung < reports.gamma(tier):  # more of the blanket than a report has
                return arb("inf")
            kinds = reports.kinds(epsilon, tier, rung)
            factors.append((number, [_Kind(kind, alpha * path.theta) for kind in kinds]))
        total += ((-start).exp() - (-end).exp()) * _excess(factors, path)
        start = end
    return total + (-start).exp() * reports.alone(epsilon)


class _Kind:
    """|E e^(w (1 + ir) X)|^2 as a function of r, for one law of X."""

    def __init__(self, law: Atoms, w: arb) -> None:
        """Makes the function, and the bound 2 b of minus its second derivative, over all r."""
        places = [w * value for _, value in law.atoms]
        self._terms = [(chance * place.exp(), place) for (chance, _), place in zip(law.atoms, places, strict=True)]
        first, second = (sum((weight * x**k for weight, x in self._terms), arb(0)) for k in (1, 2))
        whole = sum((weight for weight, _ in self._terms), arb(0))
        self.largest, self.bend = whole * whole, whole * second - first * first

    def square(self, r: arb) -> arb:
        """Returns the function."""
        waves = [(weight, (r * x).sin_cos()) for weight, x in self._terms]
        sine, cosine = (sum((weight * pair[k] for weight, pair in waves), arb(0)) for k in (0, 1))
        return sine * sine + cosine * cosine


def _excess(factors: Sequence[tuple[int, Sequence[_Kind]]], path: Path) -> arb:
    """Returns a bound on E[Y]_+ in a stage: 1/(pi theta) times the integral of its product over r, in cells.

    In a cell of width h a function of `_Kind` is at most the larger of its values at both ends and b h^2/4. Of several
    kinds of hosts the largest counts.
    """
    rate = (arb(path.theta) * path.sigma) ** 2

    def squares(r: arb) -> list[list[arb]]:
        return [[kind.square(r) for kind in kinds] for _, kinds in factors]

    def product(before: Sequence[Sequence[arb]], after: Sequence[Sequence[arb]], width: arb) -> arb:
        logarithm = arb(0)
        for (count, kinds), left, right in zip(factors, before, after, strict=True):
            most = arb(0)
            for kind, one, other in zip(kinds, left, right, strict=True):
                most = most.max((one.max(other) + kind.bend * width * width / 4).min(kind.largest))
            logarithm += count * most.log() / 2
        return logarithm.exp()

    first = before = squares(arb(0))
    total, start = arb(0), arb(0)
    for end in map(arb, path.edges):
        after, width = squares(end), end - start
        weight = (-rate * start * start / 2).exp() / (1 + start * start)
        total += product(before, after, width) * weight * width
        before, start = after, end
    total += product(first, first, arb(0)) * (-rate * start * start / 2).exp() / start
    return (rate / 2).exp() * total / (arb.pi() * path.theta)
