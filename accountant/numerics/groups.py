"""Groups of neighbouring budgets, if there are too many for a bound to take them one by one."""

from __future__ import annotations

import numpy as np

from croupier.accountant.numerics.binomial import Floats, Ints

BINS = 4096
"""Bins in which users are counted to decide where groups begin: many more than groups."""


def group_starts(place: Floats, weight: Floats | Ints, groups: int) -> Ints:
    """Returns the start of each group, at most `groups` of them; every budget is its own group if there are few.

    place: increasing, (T,), in units in which a group loses its weight times its width. The total loss is about least
    if the square root of the weight per unit is spread evenly over the groups.
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
