"""The guarantee of hop noise over all waves of a question whose reports are drawn once (permanent randomization).

Given the report, the waves have independent hop noise, and compose; the randomizer enters once, over all of them,
because it was run once. Statement and proof: docs/permanent.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from croupier.accountant.bounds.hop_noise import HopNoiseProfile
from croupier.accountant.bounds.profile import UNDERFLOW, Curve
from croupier.accountant.composition import LEAST_DELTA, ComposedProfile, Round
from croupier.accountant.numerics.binomial import UNIT
from croupier.accountant.privacy_curve import Bounded, Proof
from croupier.accountant.ranges import check_epsilon
from croupier.protocol.codes import Method, ProofStep
from croupier.protocol.fake_law import FakeLaw
from croupier.protocol.statements import Statement

_RELATIVE_ERROR = 64 * UNIT
"""At least the relative error of a product of a dozen floats and of `expm1` and `log1p`."""


@dataclass(frozen=True, eq=False)
class WavesProfile(Curve):
    """delta(epsilon) of all waves of a question together, for a victim that sends one report in all of them.

    With t the total variation between the randomizer's reports of two values, and D the profile of `waves` rounds of
    hop noise about the report itself, delta(ln(1 + t (e^x - 1))) is t D(x).

    Attributes:
        law: of the fakes of one hop in one wave.
        total_variation: t, in (0, 1].
        waves: their number, at least 1.
        target: about the delta of interest.
    """

    law: FakeLaw
    total_variation: float
    waves: int
    target: float

    @cached_property
    def _reports(self) -> ComposedProfile:
        """The profile D, of the report itself."""
        wave = HopNoiseProfile(self.law)
        target = min(0.5, max(LEAST_DELTA, self.target / self.total_variation))
        return ComposedProfile([Round(wave, wave.largest_loss, self.waves)], target)

    @property
    def method(self) -> Proof:
        """See `PrivacyProfile`."""
        return (Statement.of(Method.HOP_NOISE), Statement.of(Method.COMPOSED_LOSSES, rounds=self.waves))

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        at = epsilon
        if self.total_variation < 1 and epsilon > 0:  # x with ln(1 + t (e^x - 1)) = epsilon, rounded down
            at = math.log1p(math.expm1(min(epsilon, 700.0)) / self.total_variation) * (1 - _RELATIVE_ERROR)
        of_reports = self._reports.delta(at)
        value = self.total_variation * of_reports.value
        added = value * _RELATIVE_ERROR + UNDERFLOW
        slack = self.total_variation * of_reports.slack + added
        return Bounded(min(1.0, value + added), min(1.0, slack))

    def guess(self, delta: float) -> float:
        """Returns the guess for Gaussian losses of the waves."""
        wave = HopNoiseProfile(self.law)
        losses = math.sqrt(self.waves) * wave.largest_loss * math.sqrt(2 * max(1.0, -math.log(delta)))
        return math.log1p(self.total_variation * math.expm1(min(losses, 700.0)))

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """See `PrivacyProfile`."""
        law = self.law
        fakes = Statement.of(
            ProofStep.FAKE_REPORTS, fakes=law.mean_total, unhidden=law.delta, variation=self.total_variation
        )
        return (fakes, *self._reports.explain()[-1:])
