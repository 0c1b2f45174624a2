"""The least fakes with which one honest hop guarantees an epsilon at a delta (docs/hop-noise.md, section 3).

A law has a rate a and a radius c. Fakes grow with c, and their noise falls with a: of all laws that guarantee enough
this is one of the least c, and of those the one of the largest a. `HopNoiseProfile` has proved its guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from croupier.accountant.bounds.hop_noise import HopNoiseProfile
from croupier.accountant.hop_kernel import precision_for
from croupier.accountant.mechanisms.base import Randomizer
from croupier.protocol.fake_law import MAX_DELTA, MAX_EPSILON, MIN_DELTA, MIN_EPSILON, FakeLaw
from croupier.protocol.hop_noise import MAX_MEAN_FAKES, HopNoise, RoundFakes

FEW_VALUES = 100
"""A report that names one of at most this many values changes two counts, for which the law of the values is exact."""
NEAR = 1e-7
"""The logarithm of a rate is searched to this distance."""
BELOW = 1 - 5e-4
"""The divergence is to be below delta by this factor, so that the search of a certificate finds no larger epsilon."""
LOWER = 1 - 1e-5
"""A rate that is not proved is lowered by this factor."""
MOST_RADIUS = 100_000
"""No rate needs a larger one."""


@dataclass(frozen=True)
class HopGuarantee:
    """What one honest hop's fakes should guarantee: an epsilon at a delta, for local budgets up to one."""

    epsilon: float
    delta: float
    local_epsilon: float = RoundFakes.accepted_local_epsilon

    def __post_init__(self) -> None:
        """Raises ValueError for an epsilon or a delta outside the ranges of hop noise."""
        HopNoise(self.epsilon, self.delta)

    @property
    def of_values(self) -> HopNoise:
        """The law with this guarantee for reports that are the value, and so for all."""
        return HopNoise(self.epsilon, self.delta)


class TooManyFakes(ValueError):
    """A guarantee that takes more fakes than a hop adds."""


@lru_cache(maxsize=256)
def least_fakes(randomizer: Randomizer, wanted: HopGuarantee) -> HopNoise:
    """Returns the hop noise whose fakes are the fewest with this guarantee.

    Raises:
        TooManyFakes: it takes more fakes than a hop adds.
    """
    search = _Laws(randomizer, wanted)
    if search.values <= FEW_VALUES and all(n == 1 for pair in search.pairs for n, p0, p1 in pair if p0 > p1):
        return wanted.of_values
    most = min(MOST_RADIUS, MAX_MEAN_FAKES // search.values)
    low, high = 0, 1
    while (rate := search.rate(high)) is None and high < most:
        low, high = high, min(2 * high, most)
    while rate is not None and high - low > 1:
        middle = (low + high) // 2
        if (other := search.rate(middle)) is None:
            low = middle
        else:
            high, rate = middle, other
    while rate is not None and rate >= search.least:
        noise = search.noise(rate, high)
        profile = HopNoiseProfile(noise.law(search.values), search.pairs, search.precision)
        if profile.delta(wanted.epsilon).value <= wanted.delta * BELOW:
            return noise
        rate *= LOWER
    raise TooManyFakes(
        f"hop_noise is {wanted.epsilon:g} at delta {wanted.delta:g} for {randomizer.name}; it must be larger: this one "
        f"takes more than {MAX_MEAN_FAKES:,} fake reports of every hop"
    )


class _Laws:
    """The laws for a randomizer's reports, and about what they guarantee."""

    def __init__(self, randomizer: Randomizer, wanted: HopGuarantee) -> None:
        self.wanted, self.values = wanted, randomizer.num_report_values or 0
        self.precision = precision_for(wanted.local_epsilon)
        self.pairs = randomizer.report_pairs(wanted.local_epsilon)
        self._counts = 1 if self.values == 2 else 2  # how many counts a person changes
        self.least, self._most = MIN_EPSILON / self._counts, MAX_EPSILON / self._counts

    def noise(self, rate: float, radius: int) -> HopNoise:
        """Returns the hop noise of a law."""
        unhidden = self._law(rate, radius).delta * (1 + 1e-9)
        return HopNoise(min(rate, self._most) * self._counts, min(max(unhidden, MIN_DELTA), MAX_DELTA))

    def _law(self, rate: float, radius: int) -> FakeLaw:
        power = math.exp(-rate * radius)
        edge = -math.expm1(-rate) * power / (1 + math.exp(-rate) - 2 * power * math.exp(-rate))
        return FakeLaw(self.values, 1 / rate, radius, edge, edge if self._counts == 1 else 2 * edge - edge**2)

    def _excess(self, rate: float, radius: int) -> float:
        """Returns about the logarithm of the divergence, relative to delta; at most 0 where a law is enough."""
        law = self._law(rate, radius)
        if law.delta > MAX_DELTA:
            return math.log(law.delta / MAX_DELTA) + 100
        reached = HopNoiseProfile(law, self.pairs, self.precision).estimate(self.wanted.epsilon)
        return math.log(max(reached, 1e-300) / (self.wanted.delta * BELOW))

    def rate(self, radius: int) -> float | None:
        """Returns the largest rate that is enough with this radius, about; None if none is.

        The divergence falls with the rate as long as recognised reports decide, and then grows.
        """
        from scipy.optimize import brentq, minimize_scalar

        def excess(log_rate: float) -> float:
            return self._excess(math.exp(log_rate), radius)

        low, high = math.log(self.least), math.log(self._most)
        if excess(high) <= 0:
            return self._most
        lowest = float(minimize_scalar(excess, bounds=(low, high), method="bounded", options={"xatol": NEAR}).x)
        return math.exp(brentq(excess, lowest, high, xtol=NEAR)) if excess(lowest) <= 0 else None
