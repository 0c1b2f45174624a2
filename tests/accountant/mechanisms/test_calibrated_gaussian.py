"""Many noise scales at once: the very floats that the clients' own calibration finds for each budget."""

import math

import numpy as np
import pytest

from croupier.accountant.mechanisms.calibrated_gaussian import PART, unit_sigmas
from croupier.protocol.calibration import unit_delta, unit_sigma


@pytest.mark.parametrize(
    ("epsilons", "log_deltas"),
    [((0.1, 1.0), (-14.0, -14.0)), ((1e-6, 500.0), (-16.0, -1e-6)), ((0.01, 500.0), (-600.0, -0.1))],
)
def test_they_are_those_of_the_bisection_bit_for_bit(
    epsilons: tuple[float, float], log_deltas: tuple[float, float]
) -> None:
    generator = np.random.default_rng(11)
    epsilon = np.exp(generator.uniform(math.log(epsilons[0]), math.log(epsilons[1]), 2000))
    delta = np.exp(generator.uniform(*log_deltas, 2000))
    one_by_one = [unit_sigma(*budget) for budget in zip(epsilon.tolist(), delta.tolist(), strict=True)]
    assert unit_sigmas(epsilon, delta).tolist() == one_by_one


def test_scales_at_powers_of_two_and_over_several_parts() -> None:
    """Where an end of the bracket is the root itself, only the bisection knows on which side it is."""
    sigma = 2.0 ** np.arange(7)
    delta = np.array([unit_delta(float(deviation), 0.5) for deviation in sigma])
    epsilon = np.full(sigma.size, 0.5)
    several = PART // sigma.size + 1
    together = unit_sigmas(np.tile(epsilon, several), np.tile(delta, several)).reshape(several, -1)
    assert (together == np.array([unit_sigma(0.5, float(value)) for value in delta])).all()
    assert (together == sigma).all()


@pytest.mark.parametrize(
    ("epsilon", "delta", "reason"),
    [(0.0, 0.1, "local_epsilon is 0.0"), (501.0, 0.1, "local_epsilon is 501"), (1.0, 0.0, "local_delta is 0.0"),
     (1.0, 1.0, "local_delta is 1.0"), (float("nan"), 0.1, "local_epsilon is nan"), (1e-12, 1e-12, "local budget is")],
)  # fmt: skip
def test_one_that_has_none_is_refused_among_many(epsilon: float, delta: float, reason: str) -> None:
    epsilons, deltas = np.full(1000, 1.0), np.full(1000, 1e-6)
    epsilons[700], deltas[700] = epsilon, delta
    with pytest.raises(ValueError, match=reason):
        unit_sigmas(epsilons, deltas)
