"""Estimates from noised tier counts: intervals keep their coverage, also with a budget that nobody or few use."""

from __future__ import annotations

import math

import numpy as np
import pytest

from croupier.analyzer.base import tiers_of_reports
from croupier.analyzer.estimates import Noised
from croupier.analyzer.estimators import estimate
from croupier.protocol.codes import Note
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
from tests.support.statements import codes

PRIVACY = BudgetPrivacy()
TIERS = [(0.5, 150), (1.0, 0), (2.0, 120), (4.0, 30)]
REPEATS = 1500


def counted(rng: np.random.Generator) -> list[tuple[float, int]]:
    """Tiers as a certificate counts them; the noise is drawn by inverting its law."""
    shifts = np.arange(-PRIVACY.radius, PRIVACY.radius + 1)
    weights = np.exp(-np.abs(shifts) / PRIVACY.law.scale)
    drawn = rng.choice(shifts, size=len(TIERS), p=weights / weights.sum()).tolist()
    return [(epsilon, PRIVACY.counted(users, shift)) for (epsilon, users), shift in zip(TIERS, drawn, strict=True)]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("k", [2, 5])
def test_intervals_of_shares_cover_with_noised_counts(k: int, share: float) -> None:
    """95 % intervals of 1,500 rounds of 300 people, of whom 30 use a budget that mostly counts nobody."""
    rng = np.random.default_rng(k)
    mechanism = RandomizedResponse() if k == 2 else KaryResponse(k)
    question, users = Question("q", mechanism), sum(count for _, count in TIERS)
    noised, covered = Noised(PRIVACY, users), 0
    for _ in range(REPEATS):
        hits = 0
        for epsilon, count in TIERS:
            q = 1 / (math.exp(epsilon) + k - 1)
            have = round(share * count)
            hits += int(rng.binomial(have, math.exp(epsilon) * q) + rng.binomial(count - have, q))
        reports = np.repeat([1, 0], [hits, users - hits])
        tiers = counted(rng)
        result = estimate(question, reports, tiers, noised=noised)
        low, high = result.confidence_intervals[-1 if k == 2 else 1]
        covered += low <= share <= high
    assert covered >= 0.94 * REPEATS


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


@pytest.mark.parametrize("kind", ["laplace", "onebit"])
def test_intervals_of_means_cover_with_noised_counts(kind: str) -> None:
    rng = np.random.default_rng(3)
    users, truth = sum(count for _, count in TIERS), 0.7
    mechanism = Laplace(0.0, 1.0, lattice=1000) if kind == "laplace" else OneBit(0.0, 1.0)
    question, covered = Question("q", mechanism), 0
    for _ in range(REPEATS):
        reports = []
        for epsilon, count in TIERS:
            if kind == "laplace":
                r = math.exp(-epsilon / 1000)
                noise = rng.geometric(1 - r, count) - rng.geometric(1 - r, count)
                reports.append(700 + noise)
            else:
                keep = math.exp(epsilon) / (1 + math.exp(epsilon))
                bit = rng.random(count) < truth
                reports.append(np.where(rng.random(count) < keep, bit, ~bit).astype(np.int64))
        result = estimate(
            question, np.concatenate(reports), counted(rng), least_epsilon=0.5, noised=Noised(PRIVACY, users)
        )
        ((low, high),) = result.confidence_intervals
        covered += low <= truth <= high
    assert covered >= 0.94 * REPEATS


def test_a_distribution_on_levels_covers_with_noised_counts() -> None:
    """Mean, cumulative share and standard deviation, also of the people whom nobody counts."""
    rng = np.random.default_rng(5)
    mechanism, users = Levels(0.0, 4.0, k=5), sum(count for _, count in TIERS)
    question, covered = Question("q", mechanism), np.zeros(3, dtype=int)
    shares = np.array([0.1, 0.2, 0.4, 0.2, 0.1])
    repeats = 400
    for _ in range(repeats):
        hits = np.zeros(5, dtype=int)
        for epsilon, count in TIERS:
            q = 1 / (math.exp(epsilon) + 4)
            for level, have in enumerate(np.round(shares * count).astype(int)):
                law = np.full(5, q)
                law[level] = math.exp(epsilon) * q
                hits += rng.multinomial(have, law / law.sum())
        reports = np.repeat(np.arange(5), hits)
        result = estimate(question, reports, counted(rng), noised=Noised(PRIVACY, users))
        told = result.distribution
        assert told is not None
        ends = (
            result.confidence_intervals[0],
            told.cumulative[1].confidence_interval,
            told.standard_deviation.confidence_interval,
        )
        covered += [low <= true <= high for (low, high), true in zip(ends, (2.0, 0.3, math.sqrt(1.2)), strict=True)]
    assert (covered >= 0.93 * repeats).all()


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
