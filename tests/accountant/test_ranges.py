"""Ranges: every check accepts its ends, refuses what is beyond, and says what the value must be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from croupier import certify
from croupier.accountant.ranges import check_count, check_delta, check_epsilon, check_linkage, check_target_delta
from tests.support.messages import naming


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (check_epsilon, 0.0),
        (check_epsilon, 1e300),
        (check_delta, 0.0),
        (check_delta, 1.0),
        (check_target_delta, 5e-324),
        (check_target_delta, math.nextafter(1, 0)),
        (check_linkage, "stratified"),
    ],
)
def test_values_in_range_pass(check: Callable[[Any], None], value: Any) -> None:
    check(value)


@pytest.mark.parametrize(
    ("check", "value", "message"),
    [
        (check_epsilon, -0.1, r"^epsilon.*-0\.1.*>= 0$"),
        (check_epsilon, math.inf, "a finite number"),
        (check_epsilon, math.nan, "a finite number"),
        (check_delta, 1.1, "^delta is 1.1; it must be 0 <= delta <= 1$"),
        (check_delta, math.nan, "0 <= delta <= 1"),
        (check_target_delta, 2, "^delta is 2; it must be 0 < delta < 1$"),
        (check_target_delta, 0.0, "0 < delta < 1"),
        (check_target_delta, 1.0, "0 < delta < 1"),
        (check_target_delta, math.nan, "0 < delta < 1"),
        (check_linkage, "none", "^linkage.*'none'.*'separate'.*'stratified'$"),
    ],
)
def test_values_out_of_range_are_refused(check: Callable[[Any], None], value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(value)


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "1"])
def test_counts_are_integers_of_at_least_the_least(value: Any) -> None:
    check_count(1, "rounds", 1)
    with pytest.raises(ValueError, match=naming("rounds", "integer >= 1")):
        check_count(value, "rounds", 1)


@pytest.mark.parametrize("value", [2**53 + 1, 2**64])
def test_counts_beyond_those_that_floats_tell_apart_are_refused(value: int) -> None:
    check_count(2**53, "dishonest")
    with pytest.raises(ValueError, match=naming("dishonest", "bits", 9007199254740992)):
        check_count(value, "dishonest")


def test_an_integer_beyond_the_range_of_floats_is_no_epsilon() -> None:
    with pytest.raises(ValueError, match=naming("number >= 0")):
        check_epsilon(10**400)


def test_only_a_budget_privacy_says_how_budgets_were_counted() -> None:
    with pytest.raises(ValueError, match=naming("counted_by is True", "BudgetPrivacy")):
        certify({1.0: 100}, "rr", delta=1e-6, counted_by=True)  # type: ignore[arg-type]
