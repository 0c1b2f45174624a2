"""A curve whose bound is found in floats and proved in balls: its smallest epsilon."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from croupier.accountant.bounds.profile import Curve
from croupier.accountant.numerics.inversion import Inverse, smallest_epsilon
from croupier.accountant.privacy_curve import Bounded

TOLERANCE = 2e-5
"""The proved delta is below its target by this part, or less."""
SHARP = 1e-4
"""An epsilon within this part of one that is proved otherwise is not looked for."""


@dataclass(frozen=True, eq=False)
class ProvedCurve(Curve):
    """A curve that is slow, with an estimate that is quick and may be wrong without harm."""

    @property
    def tolerance(self) -> float:
        """See `Curve.tolerance`."""
        return TOLERANCE

    @abstractmethod
    def estimate(self, epsilon: float) -> float:
        """Returns about the bound, at most 1."""

    def smallest_epsilon(self, delta: float, ceiling: float, *, floor: float = 0.0) -> Inverse:
        """See `Curve.smallest_epsilon`: one is found in floats, and proved at once as a rule."""
        aim = delta * (1 - TOLERANCE)
        if self.estimate(ceiling * (1 - SHARP)) > aim:  # it would be the ceiling, about
            return Inverse(ceiling, None, 1)
        near = smallest_epsilon(_Estimated(self), aim, ceiling, TOLERANCE / 2)
        if near.reached is None:
            return Inverse(ceiling, None, near.evaluations)
        return smallest_epsilon(_Guessed(self, near.epsilon), delta, ceiling, TOLERANCE)


@dataclass(frozen=True)
class _Estimated:
    """A curve in floats."""

    curve: ProvedCurve

    def delta(self, epsilon: float) -> Bounded:
        return Bounded(self.curve.estimate(epsilon), 0.0)

    def guess(self, delta: float) -> float:
        return self.curve.guess(delta)


@dataclass(frozen=True)
class _Guessed:
    """A curve whose smallest epsilon is nearly known."""

    curve: Curve
    near: float

    def delta(self, epsilon: float) -> Bounded:
        return self.curve.delta(epsilon)

    def guess(self, delta: float) -> float:
        return self.near
