"""Tests by a sum of scores: never more than the law multiplied out, and nearly as much."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pytest

from croupier.accountant.attacks import score_tests
from croupier.accountant.attacks.event_tests import Target
from croupier.accountant.attacks.score_tests import ScoreTest
from croupier.accountant.lower_bound import lower_bound
from croupier.accountant.numerics.binomial import binomial_pmf

Floats = npt.NDArray[np.float64]


@pytest.mark.parametrize("epsilon", [0.02, 0.2, 0.5])
def test_scores_add_up(epsilon: float) -> None:
    """Against the law multiplied out: the best threshold's divergence, and never more."""
    generator = np.random.default_rng(5)
    laws = generator.dirichlet(np.ones(6), size=4)
    game = ScoreTest(laws[0], laws[1], laws[2:], np.array([7.0, 12.0]), 1e-15)
    total = np.ones(1)
    for law, users in zip(laws[2:], (7, 12), strict=True):
        for _ in range(users):
            total = np.convolve(total, law)
    first, second = np.convolve(total, laws[0]), np.convolve(total, laws[1])
    gain = first - math.exp(epsilon) * second
    loss = second - math.exp(epsilon) * first
    exact = max(float(np.cumsum(gain[::-1]).max()), float(np.cumsum(loss).max()))
    score = game.best(Target(epsilon=epsilon)).score
    assert exact - 1e-10 < score <= exact


class _Bounds(Target):
    """Keeps the bounds on Pr0 and Pr1 that it is asked about."""

    seen: ClassVar[list[tuple[Floats, Floats]]] = []

    def score(self, first: Floats, second: Floats) -> Floats:
        self.seen.append((first, second))
        return super().score(first, second)


@pytest.mark.parametrize("share", [0.05, 0.11, 0.3, 0.47, 0.83])
def test_rounding_that_counts_once_for_every_user(share: float) -> None:
    """Bits of 10^8 users against binomial masses: a law whose entries add up to 1 but for an ulp is one of sum 1."""
    users, first, second = 10**8, np.array([0.4, 0.6]), np.array([0.6, 0.4])
    game = ScoreTest(first, second, np.array([[1 - share, share]]), np.array([float(users)]), 1e-15)
    width = math.sqrt(users * share * (1 - share))
    for height in (0.5, 1.4, 2.5, 4.0):
        tilt, target = height / width, _Bounds(delta=1e-9)
        _, best = game.score_at(tilt, target)
        bounds = target.seen[-1]
        t = round(users * share * math.exp(tilt) / (1 + share * math.expm1(tilt)))  # the mean of the tilted law
        place = t - best + int(np.argmax(Target(delta=1e-9).score(*bounds)))
        tail = binomial_pmf(np.arange(t, t + int(12 * width)), users, share)[::-1].cumsum()[::-1]
        exact = [float(law[0] * tail[1] + law[1] * tail[0]) for law in (first, second)]
        assert exact[0] * (1 - 1e-8) < bounds[0][place] < exact[0]
        assert exact[1] < bounds[1][place] < exact[1] * (1 + 1e-8)


def test_errors_of_transforms_are_not_cut_off_too_early() -> None:
    """What is at most 1 may stand for what is at most e; below that the bound is the one of a relative error."""
    game = ScoreTest(np.array([0.4, 0.6]), np.array([0.6, 0.4]), np.array([[0.5, 0.5]]), np.array([9.0]), 1e-15)
    log_error = np.array([1e-3, 0.9, 1.05, 1.2, 1.3, 2.0, math.inf])
    nothing = np.zeros(1)
    phi, wrong = game.transforms(game.others, nothing, nothing, nothing, np.zeros(log_error.size), log_error)
    assert phi == pytest.approx(1.0)
    assert (wrong >= np.minimum(np.expm1(log_error), 1 + math.e)).all()


@pytest.mark.parametrize("alike", [False, True])
def test_no_other_score_has_a_larger_signal_to_noise_ratio(alike: bool) -> None:
    """Signal: how far the victim moves the mean. Noise: the variance, with every tier's number of users fixed."""
    generator = np.random.default_rng(11)
    first, second, *others = generator.dirichlet(np.full(8, 0.5), size=5)
    laws, count = np.array([others[0], others[0] if alike else others[1], others[2]]), np.array([300.0, 500.0, 70.0])
    mean = count @ laws / count.sum()
    change = first - second

    def ratio(score: Floats) -> float:
        variance = float(count @ (laws @ score**2 - (laws @ score) ** 2))
        return float(change @ score) ** 2 / variance

    best = score_tests.best_scores(change, laws, count, mean, mean > 0)
    size = 0.1 * float(np.abs(best).max())
    assert ratio(best) > 1.01 * ratio(change / mean)
    assert all(ratio(best + size * generator.normal(size=8)) <= ratio(best) for _ in range(200))


def test_scores_where_every_report_shows_its_tier() -> None:
    """The weights have no best ones; the test is sound all the same."""
    laws, count = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.3, 0.7]]), np.array([6.0, 9.0])
    first, second = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.2, 0.2, 0.2, 0.4])
    score = score_tests.scores_of_cells(first, second, laws, count, 12)
    assert score is not None
    added = np.eye(int(score.max()) + 1)[score]
    test = ScoreTest(first @ added, second @ added, laws @ added, count, 1e-15)
    assert 0 < test.best(Target(epsilon=0.0)).score <= 0.5 * float(np.abs(first - second).sum())


def test_scores_have_no_common_factor() -> None:
    """Three cells, two of them alike: 0 and 12 are 0 and 1."""
    law = np.array([0.3, 0.3, 0.4])
    score = score_tests.scores_of_cells(np.array([0.2, 0.2, 0.6]), law, law[None, :], np.ones(1), 12)
    assert score is not None
    assert score.tolist() == [0, 0, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budgets", "delta", "least"),
    [  # where an interval proves 0.0301, 0.0318 and 0.1252
        ({1.0: 10_000}, 1e-6, 0.0313),
        ({0.1: 5_400, 0.5: 3_700, 1.0: 900}, 1e-6, 0.0397),
        ({0.1: 9_000, 3.0: 1_000}, 1e-6, 0.1706),
        ({0.1: 3_300_000, 0.3: 3_300_000, 3.0: 3_400_000}, 1e-6, 0.00291),  # nine levels prove 0.00286
        ({0.1: 500_000, 0.3: 500_000, 6.0: 9_000_000}, 1e-6, 0.01063),  # cells up to six scales away prove 0.01059
        ({0.0463: 566_000, 0.411: 6_610_000}, 1e-6, 0.000309),  # 49 levels: too long a window; an interval: .000295
        ({0.1 + 0.009 * k: 100 for k in range(101)}, 1e-6, 0.0324),
        # too many to add up one by one; an interval proves 0.0299
        ({0.05 + 1.95 * k / 30_000: 1 for k in range(30_001)}, 1e-6, 0.0348),
    ],
)
def test_noise_is_attacked_by_sums_of_likelihood_ratios(budgets: dict[float, int], delta: float, least: float) -> None:
    attack = lower_bound(budgets, "laplace", delta=delta)
    assert attack.epsilon >= least
    assert "sum of scores" in attack.attack
