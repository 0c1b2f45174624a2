"""How many users hide the victim: the law of M, the number of reports that fall into the common blanket.

M is a sum of independent Bernoulli(γ_i), a Poisson binomial. Users of equal γ make a binomial; those are convolved.
What is cut off or lost to round-off is returned as `slack`, and the caller adds it to δ.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accountant.binomial import TAIL, rounding, window

__all__ = ["BlanketCount", "blanket_count", "remove_largest"]

Floats = npt.NDArray[np.float64]
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class BlanketCount:
    """A distribution on counts m, bucketed so that each bucket stands at its smallest m.

    Attributes:
        m: shape (b,), ascending.
        mass: shape (b,), probabilities; rounding is in `slack`.
        slack: bound on mass that is missing or wrong, all of it to be charged in full.
    """

    m: npt.NDArray[np.int64]
    mass: Floats
    slack: float


@dataclass(frozen=True)
class _Law:
    """Probabilities of low, low + 1, … and a bound on everything that they are off by, summed over all counts."""

    low: int
    mass: Floats
    slack: float


def remove_largest(groups: Sequence[tuple[float, int]], how_many: int) -> list[tuple[float, int]]:
    """Returns (γ, count) groups without the `how_many` users of the largest γ: the dishonest ones, at their worst."""
    left: list[tuple[float, int]] = []
    for gamma, count in sorted(groups, reverse=True):
        removed = min(count, how_many)
        how_many -= removed
        if count > removed:
            left.append((gamma, count - removed))
    return left


def _binomial(gamma: float, count: int) -> _Law:
    counts, mass, lost = window(count, gamma)
    # Each probability is pushed up by its relative error: δ(m) ≥ 0, so more mass can only be more δ.
    return _Law(int(counts[0]), mass * (1 + rounding(count)), lost)


def _convolve(a: _Law, b: _Law) -> _Law:
    """Returns the law of the sum.

    FFT round-off is at most c·eps·log2(L)·‖a‖₂‖b‖₂ at each point (Higham 2002, section 24.1).
    """
    from scipy.signal import fftconvolve

    if min(len(a.mass), len(b.mass)) <= 64:
        mass = np.convolve(a.mass, b.mass)
        lost = 0.0
    else:
        mass = np.maximum(fftconvolve(a.mass, b.mass), 0.0)
        norms = float(np.linalg.norm(a.mass) * np.linalg.norm(b.mass))
        lost = 8 * _EPS * np.log2(2 * len(mass)) * norms * len(mass)
    law = _Law(a.low + b.low, mass, a.slack + b.slack + lost)
    return _trim(law)


def _trim(law: _Law) -> _Law:
    """Cuts both tails where they together weigh at most 2·`TAIL`, and adds them to the slack."""
    below, above = np.cumsum(law.mass), np.cumsum(law.mass[::-1])
    first = int(np.searchsorted(below, TAIL))
    last = len(law.mass) - int(np.searchsorted(above, TAIL))
    if first >= last:
        return law
    cut = (below[first - 1] if first else 0.0) + (above[len(law.mass) - last - 1] if last < len(law.mass) else 0.0)
    return _Law(law.low + first, law.mass[first:last], law.slack + float(cut))


def blanket_count(groups: Sequence[tuple[float, int]], buckets_per_sigma: int) -> BlanketCount:
    """Returns the law of M for independent users in (γ, count) groups.

    Near the mean there are `buckets_per_sigma` buckets per standard deviation, and coarser ones beyond five of them.
    Direction of error: bucketing moves mass to smaller m, and δ(m) is non-increasing, so δ can only grow.
    """
    laws = [(len(law.mass), index, law) for index, law in enumerate(_binomial(g, c) for g, c in groups if g > 0)]
    heapq.heapify(laws)
    serial = len(laws)
    while len(laws) > 1:  # the two shortest first, so that long ones are convolved rarely
        _, _, a = heapq.heappop(laws)
        _, _, b = heapq.heappop(laws)
        both = _convolve(a, b)
        heapq.heappush(laws, (len(both.mass), serial, both))
        serial += 1
    if not laws:
        return BlanketCount(np.zeros(1, dtype=np.int64), np.ones(1), 0.0)
    law = laws[0][2]
    starts = _bucket_starts(law, math.sqrt(sum(g * (1 - g) * c for g, c in groups)), buckets_per_sigma)
    return BlanketCount(law.low + starts, np.add.reduceat(law.mass, starts), law.slack)


def _bucket_starts(law: _Law, sigma: float, buckets_per_sigma: int) -> npt.NDArray[np.int64]:
    """Returns the offsets at which buckets begin; every offset where M spreads over few values."""
    size = len(law.mass)
    if size <= 40 * buckets_per_sigma:
        return np.arange(size, dtype=np.int64)
    mean = float(np.dot(np.arange(size), law.mass))
    fine = max(1, int(sigma / buckets_per_sigma))
    low, high = int(max(0.0, mean - 5 * sigma)), int(min(float(size), mean + 5 * sigma))
    return np.unique(np.r_[0 : low : 5 * fine, low:high:fine, high : size : 5 * fine])
