"""The table of the load test: the same numbers with and without bad peers side by side, of several rounds each."""

from __future__ import annotations

import pytest

from croupier.protocol.names import JsonObject
from research.bench.load import SHARES, load_lines, measure_load
from tests.support.messages import naming


def row(bad: int, seconds: float, failures: dict[str, int]) -> JsonObject:
    waits = {str(share): seconds * share for share in SHARES}
    return {
        "clients": 1000,
        "at_once": 100,
        "bad": bad,
        "wall_s": 10.0 * seconds,
        "cpu_s": 4.0,
        "first_s": waits,
        "submit_s": waits,
        "all_s": waits,
        "connections": 1000,
        "most_connections": 100 + bad,
        "memory_before_bytes": 10**8,
        "memory_bytes": 2 * 10**8,
        "failures": failures,
        "gave_up": {},
        "acknowledged": 1000,
        "lost": 0,
    }


def test_rounds_of_a_kind_are_one_column_compared_with_the_first() -> None:
    rows = [row(0, 1.0, {}), row(30, 4.0, {"OVERLOADED": 2}), row(0, 3.0, {}), row(30, 6.0, {"OVERLOADED": 3})]
    lines = load_lines({"hops": 1, "processes": 2, "rows": rows})
    assert lines[0] == "| clients | 1,000 | 1,000 | ratio to the first |"
    assert "| bad peers beside them | 0 | 30 |  |" in lines
    assert "| seconds to submit: 50 % | 1.00 (0.50-1.50) | 2.50 (2.00-3.00) | 2.50 |" in lines
    assert "| seconds to submit: all | 2.00 (1.00-3.00) | 5.00 (4.00-6.00) | 2.50 |" in lines
    assert "| attempts that failed and were repeated | none | 5 OVERLOADED |  |" in lines
    assert "| acknowledged | 2,000 | 2,000 |  |" in lines


def test_one_round_is_shown_as_it_is() -> None:
    lines = load_lines({"hops": 1, "processes": 2, "rows": [row(0, 1.0, {})]})
    assert lines[:2] == ["| clients | 1,000 |", "|---|---|"]
    assert "| seconds to submit: 99 % | 0.99 |" in lines


def test_there_is_at_least_one_round() -> None:
    with pytest.raises(ValueError, match=naming("times", 0, "at least 1")):
        measure_load(10, 2, [0], times=0)
