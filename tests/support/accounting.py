"""The accountant as tests of the bounds call it."""

from __future__ import annotations

from functools import partial

import pytest

from croupier import certify

certify_without_attack = partial(certify, attack=False)
"""`certify` for a test that does not look at the attack, which takes about as long as the bound."""


def draw_points_only(patch: pytest.MonkeyPatch) -> None:
    """Leaves out what lies between the points that a curve is printed with, most of the time that it takes."""
    patch.setattr("croupier.accountant.certified_profile.MOST_BETWEEN", 0)
