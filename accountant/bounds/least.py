"""The curve of a round for composition and records: chords of slow curves, and the smallest of several curves.

Every curve is an upper bound on the same divergence of the same victim, so their minimum is one too. `group_guarantees`
chooses the curve that gives the number of a certificate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from croupier.accountant.bounds.profile import Curve
from croupier.accountant.numerics.binomial import UNIT, Floats
from croupier.accountant.numerics.chords import Chords
from croupier.accountant.numerics.inversion import Inverse, smallest_epsilon
from croupier.accountant.privacy_curve import Bounded, Proof
from croupier.accountant.ranges import check_epsilon
from croupier.protocol.codes import ProofStep
from croupier.protocol.statements import Statement

POINTS = 24
"""Epsilons at which the slow curve is evaluated. Twice as many take twice the time, for 1 % of a composed epsilon."""
MANY_POINTS = 40
"""Those for a curve that is quick: they add 0.2 % to a composed epsilon."""
DENSER = 1.5
"""The points are closer together where epsilon is small: they are the powers of evenly spaced numbers to this one."""
BEYOND = 1e-4
"""The last point is about where the slow curve reaches this fraction of the target: composition needs no less."""


@dataclass(frozen=True, eq=False)
class ChordProfile(Curve):
    """Chords through a few points of a slow curve.

    The true divergence is a convex function of e^epsilon below every point of the curve, so it is below the chords.
    It does not increase, so beyond the last point it is below the value there.
    """

    slow: Curve
    target: float
    """About the delta that composition will ask for; it decides where the points are."""
    ceiling: float
    """The local budget."""
    points: int = POINTS
    """How many there are."""

    @property
    def method(self) -> Proof:
        """The method of the slow curve."""
        return self.slow.method

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        if epsilon >= self.ceiling:
            return self.slow.delta(epsilon)
        chords, slacks = self._points
        if epsilon > chords.epsilons[-1] and self.points >= MANY_POINTS:  # a quick curve is evaluated there
            return self.slow.delta(epsilon)
        value = min(1.0, chords.above(epsilon) + 5e-324)
        slack = float(np.interp(epsilon, np.asarray(chords.epsilons), slacks))
        return Bounded(value, min(value, slack + 64 * UNIT * value))

    def guess(self, delta: float) -> float:
        """Returns the guess of the slow curve."""
        return self.slow.guess(delta)

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """Returns the steps of the slow curve."""
        return self.slow.explain()

    @cached_property
    def _points(self) -> tuple[Chords, Floats]:
        """The chords of the slow curve, and its slack at their ends."""
        end = max(BEYOND * self.target, 1e-300)
        far = min(1.05 * self.slow.guess(end), self.ceiling)
        if self.slow.delta(far).value > 10 * end:  # the guess was poor
            far = smallest_epsilon(self.slow, end, self.ceiling, tolerance=0.05).epsilon
        epsilons = far * np.linspace(0.0, 1.0, self.points) ** DENSER if far > 0 else np.zeros(1)
        bounds = [self.slow.delta(float(epsilon)) for epsilon in epsilons]
        values = np.minimum.accumulate([bound.value for bound in bounds])
        return Chords(epsilons.tolist(), values.tolist()), np.array([bound.slack for bound in bounds])


@dataclass(frozen=True, eq=False)
class PointwiseMinimum(Curve):
    """The smallest of several curves at every epsilon; the first one is usually the sharpest."""

    curves: tuple[Curve, ...]

    @property
    def method(self) -> Proof:
        """The method of the first curve."""
        return self.curves[0].method

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        return min((curve.delta(epsilon) for curve in self.curves), key=lambda bound: bound.value)

    def smallest_epsilon(self, delta: float, ceiling: float, *, floor: float = 0.0) -> Inverse:
        """Returns the smallest epsilon of all curves. See `Curve.smallest_epsilon`."""
        best = Inverse(ceiling, None, 0)
        for curve in self.curves:
            inverse = curve.smallest_epsilon(delta, best.epsilon, floor=floor)
            best = best if inverse.reached is None else inverse
        return best

    def to_compose(self, delta: float, ceiling: float) -> Curve | None:
        """See `Curve.to_compose`: the smallest of all curves with such a form."""
        return least_of([form for curve in self.curves if (form := curve.to_compose(delta, ceiling)) is not None])

    def guess(self, delta: float) -> float:
        """Returns the guess of the first curve."""
        return self.curves[0].guess(delta)

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """Returns the steps of all curves, the first one's last."""
        return tuple(line for curve in reversed(self.curves) for line in curve.explain())


def least_of(curves: Sequence[Curve]) -> Curve | None:
    """Returns the smallest of these curves; None for an empty sequence."""
    if len(curves) > 1:
        return PointwiseMinimum(tuple(curves))
    return curves[0] if curves else None
