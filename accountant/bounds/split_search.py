"""The worst case of bits, enclosed: a search over all splits of the others' bits that never looks at most of them.

What `exact_binary` enumerates is here a box of splits, halved where it may hold a worse one. Within a box those users
whose bit is the same in all its splits hide the victim by their whole noise, the others by their blanket only, which
does not depend on their bit: that bounds every split of the box (docs/accounting.md, section 2.1), and so does what
`split_boxes` proves. The result is a proof with an attack beside it, and the two meet.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from accountant.bounds.exact_binary import (
    MAX_LOCAL_EPSILON,
    ExactBinaryProfile,
    bit_probabilities,
    divergences,
    shown_alone,
    window,
)
from accountant.bounds.profile import UNDERFLOW, Bounded, Inverse, smallest_epsilon
from accountant.bounds.split_boxes import like_the_middle
from accountant.numerics.binomial import UNIT, Floats, Ints
from accountant.numerics.tail_radii import bernstein_radius
from accountant.ranges import check_epsilon

__all__ = ["BOXES", "QUICK_BOXES", "SplitSearchProfile", "is_searchable"]

MAX_TIERS = 4
"""Each tier is a dimension of the boxes."""
MAX_USERS = 1_000_000
LEAST_VARIANCE = 100.0
"""Of the number of ones: from there on a few boxes are enough for up to MAX_TIERS tiers."""
QUICK_BOXES = 64
"""In one search that is to take tenths of a second."""
BOXES = 4_000
"""In one search; what is left then keeps the bound that it has."""
_FEW = 16
"""The part of the boxes with which each point of a plain bisection is searched, the last resort."""
_BATCH = 64
_RATIO, _QUICK_RATIO = 1.005, 1.03
"""Of delta: where the bound is asked for, it is followed to this multiple of what a split attains."""
_FIRST, _TRIES = 0.99, 4
"""Where the bound is to reach a delta, a split attains so much of it at the first epsilon that is tried."""
_MISSED = 1e-4
"""The part of delta that may be added for fewer blanket users than counted on."""


def is_searchable(victim: float, others: Floats, count: Ints, dishonest: int, thorough: bool) -> bool:
    """Whether the boxes have few dimensions and the sums are in the range of floats; unless thorough, also quick."""
    users = int(count.sum())
    if not dishonest < users <= MAX_USERS or max(victim, float(others.max())) > MAX_LOCAL_EPSILON:
        return False
    keep, flip = bit_probabilities(others)
    quick = count.size == 1 or float((keep * flip) @ count) >= LEAST_VARIANCE
    return count.size <= MAX_TIERS and (thorough or quick)


@dataclass(frozen=True, eq=False)
class _Found:
    """The worst that a search has not excluded, the worst that a split attains, and that split."""

    bound: Bounded
    attained: float
    split: Ints
    boxes: int


@dataclass(frozen=True, eq=False)
class SplitSearchProfile:
    """An upper bound on the largest divergence over all splits of the others' bits, close to it.

    local_epsilon: the victim's. others, count: float64/int64 (T,), T <= 4. Of the others `dishonest` are left out:
    those of the smallest budgets, because a larger budget of another user only shows more (docs/accounting.md, 2.1).
    boxes: the most that one search looks at.
    """

    local_epsilon: float
    others: Floats
    count: Ints
    dishonest: int = 0
    boxes: int = BOXES

    @property
    def method(self) -> str:
        """For the certificate."""
        return "worst case over the values of the others, by branch and bound"

    @cached_property
    def _honest(self) -> Ints:
        left, kept = self.dishonest, self.count.copy()
        for tier in np.argsort(self.others):
            gone = min(left, int(kept[tier]))
            kept[tier] -= gone
            left -= gone
        return kept

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        return self._search(epsilon).bound

    def smallest_epsilon(self, delta: float) -> Inverse:
        """As `profile.smallest_epsilon`: the splits that are known to be bad say where to begin."""
        bad, step = self._corners, _FIRST
        evaluations = tries = 0
        while tries < _TRIES:
            known = ExactBinaryProfile(self.local_epsilon, self.others, self._honest, bad)
            point = smallest_epsilon(known, delta * step, self.local_epsilon).epsilon
            if point >= self.local_epsilon:
                break
            found = self._search(point, delta)
            evaluations += 1
            if found.bound.value <= delta:
                return Inverse(point, found.bound, evaluations)
            if found.attained > delta:
                bad = np.vstack([bad, found.split])
            else:  # not within so many boxes: there, where what they are above the target has gone
                step *= 0.97 * delta / found.bound.value
                tries += 1
        coarse = replace(self, boxes=self.boxes // _FEW)
        return smallest_epsilon(coarse, delta, self.local_epsilon, tolerance=1e-3)

    @cached_property
    def _corners(self) -> Ints:
        return np.array(list(itertools.product(*((0, int(c)) for c in self._honest))), dtype=np.int64)

    def _search(self, epsilon: float, target: float | None = None) -> _Found:
        """Halves boxes until none is above the target (none given: above what a split attains, nearly)."""
        if epsilon >= self.local_epsilon:
            return _Found(Bounded(0.0, 0.0), 0.0, self._corners[0], 0)
        attained, split = self._attained(epsilon, self._corners)
        missed = _MISSED * max(attained, UNDERFLOW)
        low, high = np.zeros((1, self.count.size), dtype=np.int64), self._honest[None, :]
        value, slack = self._bounds(epsilon, low, high, missed)
        boxes = 1
        while boxes < self.boxes:
            ratio = _RATIO if self.boxes > QUICK_BOXES else _QUICK_RATIO
            enough = attained * ratio if target is None else target
            if target is not None and attained > target:
                break
            open_ = np.flatnonzero((value > enough) & (high > low).any(1))
            if open_.size == 0:
                break
            chosen = open_[np.argsort(-value[open_])[:_BATCH]]
            middle = (low[chosen] + high[chosen]) // 2
            better, where = self._attained(epsilon, middle[:1])
            if better > attained:
                attained, split = better, where
            lows, highs = self._halves(low[chosen], high[chosen], middle)
            values, slacks = self._bounds(epsilon, lows, highs, missed)
            boxes += len(values)
            kept = np.ones(len(value), dtype=bool)
            kept[chosen] = False
            low, high = np.vstack([low[kept], lows]), np.vstack([high[kept], highs])
            value, slack = np.concatenate([value[kept], values]), np.concatenate([slack[kept], slacks])
        worst = int(np.argmax(value))
        bound = min(float(value[worst]) + UNDERFLOW, shown_alone(self.local_epsilon, epsilon))
        return _Found(Bounded(bound, min(bound, float(slack[worst]))), attained, split, boxes)

    def _halves(self, low: Ints, high: Ints, middle: Ints) -> tuple[Ints, Ints]:
        """Both halves of every box, cut where the users whose bit is left open have most noise to lose."""
        keep, flip = bit_probabilities(self.others)
        cost = (high - low) * (flip * (keep - 0.5) + 1e-12)
        rows, tier = np.arange(len(low)), np.argmax(cost, axis=1)
        upper, lower = high.copy(), low.copy()
        upper[rows, tier] = middle[rows, tier]
        lower[rows, tier] = middle[rows, tier] + 1
        return np.vstack([low, lower]), np.vstack([upper, high])

    def _attained(self, epsilon: float, splits: Ints) -> tuple[float, Ints]:
        """The largest divergence that one of these splits surely has, and the split."""
        value, slack = self._bounds(epsilon, splits, splits, 1.0)
        least = value - 2 * slack
        best = int(np.argmax(least))
        return max(0.0, float(least[best])), splits[best]

    def _bounds(self, epsilon: float, low: Ints, high: Ints, missed: float) -> tuple[Floats, Floats]:
        """Upper bounds for all splits of each box [low, high], (B, T) each; and what they hold of rounding and tails.

        missed: the mass on fewer blanket users than counted on, which is added where there are any.
        """
        keep, flip = bit_probabilities(self.others)
        mean = (high - low) @ (2 * flip)
        # The number of blanket users is below mean - t with probability at most exp(-t^2 / (2 mean)), by Chernoff, and
        # by Bernstein.
        log_missed = math.log(1 / missed)
        variance = (high - low) @ (2 * flip * (1 - 2 * flip))
        radius = [bernstein_radius(one, log_missed) for one in variance.tolist()]
        reach = np.minimum(np.sqrt(2 * mean * log_missed), radius)
        fair = np.maximum(0, np.floor(mean - reach) - 1).astype(np.int64)
        bits = np.hstack([low, self._honest - high, fair[:, None]])
        chance = np.concatenate([keep, flip, [0.5]])
        users = int(self._honest.sum())
        rows = max(1, 400_000 // window(users))
        parts = [
            divergences(self.local_epsilon, epsilon, chance, bits[start : start + rows], users)
            for start in range(0, len(bits), rows)
        ]
        value, error = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        wide = (high > low).any(1)
        slack = error + np.where(wide, missed * (1 + 8 * UNIT), 0.0)
        value = value + slack
        if wide.any():
            near = like_the_middle(self.local_epsilon, epsilon, self.others, self._honest, low[wide], high[wide])
            slack[wide] = np.where(near[0] < value[wide], near[1], slack[wide])
            value[wide] = np.minimum(value[wide], near[0])
        return value, slack

    def guess(self, delta: float) -> float:
        """That of the corners."""
        return ExactBinaryProfile(self.local_epsilon, self.others, self._honest, self._corners).guess(delta)

    def explain(self) -> tuple[str, ...]:
        """One line."""
        splits = math.prod(int(c) + 1 for c in self._honest)
        return (
            f"branch and bound over the {splits:,} splits of the others' bits, at most {self.boxes:,} boxes each time",
        )
