"""The ranges of epsilons, deltas and counts, and the messages for values outside them.

The lowest room of the accountant: everything else may import it, and it imports nothing.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Literal, get_args

MAX_LOCAL_EPSILON = 500.0
"""Above it e^epsilon leaves the range of the closed forms; a user with this budget has no privacy anyway."""
MIN_LOCAL_EPSILON = 1e-100
"""Below it squares and quotients of the budget leave the range of floats; its reports reveal nothing."""
MAX_USERS = 2**53
"""Counts, of users or of anything else, are added as float64 in places, and would not be exact above this."""
DEFAULT_DELTA = 1e-6
"""The default central delta of a round, a plan or an audit."""
Linkage = Literal["separate", "stratified"]
"""Whether the observer sees the tier of a report (stratified) or not (separate)."""
LINKAGES: tuple[Linkage, ...] = get_args(Linkage)
Bounds = Literal["all", "blanket"]
"""The bounds whose minimum a certificate is; the local budget is always one of them."""
BOUNDS: tuple[Bounds, ...] = get_args(Bounds)


def outside(name: str, value: object, required: str) -> ValueError:
    """Returns the error for a value outside its range: "delta is 2; it must be 0 < delta < 1"."""
    return ValueError(f"{name} is {value!r}; it must be {required}")


def is_number(value: object) -> bool:
    """Returns whether a value is a finite real number within the range of floats; a bool does not count."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer
        return False


def check_epsilon(epsilon: float, name: str = "epsilon") -> None:
    """Raises ValueError unless epsilon is a finite number >= 0."""
    if not (is_number(epsilon) and epsilon >= 0):
        raise outside(name, epsilon, "a finite number >= 0")


def check_delta(delta: float, name: str = "delta") -> None:
    """Raises ValueError unless 0 <= delta <= 1."""
    if not (is_number(delta) and 0 <= delta <= 1):
        raise outside(name, delta, f"0 <= {name} <= 1")


def check_target_delta(delta: float, name: str = "delta") -> None:
    """Raises ValueError unless 0 < delta < 1, the range of a target."""
    if not (is_number(delta) and 0 < delta < 1):
        raise outside(name, delta, f"0 < {name} < 1")


def check_count(count: int, name: str, least: int = 0) -> None:
    """Raises ValueError unless count is an integer (not a bool) of at least `least` and at most MAX_USERS."""
    if isinstance(count, bool) or not isinstance(count, Integral) or count < least:
        raise outside(name, count, f"an integer >= {least}")
    if count > MAX_USERS:
        raise ValueError(f"{name} is an integer of {int(count).bit_length()} bits; it must be at most {MAX_USERS}")


def check_text(*texts: object) -> None:
    """Raises ValueError unless each is a string."""
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"{text!r:.60} is of type {type(text).__name__}; it must be a string")


def check_bounds(bounds: str) -> Bounds:
    """Returns the choice of bounds; raises ValueError unless it is one of BOUNDS."""
    if bounds not in BOUNDS:
        raise outside("bounds", bounds, f"one of {', '.join(BOUNDS)}")
    return bounds


def check_linkage(linkage: str) -> Linkage:
    """Returns the linkage; raises ValueError unless it is one of LINKAGES."""
    if linkage not in LINKAGES:
        raise outside("linkage", linkage, " or ".join(map(repr, LINKAGES)))
    return linkage
