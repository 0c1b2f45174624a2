"""Gaussian noise, on a lattice and on vectors, keeps the local budget it was calibrated for, and wastes none."""

from __future__ import annotations

import math

import mpmath
import pytest

from accountant.numerics.gaussian import gaussian_sigma
from protocol.calibration import (
    ROUNDING,
    gaussian_local_delta,
    gaussian_sigma_steps,
    unit_delta,
    unit_sigma,
)
from protocol.mechanisms import GaussianVector, VectorTask

BUDGETS = [(0.1, 1e-5), (1.0, 1e-8), (4.0, 1e-3), (1.0, 0.05), (12.0, 1e-12)]


def exact_delta(sigma: float, epsilon: float, steps: int) -> float:
    """From the definition, over every point that weighs anything."""
    reach = math.ceil(40 * sigma) + steps
    weights = [math.exp(-z * z / (2 * sigma * sigma)) for z in range(-reach, reach + 1)]
    total = math.fsum(weights)
    gain = math.exp(epsilon)
    shifted = [math.exp(-((z - steps) ** 2) / (2 * sigma * sigma)) for z in range(-reach, reach + 1)]
    return math.fsum(max(0.0, p - gain * q) for p, q in zip(weights, shifted, strict=True)) / total


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("steps", [1, 2, 7, 100])
def test_calibrated_noise_keeps_its_budget_for_every_pair_of_values(epsilon: float, delta: float, steps: int) -> None:
    sigma = gaussian_sigma_steps(epsilon, delta, steps)
    for distance in {1, (steps + 1) // 2, steps}:
        assert exact_delta(sigma, epsilon, distance) <= delta
    assert gaussian_local_delta(sigma, epsilon, steps) == pytest.approx(exact_delta(sigma, epsilon, steps), rel=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_on_a_fine_lattice_it_is_the_analytic_calibration(epsilon: float, delta: float) -> None:
    assert gaussian_sigma_steps(epsilon, delta, 1000) / 1000 == pytest.approx(gaussian_sigma(epsilon, delta), rel=1e-3)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-6), (21.0, 1e-6), (1.0, 0.0), (1.0, 1.0), (float("nan"), 0.1)])
def test_budgets_out_of_range_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ValueError, match="local budget is"):
        gaussian_sigma_steps(epsilon, delta, 10)


def test_noise_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="sigma is"):
        gaussian_local_delta(0.0, 1.0, 1)
    with pytest.raises(ValueError, match="steps 0"):
        gaussian_local_delta(1.0, 1.0, 0)


@pytest.mark.parametrize(("epsilon", "delta"), [*BUDGETS, (0.01, 1e-15), (20.0, 1e-15), (20.0, 0.1), (1e-4, 1e-9)])
def test_noise_on_vectors_keeps_its_budget_by_forty_digits_and_wastes_none(epsilon: float, delta: float) -> None:
    sigma = unit_sigma(epsilon, delta)
    with mpmath.workdps(40):
        mu = 1 / mpmath.mpf(sigma)
        for at in (0.0, epsilon / 2, epsilon, epsilon * 1.5):
            exact = mpmath.ncdf(-at / mu + mu / 2) - mpmath.exp(at) * mpmath.ncdf(-at / mu - mu / 2)
            assert exact <= unit_delta(sigma, at) <= exact * (1 + 1e-9) + 1e-11
    assert unit_delta(sigma, epsilon) <= delta
    assert unit_delta(sigma * (1 - 1e-9), epsilon) > delta
    assert sigma == pytest.approx(gaussian_sigma(epsilon, delta), rel=1e-6)


def test_the_noise_of_a_mean_of_records_is_that_of_what_one_record_moves() -> None:
    task = VectorTask(3, 2.5, "model", bytes(12))
    sigma = GaussianVector(task, 600, 1e-6).sigma(1.5)
    assert sigma == pytest.approx(2 * 2.5 / 600 * gaussian_sigma(1.5, 1e-6) * (1 + ROUNDING), rel=1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-6), (21.0, 1e-6), (1.0, 0.0), (1.0, 0.2), (1e-12, 1e-15)])
def test_budgets_that_vectors_cannot_be_reported_with_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ValueError, match="local budget is"):
        unit_sigma(epsilon, delta)
