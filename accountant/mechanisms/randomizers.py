"""The local randomizers the accountant knows: each states its blanket, everything else follows.

A randomizer with a closed form gives the weight gamma of its blanket and delta(m); see docs/accounting.md, section 2.
The classes describe mechanisms for accounting; sampling from them is the client's business.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from accountant.bounds.closed_forms import KaryTable, binary_delta
from accountant.bounds.density_blanket import MAX_RATES, BlanketCurve, Cells, Crowd, LossPair, SpanCurve, best_blanket
from accountant.bounds.exact_binary import ExactBinaryCurve, is_enumerable
from accountant.bounds.profile import CountCurve, DeltaCurve, Others, Victim
from accountant.mechanisms.additive_noise import AdditiveNoise, GaussianNoise, LaplaceNoise, interval_cells
from accountant.numerics.binomial import UNIT, Floats
from accountant.numerics.count_law import CountLaw, blanket_count, without_largest
from accountant.numerics.gaussian import gaussian_epsilon, gaussian_sigma
from accountant.results import check_count
from protocol.calibration import gaussian_sigma_steps, unit_delta, unit_sigma

DEFAULT_TAIL = 1e-30
"""Mass of the blanket count that may be cut (and added to delta) when no target delta says how much is too much."""
TAIL_SHARES = (1e-4, 0.03, 0.2)
"""Shares of delta that the victim's tail beyond a blanket may take."""
SPAN_SHARE = 0.1
"""The same, where many victims are covered at once."""
FINE, COARSE, SPAN_FINE = 0.002, 0.03, 0.006
"""Relative widths of the cells on which noise is computed, on which its blanket is searched for, and for spans."""


@dataclass(frozen=True)
class Randomizer(ABC):
    """A family of local randomizers, one member for every local budget."""

    kind: ClassVar[str]
    """As in `protocol.mechanisms`, for what a question can ask for; registries are keyed by it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The short name with its parameters, as printed in certificates."""

    @property
    @abstractmethod
    def statement(self) -> str:
        """What every client is assumed to run, in one sentence."""

    @property
    def spends_local_delta(self) -> bool:
        """Whether a report is only (epsilon, delta)-private by itself, and not epsilon-private."""
        return False

    @property
    def unit(self) -> str:
        """Whose data the guarantee is for: that of a user, or only a record of one."""
        return "user"

    @property
    def local_assumptions(self) -> tuple[str, ...]:
        """All that a certificate rests on where shuffling adds nothing by design; empty where it may add something."""
        return ()

    @abstractmethod
    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """What a report is worth to the analyzer: (gain, variance), each (T,), for each local budget.

        The mean of a report moves by `gain` when the value moves by the whole range (1), and has that variance at most.
        The estimate of a mean or a share from all reports has the standard error sqrt(sum variance) / sum gain.
        """

    @abstractmethod
    def curve(self, victim: Victim, others: Others, delta: float | None) -> DeltaCurve | str:
        """The central delta(epsilon) of the victim among the others, or the reason why there is no amplification.

        delta is the target, if there is one: it only decides how finely to compute.
        """


@dataclass(frozen=True)
class ClosedFormRandomizer(Randomizer):
    """A pure randomizer whose blanket gives delta(m) in closed form."""

    @abstractmethod
    def gamma(self, local_epsilon: Floats) -> Floats:
        """The blanket's weight for each local epsilon, rounded down. Shape (T,), in [0, 1]."""

    @abstractmethod
    def averaged(self, local_epsilon: float, law: CountLaw, tail: float) -> Callable[[float], tuple[float, float]]:
        """epsilon -> (mean of delta(m) over the law, bound on its absolute error), for a victim at local_epsilon."""

    @abstractmethod
    def divergence(self, local_epsilon: float) -> float:
        """The sum of (p0 - p1)^2 / omega, for the first guess of epsilon."""

    @abstractmethod
    def buckets(self, mean: float) -> int:
        """Into how many buckets the blanket count may be put when its mean is `mean`."""

    def curve(self, victim: Victim, others: Others, delta: float | None) -> DeltaCurve | str:
        """See `Randomizer.curve`."""
        law = self.count_law(others, delta)
        tail = DEFAULT_TAIL if delta is None else max(1e-250, delta * 1e-7)
        averaged = self.averaged(victim.local_epsilon, law, tail)
        divergence = self.divergence(victim.local_epsilon)
        weights = self.gamma(others.local_epsilon)
        spread = f"{weights.min():.6g} to {weights.max():.6g}" if weights.size else "none"
        text = f"blanket of {self.name}: uniform, each user's weight gamma at its own budget, {spread}"
        return CountCurve(law, averaged, divergence, text)

    def count_law(self, others: Others, delta: float | None) -> CountLaw:
        """A lower bound for the number of honest blanket messages, cut and bucketed as the target allows."""
        key = (self.name, delta)
        if key not in others.laws:
            others.laws[key] = self._count_law(others, delta)
        return others.laws[key]

    def _count_law(self, others: Others, delta: float | None) -> CountLaw:
        gamma, count = without_largest(self.gamma(others.local_epsilon), others.count, others.dishonest)
        tail = DEFAULT_TAIL if delta is None else max(1e-250, min(1e-15, delta * 1e-7))
        law = blanket_count(gamma, count, tail=tail)
        size = self.buckets(law.mean)
        if law.counts.size <= size:
            return law
        return law.coarsened(size if delta is not None else 4 * size, tail)


def _lowered(gamma: Floats) -> Floats:
    # Each formula for gamma takes at most six rounded operations.
    return gamma * (1 - 8 * UNIT)


@dataclass(frozen=True)
class BinaryRandomizedResponse(ClosedFormRandomizer):
    """One bit, kept with probability e^v/(1+e^v) and flipped otherwise; v is the local epsilon."""

    kind: ClassVar[str] = "rr"

    @property
    def name(self) -> str:
        return "rr"

    @property
    def statement(self) -> str:
        return "every honest client runs binary randomised response with its own local epsilon"

    def gamma(self, local_epsilon: Floats) -> Floats:
        """2/(1+e^v)."""
        decay = np.exp(-local_epsilon)
        return _lowered(2 * decay / (1 + decay))

    def averaged(self, local_epsilon: float, law: CountLaw, tail: float) -> Callable[[float], tuple[float, float]]:
        """See `binary_delta`."""

        def mean(epsilon: float) -> tuple[float, float]:
            value, error = binary_delta(local_epsilon, epsilon, law.counts)
            return float(law.mass @ value), float(law.mass @ error)

        return mean

    def curve(self, victim: Victim, others: Others, delta: float | None) -> DeltaCurve | str:
        """The exact worst case where all data sets of the others can be looked at, else the blanket bound."""
        largest = max(victim.local_epsilon, float(others.local_epsilon.max(initial=0.0)))
        few = victim.least_epsilon is None and is_enumerable(largest, others.count, others.dishonest, others.thorough)
        if self.reports_are_bits and few:
            count = others.count - (others.dishonest if others.count.size == 1 else 0)
            return ExactBinaryCurve(victim.local_epsilon, others.local_epsilon, count)
        return super().curve(victim, others, delta)

    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """tanh(v/2), and e^v/(1+e^v)^2: the share of ones; for a rounded number at most 1/4."""
        gain = np.tanh(local_epsilon / 2)
        return gain, (1 - gain * gain) / 4

    @property
    def reports_are_bits(self) -> bool:
        """Whether bits are all that users can report: then the number of ones is all that a batch shows."""
        return True

    def divergence(self, local_epsilon: float) -> float:
        """4 tanh^2(v/2)."""
        return 4 * math.tanh(local_epsilon / 2) ** 2

    def buckets(self, mean: float) -> int:
        """Enough for a relative error of epsilon below 1e-4 at any size."""
        return 2048


@dataclass(frozen=True)
class OneBitMean(BinaryRandomizedResponse):
    """A value clipped to [lo, hi], rounded at random to one of the two ends, then binary randomised response."""

    kind: ClassVar[str] = "onebit"

    @property
    def name(self) -> str:
        return "onebit"

    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """tanh(v/2), and 1/4, the variance at the middle of the interval."""
        return np.tanh(local_epsilon / 2), np.full(local_epsilon.shape, 0.25)

    @property
    def statement(self) -> str:
        return (
            "every honest client clips its value, rounds it at random to one bit and runs binary randomised response "
            "with its own local epsilon"
        )


@dataclass(frozen=True)
class KaryRandomizedResponse(ClosedFormRandomizer):
    """One of k values, kept with probability e^v/(e^v+k-1), each other value with 1/(e^v+k-1)."""

    kind: ClassVar[str] = "krr"
    k: int

    def __post_init__(self) -> None:
        check_count(self.k, "k", 2)

    @property
    def name(self) -> str:
        return f"krr(k={self.k})"

    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """(e^v-1)/Z, and the variance of the count of a letter that nobody holds, (1/Z)(1-1/Z), Z = e^v+k-1."""
        other = 1 / (np.exp(local_epsilon) + self.k - 1)
        return np.expm1(local_epsilon) * other, other * (1 - other)

    @property
    def statement(self) -> str:
        return f"every honest client runs {self.k}-ary randomised response with its own local epsilon"

    def gamma(self, local_epsilon: Floats) -> Floats:
        """k/(e^v+k-1)."""
        decay = np.exp(-local_epsilon)
        return _lowered(self.k * decay / (1 + (self.k - 1) * decay))

    def averaged(self, local_epsilon: float, law: CountLaw, tail: float) -> Callable[[float], tuple[float, float]]:
        """See `KaryTable`; two values are binary randomised response."""
        if self.k == 2:
            return BinaryRandomizedResponse().averaged(local_epsilon, law, tail)
        return KaryTable(local_epsilon, self.k, law.counts, law.mass, tail).delta

    def divergence(self, local_epsilon: float) -> float:
        """2 k (e^v-1)^2 / (e^v+k-1)^2."""
        decay = math.exp(-local_epsilon)
        return 2 * self.k * ((1 - decay) / (1 + (self.k - 1) * decay)) ** 2

    def buckets(self, mean: float) -> int:
        """Fewer where a count matters less: the relative loss in epsilon is about 3/(buckets * sqrt(mean))."""
        return 2048 if self.k == 2 else int(np.clip(20_000 / max(mean, 1.0) ** 0.5, 32, 1024))


@dataclass(frozen=True)
class HemisphereMechanism(BinaryRandomizedResponse):
    """A unit vector in R^d in, a uniform point of its half sphere with probability e^v/(1+e^v), else of the other half.

    The certificate is that of binary randomised response in any dimension (docs/accounting.md, section 2.1).
    """

    kind: ClassVar[str] = "hemisphere"
    dimension: int = 2

    def __post_init__(self) -> None:
        check_count(self.dimension, "dimension", 1)

    @property
    def reports_are_bits(self) -> bool:
        """Points of a sphere are not: the bound is that of bits, the exact worst case is not."""
        return False

    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """One coordinate of a mean of vectors in the unit ball: tanh(v/2) E|z_1| and 1/d."""
        d = self.dimension
        length = math.exp(math.lgamma(d / 2) - math.lgamma((d + 1) / 2)) / math.sqrt(math.pi)
        return np.tanh(local_epsilon / 2) * length, np.full(local_epsilon.shape, 1 / d)

    @property
    def name(self) -> str:
        return f"hemisphere(d={self.dimension})"

    @property
    def statement(self) -> str:
        return (
            "every honest client reports a uniform point of the half sphere around its unit vector with probability "
            "e^v/(1+e^v) and of the opposite one otherwise, v its own local epsilon"
        )


def _target(delta: float | None) -> float:
    return 1e-9 if delta is None else delta


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

    def curve(self, victim: Victim, others: Others, delta: float | None) -> DeltaCurve | str:
        """See `Randomizer.curve`."""
        deltas = np.array([victim.local_delta])
        (rate,) = self.rates(np.array([victim.local_epsilon]), deltas).tolist()
        leader = self._single(victim, rate, others, delta)
        if victim.least_epsilon is None or victim.least_epsilon >= victim.local_epsilon:
            return leader
        (least,) = self.rates(np.array([victim.least_epsilon]), deltas).tolist()
        latest = leader.parameters

        def between(low: float, high: float) -> BlanketCurve:
            nonlocal latest
            curve = self._blanket(low, high, SPAN_SHARE, others, delta, latest)
            latest = curve.parameters
            return curve

        return SpanCurve(leader, least, rate, between, delta)

    def _single(self, victim: Victim, rate: float, others: Others, delta: float | None) -> BlanketCurve:
        """The curve of a victim of this rate; the blanket's reach is tried at several losses."""
        tried = [self._blanket(rate, rate, share, others, delta, None) for share in TAIL_SHARES]
        point = min(victim.local_epsilon / 2, *(curve.guess(_target(delta)) for curve in tried))
        return min(tried, key=lambda curve: curve.delta(point).value)

    def _blanket(
        self, least: float, rate: float, share: float, others: Others, delta: float | None, start: Floats | None
    ) -> BlanketCurve:
        target = _target(delta)
        reach = max(self.noise.tail_at(share * target, least), 1e-3)
        fine = FINE if least == rate else SPAN_FINE
        # Roughly where the answer will be: a Gaussian among the honest others, whose noise has this rate.
        expected = 10 * gaussian_epsilon(math.sqrt(2 * rate / (others.honest + 1)), target)
        cells, coarse = (interval_cells(self.noise, least, rate, reach, width, expected) for width in (fine, COARSE))
        text = f"blanket of {self.name}: the others' least density, cut at a multiple of |p0-p1|, reach {reach:.4g}"
        return best_blanket(cells, coarse, self._crowd(others), max(1e-250, min(1e-15, target * 1e-7)), text, start)

    def _crowd(self, others: Others) -> Crowd:
        if self not in others.crowds:
            rates = self.rates(others.local_epsilon, others.local_delta)
            others.crowds[self] = Crowd.of(rates, others.count, others.dishonest)
        crowd: Crowd = others.crowds[self]
        return crowd


@dataclass(frozen=True)
class LaplaceMechanism(NoisyValue):
    """A value clipped to [0, 1], plus Laplace noise of scale 1/v; v is the local epsilon."""

    kind: ClassVar[str] = "laplace"

    @property
    def name(self) -> str:
        return "laplace"

    @property
    def statement(self) -> str:
        where = "" if self.lattice is None else f", both on multiples of 1/{self.lattice}"
        return f"every honest client adds Laplace noise of scale 1/(its own local epsilon) to a value in [0, 1]{where}"

    @property
    def noise(self) -> AdditiveNoise:
        return LaplaceNoise(self.lattice)

    def rates(self, local_epsilon: Floats, local_delta: Floats) -> Floats:
        """The local epsilon itself."""
        return local_epsilon


@dataclass(frozen=True)
class GaussianMechanism(NoisyValue):
    """A value clipped to [0, 1], plus Gaussian noise calibrated to the local (epsilon, delta); or a vector in R^d."""

    kind: ClassVar[str] = "gaussian"
    dimension: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.dimension, "dimension", 1)

    @property
    def name(self) -> str:
        return "gaussian" if self.dimension == 1 else f"gaussian(d={self.dimension})"

    @property
    def statement(self) -> str:
        where = "" if self.lattice is None else f", both on multiples of 1/{self.lattice}"
        return (
            f"every honest client adds Gaussian noise to a value in [0, 1]{where}, its sigma calibrated analytically "
            "to its own local (epsilon, delta)"
        )

    @property
    def spends_local_delta(self) -> bool:
        return True

    @property
    def noise(self) -> AdditiveNoise:
        return GaussianNoise(self.lattice)

    def rates(self, local_epsilon: Floats, local_delta: Floats) -> Floats:
        """1/(2 sigma^2): analytic calibration on the line, the deployment's own exact one on a lattice."""
        rates = []
        for epsilon, delta in zip(local_epsilon.tolist(), local_delta.tolist(), strict=True):
            if self.lattice is None:
                sigma = gaussian_sigma(epsilon, delta)
            else:
                sigma = gaussian_sigma_steps(epsilon, delta, self.lattice) / self.lattice
            rates.append(1 / (2 * sigma**2))
        return np.array(rates)

    def curve(self, victim: Victim, others: Others, delta: float | None) -> DeltaCurve | str:
        """See `NoisyValue.curve`; in more than one dimension there is no common blanket."""
        if self.dimension > 1:
            return (
                f"no amplification: in {self.dimension} dimensions the length of a report shows its own sigma, and the "
                "ratio of the densities is exponentially small; the certificate is the local budget"
            )
        return super().curve(victim, others, delta)


@dataclass(frozen=True)
class RecordGaussian(Randomizer):
    """The mean of at least `records` vectors of a client, each clipped, plus N(0, sigma^2 I) for one of the records.

    Never amplified: the length of a report tells its sigma (docs/accounting.md, section 4.1). The local guarantee is
    that of a Gaussian mechanism of mu = 1/sigma for sensitivity 1, in every dimension.
    """

    kind: ClassVar[str] = "gaussian_vector"
    dimension: int
    records: int

    def __post_init__(self) -> None:
        check_count(self.dimension, "dimension", 1)
        check_count(self.records, "records", 1)

    @property
    def name(self) -> str:
        return f"gaussian_vector(d={self.dimension}, records={self.records})"

    @property
    def statement(self) -> str:
        return (
            f"every honest client clips the vector of each of its records, of which it has at least {self.records}, "
            "and adds Gaussian noise to their mean, its sigma calibrated analytically to its own local "
            "(epsilon, delta) and to what one of its records can move"
        )

    @property
    def unit(self) -> str:
        return "record"

    @property
    def local_assumptions(self) -> tuple[str, ...]:
        return (
            "RECORD level, not user level: neighbouring data sets differ in one record of one client (replace-one)",
            "a person with several records, in one client or in several, is not protected as a whole",
            self.statement,
            "the number of records of every client is public and does not depend on the data",
            "the length of a report tells its tier: shuffling is not counted on, and this is the local guarantee, "
            "whoever else colludes",
            "the multiset of local budgets is public and does not depend on the data",
        )

    @property
    def spends_local_delta(self) -> bool:
        return True

    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """One coordinate of the mean, in units of the clipping norm: 1, and sigma^2."""
        sigmas = [
            2 * unit_sigma(epsilon, delta) / self.records
            for epsilon, delta in zip(local_epsilon.tolist(), local_delta.tolist(), strict=True)
        ]
        return np.ones(local_epsilon.shape), np.square(sigmas)

    def local_profile(self, local_epsilon: float, local_delta: float, points: int) -> tuple[tuple[float, float], ...]:
        """Points (epsilon, delta) of the local guarantee, rounded up, from 0 to where delta is about 10^-15."""
        sigma = unit_sigma(local_epsilon, local_delta)
        grid = np.linspace(0.0, gaussian_epsilon(1 / sigma, 1e-15), points).tolist()
        deltas = np.minimum.accumulate([unit_delta(sigma, epsilon) for epsilon in grid]).tolist()
        return tuple(zip(grid, deltas, strict=True))

    def curve(self, victim: Victim, others: Others, delta: float | None) -> DeltaCurve | str:
        """No curve: the reason why."""
        return (
            f"no amplification: the length of a report in {self.dimension} dimensions shows its own sigma; the "
            "certificate is the local budget of one record"
        )


@dataclass(frozen=True, eq=False)
class TableMechanism(Randomizer):
    """Any randomizer with finitely many outputs: one table of probabilities for every local budget that is in use.

    tables: local epsilon -> float64 (inputs, outputs), rows adding up to 1. A density is a table once its outputs are
    cut into cells by a post-processing (rounding a report, for instance).
    Raises ValueError for tables of different shapes, masses that do not add up, or a ratio above e^epsilon.
    """

    kind: ClassVar[str] = "table"
    tables: Mapping[float, Floats]
    label: str = "table"

    def __post_init__(self) -> None:
        if not self.tables:
            raise ValueError("tables is empty; allowed is one table for every local budget")
        shapes = {np.shape(table) for table in self.tables.values()}
        if len(shapes) != 1 or len(min(shapes)) != 2 or min(min(shapes)) < 2:
            raise ValueError(f"tables have shapes {sorted(shapes)}; allowed is one shape (inputs >= 2, outputs >= 2)")
        for epsilon, table in self.tables.items():
            if not ((table >= 0).all() and np.allclose(table.sum(axis=1), 1, atol=1e-9, rtol=0)):
                raise ValueError(
                    f"table {epsilon!r} has rows {table.sum(axis=1)!r}; allowed is masses that add up to 1"
                )
            if (table.max(axis=0) > math.exp(epsilon) * table.min(axis=0) * (1 + 1e-9)).any():
                raise ValueError(f"table {epsilon!r} has a ratio above e^epsilon; allowed is a pure local budget")

    @property
    def name(self) -> str:
        return self.label

    @property
    def statement(self) -> str:
        return f"every honest client draws its report from the declared table {self.label!r} of its own local epsilon"

    def curve(self, victim: Victim, others: Others, delta: float | None) -> DeltaCurve | str:
        """See `Randomizer.curve`; the worst of all pairs of inputs."""
        missing = sorted({victim.local_epsilon, *others.local_epsilon.tolist()} - set(self.tables))
        if missing:
            raise ValueError(f"local epsilon {missing[0]!r} has no table; allowed is {sorted(self.tables)}")
        if others.local_epsilon.size > MAX_RATES:
            raise ValueError(f"{others.local_epsilon.size} local budgets; allowed with tables is at most {MAX_RATES}")
        cells = self._cells(victim.local_epsilon)
        crowd = Crowd.of(others.local_epsilon, others.count, others.dishonest)
        tail = max(1e-250, min(1e-15, _target(delta) * 1e-7))
        return best_blanket(cells, cells, crowd, tail, f"blanket of {self.label}: the others' least masses")

    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """Unknown: a table does not say how it is read. Raises ValueError."""
        raise ValueError(f"{self.label!r} is a table; the accuracy of what is estimated from it is not known here")

    def _cells(self, local_epsilon: float) -> Cells:
        known = np.array(sorted(self.tables))
        with np.errstate(divide="ignore"):
            floors = np.log(np.stack([self.tables[float(epsilon)].min(axis=0) for epsilon in known]))

        def log_floor(rates: Floats) -> Floats:
            # Rates in between are only asked for while searching; they take the nearest table.
            nearest = np.abs(np.log(known)[None, :] - np.log(rates)[:, None]).argmin(axis=1)
            return np.asarray(floors[nearest])

        table = self.tables[local_epsilon]
        outputs, width = np.arange(table.shape[1]), np.ones(table.shape[1])
        pairs = tuple(
            LossPair(outputs, width, p0, p0, p0, p1, p1, p1)
            for first, p0 in enumerate(table)
            for second, p1 in enumerate(table)
            if first != second
        )
        return Cells(width, log_floor, pairs, shape=lambda omega: omega, pool=lambda values: values)


def randomizer_from_name(name: str, **parameters: Any) -> Randomizer:
    """`rr`, `onebit`, `krr` (k=...), `laplace`, `gaussian`, `hemisphere`. Raises ValueError naming what is allowed."""
    known: dict[str, type[Randomizer]] = {
        "rr": BinaryRandomizedResponse,
        "onebit": OneBitMean,
        "krr": KaryRandomizedResponse,
        "laplace": LaplaceMechanism,
        "gaussian": GaussianMechanism,
        "hemisphere": HemisphereMechanism,
    }
    if name not in known:
        raise ValueError(f"randomizer is {name!r}; allowed is {', '.join(sorted(known))}")
    try:
        return known[name](**parameters)
    except TypeError as error:
        raise ValueError(f"parameters of {name!r} are {parameters!r}; {error}") from None
