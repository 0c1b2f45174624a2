"""The bench of a deployment: which sizes are measured again, and how long the remaining ones will take."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from croupier.deploy.local.throughput import (
    ResourceUse,
    conditions,
    free_bytes,
    kept_rows,
    measure_throughput,
    median_row,
    seconds_left,
)
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import JsonObject
from research.bench import stores
from research.bench.hop_noise import hop_noise_lines, measure_hop_noise
from research.bench.survey import survey_lines
from tests.support.command_line import answer
from tests.support.messages import naming


def row(users: int, wall_s: float = 1.0) -> Any:
    return {"users": users, "wall_s": wall_s, "floor_s": wall_s / 2}


def test_rows_are_kept_for_the_same_sizes_under_the_same_conditions_only() -> None:
    document: Any = {**conditions(2), "rows": [row(100), row(1000), row(5000)]}
    assert kept_rows(document, [1000, 5000, 20000], 2) == [row(1000), row(5000)]
    assert kept_rows(document, [1000], 3) == []
    assert kept_rows(document | {"cores": -1}, [1000], 2) == []


def test_what_is_left_is_estimated_from_the_last_row() -> None:
    rows = [row(100, 9.0), row(1000, 4.0)]
    assert seconds_left(rows, [100, 1000, 10_000, 100_000]) == pytest.approx(0.004 * 110_000 + 2 * 0.002 * 30_000)
    assert seconds_left(rows, [100, 1000]) == 0


def test_of_several_rounds_of_a_size_the_one_in_the_middle_is_shown() -> None:
    rounds: Any = [{**row(100), "ratio_to_floor": ratio, "users_per_s": 1000 * ratio} for ratio in (0.7, 0.5, 0.8, 0.6)]
    median = median_row(rounds[:3])
    assert median["ratio_to_floor"] == 0.7
    assert median["all_ratios_to_floor"] == [0.5, 0.7, 0.8]
    assert median_row(rounds)["ratio_to_floor"] == 0.6
    assert median_row(rounds[:1])["all_ratios_to_floor"] == [0.7]
    with pytest.raises(ValueError, match=naming("times", 0, "at least 1")):
        measure_throughput([100], 1, times=0)


def test_a_row_of_hop_noise_has_both_costs_and_their_ratios() -> None:
    costs: JsonObject = {
        "values": 1024,
        "people": 100,
        "fakes": 55_296,
        "epsilon": 1.0,
        "plain": {"wall_s": 2.0, "close_s": 1.0, "cpu_s": 0.5},
        "noisy": {"wall_s": 3.0, "close_s": 2.5, "cpu_s": 2.0},
    }
    heading, rule, row = hop_noise_lines([costs])
    assert heading.count("|") == rule.count("|") == row.count("|")
    assert row == "| 1,024 | 100 | 1 | 55,296 | 2.00, 3.00 | 1.50 | 1.00, 2.50 | 0.5, 2.0 | 4.00 |"
    with pytest.raises(ValueError, match=naming("times", 0, "at least 1")):
        measure_hop_noise([(2, 100)], 1.0, 2, times=0)


def test_a_round_in_the_room_of_an_earlier_one_needs_as_much_disk(tmp_path: Path) -> None:
    """With `--times 3` a database did not grow any more: 0.6 kB a user were stated where 3.8 are needed."""
    file = tmp_path / "rounds.db"

    def used() -> ResourceUse:
        return ResourceUse({}, {}, {"hop": file.stat().st_size}, {"hop": free_bytes(file)})

    with closing(sqlite3.connect(file, isolation_level=None)) as store:
        store.execute("CREATE TABLE bodies (body BLOB)")
        needed = []
        for _ in range(3):
            before = used()
            store.execute("INSERT INTO bodies VALUES (zeroblob(1000000))")
            needed.append(used().since(before).disk["hop"])
            store.execute("DELETE FROM bodies")
    assert all(950_000 < needed_users < 1_100_000 for needed_users in needed)


async def test_an_erasure_that_has_to_wait_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bench ended where PostgreSQL was cleaning up by itself."""
    monkeypatch.setattr(stores, "AGAIN_S", 0.0)
    answers = [Refusal(Code.NOT_READY), Refusal(Code.NOT_READY), None, Refusal(Code.STORE_FAILED)]

    class Busy:
        async def shred(self) -> None:
            if answer := answers.pop(0):
                raise answer

    busy: Any = Busy()
    await stores.shred(busy)
    with pytest.raises(Refusal, match=Code.STORE_FAILED.message):
        await stores.shred(busy)
    assert not answers


@pytest.mark.slow
def test_everybody_who_answers_a_simulated_survey_is_counted(tmp_path: Path) -> None:
    """With processes, because what it measures is a deployment as operators start it, with a gateway before it."""
    sizes = ("--people", "10", "--questions", "2", "--hops", "1")
    result = answer("research", "bench-survey", *sizes, "--out", tmp_path)
    assert (result["answered"], result["counted"]) == (10, [10, 10])
    assert len(result["errors"]) == len(result["standard_errors"]) == 10
    within = sum(abs(e) <= 6 * s for e, s in zip(result["errors"], result["standard_errors"], strict=True))
    assert within == 10
    assert 0 < result["epsilon_together"] <= 5
    assert json.loads((tmp_path / "survey.json").read_text()) == result
    assert survey_lines(result)[0] == "10 people, 2 questions: 10 have answered, counted 10, 10"
