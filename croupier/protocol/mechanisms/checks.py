"""The checks and the number reader that several kinds share; each error names the value and the range."""

from __future__ import annotations

import math

MAX_LOCAL_DELTA = 1e-3
"""The largest delta of a local budget: a randomizer may publish the answer itself with this probability, and still be
(epsilon, delta)-differentially private, however small its epsilon. More than one person in a thousand is too many."""
MIN_LOCAL_DELTA = 1e-15


def check_count(name: str, value: int, low: int, high: int) -> None:
    """Raises ValueError unless value is an integer of low..high."""
    if value not in range(low, high + 1):
        raise ValueError(f"{name} is {value}; it must be {low}..{high}")


def check_number(name: str, value: float, low: float, high: float) -> None:
    """Raises ValueError unless low <= value <= high."""
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; it must be {low:g}..{high:g}")


def check_positive(name: str, value: float) -> None:
    """Raises ValueError unless value is a finite number > 0."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} is {value}; it must be a finite number > 0")


def parse_number(text: str) -> float:
    """Returns the number that a text states, NaN if it states none; NaN is outside every range."""
    try:
        return float(text)
    except ValueError:
        return math.nan
