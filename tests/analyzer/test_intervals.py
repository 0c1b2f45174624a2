"""Confidence intervals by an inverted test: never a point, and at their level near the ends of the range, too."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom

from croupier.analyzer.base import Batch
from croupier.analyzer.estimates import Estimate
from croupier.analyzer.estimators import ESTIMATORS, estimate
from croupier.analyzer.laws import Laws
from croupier.protocol.calibration import unit_sigma
from croupier.protocol.mechanisms.base import ScalarMechanism
from croupier.protocol.mechanisms.gaussian import Gaussian
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from tests.analyzer.draws import Floats, least, responses

TIERS = ((0.5, 108), (1.0, 74), (2.0, 18))
ROUNDS = 4_000
BIT = Question("bit", RandomizedResponse())
MECHANISMS = [
    RandomizedResponse(),
    KaryResponse(k=4),
    OneBit(-2.0, 6.0),
    Laplace(-2.0, 6.0, lattice=40),
    Gaussian(-2.0, 6.0, 1e-6, lattice=40),
]


def laws_of(mechanism: ScalarMechanism, reports: Any, tiers: Any) -> Laws:
    """Returns the laws of the sum of reports; only its total depends on the reports."""
    estimator: Any = ESTIMATORS[mechanism.kind]
    laws: Laws = estimator.laws(Batch(mechanism, reports, tiers))
    return laws


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.kind)
@pytest.mark.parametrize("end", [0, 1])
def test_an_interval_is_never_a_point(mechanism: ScalarMechanism, end: int) -> None:
    """Reproduction: estimate -0.2133, "95 %" interval [0.0000, 0.0000], where the truth was 0.0060."""
    most = getattr(mechanism, "lattice", 0)
    far = (2 * most if end else -most) if most else end
    for n, epsilon in itertools.product((2, 40, 4000), (0.1, 1.0, 8.0)):
        result = estimate(Question("x", mechanism), np.full(n, far), [(epsilon, n)])
        least, largest = (0.0, 1.0) if mechanism.kind in ("rr", "krr") else (-2.0, 6.0)
        for intervals in (result.confidence_intervals, result.population_intervals):
            for (low, high), possible in zip(intervals, result.projected, strict=True):
                assert least <= low <= possible <= high <= largest
                assert high - low > 1e-6


def test_the_interval_of_an_impossible_share_has_the_width_of_the_noise() -> None:
    """100 of 300 are expected of nobody: an estimate of -0.18 has the interval of 0, not a shorter one."""
    tiers = [(0.5, 300)]
    impossible, none = (estimate(BIT, np.arange(300) < hits, tiers) for hits in (100, round(300 / (1 + math.exp(0.5)))))
    assert impossible.values[0] < -0.15 < -0.01 < none.values[0] < 0.01
    (low, high), (_, nearly) = impossible.confidence_intervals[0], none.confidence_intervals[0]
    assert low == 0.0
    assert high == pytest.approx(nearly, abs=0.01)
    assert high > 1.9 * none.standard_errors[0]


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("k", [2, 5])
def test_shares_are_covered_at_their_level_exactly(k: int, level: float) -> None:
    """Every number of hits is weighed with its probability: near 0, in the middle and near 1, with any budget."""
    mechanism = RandomizedResponse() if k == 2 else KaryResponse(k=k)
    for n, epsilon in itertools.product((2, 3, 10, 100, 1000), (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)):
        q = 1 / (math.expm1(epsilon) + k)
        hit = q * math.exp(epsilon)
        laws = laws_of(mechanism, np.zeros(n, int), [(epsilon, n)])
        totals = np.arange(n + 1.0)
        low, high = laws.participants.interval(totals, level)
        for users in {0, 1, 2, n // 50, n // 10, n // 3, n // 2, n - n // 20, n - 1, n}:
            law = np.convolve(
                binom.pmf(np.arange(users + 1), users, hit), binom.pmf(np.arange(n - users + 1), n - users, q)
            )
            assert law[(low <= users / n + 1e-12) & (users / n - 1e-12 <= high)].sum() >= level
        low, high = laws.population.interval(totals, level)
        for share in (0.0, 0.003, 0.05, 0.3, 0.5, 0.9, 0.99, 1.0):
            law = binom.pmf(totals, n, q + (hit - q) * share)
            assert law[(low <= share + 1e-12) & (share - 1e-12 <= high)].sum() >= level


def shuffled_sums(mechanism: Any, values: Floats, source: np.random.Generator) -> Floats:
    """Returns the sum of the reports (or the hits on category 0) of every round, values (rounds, users) in [0, 1]."""
    budgets = np.repeat([epsilon for epsilon, _ in TIERS], [count for _, count in TIERS])
    shape = values.shape
    dealt = source.permuted(np.broadcast_to(budgets, shape), axis=1)
    if mechanism.kind in ("laplace", "gaussian"):
        steps = values * mechanism.lattice
        reports = np.floor(steps) + (source.random(shape) < steps - np.floor(steps))
        if mechanism.kind == "laplace":
            p = -np.expm1(-dealt / mechanism.lattice)
            reports += source.geometric(p) - source.geometric(p)
        else:
            sigma = {own: mechanism.lattice * unit_sigma(own, 1e-6) for own, _ in TIERS}
            scales = np.array([sigma[own] for own in budgets])
            reports += np.rint(source.normal(size=shape) * source.permuted(np.broadcast_to(scales, shape), axis=1))
        margin = mechanism.margin(TIERS[0][0])
        return np.asarray(np.clip(reports, -margin, mechanism.lattice + margin).sum(axis=1))
    k = len(mechanism.categories) or 2
    ones = source.random(shape) < values
    q = 1 / (np.expm1(dealt) + k)
    return np.asarray((source.random(shape) < np.where(ones, 1 - (k - 1) * q, q)).sum(axis=1), dtype=np.float64)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.kind)
@pytest.mark.parametrize("centre", [0.005, pytest.param(0.5, marks=pytest.mark.slow), 0.99])
def test_intervals_cover_over_thousands_of_rounds(mechanism: ScalarMechanism, centre: float) -> None:
    """200 users with three budgets: the truth of these users, and that of the population they are drawn from."""
    n, source = sum(count for _, count in TIERS), np.random.default_rng(31)
    laws = laws_of(mechanism, np.zeros(n, int), TIERS)
    whole = mechanism.kind in ("rr", "krr")
    answers = (np.arange(n) < centre * n) * 1.0 if whole else source.beta(5 * centre, 5 * (1 - centre), n)
    for law, truth in ((laws.participants, answers.mean()), (laws.population, centre)):
        covered = []
        for _ in range(10):
            shape = (ROUNDS // 10, n)
            drawn = source.random(shape) < centre if whole else source.beta(5 * centre, 5 * (1 - centre), shape)
            values = np.asarray(drawn * 1.0 if law is laws.population else np.broadcast_to(answers, shape))
            low, high = law.interval(shuffled_sums(mechanism, values, source), 0.95)
            covered.append((low <= truth) & (truth <= high))
        assert np.mean(covered) >= least(ROUNDS)


def test_projected_shares_lie_in_intervals_that_cover() -> None:
    """A histogram's projection may move a share far: the interval reaches it, and covers no less often for it."""
    k, n, rounds = 1000, 2000, 20
    question, tiers = Question("letter", KaryResponse(k=k)), ((2.0, n),)
    values = np.repeat([0, 1, 2], [1000, 900, 100])
    truth, source, covered, moved = np.bincount(values, minlength=k) / n, np.random.default_rng(4), 0, 0
    laws = laws_of(KaryResponse(k=k), values, tiers)
    for _ in range(rounds):
        reports = responses(k, values, np.full(n, 2.0), source)
        result = estimate(question, reports, tiers)
        low, high = np.array(result.confidence_intervals).T
        projected = np.array(result.projected)
        assert np.all((low <= projected) & (projected <= high))
        covered += int(((low <= truth) & (truth <= high)).sum())
        bare, _ = laws.participants.interval(np.bincount(reports, minlength=k).astype(np.float64), 0.95)
        moved += int((projected < bare).sum())
    assert moved > 20
    assert covered >= rounds * k * least(rounds * k)


@pytest.mark.parametrize(
    ("mechanism", "reports", "epsilon", "expected"),
    [
        (RandomizedResponse(), np.arange(2000) % 2, 1.0, pb.PRECISION_USABLE),
        (RandomizedResponse(), np.arange(20) % 2, 0.5, pb.PRECISION_COVERS_RANGE),
        (OneBit(-2.0, 6.0), np.arange(20) % 2, 0.5, pb.PRECISION_COVERS_RANGE),
        (Laplace(-2.0, 6.0, lattice=40), np.full(5, 20), 0.5, pb.PRECISION_COVERS_RANGE),
        (Laplace(-2.0, 6.0, lattice=40), np.full(5000, 20), 0.5, pb.PRECISION_USABLE),
        (KaryResponse(k=40), np.arange(800) % 40, 1.0, pb.PRECISION_HIDES_SHARES),
        (KaryResponse(k=4), np.repeat(range(4), [5, 4, 8, 4]), 1.0, pb.PRECISION_HIDES_SHARES),
        (KaryResponse(k=40), np.zeros(800, int), 3.0, pb.PRECISION_USABLE),
    ],
)
def test_a_result_that_is_too_noisy_says_so(
    mechanism: ScalarMechanism, reports: npt.NDArray[np.int64], epsilon: float, expected: pb.Precision.ValueType
) -> None:
    result = estimate(Question("x", mechanism), reports, [(epsilon, len(reports))])
    assert isinstance(result, Estimate)
    assert result.precision == expected
    publication = pb.Publication()
    result.publish(publication)
    assert publication.precision == expected
    assert publication.values[0].population_interval.high == result.population_intervals[0][1]
