"""The delta(m) of binary and k-ary randomised response against m uniform messages, in closed form.

delta(m) is the hockey-stick divergence between the victim's message hidden among m uniform ones, for the two values
of the victim that are hardest to tell apart (docs/accounting.md). The formulas are written so that nothing cancels but
one pair of tails, and the error of that pair is added. The law of m is left to `count_law`.
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
from croupier.accountant.numerics.tail_radii import bernstein_radius
from croupier.accountant.ranges import outside

__all__ = ["KaryTable", "binary_delta", "kary_losses"]


def binary_delta(local_epsilon: float, epsilon: float, counts: Ints) -> tuple[Floats, Floats]:
    """Returns delta(m) for randomised response on {0, 1} among m = counts uniform bits.

    With w = e^v/(1+e^v), v = local_epsilon, N = m+1 and a* the least integer above
    N (e^epsilon w - (1-w)) / ((2w-1)(1+e^epsilon)):

        delta(m) = (w - e^epsilon (1-w)) Pr[Bin(m,1/2) = a*-1] - (e^epsilon - 1) Pr[Bin(m,1/2) >= a*],

    the spec's form with the two tails subtracted by hand. Direction: the first array is the value, the second a bound
    on its absolute error. Both float64, shape of counts. 0 < local_epsilon <= 500, epsilon >= 0.
    """
    zeros = np.zeros(counts.shape)
    if epsilon >= local_epsilon:
        return zeros, zeros
    decay = math.exp(-local_epsilon)
    gain = math.exp(epsilon)
    # N minus the slope of the spec: exact also where the slope is within an ulp of 1, at budgets above about 25.
    below_one = -math.expm1(epsilon - local_epsilon) / (-math.expm1(-local_epsilon) * (1 + gain))
    sizes = counts + 1
    threshold = sizes - np.ceil(sizes * below_one).astype(np.int64) + 1
    at = binomial_pmf(threshold - 1, counts, 0.5)
    above = half_tail(threshold, counts)
    head = -math.expm1(epsilon - local_epsilon) / (1 + decay) * at
    rest = math.expm1(epsilon) * above
    largest = float(counts.max(initial=0))
    # The distance to N is good to a few ulp. Where that moves the threshold past an integer, the term won or lost is
    # that small relative to the head, because it vanishes at the threshold; its mass is at most 1 + e^epsilon (or N)
    # times the one next to it.
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


class KaryTable:
    """The mean of delta(m) for k-ary randomised response, k >= 3, over a law of m uniform messages on [k].

    With N = m+1, E = e^epsilon, v = local_epsilon, c ~ Bin(N, 2/k) the number of messages that hold one of the two
    values, r = N (E-1)/(e^v-1) and a = floor((r + E c)/(1+E)) + 1, the inner expectation over a fair split of c is

        Pr[Bin(c-1,1/2) = a-1] (c - r)/2 - Pr[Bin(c-1,1/2) >= a] (E-1) (c/2 + N/(e^v-1))

    and delta(m) = k (e^v-1) / (Z N) times its mean over c, Z = e^v + k - 1. The weights of (c, N) do not depend on
    epsilon and are made once. For one c, the threshold a takes few values as N varies: the weights of the Ns that
    share it are added (positive numbers only), which saves nine tenths of the time.
    """

    def __init__(self, local_epsilon: float, k: int, counts: Ints, mass: Floats, tail: float) -> None:
        """Makes the weights.

        Args:
            local_epsilon: the victim's, in (0, 500].
            k: at least 3.
            counts: int64 (L,), increasing, the values of m.
            mass: float64 (L,), their probabilities.
            tail: in (0, 1), the mass of c that may be cut on each side, charged at the largest value that the inner
                expectation can take, c.

        Raises:
            ValueError: k < 3.
        """
        if k < 3:
            raise outside("k", k, ">= 3 here (two values are binary randomised response)")
        decay = math.exp(-local_epsilon)
        self._local_epsilon = local_epsilon
        self._inverse = decay / -math.expm1(-local_epsilon)  # 1/(e^v - 1), without overflow
        share = -math.expm1(-local_epsilon) / (1 + (k - 1) * decay)  # (e^v - 1)/Z
        sizes = counts + 1
        least, most = int(sizes[0]), int(sizes[-1])
        p = 2.0 / k
        reach = bernstein_radius(most * p * (1 - p), -math.log(tail))
        low, high = max(1, math.floor(least * p - reach)), min(most, math.ceil(most * p + reach))
        self._sizes = sizes.astype(np.float64)
        self._hits = np.arange(low, high + 1, dtype=np.int64)
        weight = binomial_pmf(self._hits[:, None], sizes[None, :], p)
        weight *= (k * share * mass / self._sizes)[None, :]
        self._weight = weight.ravel()
        self._weight_times_size = (weight * self._sizes[None, :]).ravel()
        self._cut = 2 * k * share * tail * float(mass.sum()) if low > 1 or high < most else 0.0
        self._error = pmf_error(reach + p * (most - least)) + (counts.size + self._hits.size) * UNIT
        # What a threshold off by one, because the float next to an integer went wrong, can win or lose: see delta.
        self._head_error = pmf_error(10 * math.sqrt(high) + 20) + 1e-13
        self._most = float(high)
        self._rest_error = half_tail_error(high)

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Returns the mean of delta over the law of m, and a bound on its absolute error, for epsilon >= 0.

        A threshold misplaced by rounding leaves out or adds a term that vanishes at the exact threshold: its size is
        at most c * 1e-13 times the mass next to it, which is part of the error bound.
        """
        if epsilon >= self._local_epsilon:
            return 0.0, 0.0
        hits, gain, growth = self._hits, math.exp(epsilon), math.expm1(epsilon)
        drift = growth * self._inverse
        threshold, mass, size = self._by_threshold(gain, drift)
        one = hits[:, None]
        at = binomial_pmf(threshold - 1, one - 1, 0.5)
        above = half_tail(threshold, one - 1)
        head = at * np.maximum(one * mass - drift * size, 0.0) / 2
        rest = above * (one * mass * (growth / 2) + size * drift)
        value = float(np.maximum(head - rest, 0.0).sum()) + self._cut
        misplaced = 8 * UNIT * min(self._most, 2 + 2 * gain)
        error = float((at * one * mass).sum()) * (self._head_error + misplaced)
        error += float(rest.sum()) * self._rest_error
        return value, error + value * (self._error + threshold.size * UNIT)

    def _by_threshold(self, gain: float, drift: float) -> tuple[Ints, Floats, Floats]:
        """For each c the thresholds, and the sums of the weights and of weight * N over the Ns that share each."""
        hits, length = self._hits, self._sizes.size
        # c - ceil((c - r)/(1 + E)) + 1 is the spec's floor((r + E c)/(1 + E)) + 1, without its cancellation.
        first = hits - np.ceil((hits - self._sizes[0] * drift) / (1 + gain)).astype(np.int64) + 1
        last = hits - np.ceil((hits - self._sizes[-1] * drift) / (1 + gain)).astype(np.int64) + 1
        width = int((last - first).max()) + 1
        if width >= length:  # hardly two Ns share a threshold
            rest = (hits[:, None] - self._sizes[None, :] * drift) / (1 + gain)
            threshold = hits[:, None] - np.ceil(rest).astype(np.int64) + 1
            return threshold, self._weight.reshape(-1, length), self._weight_times_size.reshape(-1, length)
        threshold = first[:, None] + np.arange(width, dtype=np.int64)[None, :]
        if width == 1:
            return threshold, *(w.reshape(-1, length).sum(1)[:, None] for w in (self._weight, self._weight_times_size))
        starts = np.searchsorted(self._sizes, (hits[:, None] - (hits[:, None] + 1 - threshold) * (1 + gain)) / drift)
        starts[:, 0] = 0
        ends = np.column_stack([starts[:, 1:], np.full(hits.size, length)])
        flat = (np.arange(hits.size)[:, None] * length + np.minimum(starts, length - 1)).ravel()
        used = (starts < ends).ravel()
        mass, size = np.zeros(flat.size), np.zeros(flat.size)
        mass[used] = np.add.reduceat(self._weight, flat[used])
        size[used] = np.add.reduceat(self._weight_times_size, flat[used])
        return threshold, mass.reshape(starts.shape), size.reshape(starts.shape)
