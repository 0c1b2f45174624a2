"""Randomised response against m uniform messages: delta(m) of bits, and the law of one loss for k values.

delta(m) is the hockey-stick divergence between the batches for the two values of the victim that are hardest to tell
apart, the victim's message being hidden among m uniform ones (docs/bounds.md). Only one pair of tails is subtracted in
the formula, and the error of that difference is added. The law of m is in `count_law`, sums of losses in `loss_sums`.
"""

from __future__ import annotations

import math

import numpy as np

from croupier.accountant.numerics.binomial import (
    UNIT,
    Floats,
    Ints,
    binomial_pmf,
    half_tail,
    half_tail_error,
    pmf_error,
)
from croupier.accountant.numerics.loss_sums import LossAtoms


def binary_delta(local_epsilon: float, epsilon: float, counts: Ints) -> tuple[Floats, Floats]:
    """Returns delta(m) for randomised response on {0, 1} among m = counts uniform bits.

    With w = e^v/(1+e^v), v = local_epsilon, N = m+1 and a* the least integer above
    N (e^epsilon w - (1-w)) / ((2w-1)(1+e^epsilon)):

        delta(m) = (w - e^epsilon (1-w)) Pr[Bin(m,1/2) = a*-1] - (e^epsilon - 1) Pr[Bin(m,1/2) >= a*],

    which is the formula of docs/bounds.md after the two tails are subtracted. The first array is the value, the second
    a bound on its absolute error; both are float64 of the shape of counts. 0 < local_epsilon <= 500, epsilon >= 0.
    """
    zeros = np.zeros(counts.shape)
    if epsilon >= local_epsilon:
        return zeros, zeros
    decay = math.exp(-local_epsilon)
    gain = math.exp(epsilon)
    # 1 minus the slope: exact also where the slope is within an ulp of 1, at budgets above about 25.
    below_one = -math.expm1(epsilon - local_epsilon) / (-math.expm1(-local_epsilon) * (1 + gain))
    sizes = counts + 1
    threshold = sizes - np.ceil(sizes * below_one).astype(np.int64) + 1
    at = binomial_pmf(threshold - 1, counts, 0.5)
    above = half_tail(threshold, counts)
    head = -math.expm1(epsilon - local_epsilon) / (1 + decay) * at
    rest = math.expm1(epsilon) * above
    largest = float(counts.max(initial=0))
    # The distance to N has an error of a few ulp. If the error moves the threshold past an integer, one term is added
    # or omitted; it vanishes at the threshold, so it is as small as that error relative to the head, and its mass is
    # at most 1 + e^epsilon (or N) times its neighbour's.
    misplaced = 8 * UNIT * min(largest + 1, 2 + 2 * gain)
    error = head * (pmf_error(10 * math.sqrt(largest) + 20) + 1e-13 + misplaced) + rest * half_tail_error(largest)
    return np.maximum(head - rest, 0.0), error


def kary_losses(local_epsilon: float, k: int, epsilon: float) -> LossAtoms:
    """Returns the law of (p0 - e^epsilon p1)/omega under the uniform omega on [k], rounded up: three values."""
    decay = math.exp(-local_epsilon)
    scale = k / (1 + (k - 1) * decay)
    values = np.array(
        [
            -math.expm1(epsilon - local_epsilon) * scale,
            (math.expm1(-local_epsilon) - math.expm1(epsilon)) * scale,
            -math.expm1(epsilon) * decay * scale,
        ]
    )
    values += 16 * UNIT * np.abs(values)
    return LossAtoms(values, values, values, np.array([1.0, 1.0, k - 2.0]) / k)
