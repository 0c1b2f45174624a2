"""The exact worst case of binary randomised response, by looking at every data set of the others that matters.

For bits the number of ones is all that a shuffled batch shows, and by symmetry only how many users of each budget
hold a 1 matters. With one or two budgets those splits can be enumerated, so that the largest divergence over them is
a proof and not a search. The laws of all splits are computed at once, tilted to where the divergence lies
(docs/accounting.md, section 2.1). When to use this instead of the blanket bound is left to the mechanisms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from accountant.bounds.profile import UNDERFLOW, Bounded, Inverse, smallest_epsilon
from accountant.numerics.binomial import UNIT, Floats, Ints
from accountant.numerics.fourier import STAGE
from accountant.numerics.gaussian import gaussian_epsilon
from accountant.numerics.tail_radii import bernstein_radius
from accountant.ranges import check_epsilon

__all__ = ["ExactBinaryProfile", "is_enumerable"]

Complexes = NDArray[np.complex128]

MAX_WORK, THOROUGH_WORK = 1_500_000, 100_000_000
"""Splits times window length; beyond it the blanket bound is used. Thorough: seconds instead of a tenth of one."""
MAX_LOCAL_EPSILON = 30.0
"""Above it the tilted laws leave the range of floats."""
_CHUNK = 400_000
_FLOOR = 1e-7
"""Factors of a characteristic function below it are bounded by it: their own relative error is not known."""


def is_enumerable(largest_epsilon: float, count: Ints, dishonest: int, thorough: bool = False) -> bool:
    """Whether all splits of the others (count: users of each budget) are few, with no choice of dishonest ones."""
    users = int(count.sum())
    if largest_epsilon > MAX_LOCAL_EPSILON or users <= dishonest:
        return False
    if count.size > 2 or (count.size == 2 and dishonest > 0):
        return False
    splits = math.prod(int(c) + 1 for c in count)
    return splits * _length(users) <= (THOROUGH_WORK if thorough else MAX_WORK)


def _length(users: int) -> int:
    reach = bernstein_radius(users / 4, 17 * math.log(10))  # a mass of 1e-17 on each side
    return 1 << math.ceil(math.log2(min(users + 3.0, 2 * reach + 4)))


@dataclass(frozen=True, eq=False)
class ExactBinaryProfile:
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
        """See `PrivacyProfile`; exact up to the slack. Raises ValueError for a negative or non-finite epsilon."""
        return self.worst(epsilon)[0]

    def smallest_epsilon(self, delta: float) -> Inverse:
        """As `profile.smallest_epsilon`, on the few splits that matter: the worst at the end joins them."""
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
        both = 1 + math.exp(-self.local_epsilon)
        head = -math.expm1(epsilon - self.local_epsilon) / both  # w - e^eps (1-w)
        back = math.exp(epsilon) * -math.expm1(-epsilon - self.local_epsilon) / both  # e^eps w - (1-w)
        rows = max(1, _CHUNK // _length(int(self.count.sum())))
        best, slack, where = 0.0, 0.0, 0
        for start in range(0, len(self.splits), rows):
            value, error, row = self._worst(self.splits[start : start + rows], head, back)
            if value + error > best:
                best, slack, where = value + error, error, start + row
        best = min(best + UNDERFLOW, head * (1 + 4 * UNIT))  # what the report shows by itself
        return Bounded(best, min(best, slack)), self.splits[where]

    def _worst(self, splits: Ints, head: float, back: float) -> tuple[float, float, int]:
        """The largest sum of [head Pr[X = x-1] - back Pr[X = x]]_+ over these splits, its error, and where it is.

        The error is derived in docs/accounting.md, section 2.1.
        """
        theta = math.log(back / head)  # >= 0: the ratio of neighbouring masses at the threshold
        users = int(self.count.sum())
        length = _length(users)
        keep, flip = 1 / (1 + np.exp(-self.others)), 1 / (1 + np.exp(self.others))
        up, down = _tilt(keep, theta), _tilt(flip, theta)
        held = splits.astype(np.float64)
        rest = self.count.astype(np.float64) - held
        # ln of the normalisation of the tilted law, and its mean.
        scale = held @ np.log1p(keep * math.expm1(theta)) + rest @ np.log1p(flip * math.expm1(theta))
        mean = held @ up + rest @ down
        whole = users + 2 < length  # then nothing wraps around
        first = np.zeros(len(splits)) if whole else np.floor(mean) - length // 2
        angles = 2 * math.pi / length * np.arange(length // 2 + 1, dtype=np.float64)
        (log_up, most_up, wrong_up), (log_down, most_down, wrong_down) = _factor(up, angles), _factor(down, angles)
        phi = np.exp(held @ log_up + rest @ log_down + np.outer(first, 1j * angles))
        wrong = held @ wrong_up + rest @ wrong_down + UNIT * (8 * users + 8)
        wrong = np.exp(held @ most_up + rest @ most_down) * np.expm1(np.minimum(wrong, 50.0))
        mass = np.maximum(np.fft.irfft(phi, length, axis=1), 0.0)  # mass[i, x]: tilted Pr[X = first + x]
        noise = _norm(wrong, length) + STAGE * math.log2(length) * _norm(np.abs(phi) + wrong, length)
        previous = np.concatenate([np.zeros((len(splits), 1)), mass[:, :-1]], axis=1)
        # Pr[X = x] = mass * exp(scale - theta x). A term is positive exactly above the mode of the tilted law, which
        # is its mean rounded down or up (Darroch 1964): below, only noise would be positive.
        x = first[:, None] + np.arange(length)[None, :]
        above = x > np.floor(mean * (1 - 20 * UNIT))[:, None]
        weight = np.where(above, np.exp(np.minimum(600.0, scale[:, None] - theta * x)), 0.0)
        value = (np.maximum(back * (previous - mass), 0.0) * weight).sum(axis=1)  # head exp(theta) = back
        error = 2 * back * noise * np.sqrt((weight**2).sum(1))
        error += back * UNIT * (10 + 2 * theta) * (previous * weight).sum(1)
        if not whole:
            error += 2 * back * 1e-17 * length * weight.max(1)
        error += (value + error) * UNIT * (60 + 8 * scale + 4 * theta * (users + 1))
        worst = int(np.argmax(value + error))
        return float(value[worst]), float(error[worst]), worst

    def guess(self, delta: float) -> float:
        """The Gaussian limit with the variance of the others' bits."""
        keep = 1 / (1 + np.exp(-self.others))
        variance = float(self.count @ (keep * (1 - keep))) + 0.25
        return gaussian_epsilon(max(1e-9, math.tanh(self.local_epsilon / 2) / math.sqrt(variance)), delta)

    def explain(self) -> tuple[str, ...]:
        """One line."""
        return (f"exact: the divergence of the number of ones, for all {len(self.splits)} splits of the others' bits",)


def _factor(p: Floats, angles: Floats) -> tuple[Complexes, Floats, Floats]:
    """Returns ln f, f = 1 + p (e^(-i angle) - 1); ln max(|f|, _FLOOR), and a bound on the error of f relative to that.

    Shapes (T, J) for p of shape (T,) and angles of shape (J,).
    """
    real = 1 - 2 * np.outer(p, np.sin(angles / 2) ** 2)
    imaginary = -np.outer(p, np.sin(angles))
    size = np.hypot(real, imaginary)
    log_size = np.log(np.maximum(size, 1e-300))
    most = np.maximum(log_size, math.log(_FLOOR))
    return log_size + 1j * np.arctan2(imaginary, real), most, UNIT * (30 * np.exp(-most) + 8 - 4 * log_size)


def _norm(half: Floats, length: int) -> Floats:
    """The 2-norms of real sequences of this length, from sizes of Fourier coefficients (S, length // 2 + 1)."""
    return np.asarray(np.sqrt((2 * (half**2).sum(1) - half[:, 0] ** 2 - half[:, -1] ** 2) / length))


def _tilt(p: Floats, theta: float) -> Floats:
    return np.asarray(p * math.exp(theta) / (1 + p * math.expm1(theta)))
