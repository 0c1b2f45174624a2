"""The stages of the clocks in the exchange bounds: which report is exchanged for the victim's, and when."""

from __future__ import annotations

import numpy as np

from croupier.accountant.numerics.binomial import Floats

STAGES = 12
"""Stages of a clock. Each is charged at its end: with half as many, epsilon of 300 people grows by half a percent."""


def stages(end: float, number: int = STAGES) -> tuple[Floats, Floats]:
    """Ends of stages from 0 to `end`, narrow first, and ln of the chance that a clock of rate 1 rings first in each.

    Both of shape (number,). The logarithms are good to a few ulp, and one of their size.
    """
    ends = end * (np.arange(1, number + 1) / number) ** 2
    starts = np.concatenate([[0.0], ends[:-1]])
    return ends, np.log(-np.expm1(starts - ends)) - starts
