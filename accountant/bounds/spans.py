"""One bound for all victims of a span of rates, where budgets are many: the largest of the bounds of its parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from croupier.accountant.bounds.profile import Curve
from croupier.accountant.numerics.inversion import Inverse
from croupier.accountant.privacy_curve import Bounded, Proof
from croupier.protocol.codes import ProofStep
from croupier.protocol.statements import Statement

WIDENING = 1.6
"""The ratio of the widths of successive parts, because victims of smaller rates have room. A part whose bound is above
the goal is halved, at most to the width of the first. A larger ratio makes fewer parts, of which more are halved."""


@dataclass(frozen=True, eq=False)
class SpanProfile(Curve):
    """An upper bound for every victim whose rate lies in [least, most], a span. See `PrivacyProfile`."""

    leader: Curve
    """The bound of the first part, [most (1 - first), most], which decides epsilon as a rule."""
    least: float
    most: float
    first: float
    """The relative width of the first part."""
    part: Callable[[float, float], Curve | None]
    """Returns a bound for all victims between two rates, or None."""
    covered: Statement[ProofStep]
    """The span, as a step of the explanation."""
    are_budgets: bool
    """Whether rates are local epsilons, which make delta 0 from there on."""

    @property
    def method(self) -> Proof:
        """See `PrivacyProfile`."""
        return self.leader.method

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        bound = self.leader.delta(epsilon)
        return self._raised(Inverse(epsilon, bound, 1), bound.value, lambda part: epsilon).reached or Bounded(1.0, 0.0)

    def to_compose(self, delta: float, ceiling: float) -> None:
        """See `Curve.to_compose`: None, because the curve of a span is no bound on the curve of one victim."""

    def smallest_epsilon(self, delta: float, ceiling: float, *, floor: float = 0.0) -> Inverse:
        """Returns the largest epsilon that a part needs, the leader's first; at least `floor`. See `Curve`."""
        inverse = Inverse(floor, self.leader.delta(floor) if floor > 0 else Bounded(1.0, 0.0), 1)
        if inverse.reached is None or inverse.reached.value > delta:
            inverse = self.leader.smallest_epsilon(delta, ceiling)
        inverse = self._raised(inverse, delta, lambda part: part.smallest_epsilon(delta, ceiling).epsilon)
        return inverse if inverse.reached is not None and inverse.epsilon < ceiling else Inverse(ceiling, None, 1)

    def _raised(self, inverse: Inverse, goal: float, raised: Callable[[Curve], float]) -> Inverse:
        """Returns an epsilon for all parts, with the largest bound; `raised` if a narrow part misses the goal.

        A part that meets the goal at one epsilon meets it at a larger one.
        """
        epsilon, worst, high, width = inverse.epsilon, inverse.reached, self.most * (1 - self.first), self.first
        while worst is not None and high > max(self.least, epsilon if self.are_budgets else 0.0):
            width = min(1.0, WIDENING * width)
            while True:
                low = max(self.least, high * (1 - width))
                part = self.part(low, high)
                bound = None if part is None else part.delta(epsilon)
                if width <= self.first or (bound is not None and bound.value <= goal):
                    break
                width = max(self.first, width / 2)
            if part is not None and bound is not None and bound.value > goal:
                epsilon = max(epsilon, raised(part))
                bound = part.delta(epsilon)
            worst = None if bound is None else max(worst, bound, key=lambda bound: bound.value)
            high = low
        return Inverse(epsilon, worst, inverse.evaluations)

    def guess(self, delta: float) -> float:
        """Returns the leader's guess."""
        return self.leader.guess(delta)

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """Returns the leader's steps and the span."""
        return (*self.leader.explain(), self.covered)
