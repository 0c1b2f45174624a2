"""The hop noise bound: the guarantee of one honest hop's fake reports, whatever all other parties do.

Statement and proof: docs/hop-noise.md, section 2. Only the counts in the honest hop's output depend on the victim's
report, and `hop_kernel` proves their divergence: exactly where it can be added up, else by an integral.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from flint import arb, ctx

from croupier.accountant import hop_kernel
from croupier.accountant.bounds.least import BEYOND, MANY_POINTS, ChordProfile
from croupier.accountant.bounds.profile import UNDERFLOW, Curve
from croupier.accountant.bounds.proved import ProvedCurve
from croupier.accountant.hop_kernel import FakeCount, coupled, hop_noise, number_of_sums
from croupier.accountant.kernel import Classes, above
from croupier.accountant.numerics.inversion import Inverse, smallest_epsilon
from croupier.accountant.privacy_curve import Bounded, Proof
from croupier.accountant.ranges import check_epsilon
from croupier.accountant.search import FloatedFakes
from croupier.protocol.codes import Method, ProofStep
from croupier.protocol.fake_law import FakeLaw
from croupier.protocol.statements import Statement

MOST_SUMS = 8000.0
"""More sums take longer to add up than an integral."""
FEW_SUMS = 100.0
"""A curve of at most these sums is composed as it is, and else by chords."""
EXACT = 1e-12
"""The relative width at which the search for the epsilon of an exact curve stops."""
ALL_SUMS, SPARE = 100_000.0, 3e-4
"""Where there are more sums than this, this part of delta is not used: a proof by an integral has a Gaussian more."""
UNHIDDEN = 1.01 / BEYOND
"""Chords end where the curve is 1 % above what is lost with certainty."""
LEAST_VARIATION = 1e-300
"""Smaller total variations, of reports that show next to nothing, are replaced by this one."""
REPORT_ITSELF: Classes = ((1, arb(1), arb(0)), (1, arb(0), arb(1)))
"""A report that is the value."""


@dataclass(frozen=True, eq=False)
class HopNoiseProfile(ProvedCurve):
    """delta(epsilon) of the adversary's whole view of a round, for a victim whose hop noise has this law.

    Attributes:
        law: of the fake reports of one hop.
        pairs: the report values in classes, for every pair of the victim's values that may be the worst.
        precision: of the balls, in bits.
    """

    proved_by: ClassVar[Method] = Method.HOP_NOISE

    law: FakeLaw
    pairs: Sequence[Classes] = (REPORT_ITSELF,)
    precision: int = hop_kernel.precision_for(1.0)

    @cached_property
    def _sums(self) -> float:
        return max(number_of_sums(self.law, [n for n, _, _ in classes]) for classes in self.pairs)

    @cached_property
    def total_variation(self) -> float:
        """The largest total variation between the reports of two values, rounded up."""
        with ctx.workprec(self.precision):
            return min(1.0, max(LEAST_VARIATION, *(above(coupled(classes)[0][1]) for classes in self.pairs)))

    @property
    def largest_loss(self) -> float:
        """The largest finite privacy loss of the counts, rounded up: a with two values, 2a with more."""
        return self.law.loss if self.law.is_paired else 2 * self.law.loss

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)

        def proved(classes: Classes, at: arb) -> arb:
            return hop_kernel.hop_noise_along(self.law, classes, at, self._floated(classes, at).line())

        worst = self._worst(epsilon, proved)
        value = min(1.0, above(worst))
        return Bounded(value, min(value, above(2 * worst.rad())))

    def estimate(self, epsilon: float) -> float:
        """See `ProvedCurve`."""

        def floated(classes: Classes, at: arb) -> arb:
            floats = self._floated(classes, at)
            return FakeCount.of(self.law).shown(hop_kernel.apart(classes, at)) + floats.bound(floats.line())

        return min(1.0, above(self._worst(epsilon, floated)))

    def _worst(self, epsilon: float, integral: Callable[[Classes, arb], arb]) -> arb:
        """Returns the divergence of the worst pair of values, at most."""
        worst, at = arb(0), arb(epsilon)
        with ctx.workprec(self.precision):
            for classes in self.pairs:
                if self._sums <= MOST_SUMS:
                    bound = hop_noise(self.law, classes, at)
                else:
                    bound = hop_noise(self.law, coupled(classes), at)
                    if bound > 0:
                        integrated = integral(classes, at)
                        bound = bound.min(integrated) if integrated.is_finite() else bound
                worst = worst.max(bound)
        return worst

    def _floated(self, classes: Classes, at: arb) -> FloatedFakes:
        count, apart = FakeCount.of(self.law), hop_kernel.apart(classes, at)
        atoms = [[(float(chance), float(loss)) for chance, loss in count.losses(d)] for _, d in apart]
        chance, loss = np.moveaxis(np.array(atoms), 2, 0)
        return FloatedFakes(chance, loss, np.array([float(n) for n, _ in apart]))

    def guess(self, delta: float) -> float:
        """Returns the epsilon of the counts of two values, which is the exact one for reports of two values or bins."""
        t, count = self.total_variation, FakeCount.of(self.law)
        most = float(count.below) if self.law.is_paired else float(count.below) ** 2
        divergence = delta / t - self.law.delta
        if not 0 < divergence < most:
            return 0.0 if divergence > 0 else self.largest_loss
        at = max(0.0, self.largest_loss + math.log1p(-divergence / most))
        return math.log1p(t * math.expm1(min(at, 700.0)))

    def smallest_epsilon(self, delta: float, ceiling: float, *, floor: float = 0.0) -> Inverse:
        """See `Curve.smallest_epsilon`."""
        sizes = ([n for n, _, _ in classes] for classes in self.pairs)
        if max(number_of_sums(self.law, numbers, one_by_one=True) for numbers in sizes) <= ALL_SUMS:
            return smallest_epsilon(self, delta, ceiling, EXACT)
        return super().smallest_epsilon(delta * (1 - SPARE), ceiling, floor=floor)

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """See `PrivacyProfile`."""
        law, variation = self.law, self.total_variation
        return (Statement.of(ProofStep.FAKE_REPORTS, fakes=law.mean_total, unhidden=law.delta, variation=variation),)

    def to_compose(self, delta: float, ceiling: float) -> Curve:
        """See `Curve.to_compose`: what hardly any epsilon below the local budget hides is lost with certainty."""
        unhidden = _Unhidden(self, 0.0, ceiling)
        if math.log1p(self.total_variation * math.expm1(min(self.largest_loss, 700.0))) < ceiling:
            unhidden = replace(unhidden, lost=self.law.delta * self.total_variation)
        if self._sums <= FEW_SUMS:
            return unhidden
        return ChordProfile(unhidden, max(delta, UNHIDDEN * unhidden.lost), ceiling, MANY_POINTS)


@dataclass(frozen=True, eq=False)
class _Unhidden(Curve):
    """A curve that does not fall below the mass that is lost."""

    curve: HopNoiseProfile
    lost: float
    ceiling: float

    @property
    def method(self) -> Proof:
        """See `Curve`."""
        return self.curve.method

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`."""
        bound = self.curve.delta(epsilon)
        return bound if bound.value > self.lost else Bounded(self.lost, bound.slack)

    def guess(self, delta: float) -> float:
        """Returns about the curve's own epsilon."""
        return self.curve.smallest_epsilon(min(max(delta, UNDERFLOW), 0.5), self.ceiling).epsilon

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """See `PrivacyProfile`."""
        return self.curve.explain()
