"""Chords in e^epsilon: never below the function whose points they join, near 0 and where it falls steeply too."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from croupier.accountant.numerics.chords import Chords, crossing


@pytest.mark.parametrize("far", [1e-100, 1e-16, 1e-9, 0.3, 40.0, 900.0, 1e7])
@pytest.mark.parametrize("fall", [0.1, 30.0, 600.0])
def test_chords_are_not_below_the_exact_ones(far: float, fall: float) -> None:
    epsilons = np.linspace(0, far, 12)
    values = np.exp(-fall * epsilons / far)
    chords = Chords(epsilons.tolist(), values.tolist())
    places = [*np.linspace(0, 1.1 * far, 25), *(point * (1 - 2**-52) for point in epsilons[1:])]
    for place in map(float, places):
        with mpmath.workdps(60):
            at, ends = mpmath.expm1(place), [mpmath.expm1(float(e)) for e in epsilons]
            right = next((k for k in range(1, len(ends)) if at <= ends[k]), None)
            exact = mpmath.mpf(values[-1])
            if right is not None:
                share = (ends[right] - at) / (ends[right] - ends[right - 1])
                exact = share * mpmath.mpf(values[right - 1]) + (1 - share) * mpmath.mpf(values[right])
            bound = chords.above(place)
            assert exact <= bound <= values[0] * (1 + 1e-12)
            assert bound <= exact + 1e-12 * values[0]


def test_before_the_first_point_nothing_is_known() -> None:
    chords = Chords([0.5, 1.0], [0.3, 0.1])
    assert chords.above(0.4) == 1.0
    assert chords.above(1000.0) == 0.1
    assert math.isclose(chords.above(0.5), 0.3)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1e-12), (0.1, 0.3), (2.0, 30.0), (600.0, 900.0), (3.0, 1e6)])
@pytest.mark.parametrize("share", [1e-9, 0.25, 0.999])
def test_chords_cross_where_they_meet(low: float, high: float, share: float) -> None:
    with mpmath.workdps(60):
        start = mpmath.exp(low)
        exact = mpmath.log(start + (mpmath.exp(high) - start) * mpmath.mpf(share))
        assert math.isclose(crossing(low, high, share), float(exact), rel_tol=1e-12)
        assert low < crossing(low, high, share) <= high
