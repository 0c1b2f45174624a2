"""What is asked: the question, its domain, and the wire form of a report.

Every role reads a `Question` from the manifest. How a value is randomized is the client's room, how reports are counted
the analyzer's, what they cost the accountant's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

__all__ = [
    "JOINING",
    "MAX_DIMENSION",
    "MAX_RECORDS",
    "RANDOMIZERS",
    "Question",
    "RandomizerName",
    "Turns",
    "VectorTask",
    "choose_budget",
    "encode_report",
]

RandomizerName = Literal["rr", "krr", "onebit", "laplace", "gaussian", "hemisphere", "gaussian-vector"]
RANDOMIZERS: tuple[RandomizerName, ...] = get_args(RandomizerName)

MAX_DIMENSION = 1 << 18
MAX_RECORDS = 1 << 30
JOINING = b"\0"
"""In turns: what stands in the place of a report when a client submits its budget."""
_FLOAT_BYTES = 4
_MAX_PERIOD_MS = 600_000
_MAX_LETTERS = 1 << 20
_MAX_LATTICE = 1 << 31
_MAX_GAUSSIAN_LATTICE = 1000
_MAX_LAPLACE_REPORT = 1 << 62
_REPORT_BYTES = 8
_GAUSSIAN_CLIPPING = (1e-20, 1e20)


@dataclass(frozen=True)
class Turns:
    """Clients answer one after the other, and the analyzer takes a step after each (GSPA, Algorithm 3).

    Attributes:
        period_ms: how long each client has; its answer is passed on when the time is over. 1 .. 600,000.
        learning_rate: of the analyzer's step; finite, > 0.
    """

    period_ms: int
    learning_rate: float

    def __post_init__(self) -> None:
        if not 1 <= self.period_ms <= _MAX_PERIOD_MS:
            raise ValueError(f"period_ms is {self.period_ms}; allowed are 1..{_MAX_PERIOD_MS}")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ValueError(f"learning_rate is {self.learning_rate}; allowed are finite numbers above 0")


@dataclass(frozen=True)
class VectorTask:
    """What a vector is the gradient of.

    Attributes:
        dimension: 1 .. 2^18.
        clipping_norm: every client's vector (gaussian-vector: every record's) is at most so long; finite, > 0.
        model: a name for people; the client brings the model.
        parameters: where the gradient is asked for, float32, little-endian; in turns, of the first client.
        turns: None where all clients answer at once.
    """

    dimension: int
    clipping_norm: float
    model: str
    parameters: bytes
    turns: Turns | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.dimension <= MAX_DIMENSION:
            raise ValueError(f"dimension is {self.dimension}; allowed are 1..{MAX_DIMENSION}")
        if not (math.isfinite(self.clipping_norm) and self.clipping_norm > 0):
            raise ValueError(f"clipping_norm is {self.clipping_norm}; allowed are finite numbers above 0")
        if len(self.parameters) != _FLOAT_BYTES * self.dimension:
            raise ValueError(
                f"parameters have {len(self.parameters)} bytes; {self.dimension} of them have "
                f"{_FLOAT_BYTES * self.dimension}"
            )


@dataclass(frozen=True)
class Question:
    """A question and the local randomizer that every client must run for it.

    Attributes:
        name: short, for people.
        randomizer: "rr" for a bit, "krr" for one of k letters, "hemisphere" for a vector, "gaussian-vector" for the
            mean of a client's records' vectors (one record is protected), the others for a number in [low, high].
        k: krr only: the number of letters, 2 .. 2^20.
        low, high: onebit, laplace and gaussian: finite, low < high.
        lattice: laplace, gaussian: the number of steps between low and high that values are rounded to, 1 .. 2^31
            (gaussian: 1 .. 1000).
        local_delta: gaussian, gaussian-vector: the delta of every local budget, 1e-15 .. 0.1.
        labels: krr only, optional: the names of the k letters as they stand in people's data.
        vector: hemisphere, gaussian-vector; there clipping_norm is 1e-20 .. 1e20, so that float32 holds every report.
        records_per_client: gaussian-vector only: the records that every client has at least, public, 1 .. 2^30.

    Raises:
        ValueError: at construction, with the field, its value and the allowed range.
    """

    name: str
    randomizer: RandomizerName
    k: int | None = None
    low: float | None = None
    high: float | None = None
    lattice: int | None = None
    labels: tuple[str, ...] = ()
    local_delta: float | None = None
    vector: VectorTask | None = None
    records_per_client: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= 64 or not self.name.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"name is {self.name!r}; allowed are 1..64 letters, digits, '-' and '_'")
        if self.randomizer not in RANDOMIZERS:
            raise ValueError(f"randomizer is {self.randomizer!r}; allowed are {', '.join(RANDOMIZERS)}")
        letters, interval, lattice = {
            "rr": (False, False, False),
            "krr": (True, False, False),
            "onebit": (False, True, False),
            "laplace": (False, True, True),
            "gaussian": (False, True, True),
            "hemisphere": (False, False, False),
            "gaussian-vector": (False, False, False),
        }[self.randomizer]
        self._check_presence("k", self.k, letters)
        self._check_presence("low", self.low, interval)
        self._check_presence("high", self.high, interval)
        self._check_presence("lattice", self.lattice, lattice)
        records = self.randomizer == "gaussian-vector"
        self._check_presence("vector", self.vector, records or self.randomizer == "hemisphere")
        self._check_presence("records_per_client", self.records_per_client, records)
        if self.k is not None and not 2 <= self.k <= _MAX_LETTERS:
            raise ValueError(f"k is {self.k}; allowed are 2..{_MAX_LETTERS}")
        if self.low is not None and self.high is not None:
            width = self.high - self.low
            if not (math.isfinite(self.low) and math.isfinite(self.high) and math.isfinite(width) and width > 0):
                raise ValueError(f"the interval is [{self.low}, {self.high}]; low < high, both finite, is required")
        if self.lattice is not None and not 1 <= self.lattice <= _MAX_LATTICE:
            raise ValueError(f"lattice is {self.lattice}; allowed are 1..{_MAX_LATTICE}")
        self._check_presence("local_delta", self.local_delta, records or self.randomizer == "gaussian")
        if self.local_delta is not None:
            if not 1e-15 <= self.local_delta <= 0.1:
                raise ValueError(f"local_delta is {self.local_delta}; allowed are 1e-15..0.1")
            if (self.lattice or 0) > _MAX_GAUSSIAN_LATTICE:
                raise ValueError(f"lattice is {self.lattice}; allowed are 1..{_MAX_GAUSSIAN_LATTICE} for gaussian")
        if self.records_per_client is not None and not 1 <= self.records_per_client <= MAX_RECORDS:
            raise ValueError(f"records_per_client is {self.records_per_client}; allowed are 1..{MAX_RECORDS}")
        if records and self.vector is not None:
            low, high = _GAUSSIAN_CLIPPING
            if not low <= self.vector.clipping_norm <= high:
                raise ValueError(
                    f"clipping_norm is {self.vector.clipping_norm}; allowed are {low:g}..{high:g} for gaussian-vector"
                )
        if self.labels and (len(self.labels) != self.k or len(set(self.labels)) != self.k):
            raise ValueError(f"labels are {self.labels}; {self.k} different names are required")

    def _check_presence(self, field: str, value: object, needed: bool) -> None:
        if needed and value is None:
            raise ValueError(f"{field} is missing; {self.randomizer} needs it")
        if not needed and value is not None:
            raise ValueError(f"{field} is {value}, but {self.randomizer} has no {field}")

    @property
    def report_bytes(self) -> int:
        """The exact size of a report."""
        return _REPORT_BYTES if self.vector is None else _FLOAT_BYTES * self.vector.dimension

    @property
    def turns(self) -> Turns | None:
        """How clients take turns; None where they answer all at once."""
        return None if self.vector is None else self.vector.turns

    @property
    def submitted_bytes(self) -> int:
        """The exact size of what a client submits beside its budget: its report, in turns only that it takes part."""
        return self.report_bytes if self.turns is None else len(JOINING)

    @property
    def letters(self) -> tuple[str, ...]:
        """The names of the k letters of a krr question; their numbers if there are no labels."""
        return self.labels or tuple(str(letter) for letter in range(self.k or 0))

    @property
    def interval(self) -> tuple[float, float]:
        """(low, high) of an onebit, laplace or gaussian question.

        Raises:
            ValueError: the question is about something else.
        """
        if self.low is None or self.high is None:
            raise ValueError(f"a {self.randomizer} question has no interval")
        return self.low, self.high

    def parse_value(self, text: str) -> float:
        """Returns a user's value: a bit, the number of a letter, or a number in [low, high].

        Raises:
            ValueError: naming the text and what is allowed. Nothing is clipped silently.
        """
        text = text.strip()
        if self.vector is not None:
            raise ValueError(f"value is {text!r}; this round takes gradients, see 'croupier train'")
        if self.randomizer == "krr":
            number = _as_letter(text, self.letters)
            if number is None:
                raise ValueError(f"value is {text!r}; allowed are the letters {_shorten(self.letters)}")
            return number
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if self.randomizer == "rr":
            if value not in (0.0, 1.0):
                raise ValueError(f"value is {text!r}; allowed are 0 and 1")
            return int(value)
        low, high = self.interval
        if not low <= value <= high:
            raise ValueError(f"value is {text!r}; allowed are numbers in [{low:g}, {high:g}]")
        return value

    def decode_report(self, plaintext: bytes) -> int:
        """Returns the report that a client sent to a question that is not about vectors.

        Raises:
            ValueError: no client that follows the protocol can have sent it.
        """
        if len(plaintext) != _REPORT_BYTES:
            raise ValueError(f"a report has {len(plaintext)} bytes; {_REPORT_BYTES} are required")
        report = int.from_bytes(plaintext, "big", signed=True)
        if self.randomizer in ("laplace", "gaussian"):
            low, high = -_MAX_LAPLACE_REPORT, _MAX_LAPLACE_REPORT
        else:
            low, high = 0, (self.k or 2) - 1
        if not low <= report <= high:
            raise ValueError(f"report is {report}; allowed are {low}..{high}")
        return report


def encode_report(report: int) -> bytes:
    """Returns a report as it travels: a signed 64-bit integer, big-endian."""
    return report.to_bytes(_REPORT_BYTES, "big", signed=True)


def choose_budget(max_local_epsilon: float, grid: Sequence[float]) -> float:
    """Returns the largest local epsilon of the grid that is at most `max_local_epsilon`.

    Raises:
        ValueError: `max_local_epsilon` is not a finite number > 0, or is below every budget of the grid.
    """
    if not (math.isfinite(max_local_epsilon) and max_local_epsilon > 0):
        raise ValueError(f"max_local_epsilon is {max_local_epsilon}; it must be a finite number > 0")
    within = [budget for budget in grid if budget <= max_local_epsilon]
    if not within:
        raise ValueError(
            f"max_local_epsilon is {max_local_epsilon}; it must be at least {min(grid)}, this round's smallest"
        )
    return max(within)


def _as_letter(text: str, letters: Sequence[str]) -> int | None:
    if text in letters:
        return letters.index(text)
    try:
        number = float(text)
    except ValueError:
        return None
    for index, letter in enumerate(letters):  # "3.0" in somebody's file is the letter "3"
        try:
            if float(letter) == number:
                return index
        except ValueError:
            continue
    return None


def _shorten(letters: Sequence[str]) -> str:
    shown = ", ".join(letters[:12])
    return shown if len(letters) <= 12 else f"{shown}, … ({len(letters)} in all)"
