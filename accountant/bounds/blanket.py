"""The blanket bound of every randomizer: `search` finds an epsilon in floats, and `kernel` proves it.

A victim has a law of its loss for every pair of its values, and its others have weights (docs/bounds.md, section 2).
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import ClassVar

import numpy as np
from flint import arb, ctx

from croupier.accountant import kernel
from croupier.accountant.bounds.least import MANY_POINTS, ChordProfile
from croupier.accountant.bounds.profile import Curve, Others
from croupier.accountant.bounds.proved import ProvedCurve
from croupier.accountant.kernel import BITS, Atoms, FiniteLaw, Lattice, Line, Losses, Weights, above
from croupier.accountant.numerics.binomial import Floats, Ints
from croupier.accountant.numerics.gaussian import gaussian_epsilon
from croupier.accountant.numerics.groups import group_starts
from croupier.accountant.privacy_curve import Bounded
from croupier.accountant.ranges import check_epsilon
from croupier.accountant.search import Floated
from croupier.accountant.witness import Witness
from croupier.protocol.codes import Method, ProofStep
from croupier.protocol.statements import Statement

MAX_WEIGHTS = 16
"""More weights than this are put into as many groups: an integral takes time for each, and 16 lose 0.01 %."""
MAX_CELLS = 2048
"""Budgets of the others are rounded up to at most this many before their weights are averaged in groups."""
FEW_PARTS, POINTS, MOST_POINTS = 16, 20.0, 1024.0
"""More parts of a law are put on a lattice, of this many points, or half as many, per standard deviation: its variance
grows by 0.1 %; but the largest loss is no more than the last number of points away."""
MAX_COUNTS = 1000
"""Counts of reports that are added up one by one, which takes as long as an integral and is exact."""


@dataclass(frozen=True)
class PairLosses:
    """The law of the loss of a pair of values of the victim: for the kernel, in floats, and the mass apart from it."""

    exact: Callable[[], Losses]
    chance: Floats
    loss: Floats
    outside: float

    @classmethod
    def of_ranges(cls, low: Floats, high: Floats, mean: Floats, mass: Floats, outside: float) -> PairLosses:
        """Returns the law of a loss that is known up to ranges, each with its mass and its mean, rounded up.

        Of all laws on a range with a mean, the one on both ends is the largest in convex order. Where there are many,
        the ends are moved apart, to multiples of a power of 2.
        """
        ends = low, high
        if low.size > FEW_PARTS:
            largest = float(max(-low.min(), high.max()))
            deviation = largest * math.sqrt(float(mass @ (mean / largest) ** 2))
            step = 2.0 ** math.ceil(math.log2(max(deviation / POINTS, largest / MOST_POINTS)))
            ends = np.floor(low / step), np.ceil(high / step)
            ends = ends[0] * step, np.maximum(ends[1], ends[0] + 1) * step

        def exact() -> Losses:
            if low.size > FEW_PARTS:
                return Lattice(ends[0] / step, ends[1] / step, mean / step, mass, step)
            ranges = zip(*(values.tolist() for values in (low, high, mean, mass)), strict=True)
            return Atoms([atom for one in ranges for atom in kernel.on_ends(*one)])

        width = ends[1] - ends[0]
        share = mass * np.where(width > 0, (mean - ends[0]) / np.where(width > 0, width, 1.0), 1.0)
        loss, place = np.unique(np.concatenate(ends), return_inverse=True)
        chance: Floats = np.bincount(place, weights=np.concatenate([mass - share, share])).astype(np.float64)
        return cls(exact, chance, loss, outside)


@dataclass(frozen=True, eq=False)
class BlanketCurve(ProvedCurve):
    """The blanket bound of a victim, proved by the kernel."""

    weights: Weights
    local_epsilon: float

    @abstractmethod
    def pairs(self, epsilon: float) -> Sequence[PairLosses]:
        """Returns the laws of the victim's loss, for every pair of values that may be the worst."""

    @property
    @abstractmethod
    def divergence(self) -> float:
        """About the integral of (p0 - p1)^2 / omega, for the first guess."""

    @cached_property
    def _floats(self) -> tuple[Floats, Floats]:
        return np.array([float(g) for g, _ in self.weights]), np.array([float(n) for _, n in self.weights])

    @cached_property
    def mean(self) -> float:
        """The mean number of the others' reports from the blanket."""
        gamma, count = self._floats
        return float(gamma @ count)

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        return self._proved(epsilon, lambda floated: floated.line())

    def _proved(self, epsilon: float, line: Callable[[Floated], Line]) -> Bounded:
        worst = self._worst(epsilon, lambda pair, floated: kernel.blanket(pair.exact(), self.weights, line(floated)))
        value = min(1.0, above(worst))
        return Bounded(value, min(value, above(2 * worst.rad())))

    def estimate(self, epsilon: float) -> float:
        """See `ProvedCurve`: integrals in floats."""
        return min(1.0, above(self._worst(epsilon, lambda _, floated: arb(floated.bound(floated.line())))))

    def _worst(self, epsilon: float, integral: Callable[[PairLosses, Floated], arb]) -> arb:
        """Returns the bound of the worst pair; where all counts of reports are few they are added up."""
        worst = arb(0)
        with ctx.workprec(kernel.precision_for(self.local_epsilon)):
            for pair in self.pairs(epsilon):
                bound, exact = arb(pair.outside), pair.exact() if pair.loss.size <= 2 * FEW_PARTS else None
                if not float(pair.loss.max(initial=-math.inf)) <= 0:
                    if isinstance(exact, Atoms) and kernel.number_of_counts(exact, self.weights) <= MAX_COUNTS:
                        bound += kernel.small_blanket(exact, self.weights)
                    else:
                        bound += integral(pair, Floated(pair.chance, pair.loss, *self._floats))
                worst = worst.max(bound) if bound.is_finite() else arb("inf")
        return worst

    def guess(self, delta: float) -> float:
        """The Gaussian limit: mu^2 = divergence / (mean blanket count + 1)."""
        mu = math.sqrt(self.divergence / (self.mean + 1))
        return gaussian_epsilon(mu, delta) if mu > 1e-300 else 0.0

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """See `PrivacyProfile`."""
        return (Statement.of(ProofStep.BLANKET_REPORTS, mean=self.mean),)

    def to_compose(self, delta: float, ceiling: float) -> Curve:
        """See `Curve.to_compose`: chords."""
        return ChordProfile(self, delta, ceiling, MANY_POINTS)


@dataclass(frozen=True, eq=False)
class FiniteBlanket(BlanketCurve):
    """The bound for a report that has one of finitely many values."""

    proved_by: ClassVar[Method] = Method.BLANKET_CLOSED_FORM
    law: FiniteLaw
    description: Statement[ProofStep]

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`; 0 from the local budget on. Raises ValueError as there."""
        check_epsilon(epsilon)
        return Bounded(0.0, 0.0) if epsilon >= self.local_epsilon else super().delta(epsilon)

    def pairs(self, epsilon: float) -> Sequence[PairLosses]:
        """See `BlanketCurve`: all pairs have the same law."""
        exact = self.law.losses(arb(self.local_epsilon), arb(epsilon))
        chance, loss = np.array([[float(w), float(x.upper())] for w, x in exact.atoms]).T
        return (PairLosses(lambda: exact, chance, loss, 0.0),)

    def witness(self, epsilon: float) -> Witness:
        """See `Curve.witness`: where the integral is evaluated, unless all counts are added up."""
        lines: list[Line] = []

        def kept(_: PairLosses, floated: Floated) -> arb:
            lines.append(floated.line())
            return arb(0)

        self._worst(epsilon, kept)
        places = {name: [value] for line in lines for name, value in asdict(line).items()}
        return Witness.of(self.proved_by, places)

    def repeat(self, epsilon: float, witness: Witness) -> Bounded:
        """See `Curve.repeat`. Raises ValueError for numbers for which the kernel proves nothing."""
        numbers = {field.name: witness[field.name] for field in fields(Line)}
        if epsilon >= self.local_epsilon or not any(numbers.values()):
            return self.delta(epsilon)
        if not all(len(several) == 1 and several[0] > 0 for several in numbers.values()):
            raise ValueError(f"numbers are {witness.numbers!r:.200}; {', '.join(numbers)} must each be one number > 0")
        line = Line(**{name: number for name, (number,) in numbers.items()})
        if line.strip >= line.theta:
            raise ValueError(f"strip of the witness is {line.strip}; it must be below theta, {line.theta}")
        return self._proved(epsilon, lambda _: line)

    @property
    def closed_divergence(self) -> float:
        """See `Curve`."""
        return self.divergence

    @cached_property
    def divergence(self) -> float:
        """See `BlanketCurve`."""
        atoms = self.law.losses(arb(self.local_epsilon), arb(0)).atoms
        return float(sum((w * x * x for w, x in atoms), arb(0)))

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """See `PrivacyProfile`."""
        return (self.description, *super().explain())


def honest(others: Others) -> tuple[Floats, Ints]:
    """Returns the budgets and numbers of the others without the dishonest ones, who are those of the least budgets.

    No other choice is worse where a report of a smaller budget is a mixture of reports of a larger one.
    """
    order = np.argsort(others.local_epsilon, kind="stable")
    epsilons, count = others.local_epsilon[order], others.count[order]
    left = np.minimum(count, np.maximum(np.cumsum(count) - others.dishonest, 0))
    return epsilons[left > 0], left[left > 0]


def honest_cells(others: Others) -> tuple[Floats, Ints]:
    """Returns `honest`, very many budgets rounded up into MAX_CELLS of them."""
    epsilons, count = honest(others)
    first = group_starts(epsilons, count, MAX_CELLS)
    if first.size < epsilons.size:  # each group at its largest budget
        epsilons, count = epsilons[np.append(first[1:], epsilons.size) - 1], np.add.reduceat(count, first)
    return epsilons, count


def finite_weights(law: FiniteLaw, others: Others) -> Weights:
    """Returns the weights of the blanket in the reports of the honest others, of many budgets in groups."""
    epsilons, count = honest_cells(others)
    with ctx.workprec(kernel.PRECISION):
        return grouped([(law.gamma(arb(v)), n) for v, n in zip(epsilons.tolist(), count.tolist(), strict=True)])


def grouped(weights: Weights) -> Weights:
    """Returns at most MAX_WEIGHTS weights, geometric means of these, which make K smaller."""
    if len(weights) <= MAX_WEIGHTS:
        return weights
    weights = sorted(weights, key=lambda weight: -float(weight[0]))
    gamma, count = (np.array([float(one[part]) for one in weights]) for part in (0, 1))
    starts = [*group_starts(-np.log(gamma), count * gamma, MAX_WEIGHTS).tolist(), len(weights)]
    return [kernel.geometric_mean(weights[start:end]) for start, end in itertools.pairwise(starts)]


def shown_alone(local_epsilon: float, epsilon: float) -> float:
    """Returns the largest divergence of any report of this local budget by itself, that of a bit, rounded up."""
    with ctx.workprec(kernel.precision_for(local_epsilon)):
        return above(BITS.alone(arb(local_epsilon), arb(epsilon)))
