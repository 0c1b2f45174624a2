"""Estimates from noised tier counts: intervals keep their coverage, also with a budget that nobody or few use."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from croupier.analyzer.base import tiers_of_reports
from croupier.analyzer.estimates import Noised
from croupier.analyzer.estimators import estimate
from croupier.protocol.codes import Note
from croupier.protocol.mechanisms.base import ScalarMechanism
from croupier.protocol.mechanisms.gaussian import Gaussian
from croupier.protocol.mechanisms.hemisphere import Hemisphere
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.levels import Levels
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.mechanisms.vector_task import VectorTask
from croupier.protocol.questions import Question
from croupier.protocol.statements import Statement
from croupier.protocol.tier_counts import BudgetPrivacy
from croupier.protocol.v1 import messages_pb2 as pb
from tests.analyzer.draws import Floats, Ints, dealt, responses
from tests.support.statements import codes

PRIVACY = BudgetPrivacy()
TIERS = [(0.5, 150), (1.0, 0), (2.0, 120), (4.0, 30)]
USERS = sum(count for _, count in TIERS)
REPEATS = 600


def counted(rng: np.random.Generator) -> list[tuple[float, int]]:
    """Tiers as a certificate counts them; the noise is drawn by inverting its law."""
    shifts = np.arange(-PRIVACY.radius, PRIVACY.radius + 1)
    weights = np.exp(-np.abs(shifts) / PRIVACY.law.scale)
    drawn = rng.choice(shifts, size=len(TIERS), p=weights / weights.sum()).tolist()
    return [(epsilon, PRIVACY.counted(users, shift)) for (epsilon, users), shift in zip(TIERS, drawn, strict=True)]


def ends(interval: pb.Interval) -> tuple[float, float]:
    return interval.low, interval.high


def coverage(
    mechanism: ScalarMechanism,
    reports: Callable[[np.random.Generator], Ints],
    intervals: Callable[[Any], Sequence[tuple[float, float]]],
    truths: Sequence[float],
) -> Floats:
    """Returns how often the intervals of 300 people hold the truths; 30 people use a budget that mostly counts none."""
    rng, covered = np.random.default_rng(3), np.zeros(len(truths))
    for _ in range(REPEATS):
        result = estimate(
            Question("q", mechanism), reports(rng), counted(rng), least_epsilon=0.5, noised=Noised(PRIVACY, USERS)
        )
        covered += [low <= truth <= high for (low, high), truth in zip(intervals(result), truths, strict=True)]
    return covered / REPEATS


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("k", [2, 5])
def test_intervals_of_shares_cover_with_noised_counts(k: int, share: float) -> None:
    values = np.arange(USERS) < share * USERS  # 1, or else 0
    covered = coverage(
        RandomizedResponse() if k == 2 else KaryResponse(k),
        lambda rng: responses(k, values, dealt(TIERS, rng), rng),
        lambda result: [result.confidence_intervals[-1 if k == 2 else 1]],
        [share],
    )
    assert covered >= 0.94


def test_without_the_users_that_are_not_counted_an_interval_would_miss() -> None:
    """The defence taken away: 25 people with the noisiest budget, whom nobody counts, pull the share towards a half."""
    hits = round(200 * 0.9) + 12
    reports = np.repeat([1, 0], [hits, 225 - hits])
    question = Question("q", RandomizedResponse())
    result = estimate(question, reports, [(0.05, 0), (8.0, 173)], noised=Noised(PRIVACY, 225))
    ((low, high),) = result.confidence_intervals
    assert low <= 0.9 <= high
    ((low, high),) = estimate(question, reports, [(8.0, 173)]).confidence_intervals
    assert not low <= 0.9 <= high


def laplace_reports(rng: np.random.Generator) -> Ints:
    """Everybody has 0.7, on a lattice of 1,000 steps."""
    p = -np.expm1(-dealt(TIERS, rng) / 1000)
    return np.asarray(700 + rng.geometric(p) - rng.geometric(p))


@pytest.mark.parametrize("kind", ["laplace", "onebit"])
def test_intervals_of_means_cover_with_noised_counts(kind: str) -> None:
    covered = coverage(
        Laplace(0.0, 1.0, lattice=1000) if kind == "laplace" else OneBit(0.0, 1.0),
        laplace_reports
        if kind == "laplace"
        else lambda rng: responses(2, rng.random(USERS) < 0.7, dealt(TIERS, rng), rng),
        lambda result: result.confidence_intervals,
        [0.7],
    )
    assert covered >= 0.94


def test_a_distribution_on_levels_covers_with_noised_counts() -> None:
    """Mean, cumulative share and standard deviation, also of the people whom nobody counts."""
    values = np.repeat(np.arange(5), [30, 60, 120, 60, 30])
    covered = coverage(
        Levels(0.0, 4.0, k=5),
        lambda rng: responses(5, values, dealt(TIERS, rng), rng),
        lambda result: [
            result.confidence_intervals[0],
            ends(result.distribution.levels[1].cumulative.confidence_interval),
            ends(result.distribution.standard_deviation.confidence_interval),
        ],
        [2.0, 0.3, math.sqrt(1.2)],
    )
    assert (covered >= 0.93).all()


def test_counts_are_estimated_and_scaled_to_the_reports() -> None:
    noised = Noised(PRIVACY, 300)
    counted_users = [(0.5, 123), (1.0, 0), (2.0, 93)]
    assert noised.users(counted_users) == [(0.5, 150), (1.0, 13.5), (2.0, 120)]
    assert noised.doubt(counted_users) == [0, 13.5, 0]
    assert noised.most_missing(counted_users) == [27, 40.5, 27]
    scaled, notes = tiers_of_reports(counted_users, 300, noised)
    assert sum(count for _, count in scaled) == pytest.approx(300)
    assert notes == ()
    _, notes = tiers_of_reports(counted_users, 290, noised)
    assert notes == (Statement.of(Note.TIERS_SCALED, reports=290, budgets=300),)


def test_what_is_certain_whatever_the_counts_stays_at_most() -> None:
    """The bias of clamping allows for all users that a tier may have beside those that it counts."""
    question = Question("q", Gaussian(low=0.0, high=1.0, lattice=100, local_delta=1e-7))
    reports, tiers = np.full(300, 50), [(0.5, 0), (2.0, 246)]
    noised = estimate(question, reports, tiers, least_epsilon=0.5, noised=Noised(PRIVACY, 300))
    exact = estimate(question, reports, [(0.5, 54), (2.0, 246)], least_epsilon=0.5)
    assert noised.clamping is not None
    assert exact.clamping is not None
    assert noised.clamping.bias >= exact.clamping.bias
    assert noised.standard_errors[0] >= estimate(question, reports, [(0.5, 27), (2.0, 273)]).standard_errors[0]


def test_a_mean_of_vectors_has_the_error_of_its_counts() -> None:
    rng = np.random.default_rng(1)
    question = Question("q", Hemisphere(VectorTask(3, 1.0, "m", bytes(12))))
    reports = rng.normal(size=(300, 3))
    reports /= np.linalg.norm(reports, axis=1, keepdims=True)
    exact = estimate(question, list(reports), [(0.5, 150), (2.0, 150)])
    noised = estimate(question, list(reports), [(0.5, 123), (2.0, 123)], noised=Noised(PRIVACY, 300))
    assert np.allclose(noised.mean, exact.mean)
    assert exact.standard_error < noised.standard_error < 1.05 * exact.standard_error
    assert codes(noised.notes) == codes(exact.notes)
