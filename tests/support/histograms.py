"""Histograms of reports, enumerated: the exact law of what a shuffler releases, for few users and letters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def letters(rates: Floats, values: Floats, cuts: Floats) -> Floats:
    """The chance of each letter (a cell between cuts) for every user, (n, L)."""
    t = cuts[None, :] - values[:, None]
    below = np.where(t < 0, 0.5 * np.exp(-rates[:, None] * np.abs(t)), 1 - 0.5 * np.exp(-rates[:, None] * np.abs(t)))
    return np.diff(np.concatenate([np.zeros((values.size, 1)), below, np.ones((values.size, 1))], axis=1), axis=1)


def histogram(chances: Floats) -> Floats:
    """The law of the number of reports in each of three letters, as an array over the first two counts."""
    law = np.zeros((chances.shape[0] + 1,) * 2)
    law[0, 0] = 1.0
    for a, b, c in chances:
        following = law * c
        following[1:] += law[:-1] * a
        following[:, 1:] += law[:, :-1] * b
        law = following
    return law
