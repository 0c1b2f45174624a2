"""The exact worst case of binary randomised response, by looking at every data set of the others that matters.

For bits the number of ones is all that a shuffled batch shows, and by symmetry only how many users of each budget
hold a 1 matters. With one or two budgets those splits can be enumerated, so that the largest divergence over them is
a proof and not a search. The laws of all splits are computed at once, tilted to where the divergence lies
(docs/accounting.md, section 2.1). When to use this instead of the blanket bound is left to the mechanisms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from croupier.accountant.bounds.least import ChordProfile
from croupier.accountant.bounds.profile import UNDERFLOW, Bounded, Curve, Inverse, smallest_epsilon
from croupier.accountant.numerics.binomial import UNIT, Floats, Ints
from croupier.accountant.numerics.fourier import STAGE, smooth_even_length
from croupier.accountant.numerics.gaussian import gaussian_epsilon
from croupier.accountant.numerics.tail_radii import bernstein_radius
from croupier.accountant.privacy_curve import Proof
from croupier.accountant.ranges import check_epsilon
from croupier.protocol.codes import Method, Step
from croupier.protocol.statements import Statement, state

__all__ = ["ExactBinaryProfile", "bit_probabilities", "divergences", "is_enumerable", "shown_alone", "window"]

Complexes = NDArray[np.complex128]

MAX_WORK = 1_500_000
"""Splits times window length; beyond it not all of them are looked at, and another bound serves."""
MAX_LOCAL_EPSILON = 30.0
"""Above it the tilted laws leave the range of floats."""
_CHUNK = 50_000
_FLOOR = 1e-7
"""Factors of a characteristic function below it are bounded by it: their own relative error is not known."""
_NOTHING = -50.0
"""From the frequency where the logarithm of every characteristic function is below it, they are taken as 0."""


def is_enumerable(largest_epsilon: float, count: Ints, dishonest: int) -> bool:
    """Whether all splits of the others (count: users of each budget) are few, with no choice of dishonest ones."""
    users = int(count.sum())
    if largest_epsilon > MAX_LOCAL_EPSILON or users <= dishonest:
        return False
    if count.size > 2 or (count.size == 2 and dishonest > 0):
        return False
    splits = math.prod(int(c) + 1 for c in count)
    return splits * window(users) <= MAX_WORK


def window(users: int) -> int:
    """How many values of a sum of at most so many bits are looked at; a mass of 1e-17 on each side is not."""
    reach = bernstein_radius(users / 4, 17 * math.log(10))
    return smooth_even_length(math.ceil(min(users + 3.0, 2 * reach + 4)))


@dataclass(frozen=True, eq=False)
class ExactBinaryProfile(Curve):
    """delta(epsilon) = max over all splits of the others of H(Bern(w) + X, Bern(1-w) + X), rounding included.

    local_epsilon: the victim's, w = e^v/(1+e^v). others, count: float64/int64 (T,), T <= 2, the others' budgets.
    """

    title: ClassVar[str] = "worst case"
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
    def method(self) -> Proof:
        """See `PrivacyProfile`."""
        return (state(Method.WORST_CASE),)

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`; exact up to the slack. Raises ValueError for a negative or non-finite epsilon."""
        return self.worst(epsilon)[0]

    def to_compose(self, delta: float, ceiling: float) -> Curve:
        """See `Curve.to_compose`: chords."""
        return ChordProfile(self, delta, ceiling)

    def smallest_epsilon(self, delta: float, ceiling: float, *, floor: float = 0.0) -> Inverse:
        """See `Curve.smallest_epsilon`; on the few splits that matter: the worst at the end joins them."""
        few = np.stack([np.zeros(self.count.size, dtype=np.int64), self.count])
        evaluations = 0
        while True:
            found = smallest_epsilon(replace(self, splits=few), delta, ceiling)
            bound, split = self.worst(found.epsilon)
            evaluations += found.evaluations + 1
            if bound.value <= delta or found.reached is None:
                return Inverse(found.epsilon, bound if found.reached else None, evaluations)
            if (few == split).all(axis=1).any():  # only rounding lies between them
                return smallest_epsilon(self, delta, ceiling)
            few = np.vstack([few, split])

    def worst(self, epsilon: float) -> tuple[Bounded, Ints]:
        """delta(epsilon), and the split that attains it."""
        check_epsilon(epsilon)
        if epsilon >= self.local_epsilon:
            return Bounded(0.0, 0.0), self.splits[0]
        users = int(self.count.sum())
        chance = np.concatenate(bit_probabilities(self.others))
        rows = max(1, _CHUNK // window(users))
        best, slack, where = 0.0, 0.0, 0
        for start in range(0, len(self.splits), rows):
            held = self.splits[start : start + rows]
            value, error = divergences(self.local_epsilon, epsilon, chance, np.hstack([held, self.count - held]), users)
            row = int(np.argmax(value + error))
            if value[row] + error[row] > best:
                best, slack, where = float(value[row] + error[row]), float(error[row]), start + row
        best = min(best + UNDERFLOW, shown_alone(self.local_epsilon, epsilon))
        return Bounded(best, min(best, slack)), self.splits[where]

    def guess(self, delta: float) -> float:
        """The Gaussian limit with the variance of the others' bits."""
        keep, flip = bit_probabilities(self.others)
        variance = float(self.count @ (keep * flip)) + 0.25
        return gaussian_epsilon(max(1e-9, math.tanh(self.local_epsilon / 2) / math.sqrt(variance)), delta)

    def explain(self) -> tuple[Statement[Step], ...]:
        """See `PrivacyProfile`."""
        return (state(Step.SPLITS_ENUMERATED, splits=len(self.splits)),)


def bit_probabilities(local_epsilon: Floats) -> tuple[Floats, Floats]:
    """That a report is 1: of those who hold a 1, and of those who hold a 0."""
    decay = np.exp(-local_epsilon)
    return 1 / (1 + decay), decay / (1 + decay)


def shown_alone(local_epsilon: float, epsilon: float) -> float:
    """What the report shows by itself, w - e^epsilon (1-w), rounded up."""
    return -math.expm1(epsilon - local_epsilon) / (1 + math.exp(-local_epsilon)) * (1 + 4 * UNIT)


def divergences(local_epsilon: float, epsilon: float, chance: Floats, bits: Ints, users: int) -> tuple[Floats, Floats]:
    """H(Bern(w) + X, Bern(1-w) + X) for sums X of independent bits, and the errors; derived in docs/accounting.md, 2.1.

    With head = w - e^epsilon (1-w), back = e^epsilon w - (1-w), it is the sum of [head Pr[X = x-1] - back Pr[X = x]]_+.

    Args:
        local_epsilon: the victim's v, w = e^v/(1+e^v); epsilon < v.
        epsilon: where.
        chance: (P,), P <= 9, the probability that a bit of this part is 1.
        bits: (S, P), how many bits of each part a sum has.
        users: the most bits that a sum has.

    Returns:
        The values and bounds on their errors, (S,).
    """
    head, back = tails_of(local_epsilon, epsilon)
    theta = math.log(back / head)  # >= 0: the ratio of neighbouring masses at the threshold
    length = window(users)
    tilted = tilt_of(chance, theta)
    counts = bits.astype(np.float64)
    # ln of the normalisation of the tilted law, and its mean.
    scale = counts @ np.log1p(chance * math.expm1(theta))
    mean = counts @ tilted
    whole = users + 2 < length  # then nothing wraps around
    first = np.zeros(len(bits)) if whole else np.floor(mean) - length // 2
    angles = 2 * math.pi / length * np.arange(length // 2 + 1, dtype=np.float64)
    log_factor, most, wrong_factor = factors(tilted, angles)
    log_size = counts @ most  # falls as the angle grows
    used = np.count_nonzero(log_size.max(0) > _NOTHING)
    phi = np.exp(counts @ log_factor[:, :used] + np.outer(first, 1j * angles[:used]))
    wrong = counts @ wrong_factor[:, :used] + UNIT * (24 * users + 24)
    wrong = np.exp(log_size[:, :used]) * np.expm1(np.minimum(wrong, 50.0))
    mass = np.maximum(np.fft.irfft(phi, length, axis=1), 0.0)  # mass[i, x]: tilted Pr[X = first + x]
    noise = _norm(wrong, length) + STAGE * math.log2(length) * _norm(np.abs(phi) + wrong, length)
    if used < angles.size:
        noise += 2 * math.exp(_NOTHING)
    # Pr[X = x] = mass * exp(scale - theta x). A term is positive exactly above the mode of the tilted law, which
    # is its mean rounded down or up (Darroch 1964): below, only noise would be positive.
    mode = np.floor(mean * (1 - 20 * UNIT))
    begin = max(1, int((mode - first).min()))  # no column before it is above the mode of its row
    previous, mass = mass[:, begin - 1 : -1], mass[:, begin:]
    x = first[:, None] + np.arange(begin, length)[None, :]
    above = x > mode[:, None]
    weight = np.where(above, np.exp(np.minimum(600.0, scale[:, None] - theta * x)), 0.0)
    value = (np.maximum(back * (previous - mass), 0.0) * weight).sum(axis=1)  # head exp(theta) = back
    error = 2 * back * noise * np.sqrt((weight**2).sum(1))
    error += back * UNIT * (10 + 2 * theta) * (previous * weight).sum(1)
    if not whole:
        error += 2 * back * 1e-17 * length * weight.max(1)
    error += (value + error) * UNIT * (60 + 12 * scale + 4 * theta * (users + 1))
    return value, error


def tails_of(local_epsilon: float, epsilon: float) -> tuple[float, float]:
    """The two weights head = w - e^epsilon (1-w) and back = e^epsilon w - (1-w), w = e^v/(1+e^v), epsilon < v."""
    both = 1 + math.exp(-local_epsilon)
    head = -math.expm1(epsilon - local_epsilon) / both
    return head, math.exp(epsilon) * -math.expm1(-epsilon - local_epsilon) / both


def factors(p: Floats, angles: Floats) -> tuple[Complexes, Floats, Floats]:
    """Returns ln f, f = 1 + p (e^(-i angle) - 1); ln max(|f|, _FLOOR), and a bound on the error of f relative to that.

    Shapes (T, J) for p of shape (T,) and angles of shape (J,).
    """
    real = 1 - 2 * np.outer(p, np.sin(angles / 2) ** 2)
    imaginary = -np.outer(p, np.sin(angles))
    size = np.hypot(real, imaginary)
    log_size = np.log(np.maximum(size, 1e-300))
    most = np.maximum(log_size, math.log(_FLOOR))
    return log_size + 1j * np.arctan2(imaginary, real), most, UNIT * (30 * np.exp(-most) + 8 - 8 * log_size)


def _norm(half: Floats, length: int) -> Floats:
    """Bounds on the 2-norms of real sequences of this length, from sizes of Fourier coefficients, those >= 0."""
    return np.asarray(np.sqrt((2 * (half**2).sum(1) - half[:, 0] ** 2) / length))


def tilt_of(p: Floats, theta: float) -> Floats:
    return np.asarray(p * math.exp(theta) / (1 + p * math.expm1(theta)))
