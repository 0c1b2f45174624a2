"""Certificates that were once below the truth, and inputs that once broke the accountant: each is kept as a test."""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from accountant import Budgets, GaussianMechanism, certify


def sigma_of(epsilon: float, delta: float) -> float:
    """The analytic calibration, by a scan that shares no code with the accountant's."""
    sigmas = np.geomspace(0.05, 50, 200_001)
    spent = norm.sf(sigmas * epsilon - 1 / (2 * sigmas)) - np.exp(epsilon) * norm.sf(
        sigmas * epsilon + 1 / (2 * sigmas)
    )
    return float(sigmas[np.argmax(spent <= delta)])


def test_a_group_of_gaussian_budgets_covers_its_noisiest_member() -> None:
    """More than 32 budgets are answered together; the noisiest once was taken to have the largest local delta, too.

    The attack: some report lies beyond a threshold that nobody but the noisy victim reaches.
    """
    others = [(1.0, 3000, 0.1 - 1e-3 * i) for i in range(32)]
    certificate = certify(Budgets.from_tiers([*others, (1.0, 1, 1e-12)]), GaussianMechanism(), delta=1e-6, attack=False)
    threshold = np.linspace(0, 60, 6001)
    nobody = np.sum([3000 * norm.logcdf(threshold / sigma_of(1.0, delta)) for _, _, delta in others], axis=0)
    sigma = sigma_of(1.0, 1e-12)
    low, high = (-np.expm1(nobody + norm.logcdf((threshold - value) / sigma)) for value in (0, 1))
    assert (high - np.exp(0.6) * low).max() > 1e-6  # no epsilon below 0.6 is true
    assert certificate.epsilon > 0.6
