"""Budgets: the multiset from floats, tiers and files, and every refusal with its place and the range."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from croupier import Budgets, Tier, certify, read_budgets_csv
from tests.support.messages import naming


def write(folder: Path, text: str) -> Path:
    path = folder / "budgets.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_equal_budgets_become_tiers_sorted_by_epsilon() -> None:
    budgets = Budgets.from_epsilons([1.0, 0.5, 1.0, 2.0])
    assert budgets.tiers == (Tier(0.5, 1), Tier(1.0, 2), Tier(2.0, 1))
    assert (budgets.num_users, budgets.num_tiers) == (4, 3)


def test_tiers_with_different_delta_stay_apart() -> None:
    budgets = Budgets.from_tiers([(1.0, 3, 1e-6), Tier(1.0, 2), (1.0, 1)])
    assert budgets.tiers == (Tier(1.0, 3), Tier(1.0, 3, 1e-6))


def test_the_arrays_cannot_be_changed_afterwards() -> None:
    budgets = Budgets.from_epsilons(np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="read-only"):
        budgets.local_epsilon[0] = 0.1


def test_a_file_with_all_columns(tmp_path: Path) -> None:
    path = write(tmp_path, " epsilon,delta,count\n1.0,0,10\n\n0.5,1e-6,1\n")
    assert read_budgets_csv(path).tiers == (Tier(0.5, 1, 1e-6), Tier(1.0, 10))


def test_a_file_with_one_column(tmp_path: Path) -> None:
    assert read_budgets_csv(write(tmp_path, "epsilon\n1\n2\n1\n")).tiers == (Tier(1.0, 2), Tier(2.0, 1))


@pytest.mark.parametrize(
    "text",
    [
        'epsilon,count\n"1",2\n0.5,"1"\n',
        "epsilon,count\r\n1.0 , +2\r\n\r\n5e-1,1\r\n",
        "count,epsilon\n0_2,1_0e-1\n\uff11,0.5",
        "\ufeffcount,epsilon\n1,0.5\n2,1\n",
    ],
)
def test_a_file_is_read_alike_quickly_and_line_by_line(tmp_path: Path, text: str) -> None:
    assert read_budgets_csv(write(tmp_path, text)).tiers == (Tier(0.5, 1), Tier(1.0, 2))


def test_the_largest_count_in_a_file_is_exact(tmp_path: Path) -> None:
    assert read_budgets_csv(write(tmp_path, f"epsilon,count\n1,{2**53 - 1}\n")).num_users == 2**53 - 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1.*epsilon"),
        ("eps\n1\n", "line 1.*epsilon"),
        ("epsilon\n", "one user"),
        ("epsilon\n1\n0\n", r"line 3: local epsilon is 0\.0; it must be 1e-100 <= epsilon"),
        ("epsilon\n-1\n", r"line 2: local epsilon is -1\.0"),
        ("epsilon\nnan\n", "line 2: local epsilon is nan"),
        ("epsilon\ninf\n", "line 2: local epsilon is inf"),
        ("epsilon\nabc\n", "line 2: local epsilon is 'abc'"),
        ("epsilon,delta\n1,1\n", r"line 2: local delta is 1\.0; it must be 0 <= delta < 1"),
        ("epsilon,delta\n1,-0.1\n", "line 2: local delta is -0.1"),
        ("epsilon,count\n1,-5\n", "line 2: count is -5"),
        ("epsilon,count\n1,0\n", "line 2: count is 0"),
        ("epsilon,count\n1,2.5\n", "line 2: count is '2.5'"),
        ("epsilon,count\n1\n", "line 2: .* 1; .* 2, .*epsilon,count"),
        # Reproductions: 10,000 users were read as 10, and a column that is not known as one user in each row.
        (
            "epsilon,count\n2,5\n1,10,000\n",
            "line 3: .* 3; .* 2, .*epsilon,count",
        ),
        ("epsilon\n1\n2,5\n", "line 3: .* 2; .* 1, .*epsilon"),
        ("epsilon,users\n1,10\n", "line 1: column 2.*'users'.*epsilon.*delta"),
        ("epsilon,count,count\n1,10,20\n", "line 1: column 3 is 'count' again"),
        ("epsilon,count\n1,9007199254740991\n2,2\n", "budgets hold 9007199254740993 users; they must"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        read_budgets_csv(file := write(tmp_path, text))
    assert str(refused.value).startswith(f"{file}: ")


def test_what_is_not_text_after_the_header_is_refused(tmp_path: Path) -> None:
    (file := tmp_path / "budgets.csv").write_bytes(b"epsilon\n1\n\xff\n")
    with pytest.raises(ValueError, match=naming("CSV", "UTF-8")):
        read_budgets_csv(file)


@pytest.mark.parametrize("bad", [[], [0.0], [1.0, -1.0], [float("nan")], [float("inf")], [501.0], [1e-320], [9e-101]])
def test_bad_sequences_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="must"):
        Budgets.from_epsilons(bad)


@pytest.mark.parametrize("bad", [[True] * 50, [1.0, True], np.array([True]), [np.True_]])
def test_true_is_no_budget(bad: Any) -> None:
    """Reproduction: it was one of 1."""
    with pytest.raises(ValueError, match=naming("epsilons", "True or False", "numbers")):
        certify(bad, "rr", delta=1e-6)


@pytest.mark.parametrize(
    "bad",
    [(1.0,), (0.0, 1), (1.0, 1, 1.0), *((1.0, count) for count in (0, -3, True, 1.5, float("inf"), float("nan"), "3"))],
)
def test_bad_tiers_are_refused(bad: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="must"):
        Budgets.from_tiers([bad])
