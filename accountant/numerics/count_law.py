"""The law of the number of blanket messages: a Poisson-binomial count, bounded from below, with its error.

Every blanket bound is E[delta(M)] with M ~ PB(gamma) and delta non-increasing in M. So M may be replaced by any
stochastically smaller variable, and every replacement here has that direction:

* many different gammas are replaced, group by group, by their geometric mean (Pledger and Proschan 1971; proof in
  docs/numerics.md: with the product of two success probabilities fixed, Pr[S >= k] is smallest when they are equal);
* counts are rounded down to a coarser lattice when the law gets long; of very long ones masses are rounded up;
* the mass of the upper tail is put on the largest count kept; that of the lower tail is `lost`, to be added to delta.

The laws of the groups are binomials and are added by direct convolution. Only positive numbers are added and
multiplied, so the relative error stays tiny however small the mass, without any Fourier transform.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from croupier.accountant.numerics.binomial import UNIT, Floats, Ints, binomial_pmf, pmf_error
from croupier.accountant.numerics.tail_radii import bernstein_radius
from croupier.accountant.ranges import check_delta, check_target_delta, outside

MAX_GROUPS = 256
"""Up to this many distinct gammas are used exactly; a larger number is grouped."""
GROUP_WIDTH = 0.02
"""Width of a group in ln gamma. Replacing a group by its geometric mean loses at most width^2/8 of its mean."""
UPPER = 1e-9
"""The largest mass of the largest counts that may be moved down."""
MAX_MASSES = 1 << 16
"""For a binomial with more masses, only the first mass of each bucket is computed."""
MAX_LENGTH = 4096
"""Laws longer than this are rounded down to a lattice twice as coarse."""


@dataclass(frozen=True, eq=False)
class CountLaw:
    """A law stochastically below the blanket count, the number of the others who report from the blanket.

    counts: int64 (L,), increasing, >= 0. mass: float64 (L,), >= 0. True expectations of non-increasing functions
    f with values in [0, 1] are at most (1 + relative_error) * sum(mass * f(counts)) + lost.
    """

    counts: Ints
    mass: Floats
    lost: float
    relative_error: float

    def __post_init__(self) -> None:
        """Raises ValueError for shapes that differ, counts that do not increase, or a negative mass."""
        if self.counts.size == 0 or self.counts.shape != self.mass.shape:
            raise ValueError(
                f"counts has shape {self.counts.shape}, mass {self.mass.shape}; they must be equal and not empty"
            )
        if self.counts[0] < 0 or np.any(np.diff(self.counts) <= 0):
            raise ValueError("counts do not increase from 0 or more; they must be 0 <= counts[0] < counts[1] < ...")
        if not (self.mass >= 0).all():
            raise outside("mass.min()", float(self.mass.min()), ">= 0")
        check_delta(self.lost, "lost")

    @property
    def mean(self) -> float:
        """The mean of the law, without the lost mass."""
        return float(self.mass @ self.counts) / float(self.mass.sum())

    def coarsened(self, size: int, tail: float) -> CountLaw:
        """Returns at most `size` counts: lower mass up to `tail` is lost, upper mass up to UPPER moves down.

        The rest is put into buckets, each charged at its smallest count, which keeps the direction of error.
        """
        low = int(np.searchsorted(np.cumsum(self.mass), tail, side="right"))
        from_above = np.cumsum(self.mass[::-1])
        cut = self.mass.size - int(np.searchsorted(from_above, UPPER, side="right"))
        low = min(low, self.mass.size - 1)
        high = max(cut, low + 1)
        counts, mass = self.counts[low:high], self.mass[low:high].copy()
        mass[-1] += self.mass[high:].sum()
        lost = min(1.0, self.lost + float(self.mass[:low].sum()) * (1 + self.relative_error + self.mass.size * UNIT))
        if counts.size > size:
            span = int(counts[-1] - counts[0])
            width = -(-(span + 1) // size)
            bucket = (counts - counts[0]) // width
            starts = np.flatnonzero(np.concatenate([[True], bucket[1:] != bucket[:-1]]))
            counts, mass = counts[starts], np.add.reduceat(mass, starts)
        return CountLaw(counts, mass, lost, self.relative_error + self.mass.size * UNIT)


@dataclass(frozen=True, eq=False)
class _Node:
    offset: int
    step: int
    mass: Floats


def without_largest(gamma: Floats, count: Ints, remove: int) -> tuple[Floats, Ints]:
    """Returns the multiset (gamma, count) without its `remove` largest gammas; both results may be empty."""
    if (gamma[1:] > gamma[:-1]).any():
        order = np.argsort(-gamma, kind="stable")
        gamma, count = gamma[order], count[order]
    reached = np.cumsum(count)
    first = int(np.searchsorted(reached, remove, side="right"))  # the first gamma that is not removed whole
    if first == count.size:
        return gamma[first:], count[first:]
    return gamma[first:], np.concatenate([[reached[first] - remove], count[first + 1 :]])


def blanket_count(gamma: Floats, count: Ints, *, tail: float = 1e-30) -> CountLaw:
    """Returns a lower bound, in stochastic order, for M ~ PB({gamma_t with multiplicity count_t}).

    Args:
        gamma: float64 (T,), success probabilities in [0, 1]; each may already be rounded down.
        count: int64 (T,), multiplicities >= 1. T = 0 gives the constant 0.
        tail: an upper limit for `lost`, in (0, 1). No mass is lost if the whole support is kept.

    Raises:
        ValueError: a gamma outside [0, 1] or a tail outside (0, 1).
    """
    check_target_delta(tail, "tail")
    if gamma.size and not ((gamma >= 0) & (gamma <= 1)).all():
        raise ValueError(f"gamma spans {float(gamma.min())} to {float(gamma.max())}; it must be in [0, 1]")
    sure = int(count[gamma >= 1].sum())
    uncertain = (gamma > 1e-300) & (gamma < 1)  # a gamma this small may be rounded down to 0
    gamma, count = _grouped(gamma[uncertain], count[uncertain])
    if gamma.size == 0:
        return CountLaw(np.array([sure]), np.array([1.0]), 0.0, 0.0)
    share = tail / (4 * gamma.size)
    lost, error = 0.0, 0.0
    nodes = []
    for p, n in zip(gamma.tolist(), count.tolist(), strict=True):
        node, dropped, spread = _binomial(n, p, share)
        nodes.append(_shortened(node))
        lost += dropped
        error += pmf_error(spread)
    while len(nodes) > 1:
        nodes.sort(key=lambda node: (node.step, node.mass.size))
        merged = []
        for left, right in zip(nodes[::2], nodes[1::2], strict=False):
            node, dropped, inexact = _sum(left, right, share)
            merged.append(node)
            lost += dropped
            error += inexact
        nodes = merged + (nodes[-1:] if len(nodes) % 2 else [])
    (node,) = nodes
    counts = sure + node.offset + node.step * np.arange(node.mass.size, dtype=np.int64)
    return CountLaw(counts, node.mass, min(1.0, lost), error)


def _grouped(gamma: Floats, count: Ints) -> tuple[Floats, Ints]:
    distinct = gamma
    if gamma.size <= 16 * MAX_GROUPS:  # of more, only a few are equal
        distinct, inverse = np.unique(gamma, return_inverse=True)
        count = np.bincount(inverse, weights=count).astype(np.int64)
        if distinct.size <= MAX_GROUPS:
            return distinct, count
    log = np.log(distinct)
    least, most = float(log.min()), float(log.max())
    width = max(GROUP_WIDTH, (most - least) / (4 * MAX_GROUPS))
    group = ((log - least) / width).astype(np.int64)
    total = np.bincount(group, weights=count)
    mean_log = np.bincount(group, weights=count * log) / np.where(total > 0, total, 1)
    used = total > 0
    # bincount adds terms one by one, so a sum of T terms of one sign has a relative error of at most T/2 ulp. The mean
    # is lowered by more than that and the errors of log and exp.
    lowered = mean_log[used] - (float(np.abs(log).max()) + 1) * UNIT * (16 + distinct.size)
    return np.exp(lowered), total[used].astype(np.int64)


def _binomial(n: int, p: float, share: float) -> tuple[_Node, float, float]:
    """Returns the masses of Bin(n, p) without tails of at most `share` each."""
    mean, variance = n * p, n * p * (1 - p)
    reach = bernstein_radius(variance, -math.log(share))
    low, high = max(0, math.floor(mean - reach)), min(n, math.ceil(mean + reach))
    step = 1
    while (high - low) // step >= MAX_MASSES:
        step *= 2
    start = np.arange(low, high + 1, step, dtype=np.int64)
    mass = binomial_pmf(start, n, p)
    if step > 1:
        # Log-concave: a bucket holds at most a geometric series with the same first two masses. Logarithms of quotients
        # have an error of 8 ulp, by which the shares are raised.
        slope = np.log(np.maximum(n - start, 0.5) * (p / (1 - p)) / (start + 1.0))
        ratio = slope + 8 * UNIT * (1 + np.abs(slope))
        level = np.abs(ratio) * step < 1e-9
        with np.errstate(divide="ignore", invalid="ignore"):
            series = np.where(level, step * (1 + 1e-8), np.expm1(step * ratio) / np.expm1(ratio))
        mass *= series * (1 + 16 * UNIT)
    if high < n:
        mass[-1] += share
    # A mass below 1e-300 underflows; all of them together weigh less than n * 1e-300, in buckets 4 times that.
    under = 4 * n * 1e-300 if float(mass.min()) < 1e-299 else 0.0
    return _Node(low, step, mass), (share if low > 0 else 0.0) + under, max(reach, 1.0)


def _sum(left: _Node, right: _Node, share: float) -> tuple[_Node, float, float]:
    while left.step < right.step:
        left = _halved(left)
    while right.step < left.step:
        right = _halved(right)
    mass = np.convolve(left.mass, right.mass)
    error = UNIT * (min(left.mass.size, right.mass.size) + 2)
    low = int(np.searchsorted(np.cumsum(mass), share, side="right"))
    high = mass.size - int(np.searchsorted(np.cumsum(mass[::-1]), share, side="right"))
    low = min(low, mass.size - 1)
    high = max(high, low + 1)
    kept = mass[low:high].copy()
    kept[-1] += mass[high:].sum()
    dropped = float(mass[:low].sum()) * (1 + 1e-9)
    node = _Node(left.offset + right.offset + left.step * low, left.step, kept)
    return _shortened(node), dropped, error


def _shortened(node: _Node) -> _Node:
    while node.mass.size > MAX_LENGTH:
        node = _halved(node)
    return node


def _halved(node: _Node) -> _Node:
    """Returns the law on a lattice twice as coarse, every count rounded down."""
    mass = node.mass if node.mass.size % 2 == 0 else np.append(node.mass, 0.0)
    return _Node(node.offset, 2 * node.step, mass[0::2] + mass[1::2])
