"""Files of one's own: what is read from them, and what is refused with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
import torch

from croupier.training import table_files
from croupier.training.datasets import Dataset, Examples
from croupier.training.table_files import load_table
from tests.support.messages import naming

COLUMNS: dict[str, list[Any]] = {
    "age": [20 + index for index in range(40)],
    "smokes": [index % 2 for index in range(40)],
    "outcome": [("well", "ill", "dead")[index % 3] for index in range(40)],
}


def write(path: Path, columns: dict[str, list[Any]] = COLUMNS, separator: str = ",") -> Path:
    lines = [separator.join(columns), *(separator.join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def everything(dataset: Dataset) -> set[tuple[float, ...]]:
    parts: tuple[Examples, ...] = (dataset.train, dataset.validation, dataset.test)
    return {
        (*row, float(target))
        for part in parts
        for row, target in zip(part.features.tolist(), part.targets, strict=True)
    }


def test_three_kinds_of_file_hold_the_same_examples(tmp_path: Path) -> None:
    polars.DataFrame(COLUMNS).write_parquet(tmp_path / "people.parquet")
    matrix = np.column_stack([COLUMNS["age"], COLUMNS["smokes"]])
    np.savez(tmp_path / "people.npz", X=matrix, outcome=np.array(COLUMNS["outcome"]))
    files = [write(tmp_path / "people.csv"), tmp_path / "people.parquet", tmp_path / "people.npz"]
    read = [load_table(file, "outcome") for file in files]
    for dataset in read:
        assert dataset.labels == ("dead", "ill", "well")
        assert (len(dataset.train), len(dataset.validation), len(dataset.test)) == (28, 6, 6)
        assert (dataset.classes, dataset.features, dataset.train.features.dtype) == (3, "columns", torch.float32)
        assert torch.equal(dataset.train.features, read[0].train.features)
        assert torch.equal(dataset.train.targets, read[0].train.targets)
    assert len(everything(read[0])) == 40
    assert (20.0, 0.0, 2.0) in everything(read[0])


def test_a_range_known_beforehand_becomes_minus_one_to_one(tmp_path: Path) -> None:
    file = write(tmp_path / "people.csv", separator=";")
    noted: list[str] = []
    read = load_table(file, "outcome", ["age:25:45"], note=noted.append)
    ages = torch.cat([part.features[:, 0] for part in (read.train, read.validation, read.test)])
    assert (float(ages.min()), float(ages.max())) == (-1.0, 1.0)
    assert int((ages == -1).sum()) == 6  # 20 to 25
    assert noted == [f"{file} is read with semicolons between the columns"]


def test_standardized_columns_are_fitted_to_the_training_examples(tmp_path: Path) -> None:
    read = load_table(write(tmp_path / "people.csv"), "outcome", features="standardized")
    assert read.features == "standardized"
    assert torch.allclose(read.train.features.mean(dim=0), torch.zeros(2), atol=1e-5)
    assert torch.allclose(read.train.features.std(dim=0, correction=0), torch.ones(2), atol=1e-5)
    assert not torch.allclose(read.test.features.mean(dim=0), torch.zeros(2), atol=1e-5)


def test_labels_that_are_numbers_are_in_their_order(tmp_path: Path) -> None:
    grades = {"age": COLUMNS["age"], "grade": [(10, 9, 2)[index % 3] for index in range(40)]}
    assert load_table(write(tmp_path / "people.csv", grades), "grade").labels == ("2", "9", "10")


def test_a_target_with_a_range_is_a_number(tmp_path: Path) -> None:
    weights = [40.0 + index for index in range(40)]
    matrix = np.column_stack([COLUMNS["age"], COLUMNS["smokes"]])
    np.savez(tmp_path / "people.npz", X=matrix, weight=np.array(weights))
    file = write(tmp_path / "people.csv", {"age": COLUMNS["age"], "smokes": COLUMNS["smokes"], "weight": weights})
    read = load_table(file, "weight:50:70")
    assert (read.classes, read.labels, read.train.unit, read.train.has_classes) == (0, (), 10.0, False)
    targets = torch.cat([part.targets for part in (read.train, read.validation, read.test)])
    expected = [min(1.0, max(-1.0, (weight - 60) / 10)) for weight in weights]
    assert sorted(targets.tolist()) == pytest.approx(expected)
    assert torch.equal(load_table(tmp_path / "people.npz", "weight:50:70").train.targets, read.train.targets)


@pytest.mark.parametrize(
    ("change", "target", "columns", "named"),
    [
        ({}, None, [], ("target", "people.csv", "age, smokes, outcome")),
        ({}, "income", [], ("people.csv", "'income'", "age, smokes, outcome")),
        ({}, "outcome", ["size"], ("people.csv", "'size'", "age, smokes, outcome")),
        ({}, "outcome", ["age:9:9"], ("column", "age:9:9", "LOW < HIGH")),
        ({}, "outcome", ["outcome"], ("column", "outcome", "target")),
        ({}, "smokes", [], ("people.csv", "outcome", "line 2", "'well'", "a number")),
        ({"age": [*range(39), ""]}, "outcome", [], ("people.csv", "line 41", "age", "a number")),
        ({"age": [*range(39), "nan"]}, "outcome", [], ("people.csv", "age", "line 41", "nan", "-1e+06..1e+06")),
        ({"age": [1e9, *range(39)]}, "outcome", [], ("people.csv", "age", "line 2", "1e+09", "-1e+06..1e+06")),
        ({"outcome": ["", *"ab" * 19, "a"]}, "outcome", [], ("people.csv", "line 2", "outcome")),
        ({"outcome": ["a"] * 40}, "outcome", [], ("people.csv", "outcome", "1", "2..1,000")),
        ({"outcome": [1.5] * 40}, "outcome", [], ("people.csv", "outcome", "1.5", "a class", "outcome:LOW:HIGH")),
        ({}, "outcome:0:1", [], ("people.csv", "outcome", "well", "a finite number")),
        ({"outcome": ["nan"] * 40}, "outcome:0:1", [], ("people.csv", "outcome", "nan", "a finite number")),
        ({}, "age:30:20", [], ("target", "age:30:20", "LOW < HIGH")),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_with_the_place(
    tmp_path: Path, change: dict[str, list[Any]], target: str | None, columns: list[str], named: tuple[str, ...]
) -> None:
    file = write(tmp_path / "people.csv", COLUMNS | change)
    with pytest.raises(ValueError, match=naming(*named)):
        load_table(file, target, columns)


@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        ({"y": np.arange(20)}, ("'X'", "y")),
        ({"X": np.ones((20, 2))}, ("'y'", "X")),
        ({"X": np.ones(20), "y": np.arange(20)}, ("X", "float64", "(20,)")),
        ({"X": np.full((20, 2), "a"), "y": np.arange(20)}, ("X", "<U1", "(20, 2)")),
        ({"X": np.ones((20, 2)), "y": np.arange(19)}, ("y", "(19,)", "(20,)")),
        ({"X": np.full((20, 2), np.nan), "y": np.arange(20)}, ("X[0, 0]", "nan", "-1e+06..1e+06")),
        ({"X": np.ones((20, 2)), "y": np.full(20, 0.5)}, ("y[0]", "0.5", "a class")),
        ({"X": np.ones((9, 2)), "y": np.arange(9)}, ("9 examples", "10")),
    ],
)
def test_arrays_that_cannot_be_used_are_refused_with_the_place(
    tmp_path: Path, arrays: dict[str, Any], named: tuple[str, ...]
) -> None:
    file = tmp_path / "people.npz"
    np.savez(file, **arrays)
    with pytest.raises(ValueError, match=naming(*named)):
        load_table(file)


@pytest.mark.parametrize("ending", [".npz", ".parquet", ".csv"])
def test_a_file_that_is_missing_or_broken_is_said(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"people{ending}"
    with pytest.raises(ValueError, match="does not exist"):
        load_table(file, "y")
    file.write_bytes(b"\x00\xff\n")
    with pytest.raises(ValueError, match=r"cannot be read|has no column"):
        load_table(file, "y")


def test_a_large_parquet_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two million equal rows are some kilobytes, and took gigabytes as texts."""
    polars.DataFrame({"y": [0] * 1000, "x": [1] * 1000}).write_parquet(file := tmp_path / "people.parquet")
    monkeypatch.setattr(table_files, "MOST_CELLS", 1999)
    with pytest.raises(ValueError, match=naming(file, "2,000 cells", "1,999")):
        load_table(file, "y")
