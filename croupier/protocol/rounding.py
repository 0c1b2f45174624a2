"""Numbers that people read, rounded to the side on which the sentence stays true: promises up, attacks down."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal


def round_up(value: float, digits: int = 6) -> str:
    """Returns a number >= 0 in that many significant digits, never below it: for all certified figures that are shown.

    A float is read as its shortest decimal form, so that 0.1 stays 0.1.
    """
    return _rounded(value, digits, ROUND_CEILING)


def round_down(value: float, digits: int = 6) -> str:
    """As `round_up`, never above it: for attacks, and for what remains of a limit."""
    return _rounded(value, digits, ROUND_FLOOR)


def percent(share: float) -> str:
    """Returns a share in per cent, four digits, rounded up: what a guarantee shows of `right_at_most`."""
    return f"{round_up(100 * share, 4)} %"


def _rounded(value: float, digits: int, direction: str) -> str:
    exact = Decimal(repr(float(value)))
    if exact.is_finite() and exact:
        exact = exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding=direction)
    return f"{float(exact):.{digits}g}"
