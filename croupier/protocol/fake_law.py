"""The law of the noise of a count: of the fake reports of a hop, and of the people with a budget (`tier_counts`).

Every service derives the same law from an epsilon and a delta, with 60 decimal digits: the clients and the accountant
to certify it, the hops to draw from it, the analyzer to subtract its mean. Drawing is left to `runtime.noise`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import ClassVar

from croupier.protocol.mechanisms.checks import check_number

MIN_EPSILON = 0.001
MAX_EPSILON = 20.0
MIN_DELTA = 1e-12
MAX_DELTA = 1e-3

_DIGITS = 60
_EXACT = Context(prec=_DIGITS, Emin=-999_999, Emax=999_999)
_MARGIN = Decimal(1) + Decimal(10) ** -40
"""More than 60 digits lose in a dozen operations: a probability times the margin is never below the exact one."""


@dataclass(frozen=True)
class StatedNoise:
    """The epsilon and delta that a manifest states for an optional noise of a round.

    Raises:
        ValueError: epsilon outside [0.001, 20], or delta outside [1e-12, 1e-3].
    """

    name: ClassVar[str]

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_number(f"{self.name} epsilon", self.epsilon, MIN_EPSILON, MAX_EPSILON)
        check_number(f"{self.name} delta", self.delta, MIN_DELTA, MAX_DELTA)


@dataclass(frozen=True)
class FakeLaw:
    """How many fake reports of each value one hop adds.

    With two values a hop adds radius + Z reports of the second and radius - Z of the first, 2 radius in all. With more
    values it adds radius + Z_b reports of each value b, independently. Z is discrete Laplace noise,
    Pr[Z = z] proportional to exp(-|z| / scale), conditioned on |Z| <= radius.

    Attributes:
        num_values: how many different reports there are, k.
        scale: of the noise, in reports; a float that is at least 1/a, where a is epsilon (k = 2) or epsilon/2.
        radius: the largest |Z|, c in docs/hop-noise.md.
        edge: Pr[Z = radius], rounded up.
        delta: the mass of counts that only one of two values of a client's report can give, rounded up.
    """

    num_values: int
    scale: float
    radius: int
    edge: float
    delta: float

    @property
    def is_paired(self) -> bool:
        """Whether a hop's fakes of the two values add up to a constant."""
        return self.num_values == 2

    @property
    def loss(self) -> float:
        """The privacy loss of one count that changes by one, a, rounded up."""
        return math.nextafter(1 / self.scale, math.inf)

    @property
    def mean_total(self) -> int:
        """The mean number of fakes of one hop; for two values, always the number itself."""
        return self.radius * self.num_values

    @property
    def most(self) -> int:
        """The largest number of fakes of one hop, which is how many tickets the accountant gives it."""
        return 2 * self.radius if self.is_paired else 2 * self.radius * self.num_values

    @property
    def variance(self) -> float:
        """The variance of Z, which is the variance of the number of fakes of one value."""
        return self._moment(2)

    @property
    def fourth_cumulant(self) -> float:
        """The fourth cumulant of Z: E[Z^4] - 3 variance^2."""
        return self._moment(4) - 3 * self.variance**2

    def _moment(self, order: int) -> float:
        q = math.exp(-1 / self.scale)
        weights = [q**z for z in range(self.radius + 1)]
        return 2 * math.fsum(z**order * weight for z, weight in enumerate(weights)) / (2 * math.fsum(weights) - 1)

    def influence(self, tickets: int) -> int:
        """Returns by how many reports one dishonest hop can move the count of a value, at most, rounded up.

        Let the hop add f fakes, f_b of them with the value b, pass on all but d reports, d_b of them with the value b,
        and state t fakes and no loss. The accountant refuses t > tickets. The analyzer subtracts t/k from the count of
        b, which is then wrong by f_b - d_b - t/k, with 0 <= f_b <= f <= tickets. Behind hop 1 the numbers must add up,
        so t = f - d and 0 <= d_b <= d = f - t. Hop 1 states itself how many reports it has received: there reports that
        are lost beyond f - t show as tickets without a report, as every loss at hop 1 does.

        * k >= 3: t may be anything in [0, 2ck]. The hop moves the count most with t = 0: it replaces clients' reports
          by all of its fakes, and nothing is subtracted. Then f_b - d_b is up to `tickets` either way.
        * k = 2: t is 2c, so f - c is the largest excess, and d + c = f - c the largest deficit: tickets - c.

        With s reports that the hop states as lost, d = f - t + s, so that a count moves by at most s more. Any hop of
        any round can do that; certificates state losses.

        Args:
            tickets: how many tickets for fakes the accountant gave the hop.
        """
        return max(self.radius, tickets - self.radius) if self.is_paired else tickets

    def check_total(self, total: int) -> None:
        """Raises ValueError for a number of fakes that no honest hop adds."""
        least = self.most if self.is_paired else 0
        if not least <= total <= self.most:
            must = f"{least}" if least else f"in [0, {self.most}]"
            raise ValueError(f"{total} fake reports; there must be {must}")

    def check_counts(self, counts: list[int]) -> None:
        """Raises ValueError where no honest hop has drawn these numbers of fakes, one for each value."""
        if len(counts) != self.num_values:
            raise ValueError(f"{len(counts)} counts of fakes; there must be one for each of {self.num_values} values")
        least, most = min(counts), max(counts)
        if least < 0 or most > 2 * self.radius:
            raise ValueError(
                f"a count of fakes is {least if least < 0 else most}; it must be in [0, {2 * self.radius}]"
            )
        if self.is_paired and sum(counts) != 2 * self.radius:
            raise ValueError(f"{sum(counts)} fakes; there must be {2 * self.radius}")


@lru_cache(maxsize=256)
def law_of(epsilon: float, delta: float, num_values: int) -> FakeLaw:
    """Returns the law for reports with this many possible values, at least 2; 3: one person changes two counts."""
    if num_values < 2:
        raise ValueError(f"num_values is {num_values}; it must be at least 2")
    with localcontext(_EXACT):
        loss = Decimal(epsilon) if num_values == 2 else Decimal(epsilon) / 2
        scale = _float_above(1 / loss)
        rate = 1 / Decimal(scale)
        least, most = 1, 1 + math.ceil((Decimal(2).ln() - Decimal(delta).ln()) / rate)  # where 2 q^c <= delta
        while least < most:
            middle = (least + most) // 2
            if _masses(rate, middle, num_values)[1] <= Decimal(delta):
                most = middle
            else:
                least = middle + 1
        edge, unhidden = _masses(rate, least, num_values)
        return FakeLaw(num_values, scale, least, _float_above(edge), _float_above(unhidden))


def _masses(rate: Decimal, radius: int, num_values: int) -> tuple[Decimal, Decimal]:
    """Returns Pr[Z = radius], and the mass of counts that only one of two reports can give; both rounded up."""
    q = (-rate).exp()
    power = (-rate * radius).exp()
    edge = (1 - q) * power / (1 + q - 2 * power * q)
    unhidden = edge if num_values == 2 else 2 * edge - edge * edge
    return edge * _MARGIN, unhidden * _MARGIN


def _float_above(value: Decimal) -> float:
    near = float(value)
    return near if Decimal(near) >= value else math.nextafter(near, math.inf)
