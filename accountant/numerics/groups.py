"""Groups of neighbouring budgets, where there are more of them than a bound can take one by one."""

from __future__ import annotations

import numpy as np

from croupier.accountant.numerics.binomial import Floats, Ints

BINS = 4096
"""How finely users are counted to decide where groups begin: many more than there are groups."""


def group_starts(place: Floats, weight: Floats | Ints, groups: int) -> Ints:
    """Where each group begins, at most `groups` of them; every budget is its own group where they are few.

    place: increasing, (T,), in units in which a group loses its weight times its width. Then the loss of all groups is
    least, about, where the square root of the weight per unit is spread evenly.
    """
    if place.size <= groups:
        return np.arange(place.size)
    width = max(float(place[-1] - place[0]), 1e-15 * abs(float(place[0])), 1e-300)  # they may differ by rounding only
    share = np.maximum.accumulate(np.clip((place - place[0]) / width, 0.0, 1.0))
    bins = np.minimum((share * BINS).astype(np.int64), BINS - 1)
    density = np.sqrt(np.bincount(bins, weights=weight, minlength=BINS))
    before = np.cumsum(density) - density / 2
    full = np.flatnonzero(density)
    group = (before[full] / density.sum() * groups).astype(np.int64)
    starts: Ints = np.searchsorted(bins, full[np.diff(group, prepend=-1) > 0])
    return starts
