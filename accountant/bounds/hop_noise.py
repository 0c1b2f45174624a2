"""The hop noise bound: the guarantee of one honest hop's fake reports, whatever all other parties do.

Statement and proof: docs/hop-noise.md, section 2. Only the counts in the honest hop's output depend on the victim's
report; the privacy loss of one count that changes by one is +a, -a or infinite. The local randomizer enters by advanced
joint convexity (Balle, Barthe, Gaboardi 2018, Theorem 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from croupier.accountant.bounds.profile import UNDERFLOW, Curve
from croupier.accountant.numerics.binomial import UNIT
from croupier.accountant.numerics.inversion import Inverse
from croupier.accountant.privacy_curve import Bounded
from croupier.accountant.ranges import check_epsilon, check_target_delta
from croupier.protocol.codes import Method, ProofStep
from croupier.protocol.fake_law import FakeLaw
from croupier.protocol.statements import Statement

_RELATIVE_ERROR = 64 * UNIT
"""At least the relative error of a product of a dozen floats and of `exp`, `expm1` and `log1p`."""


@dataclass(frozen=True, eq=False)
class HopNoiseProfile(Curve):
    """delta(epsilon) of the adversary's whole view of a round, for a victim whose hop noise has this law.

    With t the total variation between the randomizer's reports of two values, delta(ln(1 + t (e^x - 1))) is t times
    the divergence of the counts at x. The counts have the losses +a and -a and an infinite one (two values), or the
    sums of two independent such losses (more values): see `largest_loss`.

    Attributes:
        law: of the fake reports of one hop.
        total_variation: t, an upper bound over all pairs of values; 1 if a report is the value itself.
    """

    proved_by: ClassVar[Method] = Method.HOP_NOISE

    law: FakeLaw
    total_variation: float = 1.0

    def __post_init__(self) -> None:
        """Raises ValueError for a total variation outside (0, 1]."""
        if not 0 < self.total_variation <= 1:
            raise ValueError(f"total_variation is {self.total_variation!r}; it must be in (0, 1]")

    @property
    def largest_loss(self) -> float:
        """The largest finite privacy loss of the counts, rounded up: a with two values, 2a with more."""
        return self.law.loss if self.law.is_paired else 2 * self.law.loss

    @cached_property
    def mass_of_largest_loss(self) -> float:
        """The probability of the largest finite loss, rounded up.

        A count has the loss +a with probability (1 + Pr[Z = 0])/2 - Pr[Z = radius].
        """
        edge, q = self.law.edge, math.exp(-1 / self.law.scale)
        in_the_middle = edge / q**self.law.radius
        mass = ((1 + in_the_middle) / 2 - edge) * (1 + _RELATIVE_ERROR * (1 + self.law.radius / self.law.scale))
        return min(1.0, mass if self.law.is_paired else mass**2)

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        at = self._of_counts(epsilon)
        divergence = self.law.delta
        if at < self.largest_loss:
            divergence += self.mass_of_largest_loss * -math.expm1(at - self.largest_loss)
        value = self.total_variation * divergence
        slack = value * _RELATIVE_ERROR + UNDERFLOW
        return Bounded(min(1.0, value + slack), min(1.0, slack))

    def guess(self, delta: float) -> float:
        """Returns the exact epsilon up to rounding; 0 where no epsilon or any is enough."""
        divergence = delta / self.total_variation - self.law.delta
        if not 0 < divergence < self.mass_of_largest_loss:
            return 0.0 if divergence <= 0 else self._from_counts(0.0)
        at = self.largest_loss + math.log1p(-divergence / self.mass_of_largest_loss)
        return self._from_counts(max(0.0, at))

    def smallest_epsilon(self, delta: float, ceiling: float, *, floor: float = 0.0) -> Inverse:
        """See `Curve`. The inverse is a formula, whose value is raised until `delta` confirms it."""
        check_epsilon(ceiling, "ceiling")
        check_target_delta(delta)
        if self.delta(0.0).value <= delta:
            return Inverse(0.0, self.delta(0.0), 1)
        evaluations, step, epsilon = 1, 1e-15, self.guess(delta)
        while epsilon < ceiling and epsilon <= 2 * self.largest_loss:
            bound = self.delta(epsilon)
            evaluations += 1
            if bound.value <= delta:
                return Inverse(epsilon, bound, evaluations)
            epsilon, step = max(epsilon * (1 + step), math.nextafter(epsilon, math.inf), UNDERFLOW), step * 4
        return Inverse(ceiling, None, evaluations)

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """See `PrivacyProfile`."""
        law, variation = self.law, self.total_variation
        return (Statement.of(ProofStep.FAKE_REPORTS, fakes=law.mean_total, unhidden=law.delta, variation=variation),)

    def _of_counts(self, epsilon: float) -> float:
        """Returns x with ln(1 + t (e^x - 1)) = epsilon, rounded down."""
        if self.total_variation == 1 or epsilon == 0:
            return epsilon
        with_ratio = math.expm1(min(epsilon, 700.0)) / self.total_variation
        return math.log1p(with_ratio) * (1 - _RELATIVE_ERROR)

    def _from_counts(self, at: float) -> float:
        return math.log1p(self.total_variation * math.expm1(min(at, 700.0)))
