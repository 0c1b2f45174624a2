"""The public multiset of local budgets: how many users may spend how much, without identifying users.

`Budgets` holds the multiset as tiers sorted by local epsilon, whether it came from a million arbitrary floats, from a
table of tiers or from a CSV file. Every bad value is refused with its place and the range. `certify` computes the
central guarantee of the budgets.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from croupier.accountant.ranges import MAX_LOCAL_EPSILON, MAX_USERS, MIN_LOCAL_EPSILON, is_number, outside


@dataclass(frozen=True)
class Tier:
    """`count` users whose local randomizer is (local_epsilon, local_delta)-DP."""

    local_epsilon: float
    count: int
    local_delta: float = 0.0

    def __post_init__(self) -> None:
        """Raises ValueError for a value outside its range."""
        _check_row(self.local_epsilon, self.local_delta, self.count, "tier")


@dataclass(frozen=True, eq=False)
class Budgets:
    """The multiset of local budgets as tiers, distinct and sorted by (local_epsilon, local_delta).

    local_epsilon, local_delta: float64, shape (T,), ranges [1e-100, 500] and [0, 1). count: int64, shape (T,), >= 1.
    """

    local_epsilon: NDArray[np.float64]
    local_delta: NDArray[np.float64]
    count: NDArray[np.int64]

    def __post_init__(self) -> None:
        """Sorts and merges. Raises ValueError for a value outside its range, or no users."""
        if not (self.local_epsilon.shape == self.local_delta.shape == self.count.shape) or self.count.ndim != 1:
            raise ValueError(
                "local_epsilon, local_delta and count differ in shape; they must be three equal 1-D arrays"
            )
        if self.count.dtype.kind not in "iu" and self.count.size:
            raise ValueError(f"count is of type {self.count.dtype}; it must be an array of integers")
        if self.count.size == 0:
            raise ValueError("budgets are empty (0 users); they must hold at least one user")
        _check_arrays(self.local_epsilon, self.local_delta, self.count)
        small = int(self.count.max()) * self.count.size < 1 << 63
        total = int(self.count.sum()) if small else sum(self.count.tolist())
        if total > MAX_USERS:
            raise ValueError(f"budgets hold {total} users; they must hold at most {MAX_USERS}")
        if _all_equal(self.local_delta) and _all_equal(self.count):  # a million numbers are sorted faster by themselves
            eps, delta, count = np.sort(self.local_epsilon), self.local_delta.copy(), self.count.copy()
        else:
            order = np.lexsort((self.local_delta, self.local_epsilon))
            eps, delta, count = self.local_epsilon[order], self.local_delta[order], self.count[order]
        new = np.empty(eps.size, dtype=bool)
        new[0] = True
        new[1:] = (eps[1:] != eps[:-1]) | (delta[1:] != delta[:-1])
        if not new.all():
            starts = np.flatnonzero(new)
            eps, delta, count = eps[starts], delta[starts], np.add.reduceat(count, starts)
        for name, value in (("local_epsilon", eps), ("local_delta", delta), ("count", count)):
            value.flags.writeable = False
            object.__setattr__(self, name, value)

    @classmethod
    def from_epsilons(cls, epsilons: Iterable[float] | NDArray[np.float64]) -> Budgets:
        """Returns budgets of one user per number, in any order. Raises ValueError naming the first bad position."""
        given = epsilons if isinstance(epsilons, np.ndarray) else list(epsilons)
        if (given.dtype == bool) if isinstance(given, np.ndarray) else {bool, np.bool_} & {*map(type, given)}:
            raise ValueError("epsilons hold True or False; they must be numbers")
        try:
            values = np.array(given, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"epsilons cannot be read ({error}); they must be a flat sequence of numbers") from error
        if values.ndim != 1:
            raise ValueError(f"epsilons have {values.ndim} dimensions; they must be a flat sequence of numbers")
        return cls(values, np.zeros(values.size), np.ones(values.size, dtype=np.int64))

    @classmethod
    def from_tiers(cls, tiers: Iterable[Tier | Sequence[Any]]) -> Budgets:
        """Returns budgets from `Tier`s or tuples (local_epsilon, count) or (local_epsilon, count, local_delta)."""
        rows = [tier if isinstance(tier, Tier) else _tier(tier) for tier in tiers]
        return cls(
            np.array([row.local_epsilon for row in rows], dtype=np.float64),
            np.array([row.local_delta for row in rows], dtype=np.float64),
            np.array([row.count for row in rows], dtype=np.int64),
        )

    @classmethod
    def from_frame(cls, frame: Any) -> Budgets:
        """Returns budgets from a data frame of pandas or polars, with one row per tier or person.

        Args:
            frame: column `epsilon`, optionally `delta` (0 if absent) and `count` (1 if absent), as in a CSV file; a
                column `local_epsilon` is used instead, with `local_delta`. Other columns are ignored.

        Raises:
            ValueError: the column is missing, or holds a value outside its range, named with its position; or there is
                no `count` but a column with a similar name, such as `users`.
        """
        columns = [str(name) for name in frame.columns]
        prefix = "local_" if "local_epsilon" in columns else ""
        if f"{prefix}epsilon" not in columns:
            raise ValueError(f"columns are {columns}; one of them must be 'epsilon' or 'local_epsilon'")
        epsilon = _column(frame, f"{prefix}epsilon")
        delta = _column(frame, f"{prefix}delta") if f"{prefix}delta" in columns else np.zeros(epsilon.size)
        if "count" not in columns and (
            other := next((column for column in columns if column.lower() in _LIKE_COUNT), None)
        ):
            raise ValueError(
                f"column {other!r} is not read: rename it 'count' if it counts users, or else leave it out"
            )
        count = np.asarray(frame["count"]) if "count" in columns else np.ones(epsilon.size, dtype=np.int64)
        return cls(epsilon, delta, count)

    @classmethod
    def from_opendp(cls, measurements: Iterable[tuple[Any, int]], *, d_in: float) -> Budgets:
        """Returns the budgets that OpenDP states for people's measurements.

        OpenDP does not say which mechanism a measurement is. A certificate of these budgets is for the randomizer given
        to `certify`, and is only worth something if the measurements are that randomizer.

        Args:
            measurements: (measurement, people who run it).
            d_in: the largest distance between two values of one person, in the measurements' input metric.

        Raises:
            ValueError: a measurement's privacy measure is not MaxDivergence or its (ε, δ) curves.
        """
        return cls.from_tiers([_stated_by_opendp(measurement, count, d_in) for measurement, count in measurements])

    @property
    def num_users(self) -> int:
        """The number of users, n."""
        return int(self.count.sum())

    @property
    def num_tiers(self) -> int:
        """The number of distinct local budgets."""
        return int(self.count.size)

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """The tiers as objects, sorted by local epsilon; meant for few tiers."""
        rows = zip(self.local_epsilon.tolist(), self.count.tolist(), self.local_delta.tolist(), strict=True)
        return tuple(Tier(eps, count, delta) for eps, count, delta in rows)


class _Frame(Protocol):
    """A data frame of pandas or polars."""

    @property
    def columns(self) -> Any: ...

    def __getitem__(self, name: str, /) -> Any: ...


AnyBudgets = Budgets | _Frame | Mapping[float, int] | Iterable[float] | Iterable[Tier | Sequence[Any]]
"""Budgets in any form: see `as_budgets`."""


def as_budgets(budgets: AnyBudgets) -> Budgets:
    """Returns a multiset given in any form.

    Args:
        budgets: a multiset; a data frame, as for `Budgets.from_frame`; a mapping from local epsilon to users; `Tier`s
            or tuples, as for `Budgets.from_tiers`; or local epsilons, one user each.

    Raises:
        ValueError: it has another form, or holds a value outside its range.
    """
    if isinstance(budgets, Budgets):
        return budgets
    if hasattr(budgets, "columns"):
        return Budgets.from_frame(budgets)
    if getattr(budgets, "name", None) == "count":
        raise ValueError("budgets is a series of counts; it must be of local epsilons, or a mapping: series.to_dict()")
    if isinstance(budgets, Mapping):
        return Budgets.from_tiers([*budgets.items()])
    if isinstance(budgets, np.ndarray):
        return Budgets.from_epsilons(budgets)
    if isinstance(budgets, str | bytes) or not isinstance(budgets, Iterable):
        forms = "local epsilons, (local epsilon, users) pairs, a mapping or Budgets"
        raise outside("budgets", budgets, f"{forms}; read_budgets_csv reads a file")
    rows: list[Any] = list(budgets)
    if any(isinstance(row, Tier | list | tuple) for row in rows):
        return Budgets.from_tiers(rows)
    return Budgets.from_epsilons(rows)


def read_budgets_csv(path: str | Path) -> Budgets:
    """Reads a CSV file with a header: column `epsilon`, optionally `delta` (0 if absent) and `count` (1 if absent).

    Raises:
        ValueError: a column of another name, a row of another length, or a bad value, named with the file, its line and
            the range.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            header = [name.strip() for name in next(csv.reader(file), [])]
        _check_header(header)
        try:
            return _read_quickly(path, header)
        except (ValueError, OverflowError, OSError, Warning):
            # This finds the wrong line, or reads a file with quoted fields.
            with Path(path).open(newline="", encoding="utf-8-sig") as file:
                reader = csv.reader(file)
                next(reader)
                return _read_by_line(header, ((reader.line_num, row) for row in reader if row))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read; it must be a CSV file in UTF-8: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def budgets_in_rows(name: str, header: Sequence[str], rows: Iterable[tuple[int, Sequence[str]]]) -> Budgets:
    """Returns the budgets in a table that has been read: its header, and each row's cells with its line.

    Raises:
        ValueError: as `read_budgets_csv`, with the table's name.
    """
    try:
        _check_header(header)
        return _read_by_line(header, rows)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


_COLUMNS = ("epsilon", "delta", "count")


def _check_header(header: Sequence[str]) -> None:
    """Raises ValueError unless each column is a known one, and `epsilon` is among them."""
    if not header:
        raise ValueError("line 1 is empty; it must name the columns, one of them 'epsilon'")
    for place, name in enumerate(header):
        if name not in _COLUMNS:
            raise ValueError(f"line 1: column {place + 1} is {name!r}; it must be one of {', '.join(_COLUMNS)}")
        if name in header[:place]:
            raise ValueError(f"line 1: column {place + 1} is {name!r} again; each column must be named once")
    if "epsilon" not in header:
        raise ValueError(f"line 1: the columns are {', '.join(header)}; one of them must be 'epsilon'")


def _read_quickly(path: str | Path, header: list[str]) -> Budgets:
    """Reads plain numbers in their ranges, one row a line; raises an error or a Warning for anything else."""
    with Path(path).open("rb") as file:
        while part := file.read(1 << 20):
            if b'"' in part:
                raise ValueError("a field is quoted, and may hold a comma or the end of a line")
    types = [(name, np.int64 if name == "count" else np.float64) for name in header]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # for no rows, or for a count that is read as a float
        # Without usecols, a row of another length than the header is an error.
        table = np.loadtxt(path, np.dtype(types), comments=None, delimiter=",", skiprows=1, encoding="utf-8", ndmin=1)
    return Budgets(
        table["epsilon"],
        table["delta"] if "delta" in header else np.zeros(table.size),
        table["count"] if "count" in header else np.ones(table.size, dtype=np.int64),
    )


def _read_by_line(header: Sequence[str], rows: Iterable[tuple[int, Sequence[str]]]) -> Budgets:
    epsilons: list[float] = []
    deltas: list[float] = []
    counts: list[int] = []
    for line, row in rows:
        where = f"line {line}"
        if len(row) != len(header):
            raise ValueError(
                f"{where}: the number of fields is {len(row)}; it must be {len(header)}, as in the header: "
                f"{','.join(header)}"
            )
        cells = dict(zip(header, map(str.strip, row), strict=True))
        epsilons.append(
            _number(cells["epsilon"], "epsilon", f"{MIN_LOCAL_EPSILON:g} <= epsilon <= {MAX_LOCAL_EPSILON:g}", where)
        )
        deltas.append(_number(cells.get("delta", "0"), "delta", "0 <= delta < 1", where))
        counts.append(_integer(cells.get("count", "1"), where))
        _check_row(epsilons[-1], deltas[-1], counts[-1], where)
    if not epsilons:
        raise ValueError("line 1: the file has a header and no rows; it must hold at least one user")
    return Budgets(np.array(epsilons), np.array(deltas), np.array(counts, dtype=np.int64))


def _number(text: str, name: str, required: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{where}: local {name} is {text!r}; it must be {required}") from None


def _integer(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{where}: count is {text!r}; it must be an integer >= 1") from None


_LIKE_COUNT = frozenset(
    ["count", "counts", "n", "num", "num_users", "number", "people", "persons", "size", "users", "weight"]
)
"""Names of columns of counts that people use by mistake, in small letters."""


def _column(frame: Any, name: str) -> NDArray[np.float64]:
    if np.asarray(frame[name]).dtype == bool:
        raise ValueError(f"column {name!r} holds True or False; it must hold numbers")
    try:
        return np.asarray(frame[name], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"column {name!r} cannot be read ({error}); it must hold numbers") from error


def _stated_by_opendp(measurement: Any, count: int, d_in: float) -> Tier:
    measure, stated = str(measurement.output_measure), measurement.map(d_in)
    if measure == "MaxDivergence":
        return Tier(float(stated), count)
    if measure == "Approximate(MaxDivergence)":
        epsilon, delta = stated
        return Tier(float(epsilon), count, float(delta))
    raise ValueError(f"the measurement's privacy measure is {measure}; it must be MaxDivergence, ε-DP, or approximate")


def _tier(row: Any) -> Tier:
    if not isinstance(row, Sequence) or isinstance(row, str) or len(row) not in (2, 3):
        raise ValueError(f"tier is {row!r}; it must be (local_epsilon, count) or (local_epsilon, count, local_delta)")
    return Tier(*row)


def _check_row(local_epsilon: float, local_delta: float, count: int, where: str) -> None:
    if not (is_number(local_epsilon) and MIN_LOCAL_EPSILON <= local_epsilon <= MAX_LOCAL_EPSILON):
        raise ValueError(
            f"{where}: local epsilon is {local_epsilon!r}; "
            f"it must be {MIN_LOCAL_EPSILON:g} <= epsilon <= {MAX_LOCAL_EPSILON:g}"
        )
    if not (is_number(local_delta) and 0 <= local_delta < 1):
        raise ValueError(f"{where}: local delta is {local_delta!r}; it must be 0 <= delta < 1")
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 1 <= count <= MAX_USERS:
        raise ValueError(f"{where}: count is {count!r}; it must be an integer, 1 <= count <= {MAX_USERS}")


def _all_equal(values: NDArray[Any]) -> bool:
    return bool((values == values[0]).all())


def _check_arrays(epsilons: NDArray[np.float64], deltas: NDArray[np.float64], counts: NDArray[np.int64]) -> None:
    good = (epsilons >= MIN_LOCAL_EPSILON) & (epsilons <= MAX_LOCAL_EPSILON) & (deltas >= 0) & (deltas < 1)
    good &= (counts >= 1) & (counts <= MAX_USERS)
    if not good.all():
        first = int(np.argmin(good))
        _check_row(float(epsilons[first]), float(deltas[first]), int(counts[first]), f"position {first}")
