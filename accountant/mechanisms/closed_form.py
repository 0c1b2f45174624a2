"""Pure randomizers whose blanket gives delta(m), m blanket messages, in closed form: the part that they share."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from croupier.accountant.bounds.profile import CountProfile, Curve, Others, Victim
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.numerics.binomial import Floats
from croupier.accountant.numerics.count_law import CountLaw, blanket_count, without_largest
from croupier.protocol.codes import ProofStep
from croupier.protocol.statements import Statement

DEFAULT_TAIL = 1e-30
"""Mass of the blanket count that may be cut (and added to delta) when no target delta says how much is too much."""


@dataclass(frozen=True)
class ClosedFormRandomizer(Randomizer):
    """A pure randomizer whose blanket gives delta(m) in closed form."""

    smaller_budgets_mix: ClassVar[bool] = True
    """Yes, with the uniform blanket."""

    def least_mass(self, local_epsilon: float) -> float:
        """The blanket's weight, `gamma`: the blanket is the normalised least density."""
        return float(self.gamma(np.array([local_epsilon]))[0])

    @abstractmethod
    def gamma(self, local_epsilon: Floats) -> Floats:
        """The blanket's weight for each local epsilon, rounded down. Shape (T,), in [0, 1]."""

    @abstractmethod
    def averaged(self, local_epsilon: float, law: CountLaw, tail: float) -> Callable[[float], tuple[float, float]]:
        """Returns epsilon -> (mean of delta(m) over the law, bound on its absolute error) for a victim's budget."""

    @abstractmethod
    def divergence(self, local_epsilon: float) -> float:
        """The sum of (p0 - p1)^2 / omega, for the first guess of epsilon."""

    @abstractmethod
    def buckets(self, mean: float) -> int:
        """Into how many buckets the blanket count may be put when its mean is `mean`."""

    def profile(self, victim: Victim, others: Others, delta: float | None) -> Curve:
        """See `Randomizer.profile`."""
        law = self.count_law(others, delta)
        tail = DEFAULT_TAIL if delta is None else max(1e-250, delta * 1e-7)
        averaged = self.averaged(victim.local_epsilon, law, tail)
        divergence = self.divergence(victim.local_epsilon)
        ends = np.array([others.local_epsilon.max(initial=0.0), others.local_epsilon.min(initial=math.inf)])
        blanket = Statement.of(ProofStep.NO_BLANKET, randomizer=self.name)
        if others.count.size:
            least, most = self.gamma(ends)
            blanket = Statement.of(ProofStep.UNIFORM_BLANKET, randomizer=self.name, least=least, most=most)
        return CountProfile(law, averaged, divergence, blanket, victim.local_epsilon)

    def count_law(self, others: Others, delta: float | None) -> CountLaw:
        """A lower bound for the number of honest blanket messages, cut and bucketed as the target allows."""
        return others.once((self, delta), lambda these: self._count_law(these, delta))

    def _count_law(self, others: Others, delta: float | None) -> CountLaw:
        gamma, count = without_largest(self.gamma(others.local_epsilon), others.count, others.dishonest)
        tail = DEFAULT_TAIL if delta is None else max(1e-250, min(1e-15, delta * 1e-7))
        law = blanket_count(gamma, count, tail=tail)
        size = self.buckets(law.mean)
        if law.counts.size <= size:
            return law
        return law.coarsened(size if delta is not None else 4 * size, tail)
