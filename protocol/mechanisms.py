"""The mechanisms: one class for each kind of local randomizer, with its parameters, its values and its reports.

This is the one place that says what a kind is. Every class mirrors the message of its field in `Question.mechanism`
(proto/protocol/v1/messages.proto), field by field, and checks itself at construction. What a role does with a kind is
looked up there: in `client.randomizers`, `analyzer.estimators`, `accountant.mechanisms.registry` and
`accountant.attacks.lower_bound`, by the kind's name. docs/add-a-mechanism.md adds one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Self

from croupier.protocol.calibration import ROUNDING, gaussian_sigma_steps, unit_sigma
from croupier.protocol.shown import check_shown

__all__ = [
    "MAX_DIMENSION",
    "MAX_LOCAL_DELTA",
    "MAX_RECORDS",
    "MECHANISMS",
    "Gaussian",
    "GaussianVector",
    "Hemisphere",
    "IntervalMechanism",
    "KaryResponse",
    "Laplace",
    "LatticeMechanism",
    "Mechanism",
    "OneBit",
    "RandomizedResponse",
    "ScalarMechanism",
    "SequentialOrder",
    "VectorMechanism",
    "VectorTask",
    "mechanism_from",
]

MAX_DIMENSION = 1 << 18
MAX_RECORDS = 1 << 30
_FLOAT_BYTES = 4
_INTEGER_BYTES = 8
_MAX_PERIOD_MS = 600_000
_MAX_CATEGORIES = 1 << 15  # a result holds all of them, and a message at most 4 MiB
_MAX_LABEL_BYTES = 1 << 20
_MAX_LATTICE = 1 << 31
_MAX_GAUSSIAN_LATTICE = 1000
_MAX_LATTICE_REPORT = 1 << 62
MAX_LOCAL_DELTA = 1e-3
"""The largest delta of a local budget: a randomizer may publish the answer itself with this probability, and still be
(epsilon, delta)-differentially private, however small its epsilon. More than one person in a thousand is no privacy."""
_MIN_LOCAL_DELTA = 1e-15
_GAUSSIAN_CLIPPING = (1e-20, 1e20)


@dataclass(frozen=True)
class Mechanism(ABC):
    """A local randomizer that every client of a round runs, with its public parameters.

    Raises:
        ValueError: at construction, with the parameter, its value and what it must be.
    """

    kind: ClassVar[str]
    """The name of the field of `Question.mechanism`; all registries are keyed by it."""
    values_are_text: ClassVar[bool] = True
    """Whether people can write their values down, one to a line."""
    tiers_merge: ClassVar[bool] = False
    """Whether a round may count rare budgets with larger ones. A smaller budget must be a larger one mixed with the
    same law for all values, so that it does not stand out in the certificate, and estimates must know what it does."""

    @property
    @abstractmethod
    def report_bytes(self) -> int:
        """The exact size of a report."""

    @property
    def budget_delta(self) -> float:
        """The delta of every local budget; 0 where a report is epsilon-private by itself."""
        return 0.0

    @property
    def categories(self) -> tuple[str, ...]:
        """The names of the categories whose shares are asked for; none where one number or a vector is."""
        return ()

    @property
    def task(self) -> VectorTask | None:
        """What the values are the gradients of; None where they are not vectors."""
        return None

    @classmethod
    def read(cls, message: Any) -> Self:
        """Returns what a message of this kind states.

        Raises:
            ValueError: a parameter is missing or out of range.
        """
        return cls(**{one.name: getattr(message, one.name) for one in fields(cls)})

    @abstractmethod
    def parse_value(self, text: str) -> Any:
        """Returns a user's value as it is written down.

        Raises:
            ValueError: with the text and what it must be. Nothing is clipped silently.
        """

    @abstractmethod
    def encode_report(self, report: Any) -> bytes:
        """Returns a report as it travels."""

    def check_budget(self, epsilon: float) -> None:  # noqa: B027 (most kinds take every budget that a manifest may have)
        """Raises ValueError for a local epsilon in (0, 20] that no client could report with."""


@dataclass(frozen=True)
class ScalarMechanism(Mechanism):
    """A mechanism whose report is one integer: a signed 64-bit one, big-endian."""

    @property
    def report_bytes(self) -> int:
        """See `Mechanism.report_bytes`."""
        return _INTEGER_BYTES

    @property
    @abstractmethod
    def report_range(self) -> tuple[int, int]:
        """The smallest and the largest report that a client can send."""

    @abstractmethod
    def check_value(self, value: float) -> None:
        """Raises ValueError for a value that is not in the domain."""

    def encode_report(self, report: int) -> bytes:
        """See `Mechanism.encode_report`."""
        return report.to_bytes(_INTEGER_BYTES, "big", signed=True)

    def decode_report(self, plaintext: bytes) -> int:
        """Returns the report that a client sent.

        Raises:
            ValueError: no client that follows the protocol can have sent it.
        """
        if len(plaintext) != _INTEGER_BYTES:
            raise ValueError(f"a report has {len(plaintext)} bytes; it must be {_INTEGER_BYTES}")
        report = int.from_bytes(plaintext, "big", signed=True)
        low, high = self.report_range
        if not low <= report <= high:
            raise ValueError(f"report is {report}; it must be {low}..{high}")
        return report


@dataclass(frozen=True)
class RandomizedResponse(ScalarMechanism):
    """A bit, reported with probability e^v/(1+e^v) and flipped otherwise; v is the local epsilon."""

    kind: ClassVar[str] = "rr"
    tiers_merge: ClassVar[bool] = True

    @property
    def report_range(self) -> tuple[int, int]:
        """See `ScalarMechanism.report_range`."""
        return 0, 1

    def check_value(self, value: float) -> None:
        """See `ScalarMechanism.check_value`."""
        if value not in (0, 1):
            raise ValueError(f"value is {value}; it must be 0 or 1")

    def parse_value(self, text: str) -> int:
        """Returns the bit; see `Mechanism.parse_value`."""
        value = _number(text)
        if value not in (0.0, 1.0):
            raise ValueError(f"value is {text.strip()!r}; it must be 0 or 1")
        return int(value)


@dataclass(frozen=True)
class KaryResponse(ScalarMechanism):
    """One of k categories; each other one is reported with probability 1/(e^v+k-1).

    Attributes:
        k: the number of categories, 2 .. 2^15.
        labels: none, or the names of the k categories as they stand in people's data; 2^20 bytes at most together, and
            only characters that `protocol.shown` lets through.
    """

    kind: ClassVar[str] = "krr"
    tiers_merge: ClassVar[bool] = True
    k: int
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(self.labels))
        _check_count("k", self.k, 2, _MAX_CATEGORIES)
        if self.labels and (len(self.labels) != self.k or len(set(self.labels)) != self.k):
            raise ValueError(f"labels are {_shorten(self.labels)}; they must be {self.k} different names")
        size = sum(len(label.encode()) for label in self.labels)
        if size > _MAX_LABEL_BYTES:
            raise ValueError(f"labels have {size} bytes; together they must have at most {_MAX_LABEL_BYTES}")
        for label in self.labels:
            check_shown("a label", label)

    @property
    def categories(self) -> tuple[str, ...]:
        """The labels; without them, the categories' numbers."""
        return self.labels or tuple(str(category) for category in range(self.k))

    @property
    def report_range(self) -> tuple[int, int]:
        """See `ScalarMechanism.report_range`."""
        return 0, self.k - 1

    def check_value(self, value: float) -> None:
        """See `ScalarMechanism.check_value`."""
        if value not in range(self.k):
            raise ValueError(f"value is {value}; it must be 0..{self.k - 1}")

    def parse_value(self, text: str) -> int:
        """Returns the number of the category; see `Mechanism.parse_value`."""
        category = _as_category(text.strip(), self.categories)
        if category is None:
            raise ValueError(f"value is {text.strip()!r}; it must be one of the categories {_shorten(self.categories)}")
        return category


@dataclass(frozen=True)
class IntervalMechanism(ScalarMechanism):
    """A number in [low, high].

    Attributes:
        low, high: finite, low < high.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        width = self.high - self.low
        if not (math.isfinite(self.low) and math.isfinite(self.high) and math.isfinite(width) and width > 0):
            raise ValueError(f"the interval is [{self.low}, {self.high}]; it must be finite with low < high")

    def check_value(self, value: float) -> None:
        """See `ScalarMechanism.check_value`."""
        if not self.low <= value <= self.high:
            raise ValueError(f"value is {value}; it must be a number in [{self.low:g}, {self.high:g}]")

    def parse_value(self, text: str) -> float:
        """Returns the number; see `Mechanism.parse_value`."""
        value = _number(text)
        if not self.low <= value <= self.high:
            raise ValueError(f"value is {text.strip()!r}; it must be a number in [{self.low:g}, {self.high:g}]")
        return value


@dataclass(frozen=True)
class OneBit(IntervalMechanism):
    """A number in [low, high], rounded at random to one of the ends, which is reported as a bit."""

    kind: ClassVar[str] = "onebit"
    tiers_merge: ClassVar[bool] = True

    @property
    def report_range(self) -> tuple[int, int]:
        """See `ScalarMechanism.report_range`."""
        return 0, 1


@dataclass(frozen=True)
class LatticeMechanism(IntervalMechanism):
    """A number rounded to low + j (high - low)/lattice, j = 0..lattice, plus integer noise; the report is a position j.

    The position may lie outside 0..lattice. The analyzer counts one that lies farther outside than `margin` as if it
    lay there, so that one false report moves a mean by a bounded amount.

    Attributes:
        lattice: the number of steps between low and high.
    """

    lattice: int = field(kw_only=True)

    def margin(self, least_epsilon: float) -> int:
        """Returns how many steps outside 0..lattice a report still counts as it is.

        least_epsilon: the smallest budget of the round's grid, whose noise is the largest.
        """
        return min(math.ceil(self.noise_steps(least_epsilon)), _MAX_LATTICE_REPORT - self.lattice)

    @abstractmethod
    def noise_steps(self, epsilon: float) -> float:
        """Returns how many steps of noise a report with this budget exceeds with a probability below 0.0004."""

    @property
    def report_range(self) -> tuple[int, int]:
        """See `ScalarMechanism.report_range`."""
        return -_MAX_LATTICE_REPORT, _MAX_LATTICE_REPORT


@dataclass(frozen=True)
class Laplace(LatticeMechanism):
    """Discrete Laplace noise on a lattice.

    Attributes:
        lattice: the number of steps between low and high, 1 .. 2^31.
    """

    kind: ClassVar[str] = "laplace"
    lattice: int = field(default=1_000_000, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_count("lattice", self.lattice, 1, _MAX_LATTICE)

    def noise_steps(self, epsilon: float) -> float:
        """See `LatticeMechanism.noise_steps`: eight scales, with a probability of e^-8."""
        return 8 * self.lattice / epsilon


@dataclass(frozen=True)
class Gaussian(LatticeMechanism):
    """Discrete Gaussian noise on a lattice.

    Attributes:
        local_delta: the delta of every local budget, 1e-15 .. 1e-3.
        lattice: the number of steps between low and high, 1 .. 1000.
    """

    kind: ClassVar[str] = "gaussian"
    local_delta: float
    lattice: int = field(default=100, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_number("local_delta", self.local_delta, _MIN_LOCAL_DELTA, MAX_LOCAL_DELTA)
        _check_count("lattice", self.lattice, 1, _MAX_GAUSSIAN_LATTICE)

    @property
    def budget_delta(self) -> float:
        """See `Mechanism.budget_delta`."""
        return self.local_delta

    def noise_steps(self, epsilon: float) -> float:
        """See `LatticeMechanism.noise_steps`: four and a half standard deviations."""
        return 4.5 * self.sigma_steps(epsilon)

    def sigma_steps(self, epsilon: float) -> float:
        """Returns the scale of the noise in lattice steps; raises ValueError as `gaussian_sigma_steps` does."""
        return gaussian_sigma_steps(epsilon, self.local_delta, self.lattice)


@dataclass(frozen=True)
class SequentialOrder:
    """Clients answer one after the other, and the analyzer takes a step after each (GSPA, Algorithm 3).

    Attributes:
        period_ms: how long each client has; its answer is passed on when the time is over. 1 .. 600,000.
        learning_rate: of the analyzer's step; finite, > 0.
    """

    period_ms: int
    learning_rate: float

    def __post_init__(self) -> None:
        _check_count("period_ms", self.period_ms, 1, _MAX_PERIOD_MS)
        _check_positive("learning_rate", self.learning_rate)


@dataclass(frozen=True)
class VectorTask:
    """What a vector is the gradient of.

    Attributes:
        dimension: 1 .. 2^18.
        clipping_norm: every client's vector (gaussian_vector: every record's) is at most so long; finite, > 0.
        model: a name for people; the client brings the model.
        parameters: where the gradient is asked for, float32, little-endian; in a sequential round, of the first client.
        sequential: None where all clients answer at once.
    """

    dimension: int
    clipping_norm: float
    model: str
    parameters: bytes
    sequential: SequentialOrder | None = None

    def __post_init__(self) -> None:
        _check_count("dimension", self.dimension, 1, MAX_DIMENSION)
        _check_positive("clipping_norm", self.clipping_norm)
        needed = _FLOAT_BYTES * self.dimension
        if len(self.parameters) != needed:
            raise ValueError(
                f"parameters have {len(self.parameters)} bytes; {self.dimension} of them must have {needed}"
            )
        check_shown("model", self.model)


@dataclass(frozen=True)
class VectorMechanism(Mechanism):
    """A mechanism whose report is a vector, float32 (dimension,), little-endian.

    Attributes:
        vector: what is asked for.
    """

    values_are_text: ClassVar[bool] = False
    vector: VectorTask

    @property
    def report_bytes(self) -> int:
        """See `Mechanism.report_bytes`."""
        return _FLOAT_BYTES * self.vector.dimension

    @property
    def task(self) -> VectorTask:
        """See `Mechanism.task`."""
        return self.vector

    @classmethod
    def read(cls, message: Any) -> Self:
        """See `Mechanism.read`."""
        if not message.HasField("vector"):
            raise ValueError(f"vector is missing; {cls.kind} needs it")
        task = message.vector
        order = task.sequential
        sequential = SequentialOrder(order.period_ms, order.learning_rate) if task.HasField("sequential") else None
        vector = VectorTask(task.dimension, task.clipping_norm, task.model, task.parameters, sequential)
        others = {one.name: getattr(message, one.name) for one in fields(cls) if one.name != "vector"}
        return cls(vector, **others)

    def parse_value(self, text: str) -> Any:
        """Raises ValueError: people do not write vectors down."""
        raise ValueError(f"value is {text!r}; this round takes gradients, see 'croupier train'")

    def encode_report(self, report: Any) -> bytes:
        """See `Mechanism.encode_report`; the report is a float32 array, of which a client without numpy has none."""
        return bytes(report.astype("<f4").tobytes())


@dataclass(frozen=True)
class Hemisphere(VectorMechanism):
    """A vector; a uniform point of the half sphere around it with probability e^v/(1+e^v), else of the other half."""

    kind: ClassVar[str] = "hemisphere"


@dataclass(frozen=True)
class GaussianVector(VectorMechanism):
    """The mean of the vectors of a client's records, each clipped, plus Gaussian noise; one record is protected.

    Attributes:
        vector: its clipping_norm is 1e-20 .. 1e20, so that float32 holds every report.
        records_per_client: the records that every client has at least, public, 1 .. 2^30.
        local_delta: the delta of every local budget, 1e-15 .. 1e-3.
    """

    kind: ClassVar[str] = "gaussian_vector"
    records_per_client: int
    local_delta: float

    def __post_init__(self) -> None:
        _check_number("clipping_norm", self.vector.clipping_norm, *_GAUSSIAN_CLIPPING)
        _check_count("records_per_client", self.records_per_client, 1, MAX_RECORDS)
        _check_number("local_delta", self.local_delta, _MIN_LOCAL_DELTA, MAX_LOCAL_DELTA)

    @property
    def budget_delta(self) -> float:
        """See `Mechanism.budget_delta`."""
        return self.local_delta

    def sigma(self, epsilon: float) -> float:
        """Returns the scale of the noise on each coordinate of a report made with this local epsilon.

        Replacing one of m records moves a mean of vectors of length at most C by at most 2C/m, and ROUNDING of it more
        in floating point (client.vectors has the argument). m is records_per_client: a client with more adds too much.

        Raises:
            ValueError: epsilon is outside (0, 20].
        """
        if not 0 < epsilon <= 20:
            raise ValueError(f"local budget is ({epsilon}, {self.local_delta}); it must be 0 < epsilon ≤ 20")
        sensitivity = 2 * self.vector.clipping_norm / self.records_per_client * (1 + ROUNDING)
        return sensitivity * unit_sigma(epsilon, self.local_delta)

    def check_budget(self, epsilon: float) -> None:
        """See `Mechanism.check_budget`."""
        self.sigma(epsilon)


MECHANISMS: dict[str, type[Mechanism]] = {
    one.kind: one for one in (RandomizedResponse, KaryResponse, OneBit, Laplace, Gaussian, Hemisphere, GaussianVector)
}
"""Every kind, by its name."""


def mechanism_from(kind: str, parameters: Mapping[str, Any]) -> Mechanism:
    """Returns the mechanism of a kind with these parameters; one that is None counts as not given.

    Raises:
        ValueError: an unknown kind, a parameter that is missing or has no place, or one out of range.
    """
    if kind not in MECHANISMS:
        raise ValueError(f"mechanism is {kind!r}; it must be one of {', '.join(MECHANISMS)}")
    known = {one.name: one for one in fields(MECHANISMS[kind])}
    given = {name: value for name, value in parameters.items() if value is not None}
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"{name} is {value}, but {kind} has no {name}")
    for name, parameter in known.items():
        if name not in given and parameter.default is MISSING:
            raise ValueError(f"{name} is missing; {kind} needs it")
    return MECHANISMS[kind](**given)


def _check_count(name: str, value: int, low: int, high: int) -> None:
    if value not in range(low, high + 1):
        raise ValueError(f"{name} is {value}; it must be {low}..{high}")


def _check_number(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; it must be {low:g}..{high:g}")


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} is {value}; it must be a finite number > 0")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _as_category(text: str, categories: Sequence[str]) -> int | None:
    if text in categories:
        return categories.index(text)
    try:
        number = float(text)
    except ValueError:
        return None
    for index, category in enumerate(categories):  # "3.0" in a file is the category "3"
        try:
            if float(category) == number:
                return index
        except ValueError:
            continue
    return None


def _shorten(categories: Sequence[str]) -> str:
    shown = ", ".join(categories[:12])
    return shown if len(categories) <= 12 else f"{shown}, … ({len(categories)} in all)"
