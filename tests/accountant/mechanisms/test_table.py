"""Tables that show less than the budget that they are declared for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from croupier import TableMechanism, certify, compose

SAME = [[0.7, 0.3], [0.7, 0.3]]
CONDITIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dishonest": {"dishonest": 5},
    "stratified": {"linkage": "stratified"},
    "hop noise": {"hop_noise": (1.0, 1e-6)},
    "rounds": {"rounds": 3},
}


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("users", [1, 30])
def test_a_report_that_depends_on_nothing_shows_nothing(users: int, condition: str) -> None:
    """It was certified at its local budget, and a curve of delta = 1 was composed."""
    mechanism = TableMechanism({2.0: SAME})
    certificate = certify({2.0: users}, mechanism, delta=1e-9, **CONDITIONS[condition])
    assert (certificate.epsilon, certificate.delta) == (0.0, 1e-9)
    assert certify({2.0: users}, mechanism, epsilon=0.0, **CONDITIONS[condition]).delta == 0.0
    assert certificate.everyone_else_colludes.epsilon == 2.0 * certificate.rounds  # as it is declared
    if condition != "rounds":
        assert (
            compose([certify({2.0: users}, mechanism, delta=1e-6, **CONDITIONS[condition])] * 2, delta=1e-3).epsilon
            < 1e-6
        )


def test_a_victim_that_shows_nothing_among_others_who_do() -> None:
    mixed = TableMechanism({1.0: [[0.6, 0.4], [0.4, 0.6]], 2.0: SAME})
    small, large = certify({1.0: 30, 2.0: 30}, mixed, delta=1e-6).tiers
    assert 0 < small.epsilon <= math.log(1.5) + 1e-15
    assert large.epsilon <= math.log(1.5) + 1e-15  # a budget up to 2 may be that of the other table


def test_alone_a_report_shows_what_its_table_shows() -> None:
    table = np.array([[0.6, 0.4], [0.4, 0.6]])
    assert certify({2.0: 1}, TableMechanism({2.0: table}), delta=1e-6).epsilon == pytest.approx(
        math.log(1.5), rel=1e-12
    )
