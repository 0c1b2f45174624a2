"""The stages of the clocks in the exchange bounds: time intervals of the first ring."""

from __future__ import annotations

import numpy as np

from croupier.accountant.numerics.binomial import Floats

STAGES = 12
"""Stages of a clock, each charged at its end. Half as many increase epsilon of 300 people by half a percent."""


def stages(end: float, number: int = STAGES) -> tuple[Floats, Floats]:
    """Returns ends of stages from 0 to `end`, narrow first, and ln of the chance of the first ring in each, at rate 1.

    Both of shape (number,). The logarithms have an error of a few ulp, and one of their size.
    """
    ends = end * (np.arange(1, number + 1) / number) ** 2
    starts = np.concatenate([[0.0], ends[:-1]])
    return ends, np.log(-np.expm1(starts - ends)) - starts
