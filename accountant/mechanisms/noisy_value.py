"""A number plus noise of an exponential family: the blanket is a density, optimised for each victim."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from accountant.bounds.density_blanket import BlanketProfile, RateBins, SpanProfile, best_blanket
from accountant.bounds.profile import NoAmplification, Others, PrivacyProfile, Victim
from accountant.mechanisms.additive_noise import AdditiveNoise, interval_cells
from accountant.mechanisms.base import Randomizer
from accountant.numerics.binomial import Floats
from accountant.numerics.gaussian import gaussian_epsilon
from accountant.ranges import check_count

__all__ = ["DEFAULT_DELTA", "NoisyValue"]

DEFAULT_DELTA = 1e-9
"""What a blanket is searched for where no target delta says it."""
TAIL_SHARES = (1e-4, 0.03, 0.2)
"""Shares of delta that the victim's tail beyond a blanket may take."""
SPAN_SHARE = 0.1
"""The same, where many victims are covered at once."""
FINE, COARSE, SPAN_FINE = 0.002, 0.03, 0.006
"""Relative widths of the cells on which noise is computed, on which its blanket is searched for, and for spans."""


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

    @abstractmethod
    def rates(self, local_epsilon: Floats, local_delta: Floats) -> Floats:
        """The natural parameter of the noise for each local budget. Shape (T,). Raises ValueError naming the budget."""

    def profile(self, victim: Victim, others: Others, delta: float | None) -> PrivacyProfile | NoAmplification:
        """See `Randomizer.profile`."""
        ends = np.array(victim.span or [(victim.local_epsilon, victim.local_delta)])
        rates = self.rates(ends[:, 0], ends[:, 1])
        least, rate = float(rates[0]), float(rates[-1])
        leader = self._single(victim, rate, others, delta)
        if least >= rate:
            return leader
        latest = leader.parameters

        def between(low: float, high: float) -> BlanketProfile:
            nonlocal latest
            curve = self._blanket(low, high, SPAN_SHARE, others, delta, latest)
            latest = curve.parameters
            return curve

        return SpanProfile(leader, least, rate, between, delta)

    def _single(self, victim: Victim, rate: float, others: Others, delta: float | None) -> BlanketProfile:
        """The curve of a victim of this rate; the blanket's reach is tried at several losses."""
        tried = [self._blanket(rate, rate, share, others, delta, None) for share in TAIL_SHARES]
        target = DEFAULT_DELTA if delta is None else delta
        point = min(victim.local_epsilon / 2, *(curve.guess(target) for curve in tried))
        return min(tried, key=lambda curve: curve.delta(point).value)

    def _blanket(
        self, least: float, rate: float, share: float, others: Others, delta: float | None, start: Floats | None
    ) -> BlanketProfile:
        target = DEFAULT_DELTA if delta is None else delta
        reach = max(self.noise.tail_at(share * target, least), 1e-3)
        fine = FINE if least == rate else SPAN_FINE
        # Roughly where the answer will be: a Gaussian among the honest others, whose noise has this rate.
        expected = 10 * gaussian_epsilon(math.sqrt(2 * rate / (others.honest + 1)), target)
        cells, coarse = (interval_cells(self.noise, least, rate, reach, width, expected) for width in (fine, COARSE))
        text = f"blanket of {self.name}: the others' least density, cut at a multiple of |p0-p1|, reach {reach:.4g}"
        return best_blanket(cells, coarse, self._rate_bins(others), max(1e-250, min(1e-15, target * 1e-7)), text, start)

    def _rate_bins(self, others: Others) -> RateBins:
        if self not in others.rate_bins:
            rates = self.rates(others.local_epsilon, others.local_delta)
            others.rate_bins[self] = RateBins.of(rates, others.count, others.dishonest)
        bins: RateBins = others.rate_bins[self]
        return bins
