"""Sums of privacy losses: never below sums over all multisets of outcomes in 40 digits, and close."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import mpmath
import numpy as np
import pytest

from croupier.accountant.numerics.binomial import binomial_pmf
from croupier.accountant.numerics.count_law import CountLaw, blanket_count
from croupier.accountant.numerics.loss_sums import LossAtoms, mean_excess, smoothed_excess


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


@pytest.mark.parametrize("chance", [0.5, 0.2, 0.85])
@pytest.mark.parametrize("deviations", [0.0, 0.7, 3.0, 6.0, 11.0])
@pytest.mark.parametrize("terms", [300_000, 8_000_000, 10**9])
def test_many_terms_need_no_lattice(terms: int, deviations: float, chance: float) -> None:
    width = math.sqrt(chance * (1 - chance) / terms)
    value, error = smoothed_excess(
        point_atoms((1 - chance - deviations * width, -chance - deviations * width), (chance, 1 - chance)),
        certain(terms - 1),
    ) or (0.0, 0.0)
    # The sum is K - terms (chance + deviations width) for a binomial K.
    least = math.floor(terms * (chance + deviations * width)) + 1
    ones = np.arange(least, min(terms, least + math.ceil(12 * terms * width)) + 1)
    exact = float(binomial_pmf(ones, terms, chance) @ (ones - terms * (chance + deviations * width))) / terms
    assert exact * (1 - 1e-9) <= value + error <= exact * (1 + 3e-4 * (2 + deviations**2))


def test_many_terms_in_cells_agree_with_a_lattice(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    mean, width = rng.normal(size=400), rng.uniform(0, 0.05, 400)
    mean -= mean.mean() + 0.01
    atoms = LossAtoms(mean - width, mean + width, mean, np.full(400, 1 / 400))
    law = CountLaw(np.array([199_000, 200_000]), np.array([0.25, 0.75]), 0.0, 0.0)
    value, error = mean_excess(atoms, law)
    assert (value, error) == smoothed_excess(atoms, law)
    assert smoothed_excess(atoms, CountLaw(law.counts // 10, law.mass, 0.0, 0.0)) is None
    monkeypatch.setattr("croupier.accountant.numerics.loss_sums.LEAST_SMOOTHED", math.inf)
    assert value == pytest.approx(mean_excess(atoms, law)[0], rel=0.02)
    assert 0 < error < 1e-6 * value


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
