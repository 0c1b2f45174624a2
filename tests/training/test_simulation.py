"""The simulation: the same law as the clients' reports, and a training that learns, privately and not."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

from croupier.analyzer.vectors import hemisphere_mean
from croupier.client.gradients import FlatModel
from croupier.client.vectors import hemisphere
from croupier.protocol.randomness import SystemRandom
from croupier.training.config import StepRule
from croupier.training.datasets import Dataset, load_dataset, with_features
from croupier.training.descent import Descent, evaluate
from croupier.training.models import load_model
from croupier.training.privacy import SiloSpending
from croupier.training.simulation import SimulatedTraining, hemisphere_reports, silo_epochs, user_epochs
from tests.support.messages import naming

RULE = StepRule(8.0, averaging=0.3)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return with_features(load_dataset("digits"), "dct")


def begun(model: FlatModel, rule: StepRule = RULE) -> SimulatedTraining:
    return SimulatedTraining(Descent(model.initial, rule))


def test_simulated_and_real_reports_have_the_same_law() -> None:
    """The laws compared are those of every coordinate of the estimated gradient, and of the side of each report."""
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(6, 12))
    vectors *= np.array([0.0, 0.2, 0.5, 0.8, 1.0, 1.0])[:, None] / np.linalg.norm(vectors, axis=1)[:, None]
    epsilons = np.array([0.5, 1.0, 2.0, 0.5, 1.0, 2.0])
    tiers, source, generator = [(0.5, 2), (1.0, 2), (2.0, 2)], SystemRandom(), torch.Generator().manual_seed(5)
    count = 1500

    def real() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        rows = [hemisphere(vector, 1.0, epsilon, source) for vector, epsilon in zip(vectors, epsilons, strict=True)]
        return np.array(rows, dtype=np.float64)

    def simulated() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        rows = hemisphere_reports(torch.from_numpy(vectors).float(), 1.0, torch.from_numpy(epsilons), generator)
        return rows.double().numpy()

    runs = [np.array([draw() for _ in range(count)]) for draw in (real, simulated)]
    means = [np.array([hemisphere_mean(run.sum(axis=0), tiers, 1.0).mean for run in runs_]) for runs_ in runs]
    for coordinate in range(12):
        assert ks_2samp(means[0][:, coordinate], means[1][:, coordinate]).pvalue > 1e-5
    for user in range(1, 6):
        towards = [float((run[:, user] @ vectors[user] > 0).mean()) for run in runs]
        assert abs(towards[0] - towards[1]) < 5 * math.sqrt(0.5 / count)


def test_noise_goes_down_with_the_users_and_their_budgets(digits: Dataset) -> None:
    """The parameters after one step, against the step without noise: as far off as the estimator claims."""
    model, count = load_model("softmax", 63, 10), len(digits.train)
    (_, exact), *_ = user_epochs(model, digits.train, None, 1.0, begun(model, StepRule(1.0)), 1)
    for epsilon in (1.0, 4.0):
        budgets = torch.full((count,), epsilon, dtype=torch.float64)
        (_, noisy), *_ = user_epochs(model, digits.train, budgets, 1.0, begun(model, StepRule(1.0)), 1)
        claimed = hemisphere_mean(np.zeros(model.dimension), [(epsilon, count)], 1.0).standard_error
        off = float(torch.linalg.vector_norm(noisy.parameters - exact.parameters))
        assert off == pytest.approx(claimed * math.sqrt(model.dimension), rel=0.2)


def test_it_learns(digits: Dataset) -> None:
    model, accuracies = load_model("softmax", 63, 10), []
    for budgets in (None, torch.full((len(digits.train),), 4.0, dtype=torch.float64)):
        *_, (epoch, descent) = user_epochs(model, digits.train, budgets, 1.0, begun(model), 12)
        assert (epoch, descent.steps) == (12, 12)
        accuracies.append(evaluate(model, descent.average, digits.validation).accuracy or 0.0)
    assert accuracies[0] > accuracies[1] > 0.5
    assert accuracies[0] > 0.75


@pytest.mark.slow
def test_small_batches_take_more_steps(digits: Dataset) -> None:
    small, model = digits.train.part(slice(0, 250)), load_model("softmax", 63, 10)
    budgets = torch.full((250,), 8.0, dtype=torch.float64)
    *_, (_, descent) = user_epochs(model, small, budgets, 1.0, begun(model), 2, batch_size=100)
    assert descent.steps == 6
    with pytest.raises(ValueError, match=naming(3, 250)):
        next(user_epochs(model, small, budgets[:3], 1.0, begun(model), 1))


def test_silos_answer_one_after_the_other(digits: Dataset) -> None:
    model = load_model("softmax", 63, 10)
    spending = SiloSpending([(2.0, 1e-5)] * 10, 1e-5)
    sigma = spending.noise(2.0, 1e-5) * 2 * 2.0 / (len(digits.train) // 10)
    accuracies = []
    for noise in (0.0, sigma):
        *_, (_, descent) = silo_epochs(model, digits.train, [noise] * 10, 2.0, begun(model, StepRule(1.0)), 3)
        assert descent.steps == 30
        accuracies.append(evaluate(model, descent.parameters, digits.validation).accuracy or 0.0)
    assert accuracies[0] > 0.6
    assert accuracies[0] >= accuracies[1] > 0.3


def test_a_step_that_is_none_is_not_taken() -> None:
    descent = Descent(torch.zeros(3), StepRule(1.0))
    with pytest.raises(ValueError, match=naming("finite")):
        descent.step(torch.tensor([0.0, torch.inf, 0.0]))
    with pytest.raises(ValueError, match=naming("(2,)", "(3,)")):
        descent.step(torch.zeros(2))
    assert descent.steps == 0
    with pytest.raises(ValueError, match="learning_rate is 0"):
        StepRule(0.0)
    with pytest.raises(ValueError, match="momentum is 1"):
        StepRule(1.0, momentum=1.0)
    with pytest.raises(ValueError, match="averaging is 0"):
        StepRule(1.0, averaging=0.0)


@pytest.mark.slow
def test_steps_are_those_of_momentum_and_a_falling_size() -> None:
    """By hand: gradients 1, 2, 0 and momentum 1/2 make velocities 1, 2.5, 1.25; sizes are 1, 1/sqrt(2), 1/sqrt(3)."""
    descent = Descent(torch.zeros(1, dtype=torch.float64), StepRule(1.0, 0.5, decaying=True))
    seen = []
    for gradient in (1.0, 2.0, 0.0):
        descent.step(torch.tensor([gradient], dtype=torch.float64))
        seen.append(float(descent.parameters))
    assert seen == pytest.approx([-1.0, -1.0 - 2.5 / 2**0.5, -1.0 - 2.5 / 2**0.5 - 1.25 / 3**0.5])


def test_a_descent_goes_on_where_it_was() -> None:
    rule = StepRule(0.5, 0.9, decaying=True, averaging=0.5)
    gradients = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    whole, first, second = (Descent(torch.zeros(4), rule) for _ in range(3))
    for gradient in gradients:
        whole.step(gradient)
    for gradient in gradients[:3]:
        first.step(gradient)
    second.restore(first.state())
    for gradient in gradients[3:]:
        second.step(gradient)
    assert torch.equal(whole.parameters, second.parameters)
    assert torch.equal(whole.average, second.average)
