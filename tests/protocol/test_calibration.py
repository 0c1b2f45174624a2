"""Gaussian noise, on a lattice and on vectors, keeps the local budget it was calibrated for, and wastes none."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from croupier.protocol.calibration import (
    ROUNDING,
    gaussian_local_delta,
    gaussian_sigma_steps,
    unit_delta,
    unit_epsilon,
    unit_sigma,
)
from croupier.protocol.mechanisms.gaussian_vector import GaussianVector
from croupier.protocol.mechanisms.vector_task import VectorTask
from tests.support.messages import naming

BUDGETS = [(0.1, 1e-5), (1.0, 1e-8), (4.0, 1e-3), (1.0, 0.05), (12.0, 1e-12)]


def exact_delta(sigma: float, epsilon: float, steps: int) -> float:
    """From the definition, over every point that weighs anything."""
    reach = math.ceil(40 * sigma) + steps
    z = np.arange(-reach, reach + 1.0)
    weights, shifted = (np.exp(-((z - by) ** 2) / (2 * sigma * sigma)) for by in (0, steps))
    return math.fsum(np.maximum(weights - math.exp(epsilon) * shifted, 0.0).tolist()) / math.fsum(weights.tolist())


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("steps", [1, 2, 7, 100])
def test_calibrated_noise_keeps_its_budget_for_every_pair_of_values(epsilon: float, delta: float, steps: int) -> None:
    sigma = gaussian_sigma_steps(epsilon, delta, steps)
    for distance in {1, (steps + 1) // 2, steps}:
        assert exact_delta(sigma, epsilon, distance) <= delta
    assert gaussian_local_delta(sigma, epsilon, steps) == pytest.approx(exact_delta(sigma, epsilon, steps), rel=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_on_a_fine_lattice_it_is_the_analytic_calibration(epsilon: float, delta: float) -> None:
    assert gaussian_sigma_steps(epsilon, delta, 1000) / 1000 == pytest.approx(unit_sigma(epsilon, delta), rel=1e-3)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-6), (21.0, 1e-6), (1.0, 0.0), (1.0, 1.0), (float("nan"), 0.1)])
def test_budgets_out_of_range_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ValueError, match=naming("local budget")):
        gaussian_sigma_steps(epsilon, delta, 10)


def test_noise_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="sigma is"):
        gaussian_local_delta(0.0, 1.0, 1)
    with pytest.raises(ValueError, match="steps 0"):
        gaussian_local_delta(1.0, 1.0, 0)


@pytest.mark.parametrize(("epsilon", "delta"), [*BUDGETS, (0.01, 1e-15), (20.0, 1e-15), (20.0, 0.1), (1e-4, 1e-9)])
def test_noise_on_vectors_keeps_its_budget_and_wastes_none(epsilon: float, delta: float) -> None:
    sigma = unit_sigma(epsilon, delta)
    with mpmath.workdps(40):
        mu = 1 / mpmath.mpf(sigma)
        for at in (0.0, epsilon / 2, epsilon, epsilon * 1.5):
            exact = mpmath.ncdf(-at / mu + mu / 2) - mpmath.exp(at) * mpmath.ncdf(-at / mu - mu / 2)
            assert exact <= unit_delta(sigma, at) <= exact * (1 + 1e-9) + 1e-11
    assert unit_delta(sigma, epsilon) <= delta
    assert unit_delta(sigma * (1 - 1e-9), epsilon) > delta


def test_the_noise_of_a_mean_of_records_is_that_of_what_one_record_moves() -> None:
    task = VectorTask(3, 2.5, "model", bytes(12))
    sigma = GaussianVector(task, 600, 1e-6).sigma(1.5)
    assert sigma == pytest.approx(2 * 2.5 / 600 * unit_sigma(1.5, 1e-6) * (1 + ROUNDING), rel=1e-9)


@pytest.mark.parametrize("sigma", [1e-2, 0.2, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 0.3, 20.0, 499.0, 1e4])
def test_delta_is_rounded_up_by_a_trifle_over_its_whole_range(sigma: float, epsilon: float) -> None:
    """Also where erfc underflows: there a lower bound of it is subtracted, which is good to six digits."""
    with mpmath.workdps(60):
        a, b = mpmath.mpf(epsilon) * sigma, 1 / (2 * mpmath.mpf(sigma))
        first = mpmath.erfc((a - b) / mpmath.sqrt(2)) / 2
        exact = first - mpmath.exp(mpmath.mpf(epsilon)) * mpmath.erfc((a + b) / mpmath.sqrt(2)) / 2
        assert exact <= unit_delta(sigma, epsilon) <= exact + first * 1e-6 + 1e-299


@pytest.mark.parametrize("sigma", [0.002, 0.05, 1.0, 40.0, 1e5])
@pytest.mark.parametrize("delta", [1e-250, 1e-12, 1e-6, 0.3])
def test_epsilon_of_given_noise_is_the_least_that_is_enough(sigma: float, delta: float) -> None:
    epsilon = unit_epsilon(sigma, delta)
    assert unit_delta(sigma, epsilon) <= delta
    assert epsilon == 0 or unit_delta(sigma, epsilon * (1 - 1e-9)) > delta


@pytest.mark.parametrize(("sigma", "delta"), [(0.0, 1e-6), (math.inf, 1e-6), (1.0, 0.0), (1.0, 1.0), (1.0, math.nan)])
def test_noise_without_an_epsilon_is_refused(sigma: float, delta: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        unit_epsilon(sigma, delta)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-6), (501.0, 1e-6), (1.0, 0.0), (1.0, 1.0), (1e-12, 1e-15)])
def test_budgets_that_no_noise_is_calibrated_for_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ValueError, match="local"):
        unit_sigma(epsilon, delta)


@pytest.mark.parametrize("epsilon", [0.0, 21.0, math.nan])
def test_budgets_that_vectors_cannot_be_reported_with_are_refused(epsilon: float) -> None:
    task = VectorTask(3, 2.5, "model", bytes(12))
    with pytest.raises(ValueError, match=naming("local budget")):
        GaussianVector(task, 600, 1e-6).check_budget(epsilon)
