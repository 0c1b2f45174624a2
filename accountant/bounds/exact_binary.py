"""The exact worst case of binary randomised response, by looking at every data set of the others that matters.

For bits the number of ones is all that a shuffled batch shows, and by symmetry only how many users of each budget
hold a 1 matters. With one or two budgets those splits can be enumerated, so that the largest divergence over them is
a proof and not a search. The laws of all splits are computed at once, tilted to where the divergence lies
(docs/accounting.md, section 2.1). When to use this instead of the blanket bound is left to `randomizers`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from accountant.bounds.profile import Bounded, Inverse, smallest_epsilon
from accountant.numerics.binomial import UNIT, Floats, Ints
from accountant.numerics.gaussian import gaussian_epsilon
from accountant.numerics.loss_sums import STAGE
from accountant.results import check_epsilon

__all__ = ["ExactBinaryCurve", "is_enumerable"]

MAX_WORK, THOROUGH_WORK = 1_500_000, 100_000_000
"""Splits times window length; beyond it the blanket bound is used. Thorough: seconds instead of a tenth of one."""
MAX_LOCAL_EPSILON = 30.0
"""Above it the tilted laws leave the range of floats."""
_CHUNK = 400_000


def is_enumerable(largest_epsilon: float, count: Ints, dishonest: int, thorough: bool = False) -> bool:
    """Whether all splits of the others (count: users of each budget) are few enough, and who is dishonest is clear."""
    users = int(count.sum())
    if largest_epsilon > MAX_LOCAL_EPSILON or users <= dishonest:
        return False
    if count.size > 2 or (count.size == 2 and dishonest > 0):
        return False
    splits = math.prod(int(c) + 1 for c in count)
    return splits * _length(users) <= (THOROUGH_WORK if thorough else MAX_WORK)


def _length(users: int) -> int:
    return 1 << math.ceil(math.log2(min(users + 3.0, 2 * _reach(users) + 4)))


def _reach(users: int) -> float:
    # Bernstein: mass beyond t is at most exp(-t^2/(2 n/4 + 2t/3)) on each side; this t makes it 1e-17.
    log = 17 * math.log(10)
    return log / 3 + math.sqrt(log * log / 9 + log * users / 2) + 1


@dataclass(frozen=True, eq=False)
class ExactBinaryCurve:
    """delta(epsilon) = max over all splits of the others of H(Bern(w) + X, Bern(1-w) + X), rounding included.

    local_epsilon: the victim's, w = e^v/(1+e^v). others, count: float64/int64 (T,), T <= 2, the others' budgets.
    """

    local_epsilon: float
    others: Floats
    count: Ints
    splits: Ints = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64), repr=False)
    """(S, T): how many of each budget hold a 1. Left out: all of them; with fewer it is a lower bound, to search on."""

    def __post_init__(self) -> None:
        if self.splits.size == 0:
            axes = [np.arange(int(c) + 1) for c in self.count]
            grid = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
            object.__setattr__(self, "splits", grid)

    @property
    def method(self) -> str:
        """For the certificate."""
        return "exact worst case over the values of the others"

    def delta(self, epsilon: float) -> Bounded:
        """See `DeltaCurve`; exact up to the slack. Raises ValueError for a negative or non-finite epsilon."""
        return self.worst(epsilon)[0]

    def smallest_epsilon(self, delta: float) -> Inverse:
        """As `curves.smallest_epsilon`, on the few splits that matter: whichever is the worst at the end joins them."""
        few = np.stack([np.zeros(self.count.size, dtype=np.int64), self.count])
        evaluations = 0
        while True:
            found = smallest_epsilon(replace(self, splits=few), delta, self.local_epsilon)
            bound, split = self.worst(found.epsilon)
            evaluations += found.evaluations + 1
            if bound.value <= delta or found.reached is None:
                return Inverse(found.epsilon, bound if found.reached else None, evaluations)
            if (few == split).all(axis=1).any():  # only rounding lies between them
                return smallest_epsilon(self, delta, self.local_epsilon)
            few = np.vstack([few, split])

    def worst(self, epsilon: float) -> tuple[Bounded, Ints]:
        """delta(epsilon), and the split that attains it."""
        check_epsilon(epsilon)
        if epsilon >= self.local_epsilon:
            return Bounded(0.0, 0.0), self.splits[0]
        decay, gain = math.exp(-self.local_epsilon), math.exp(epsilon)
        head = -math.expm1(epsilon - self.local_epsilon) / (1 + decay)  # w - e^eps (1-w)
        back = (gain - decay) / (1 + decay)  # e^eps w - (1-w)
        rows = max(1, _CHUNK // _length(int(self.count.sum())))
        best, slack, where = 0.0, 0.0, 0
        for start in range(0, len(self.splits), rows):
            value, error, row = self._worst(self.splits[start : start + rows], head, back)
            if value + error > best:
                best, slack, where = value + error, error, start + row
        return Bounded(min(1.0, best), min(1.0, slack)), self.splits[where]

    def _worst(self, splits: Ints, head: float, back: float) -> tuple[float, float, int]:
        """The largest sum of [head Pr[X = x-1] - back Pr[X = x]]_+ over these splits, its error, and where it is."""
        theta = math.log(back / head)  # the ratio of neighbouring masses at the threshold
        users = int(self.count.sum())
        length = _length(users)
        keep = 1 / (1 + np.exp(-self.others))
        up, down = _tilt(keep, theta), _tilt(1 - keep, theta)
        held = splits.astype(np.float64)
        rest = self.count.astype(np.float64) - held
        # ln of the normalisation of the tilted law, and its mean.
        scale = held @ np.log1p(keep * math.expm1(theta)) + rest @ np.log1p((1 - keep) * math.expm1(theta))
        mean = held @ up + rest @ down
        whole = users + 2 < length  # then nothing wraps around
        first = np.zeros(len(splits)) if whole else np.floor(mean) - length // 2
        wave = np.exp(-2j * math.pi * np.arange(length // 2 + 1) / length)
        log_up, log_down = np.log1p(np.outer(up, wave - 1)), np.log1p(np.outer(down, wave - 1))
        exponent = held @ log_up + rest @ log_down + np.outer(first, 2j * math.pi * np.arange(length // 2 + 1) / length)
        mass = np.maximum(np.fft.irfft(np.exp(exponent), length, axis=1), 0.0)  # mass[i, x]: tilted Pr[X = first + x]
        previous = np.concatenate([np.zeros((len(splits), 1)), mass[:, :-1]], axis=1)
        # Pr[X = x] = mass * exp(scale - theta x). A term is positive exactly above the mode of the tilted law, which
        # is its mean rounded down or up (Darroch 1964): below, only noise would be positive.
        x = first[:, None] + np.arange(length)[None, :]
        above = x > np.floor(mean - 1e-9)[:, None]
        weight = np.where(above, np.exp(np.minimum(600.0, scale[:, None] - theta * x)), 0.0)
        terms = np.maximum(back * (previous - mass), 0.0)  # head exp(theta) = back
        value = (terms * weight).sum(axis=1)
        noise = (STAGE * math.log2(length) + UNIT * (8 * users + 40)) * np.sqrt((np.abs(np.exp(exponent)) ** 2).mean(1))
        error = 2 * back * noise * np.sqrt((weight**2).sum(1))
        if not whole:
            error = error + 2 * back * 1e-17 * length * weight.max(1)
        worst = int(np.argmax(value + error))
        return float(value[worst]), float(error[worst]) + float(value[worst]) * 1e-12, worst

    def guess(self, delta: float) -> float:
        """The Gaussian limit with the variance of the others' bits."""
        keep = 1 / (1 + np.exp(-self.others))
        variance = float(self.count @ (keep * (1 - keep))) + 0.25
        return gaussian_epsilon(max(1e-9, math.tanh(self.local_epsilon / 2) / math.sqrt(variance)), delta)

    def explain(self) -> tuple[str, ...]:
        """One line."""
        return (f"exact: the divergence of the number of ones, for all {len(self.splits)} splits of the others' bits",)


def _tilt(p: Floats, theta: float) -> Floats:
    return np.asarray(p * math.exp(theta) / (1 + p * math.expm1(theta)))
