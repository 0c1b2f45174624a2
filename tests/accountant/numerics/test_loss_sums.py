"""Sums of privacy losses: never below sums over all multisets of outcomes in 40 digits, and close."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import mpmath
import numpy as np
import pytest

from accountant.numerics.count_law import CountLaw, blanket_count
from accountant.numerics.loss_sums import LossAtoms, mean_excess


def certain(count: int) -> CountLaw:
    return CountLaw(np.array([count]), np.array([1.0]), 0.0, 0.0)


def exact_excess(values: Sequence[float], masses: Sequence[float], terms: int) -> Any:
    """E[L_1 + ... + L_N]_+ / N over all multisets of outcomes, in 40 digits."""
    with mpmath.workdps(40):
        total = mpmath.mpf(0)
        for counts in itertools.product(range(terms + 1), repeat=len(values)):
            if sum(counts) != terms:
                continue
            excess = sum(mpmath.mpf(v) * c for v, c in zip(values, counts, strict=True))
            if excess > 0:
                ways = mpmath.factorial(terms)
                for mass, c in zip(masses, counts, strict=True):
                    ways *= mpmath.mpf(mass) ** c / mpmath.factorial(c)
                total += ways * excess
        return total / terms


def point_atoms(values: Sequence[float], masses: Sequence[float]) -> LossAtoms:
    at = np.array(values)
    return LossAtoms(at, at, at, np.array(masses))


@pytest.mark.parametrize("terms", [1, 2, 9, 40])
@pytest.mark.parametrize(
    ("values", "masses"),
    [
        ((0.9, -1.3, -0.05), (0.2, 0.25, 0.55)),
        ((3.0, -0.5, -0.1), (0.01, 0.5, 0.49)),
        ((0.5, -2.0, 0.0), (0.3, 0.3, 0.4)),
        ((0.2, -30.0, 0.1), (0.5, 0.25, 0.25)),
        ((-0.1, -0.2, -0.3), (0.5, 0.25, 0.25)),
    ],
)
def test_mean_excess_is_never_below_and_close(values: Sequence[float], masses: Sequence[float], terms: int) -> None:
    exact = exact_excess(values, masses, terms)
    value, error = mean_excess(point_atoms(values, masses), certain(terms - 1))
    assert value + error >= exact * (1 - mpmath.mpf(10) ** -15)
    assert value + error <= exact * 1.02 + 1e-280


def test_mean_excess_keeps_its_digits_far_out() -> None:
    """delta near 1e-60: fair bits against a drift, summed exactly by the binomial law."""
    terms, up, down = 400, 1.0, -3.0
    with mpmath.workdps(50):
        exact = (
            sum(
                mpmath.binomial(terms, k) * mpmath.mpf(2) ** -terms * (k * up + (terms - k) * down)
                for k in range(terms + 1)
                if k * up + (terms - k) * down > 0
            )
            / terms
        )
    assert exact < 1e-24
    value, error = mean_excess(point_atoms((up, down), (0.5, 0.5)), certain(terms - 1))
    assert exact <= value + error <= exact * 1.001
    assert error < 1e-6 * value


def test_mean_excess_averages_over_the_counts() -> None:
    law = blanket_count(np.array([0.3, 0.8]), np.array([4, 3]))
    values, masses = (0.9, -1.1, -0.1), (0.3, 0.3, 0.4)
    exact = sum(mass * exact_excess(values, masses, int(m) + 1) for m, mass in zip(law.counts, law.mass, strict=True))
    value, error = mean_excess(point_atoms(values, masses), law)
    assert exact * (1 - 1e-14) <= value + error <= exact * 1.01


def test_a_wider_atom_gives_more() -> None:
    """Knowing less about a term cannot make the bound smaller."""
    masses = np.array([0.3, 0.3, 0.4])
    mean = np.array([0.9, -1.1, -0.1])
    narrow = sum(mean_excess(LossAtoms(mean, mean, mean, masses), certain(20)))
    wide = sum(mean_excess(LossAtoms(mean - 0.4, mean + 0.4, mean, masses), certain(20)))
    assert narrow < wide < 2 * narrow


@pytest.mark.parametrize(
    ("low", "high", "mass"), [((0.0,), (-1.0,), (1.0,)), ((0.0,), (math.inf,), (1.0,)), ((0.0,), (1.0,), (0.9,))]
)
def test_bad_atoms_are_refused(low: tuple[float], high: tuple[float], mass: tuple[float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        LossAtoms(np.array(low), np.array(high), np.array(low), np.array(mass))
