"""A client's own limits: what a round may ask for, and what all rounds together may spend, counted durably and once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from client.limits import Limits, SpentHere, read_limits, write_limits
from client.outbox import Outbox
from client.submission import Sealed
from protocol.manifest import canonical, parse_terms
from tests.support import make_kit

NONE = Limits()


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"max_local_epsilon": 0.9}, "spend a local ε of 1; your own limit is at most 0.9; nothing was randomized"),
        ({"epsilon_max": 0.5}, "epsilon_max for this answer is 1; your own limit is at most 0.5"),
        ({"min_batch_size": 100}, "min_batch_size is 2; your own limit is at least 100"),
    ],
)
def test_a_round_beyond_a_limit_is_named_with_both_numbers(limits: dict[str, Any], why: str) -> None:
    terms = make_kit().terms
    Limits(max_local_epsilon=1.0, epsilon_max=1.0, min_batch_size=2).check_round(terms, 1.0)
    with pytest.raises(ValueError, match=why):
        Limits(**limits).check_round(terms, 1.0)


def test_the_epsilon_max_of_the_budget_to_be_used_is_the_one_that_counts() -> None:
    manifest = make_kit().manifest
    manifest.budget_grid[2].epsilon_max = 3.0
    terms = parse_terms(canonical(manifest))
    Limits(epsilon_max=1.0).check_round(terms, 1.0)
    with pytest.raises(ValueError, match="is 3; your own limit is at most 1"):
        Limits(epsilon_max=1.0).check_round(terms, 2.0)


def test_the_sum_of_local_epsilons_and_the_number_of_rounds_are_limited(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox.db")
    outbox.begin("first", "alice", 0.5, Limits(lifetime_epsilon=1.5))
    outbox.keep("first", {"alice": Sealed(b"sealed", b"", 0.5)})
    outbox.keep("answers/first", {"alice": Sealed(b"sealed", b"")})  # of a sequential round: counted with its budget
    outbox.begin("second", "alice", 1.0, Limits(lifetime_epsilon=1.5, max_rounds=2))
    with pytest.raises(
        ValueError, match=r"after 1\.5 in 2 other rounds, the local ε would add up to 2; your own limit"
    ):
        outbox.begin("third", "alice", 0.5, Limits(lifetime_epsilon=1.5))
    with pytest.raises(ValueError, match="rounds answered would be 3; your own limit is at most 2"):
        outbox.begin("third", "alice", 0.5, Limits(max_rounds=2))
    assert outbox.spent_in_all() == SpentHere(1.5, 2)
    outbox.close()


def test_ten_tenths_are_one(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox.db")
    for number in range(10):
        outbox.begin(f"round {number}", "alice", 0.1, Limits(lifetime_epsilon=1.0))
    with pytest.raises(ValueError, match=r"after 1 in 10 .* would add up to 1\.000000001; your own"):
        outbox.begin("one more", "alice", 1e-9, Limits(lifetime_epsilon=1.0))
    outbox.close()


def test_three_tenths_are_no_more_than_they_look(tmp_path: Path) -> None:
    """In binary .1 + .1 + .1 is .30000000000000004, and the third round was refused, with "0.3" on both sides."""
    outbox = Outbox(tmp_path / "outbox.db")
    for number in range(3):
        outbox.begin(f"round {number}", "alice", 0.1, Limits(lifetime_epsilon=0.3))
    assert outbox.spent_in_all() == SpentHere(0.3, 3)
    outbox.close()


def test_a_round_counts_once_however_often_it_is_begun_and_whatever_dies(tmp_path: Path) -> None:
    """With what may have been sent: the most that any attempt was begun with."""
    limits = Limits(lifetime_epsilon=2.0, max_rounds=1)
    for epsilon, user in ((1.0, "alice"), (2.0, "alice"), (1.0, "alice under a fresh key")):
        outbox = Outbox(tmp_path / "outbox.db")  # each as if the process before had died
        outbox.begin("round", user, epsilon, limits)
        outbox.close()
    outbox = Outbox(tmp_path / "outbox.db")
    assert outbox.spent_in_all() == SpentHere(2.0, 1)
    outbox.keep("round", {"alice": Sealed(b"sealed", b"", 1.0)})
    outbox.withdraw("round", "alice")
    outbox.withdraw("round", "alice under a fresh key")
    assert outbox.spent_in_all() == SpentHere(1.0, 1)  # what was stored is not withdrawn
    outbox.close()


def test_two_processes_do_not_spend_the_same_rest(tmp_path: Path) -> None:
    one, other = Outbox(tmp_path / "outbox.db"), Outbox(tmp_path / "outbox.db")
    one.begin("first", "alice", 1.0, Limits(lifetime_epsilon=1.0))
    with pytest.raises(ValueError, match="your own limit is at most 1"):
        other.begin("second", "alice", 1.0, Limits(lifetime_epsilon=1.0))
    one.close()
    other.close()


def test_limits_are_read_as_written_and_a_misspelt_one_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "client" / "limits.toml"
    assert read_limits(file) == NONE
    limits = Limits(lifetime_epsilon=1e-5, max_rounds=3, max_local_epsilon=1.0, epsilon_max=0.25, min_batch_size=500)
    write_limits(file, limits)
    assert file.stat().st_mode & 0o777 == 0o600  # what a person is ready to spend is private
    assert read_limits(file) == limits
    for line in ("lifetime = 1.0", "lifetime_epsilon = 0.0", "epsilon_max = nan", "max_rounds = 0", "min_batch_size"):
        file.write_text(line)
        with pytest.raises(ValueError, match=f"{file} is not a valid file of limits"):
            read_limits(file)
