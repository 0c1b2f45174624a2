"""A number plus noise of an exponential family: the blanket is a density, optimised for each victim."""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from croupier.accountant.bounds.density_blanket import BlanketProfile, Cells, RateBins, best_blanket
from croupier.accountant.bounds.profile import Curve, NoAmplification, Others, Victim
from croupier.accountant.bounds.spans import SpanProfile
from croupier.accountant.mechanisms.additive_noise import AdditiveNoise, interval_cells
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.numerics.binomial import Floats
from croupier.accountant.numerics.gaussian import gaussian_epsilon
from croupier.accountant.ranges import check_count
from croupier.protocol.codes import ProofStep
from croupier.protocol.statements import Statement

DEFAULT_DELTA = 1e-9
"""What a blanket is searched for where no target delta says it."""
TAIL_SHARES = (1e-4, 0.03, 0.2)
"""Shares of delta that the victim's tail beyond a blanket may take."""
SPAN_SHARE = 0.1
"""The same, where many victims are covered at once."""
FINE, COARSE, SPAN_FINE = 0.002, 0.03, 0.006
"""Relative widths of the cells on which noise is computed, on which its blanket is searched for, and for spans."""
MAX_STEPS = 2.0**52
"""How many lattice steps the noise may reach over: half steps are counted in floats, which are exact up to 2^53."""
MAX_REACH = 1e6
"""How many times the interval Gaussian noise may reach over: its cells are half as wide, and a million take a GB."""
FIRST_PART = 0.01
"""The relative width of the first part of a span of victims."""


@dataclass(frozen=True)
class NoisyValue(Randomizer):
    """A value clipped to [0, 1] plus noise of an exponential family; on multiples of 1/lattice, if that is given."""

    lattice: int | None = None

    def __post_init__(self) -> None:
        if self.lattice is not None:
            check_count(self.lattice, "lattice", 1)

    @property
    @abstractmethod
    def noise(self) -> AdditiveNoise:
        """The family of the noise."""

    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """1, and the variance of the noise."""
        moments = [self.noise.variance(rate) for rate in self.rates(local_epsilon, local_delta).tolist()]
        return np.ones(local_epsilon.shape), np.array(moments)

    def variances(self, local_epsilon: Floats, local_delta: Floats, count: Floats) -> tuple[float, float] | None:
        """See `Randomizer.variances`."""
        noise = float(self.signal(local_epsilon, local_delta)[1] @ count)
        return noise, noise + float(count.sum()) / 4

    @abstractmethod
    def rates(self, local_epsilon: Floats, local_delta: Floats) -> Floats:
        """The natural parameter of the noise for each local budget. Shape (T,). Raises ValueError naming the budget."""

    def profile(self, victim: Victim, others: Others, delta: float | None) -> Curve:
        """See `Randomizer.profile`."""
        ends = np.array(victim.span or [(victim.local_epsilon, victim.local_delta)])
        rates = self.rates(ends[:, 0], ends[:, 1])
        least, rate = float(rates[0]), float(rates[-1])
        reach, _ = self._around(least, min(TAIL_SHARES), others, delta)
        most = MAX_REACH if not self.noise.falls_geometrically else math.inf
        most = most if self.lattice is None else min(most, MAX_STEPS / self.lattice)
        if reach > most:
            return NoAmplification(
                Statement.of(ProofStep.NOISE_REACHES_FAR, reach=min(reach, sys.float_info.max), most=most)
            )
        leader = self._single(victim, rate, others, delta)
        if least >= rate:
            return leader

        def part(low: float, high: float) -> BlanketProfile:
            reach, expected = self._around(low, SPAN_SHARE, others, delta)
            cells, coarse = (
                interval_cells(self.noise, low, high, reach, width, expected) for width in (SPAN_FINE, COARSE)
            )
            return self._best(victim, cells, coarse, reach, others, leader.parameters)

        first = part(max(least, rate * (1 - FIRST_PART)), rate)
        covered, geometric = (
            Statement.of(ProofStep.RATES_COVERED, least=least, most=rate),
            self.noise.falls_geometrically,
        )
        return SpanProfile(first, least, rate, FIRST_PART, part, covered, are_budgets=geometric)

    def _single(self, victim: Victim, rate: float, others: Others, delta: float | None) -> BlanketProfile:
        """The curve of a victim of this rate; the blanket's reach is tried at several losses."""
        tried = [self._blanket(victim, rate, share, others, delta) for share in TAIL_SHARES]
        target = DEFAULT_DELTA if delta is None else delta
        point = min(victim.local_epsilon / 2, *(curve.guess(target) for curve in tried))
        return min(tried, key=lambda curve: curve.estimate(point))

    def _blanket(
        self, victim: Victim, rate: float, share: float, others: Others, delta: float | None
    ) -> BlanketProfile:
        reach, expected = self._around(rate, share, others, delta)
        cells, coarse = (interval_cells(self.noise, rate, rate, reach, width, expected) for width in (FINE, COARSE))
        return self._best(victim, cells, coarse, reach, others)

    def _around(self, rate: float, share: float, others: Others, delta: float | None) -> tuple[float, float]:
        """How far from the interval a blanket for a victim of this rate may end, and about which epsilon to expect."""
        target = DEFAULT_DELTA if delta is None else delta
        reach = max(self.noise.tail_at(max(share * target, 1e-300), rate), 1e-3)
        # Roughly where the answer will be: a Gaussian among the honest others, whose noise has this rate.
        return reach, 10 * gaussian_epsilon(math.sqrt(2 * rate / (others.honest + 1)), target)

    def _best(
        self,
        victim: Victim,
        cells: Cells,
        coarse: Cells,
        reach: float,
        others: Others,
        start: Floats | None = None,
    ) -> BlanketProfile:
        blanket = Statement.of(ProofStep.DENSITY_BLANKET, randomizer=self.name, reach=reach)
        bins = others.once(self, self._rate_bins)
        return best_blanket(victim.local_epsilon, cells, coarse, bins, blanket, start)

    def _rate_bins(self, others: Others) -> RateBins:
        rates = self.rates(others.local_epsilon, others.local_delta)
        return RateBins.of(rates, others.count, others.dishonest)
