"""Files of one's own: what is read from them, and what is refused with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
import torch

from croupier.training.datasets import Dataset, Examples
from croupier.training.tables import load_table

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


@pytest.mark.parametrize(
    ("change", "target", "columns", "message"),
    [
        ({}, None, [], "target is not given;"),
        ({}, "income", [], "{file} has no column"),
        ({}, "outcome", ["size"], "{file} has no column"),
        ({}, "outcome", ["age:9:9"], "column is age:9:9; its"),
        ({}, "outcome", ["outcome"], "column is outcome; it"),
        ({}, "smokes", [], "{file}: outcome in line"),
        ({"age": [*range(39), ""]}, "outcome", [], "{file}: line 41 has"),
        ({"age": [*range(39), "nan"]}, "outcome", [], "{file}: age in line"),
        ({"age": [1e9, *range(39)]}, "outcome", [], "{file}: age in line"),
        ({"outcome": ["", *"ab" * 19, "a"]}, "outcome", [], "{file}: line 2 has"),
        ({"outcome": ["a"] * 40}, "outcome", [], "{file}: outcome has 1"),
        ({"outcome": [1.5] * 40}, "outcome", [], "{file}: outcome is 1.5"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_with_the_place(
    tmp_path: Path, change: dict[str, list[Any]], target: str | None, columns: list[str], message: str
) -> None:
    file = write(tmp_path / "people.csv", COLUMNS | change)
    with pytest.raises(ValueError, match=r"must|no column") as caught:
        load_table(file, target, columns)
    assert str(caught.value).startswith(message.format(file=file))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.arange(20)}, "has no array 'X';"),
        ({"X": np.ones((20, 2))}, "has no array 'y';"),
        ({"X": np.ones(20), "y": np.arange(20)}, "X is of type"),
        ({"X": np.full((20, 2), "a"), "y": np.arange(20)}, "X is of type"),
        ({"X": np.ones((20, 2)), "y": np.arange(19)}, "y has the shape"),
        ({"X": np.full((20, 2), np.nan), "y": np.arange(20)}, "X[0, 0] is nan;"),
        ({"X": np.ones((20, 2)), "y": np.full(20, 0.5)}, "y[0] is 0.5; it"),
        ({"X": np.ones((9, 2)), "y": np.arange(9)}, "has 9 examples; it"),
    ],
)
def test_arrays_that_cannot_be_used_are_refused_with_the_place(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    file = tmp_path / "people.npz"
    np.savez(file, **arrays)
    with pytest.raises(ValueError, match=r"must|no array") as caught:
        load_table(file)
    assert message in str(caught.value)


@pytest.mark.parametrize("ending", [".npz", ".parquet", ".csv"])
def test_a_file_that_is_missing_or_broken_is_said(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"people{ending}"
    with pytest.raises(ValueError, match="does not exist"):
        load_table(file, "y")
    file.write_bytes(b"\x00\xff\n")
    with pytest.raises(ValueError, match=r"cannot be read|has no column"):
        load_table(file, "y")
