"""Examples from a file of one's own: CSV, Excel and Parquet tables, and numpy's .npz; one example a row.

A feature is a column of numbers as it is, or with its range, known beforehand, taken to -1..1. Ranges and classes
that are known beforehand cost no privacy. A target with a range is a number, taken to -1..1 as well. Without one it is
a class; the classes are read off the file, and published: every certificate assumes that they were known, so a class
that a single person has would show that person. `standardized` columns are fitted to the training examples, which no
certificate covers.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from croupier.deploy.local.columns import Columns
from croupier.deploy.local.sheets import MOST_CELLS, Frame, open_table
from croupier.training.config import TABLE_FEATURES, check_choice, with_range
from croupier.training.datasets import Dataset, Examples

_SPLIT_SEED = 7
_FEWEST, _MOST_CLASSES = 10, 1000
_LARGEST = 1e6
"""Features further from 0 than this make gradients of which float32 keeps too few digits."""
Array = NDArray[np.float64]


def load_table(
    path: str | Path,
    target: str | None = None,
    columns: Sequence[str] = (),
    features: str = "columns",
    note: Callable[[str], None] = lambda line: None,
) -> Dataset:
    """Returns the examples of a file, in a fixed random order: 70 % to train, 15 % to validate, 15 % to test.

    Args:
        path: .csv, .tsv, .txt, .xlsx, .xlsm or .parquet, a table with a header; or .npz, an array "X" of numbers
            (n, ...) and an array of targets (n,).
        target: the column or array of class labels, 2 to 1,000 different ones; or NAME:LOW:HIGH, numbers, of which
            those beyond the range are clipped; None: the array "y" of an .npz file.
        columns: of a table, NAME or NAME:LOW:HIGH of each feature; empty: all columns but the target, as they are.
        features: "columns", or "standardized": mean 0 and standard deviation 1 among the training examples.
        note: called with a line on what was assumed in order to read the file.

    Raises:
        ValueError: the file, a column, a value or a label cannot be used, with where it is and what it must be.
    """
    check_choice("features", features, TABLE_FEATURES)
    path = Path(path)
    target, span = (None, None) if target is None else with_range("target", target)
    if path.suffix.lower() == ".npz":
        if columns:
            raise ValueError(f"column is {list(columns)}; it must not be given for {path}: its features have no names")
        values, labels = _arrays(path, target or "y", classes=span is None)
    else:
        values, labels = _table(path, target, columns, note)
    names: tuple[str, ...] = ()
    if span is None:
        names, numbers = _classes(labels, path, target or "y")
        targets = torch.from_numpy(numbers)
    else:
        targets = torch.from_numpy(_measured(labels, path, target or "y", span).astype(np.float32))
    if len(targets) < _FEWEST:
        raise ValueError(f"{path} has {len(targets)} examples; it must have at least {_FEWEST}")
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(targets))
    held = max(1, round(0.15 * len(targets)))
    parts = np.split(order, [len(targets) - 2 * held, len(targets) - held])
    if features == "standardized":
        values = _standardized(values, parts[0])
    unit = 1.0 if span is None else (span[1] - span[0]) / 2
    everything = Examples(torch.from_numpy(values.astype(np.float32)), targets, unit)
    train, validation, test = (everything.part(torch.from_numpy(part)) for part in parts)
    return Dataset(path.stem, train, validation, test, len(names), 0, features, names)


def _standardized(values: Array, train: NDArray[np.int64]) -> Array:
    mean, deviation = values[train].mean(axis=0), values[train].std(axis=0)
    standardized: Array = (values - mean) / np.where(deviation > 0, deviation, 1.0)
    return standardized


def _arrays(path: Path, target: str, *, classes: bool) -> tuple[Array, list[str]]:
    """Returns the features (n, p) and the targets in an .npz file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError as error:
        raise ValueError(f"{path} does not exist") from error
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} cannot be read; it must be an .npz file of arrays of numbers or text: {error}"
        ) from error
    for name in ("X", target):
        if name not in arrays:
            raise ValueError(f"{path} has no array {name!r}; its arrays are {', '.join(sorted(arrays)) or 'none'}")
    values, labels = arrays["X"], arrays[target]
    if values.dtype.kind not in "biuf" or values.ndim < 2:
        raise ValueError(
            f"{path}: X is of type {values.dtype} and shape {values.shape}; it must be numbers of shape (n, p)"
        )
    if labels.shape != values.shape[:1]:
        raise ValueError(
            f"{path}: {target} has the shape {labels.shape}; it must be {values.shape[:1]}, a label for each row of X"
        )
    values = values.reshape(len(values), -1).astype(np.float64)
    bad = np.argwhere(~(np.abs(values) <= _LARGEST))
    if len(bad):
        row, column = bad[0]
        raise ValueError(
            f"{path}: X[{row}, {column}] is {values[row, column]:g}; it must be a number in {-_LARGEST:g}..{_LARGEST:g}"
        )
    if labels.dtype.kind == "f" and classes:
        odd = np.flatnonzero(labels != np.round(labels))  # NaN, too
        if len(odd):
            raise ValueError(
                f"{path}: {target}[{odd[0]}] is {labels[odd[0]]:g}; it must be a class, a whole number or a text; or "
                f"give its range: {target}:LOW:HIGH"
            )
        labels = labels.astype(np.int64)
    return values, [str(label) for label in labels.tolist()]


def _table(
    path: Path, target: str | None, columns: Sequence[str], note: Callable[[str], None]
) -> tuple[Array, list[str]]:
    """Returns the features (n, p) and the targets in a table."""
    table = _open(path)
    if target is None:
        raise ValueError(
            f"target is not given; it must be the column of class labels of {path}: {', '.join(table.names)}"
        )
    table.check([target])
    target = target.strip()
    chosen = [with_range("column", text) for text in columns] or [
        (name, None) for name in table.names if name != target
    ]
    table.check([name for name, _ in chosen])
    if not chosen:
        raise ValueError(f"{path} has no column but {target}; there must be at least one feature")
    if target in [name for name, _ in chosen]:
        raise ValueError(f"column is {target}; it must not be the target, which the model is to find")
    labels = []
    for line, text in table.column(target):
        if not text.strip():
            raise ValueError(f"{path}: line {line} has no {target}; every example must have a label")
        labels.append(text.strip())
    values = np.column_stack([_numbers(table, name, span) for name, span in chosen])
    if table.assumed:
        note(table.assumed)
    return values, labels


def _open(path: Path) -> Columns:
    if path.suffix.lower() != ".parquet":
        return open_table(path)
    if not path.is_file():
        raise ValueError(f"{path} does not exist")
    import polars

    try:
        scan = polars.scan_parquet(path)  # rows and columns are in its metadata
        cells = scan.select(polars.len()).collect().item() * len(scan.collect_schema())
        if cells > MOST_CELLS:
            raise ValueError(
                f"{path} has {cells:,} cells, and at most {MOST_CELLS:,} are read; save fewer rows or columns"
            )
        frame = scan.collect()
    except (polars.exceptions.PolarsError, OSError) as error:
        raise ValueError(f"{path} cannot be read; it must be a Parquet file: {error}") from error
    table = Frame(frame)
    table.name = str(path)
    return table


def _numbers(table: Columns, name: str, span: tuple[float, float] | None) -> Array:
    """Returns a column of numbers, float64 (n,); the ends of a range are -1 and 1, and values beyond it are clipped."""
    numbers = []
    for line, text in table.column(name):
        if not text.strip():
            raise ValueError(
                f"{table.name}: line {line} has no {name}; every feature must be a number: fill it, or "
                "leave out the row"
            )
        try:
            value = float(text)
        except ValueError:
            raise ValueError(
                f"{table.name}: {name} in line {line} is {text!r}; a feature must be a number: make columns of 0 "
                "and 1 of its categories, or name the features with --column"
            ) from None
        if not (abs(value) <= _LARGEST or (span is not None and abs(value) < math.inf)):
            raise ValueError(
                f"{table.name}: {name} in line {line} is {value:g}; it must be in {-_LARGEST:g}..{_LARGEST:g}, or "
                f"have a range: --column {name}:LOW:HIGH"
            )
        numbers.append(value)
    values = np.array(numbers, dtype=np.float64)
    return values if span is None else _scaled(values, span)


def _scaled(values: Array, span: tuple[float, float]) -> Array:
    low, high = span
    scaled: Array = (np.clip(values, low, high) - low) / (high - low) * 2 - 1
    return scaled


def _measured(texts: Sequence[str], path: Path, target: str, span: tuple[float, float]) -> Array:
    """Returns targets that are numbers, float64 (n,); the ends of the range are -1 and 1."""
    for text in texts:
        try:
            finite = math.isfinite(float(text))
        except ValueError:
            finite = False
        if not finite:
            raise ValueError(f"{path}: {target} is {text} in one example; with a range it must be a finite number")
    return _scaled(np.array([float(text) for text in texts]), span)


def _classes(labels: Sequence[str], path: Path, target: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Returns the different labels in order, numbers before texts, and the class number of each example."""

    def place(label: str) -> tuple[bool, float, str]:
        number = bool(re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", label))
        if number and not float(label).is_integer():
            raise ValueError(
                f"{path}: {target} is {label} in one example; it must be a class, a whole number or a text; or "
                f"give its range: {target}:LOW:HIGH"
            )
        return not number, float(label) if number else 0.0, label

    names = sorted(set(labels), key=place)
    if not 2 <= len(names) <= _MOST_CLASSES:
        raise ValueError(
            f"{path}: {target} has {len(names)} different labels; there must be 2..{_MOST_CLASSES:,}; or, if it is "
            f"a measurement, give its range: {target}:LOW:HIGH"
        )
    numbers: dict[str, int] = {name: number for number, name in enumerate(names)}
    return tuple(names), np.array([numbers[label] for label in labels], dtype=np.int64)
