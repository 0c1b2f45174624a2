"""Exact sums and differences of floats, read as the decimals that people wrote."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction


def sum_above(values: Iterable[float]) -> float:
    """Returns the sum of finite numbers, rounded up."""
    exact = sum((Fraction(value) for value in values), Fraction(0))
    return float(exact) if Fraction(float(exact)) >= exact else math.nextafter(float(exact), math.inf)


def sum_as_decimals(values: Iterable[float]) -> float:
    """Returns the sum of finite numbers as the decimals that people wrote, rounded up: 5 times 0.8 is 4."""
    return decimal_above(sum((as_decimal(value) for value in values), Fraction(0)))


def decimal_above(exact: Fraction) -> float:
    """Returns the float of a sum of decimals, such that the decimal form of the float is not below the sum."""
    return float(exact) if as_decimal(float(exact)) >= exact else math.nextafter(float(exact), math.inf)


def as_decimal(value: float) -> Fraction:
    """Returns the shortest decimal form of a finite float, exactly, as a person would write it.

    Decimals of up to 15 digits come back as they were written, so their sums compare as on paper: 3 times 0.1 is at
    most 0.3, which the sum of floats is not. A float is within 2^-53 of its decimal form, relatively.
    """
    return Fraction(repr(float(value)))


def difference(left: float, right: float) -> float:
    """Returns left - right for display, as the difference of the decimals, so that 0.8 - 0.7 is 0.1."""
    return float(as_decimal(left) - as_decimal(right))
