"""Attacks that add a score per report: what a likelihood ratio sees, where a count in an interval sees one bit.

With the others at one value, the likelihood ratio of a shuffled batch is close to a sum over reports of
(p0 - e^epsilon p1 + sum_t b_t r_t)/q, r_t the densities of the others' tiers and q their mean: how many users each tier
has is known, and the b_t keep the score from being moved by what only tells the tiers apart. Reports are put into
cells, cells get that score as an integer, and the law of the sum is computed by Fourier inversion of its tilted law, as
in `poisson_binomial` but with every frequency.
Which cells to use is left to the attacks on `additive_noise`; how an event becomes a bound is said in `event_tests`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accountant.attacks.event_tests import NO_WITNESS, Target, Witness
from accountant.numerics.binomial import UNIT, Floats, Ints
from accountant.numerics.fourier import STAGE
from accountant.numerics.roots import root_between
from accountant.numerics.tail_radii import bernstein_radius

__all__ = ["MAX_SCORE_TIERS", "ScoreTest", "best_scores", "score_test"]

MAX_SCORE_TIERS = 20_000
"""Scores are added up for at most this many distinct laws among the others."""
MAX_ROWS = 64
"""Of more laws, neighbours are transformed together by their mean, and what that may change is added to the error."""
MAX_LENGTH = 2**20
"""Longer windows are not computed."""
_LOG_OUTSIDE = 50.0
_LOG_UNHEARD = 60.0
"""Frequencies at which the transform is at most e^-_LOG_UNHEARD are left out, where that can be shown at once."""
_GRID = 4096
"""Angles of a whole turn at which that is looked for."""
_FLOOR = 1e-7

Complexes = NDArray[np.complex128]


@dataclass(frozen=True)
class _Row:
    """The mean of some tilted laws, how many users have them, and how far entries may be wrong (see `_at`).

    apart: the sum over the users of the square of the distance (in 1-norm) of a law from the mean; turned_apart: with
    every entry times its distance from the middle, which bounds that of the transforms per radian.
    """

    law: Floats
    users: float
    still: float
    turning: float
    apart: float
    turned_apart: float


@dataclass(frozen=True, eq=False)
class ScoreTest:
    """S = V + X: scores 0..m of the victim and of the others, each with its law over the scores.

    first, second: float64 (m+1,), the victim's law at its two values; others: float64 (T, m+1), one law for each tier
    of count float64 (T,) users. Every entry has a relative error of at most probability_error.
    """

    first: Floats
    second: Floats
    others: Floats
    count: Floats
    probability_error: float

    def reflected(self) -> ScoreTest:
        """The scores counted from the other end, the victim's values exchanged."""
        return ScoreTest(self.second[::-1], self.first[::-1], self.others[:, ::-1], self.count, self.probability_error)

    def best(self, target: Target) -> Witness:
        """The better of many and few: events {S > t}, at a tilt that is moved twice to where the best event lies."""
        many, few = self._best(target), self.reflected()._best(target)
        top = (self.first.size - 1) * (int(self.count.sum()) + 1)
        if many[0] >= few[0]:
            return Witness(many[0], f"> {many[1]}")
        return Witness(few[0], f"< {top - few[1]}")

    def _best(self, target: Target) -> tuple[float, int]:
        scores = np.arange(self.first.size, dtype=np.float64)
        mean = self.others @ scores
        variance = float(self.count @ (self.others @ scores**2 - mean**2))
        if not variance > 1e-9:
            return NO_WITNESS.score, 0
        best, at = NO_WITNESS.score, 0
        height = 3.0 if target.delta is None else math.sqrt(target.log_odds)
        centre = float(self.count @ mean) + math.sqrt(variance) * height
        for _ in range(4):
            found, place = self._at(self._tilt(centre, math.sqrt(variance)), target)
            if found > best:
                best, at = found, place
            if abs(place - centre) < 0.5 * math.sqrt(variance):
                break
            centre = float(place)
        return best, at

    def _tilt(self, centre: float, width: float) -> float:
        """A tilt > 0 whose mean is about `centre`, where there is one; any tilt is sound."""
        scores = np.arange(self.first.size, dtype=np.float64)
        high = min(20.0 / width + 1.0, 300.0 / float(scores[-1]))

        def excess(tilt: float) -> float:
            weight = self.others * np.exp(tilt * (scores - scores[-1]))
            return float(self.count @ (weight @ scores / weight.sum(1))) - centre

        return root_between(excess, min(0.01 / width, high / 2), high)

    def _at(self, tilt: float, target: Target) -> tuple[float, int]:
        """The best score of {S > t} over the window of the tilted law, and its t."""
        steps = np.arange(self.first.size, dtype=np.float64)
        top = steps.size - 1
        centre = np.round(self.others @ steps)
        weight = self.others * np.exp(tilt * (steps - centre[:, None]))
        whole = weight.sum(1)
        tilted = weight / whole[:, None]
        log_scale = float((np.log(whole) + tilt * centre) @ self.count)
        mean = tilted @ steps
        variance = float(self.count @ (tilted @ steps**2 - mean**2))
        middle = float(self.count @ mean)
        reach = bernstein_radius(variance, _LOG_OUTSIDE, top)
        most = top * int(self.count.sum())
        low, high = max(0, math.floor(middle - reach)), min(most, math.ceil(middle + reach))
        if high - low + 1 > MAX_LENGTH:
            return NO_WITNESS.score, 0
        # How far a relative change of every entry moves a transform: A without frequency, B per radian.
        distance = np.abs(steps - centre[:, None])
        still = (self.others * np.abs(np.expm1(tilt * (steps - centre[:, None])))).sum(1) / whole
        turning = (tilted * distance).sum(1)
        mass, error = self._masses(self._rows(tilted, still, turning), low, high)
        place = np.arange(low, high + 1, dtype=np.int64)
        rounding = 8 * UNIT * (float(self.count @ (np.abs(np.log(whole)) + tilt * (centre + top))) + 1)
        scale = np.exp(np.minimum(log_scale - tilt * place, 600.0))
        return self._threshold(place, mass, error, scale, rounding, target)

    def _rows(self, tilted: Floats, still: Floats, turning: Floats) -> list[_Row]:
        """The tilted laws, each by itself if they are few, else the means of neighbours."""
        steps = np.arange(tilted.shape[1], dtype=np.float64)
        edges = np.unique(np.linspace(0, len(tilted), min(len(tilted), MAX_ROWS) + 1).astype(np.int64))
        rows = []
        for start, stop in itertools.pairwise(edges.tolist()):
            part, users = tilted[start:stop], self.count[start:stop]
            mean = users @ part / users.sum()
            apart = np.abs(part - mean)
            whole, turned = apart.sum(1), apart @ np.abs(steps - np.round(mean @ steps))
            rows.append(
                _Row(
                    mean,
                    float(users.sum()),
                    float(still[start:stop].max()),
                    float(turning[start:stop].max()),
                    float(users @ whole**2) if len(part) > 1 else 0.0,
                    float(users @ turned**2) if len(part) > 1 else 0.0,
                )
            )
        return rows

    def _masses(self, rows: list[_Row], low: int, high: int) -> tuple[Floats, float]:
        """The tilted law on low..high, and a bound on its absolute error, that of the scale's probabilities included.

        A transform of numbers of 1-norm s has an error of at most STAGE log2(length) s in every entry
        (docs/accounting.md, section 3.1); the rows have norm 1 up to the error of their own entries. Of a mean phi of
        transforms phi + d_i, whose d_i add up to 0: |sum of ln(1 + d_i/phi)| is at most the sum of |d_i/phi|^2 where
        all of these are below 1/2 (then |phi + d_i| > |phi|/2, hence the 2); else |prod (phi + d_i) - phi^n| is at most
        g^n (e^(sum of |d_i|/g) - 1) for every g >= |phi|.
        """
        from scipy.fft import irfft, next_fast_len

        length = int(next_fast_len(max(high - low + 1, self.first.size), real=True))
        heard = min(math.ceil(_last_angle(rows) / (2 * math.pi) * length), length // 2) + 1
        angles = np.arange(heard, dtype=np.float64) * (2 * math.pi / length)
        log_phi = np.zeros(angles.size, dtype=np.complex128)
        majorant, relative = np.zeros(angles.size), np.zeros(angles.size)
        shift = 0
        for row in rows:
            users = row.users
            log_factor, size, inexact, centre = _transform(row.law, angles, length)
            shift += round(users) * centre
            guarded = np.maximum(size, _FLOOR)
            log_phi += users * log_factor
            majorant += users * np.log(guarded)
            wrong = inexact + 2 * self.probability_error * (row.still + row.turning * np.minimum(angles, 2.0))
            relative += users * wrong / guarded * (2 if row.apart > 0 else 1)
            apart = np.minimum(row.apart, row.turned_apart * angles**2) / guarded**2
            relative += np.where((apart < 0.25) & (size >= _FLOOR), apart, np.sqrt(users * apart))
        relative += 8 * UNIT * np.abs(log_phi)
        phi = np.exp(log_phi)
        # Both transforms are at most 1 in size, up to their own rounding.
        wrong_phi = np.minimum(np.exp(majorant) * np.expm1(np.minimum(relative, 700.0)), 2.1)
        total = 2 * float(np.abs(phi).sum())
        error = (2 * float(wrong_phi.sum()) + STAGE * math.log2(length + 1) * total) / length + 1e-20
        mass: Floats = irfft(phi, n=length)
        return np.asarray(mass[(np.arange(low, high + 1) - shift) % length]), error

    def _threshold(
        self, place: Ints, mass: Floats, error: float, scale: Floats, rounding: float, target: Target
    ) -> tuple[float, int]:
        """Pr[S > t] = sum over the victim's score s of law(s) Pr[X > t - s]; the tail beyond the window is `error`."""
        rounding += place.size * UNIT + 2 * self.probability_error + 16 * UNIT
        least = np.maximum(mass - error, 0.0) * scale
        most = (np.maximum(mass, 0.0) + error) * scale
        # Index i stands for Pr[X >= place[0] + i].
        from_below = np.cumsum(least[::-1])[::-1]
        from_above = np.cumsum(most[::-1])[::-1] + error * scale[-1]
        first, second = self._with_victim(self.first, from_below), self._with_victim(self.second, from_above)
        scores = target.score(first * (1 - rounding), second * (1 + rounding))
        best = int(np.argmax(scores))
        return float(scores[best]), int(place[0]) + self.first.size - 2 + best

    @staticmethod
    def _with_victim(law: Floats, tail: Floats) -> Floats:
        """Entry j: Pr[V + X >= place[0] + m + j], m the largest score; all tails used lie inside the window."""
        return np.asarray(np.convolve(tail, law, mode="valid"), dtype=np.float64)


def _transform(law: Floats, angles: Floats, length: int) -> tuple[Complexes, Floats, Floats, int]:
    """Ln phi and |phi| at each angle for the law of K - centre, a bound on the error of phi, and the centre.

    Of few angles phi - 1 is summed as it is: then its error falls with the angle.
    """
    steps = np.arange(law.size, dtype=np.float64)
    if angles.size * law.size > 4 * length:
        factor = np.fft.rfft(law, n=length)[: angles.size]
        size = np.abs(factor)
        error = np.full(angles.size, STAGE * math.log2(length + 1) + 8 * UNIT * law.size**0.5)
        return np.log(np.where(size > 1e-300, factor, 1e-300)), size, error, 0
    centre = round(float(law @ steps))
    turn = np.outer(angles, steps - centre)
    real, imaginary = -2 * (np.sin(turn / 2) ** 2 @ law), -np.sin(turn) @ law
    size = np.hypot(1 + real, imaginary)
    log_size = 0.5 * np.log1p(np.maximum(2 * real + real * real + imaginary * imaginary, -1 + 1e-15))
    error = UNIT * (32 + 2 * law.size) * np.minimum(angles * float(np.abs(steps - centre) @ law), 2.0)
    return log_size + 1j * np.arctan2(imaginary, 1 + real), size, error, centre


def _last_angle(rows: list[_Row]) -> float:
    """An angle in (0, pi] beyond which |phi| <= e^-_LOG_UNHEARD; pi where none is found.

    With D the difference of two scores of a law and 2 v, f its second and fourth moment, |phi|^2 = E cos(w D) is at
    most 1 - w^2 v + w^4 f/24, at most 1 - w^2 v/2 as long as w^2 <= 12 v/f for all rows. Beyond, a grid tells, as |phi|
    moves by no more than the mean distance from the middle per radian.
    """
    rows = [row for row in rows if row.apart == 0]  # what is known of a mean need not hold for each law
    if not rows:
        return math.pi
    users = np.array([row.users for row in rows])
    laws = np.array([row.law for row in rows])
    steps = np.arange(laws.shape[1], dtype=np.float64)
    from_mean = steps - (laws @ steps)[:, None]
    second, fourth = (laws * from_mean**2).sum(1), (laws * from_mean**4).sum(1)
    if not (second > 0).all():
        return math.pi
    wide = np.sqrt(12 * second / (2 * fourth + 6 * second**2)) * (1 - 1e-9)
    if not (wide > 2 * math.pi / _GRID).all():
        return math.pi
    most = np.abs(np.fft.rfft(laws, n=_GRID, axis=1)) + (laws * np.abs(from_mean)).sum(1)[:, None] * math.pi / _GRID
    beyond = 2 * math.pi / _GRID * np.arange(most.shape[1]) >= wide.min() - 2 * math.pi / _GRID
    far = most[:, beyond].max(1) + 1e-9
    if float(users @ np.log(np.minimum(far, 1.0))) > -_LOG_UNHEARD:
        return math.pi
    angle = math.sqrt(4 * _LOG_UNHEARD / float(users @ second)) * (1 + 1e-9)
    return angle if angle < float(wide.min()) else math.pi


def score_test(
    first: Floats,
    second: Floats,
    others: Floats,
    count: NDArray[np.int64],
    levels: int,
    probability_error: float,
    epsilon: float = 0.0,
) -> ScoreTest | None:
    """Cells to scores 0..levels, linearly: (first - e^epsilon second)/(the others' mean), less what tells tiers apart.

    The cells cover the line: every law is made to sum to 1, so that the errors of its entries cancel in the sum, and
    a tilt of 0 has none.

    Args:
        first: float64 (C,), the victim's probabilities of the cells at one of its values.
        second: the same at the other value.
        others: float64 (T, C), those of the other users' tiers.
        count: int64 (T,), the users of each tier.
        levels: the largest score.
        probability_error: a bound on the relative error of every probability.
        epsilon: about what the test is to prove; any is sound.

    Returns:
        The test, or None where the score does not vary.
    """
    weight = count.astype(np.float64)
    mean = weight @ others / max(float(weight.sum()), 1.0)
    used = (first + second > 0) & (mean > 0)
    if not used.any():
        return None
    ratio = best_scores(first - math.exp(epsilon) * second, others, weight, mean, used)
    low, high = float(ratio[used].min()), float(ratio[used].max())
    if not high > low:
        return None
    score = np.clip(np.round((ratio - low) / (high - low) * levels), 0, levels).astype(np.int64)

    def grouped(law: Floats) -> Floats:
        total: Floats = np.bincount(score, weights=law, minlength=levels + 1).astype(np.float64)
        return np.asarray(total / total.sum())

    rows = np.array([grouped(row) for row in others], dtype=np.float64).reshape(len(others), levels + 1)
    return ScoreTest(grouped(first), grouped(second), rows, weight, 2 * probability_error + first.size * UNIT)


def best_scores(difference: Floats, others: Floats, weight: Floats, mean: Floats, used: NDArray[np.bool_]) -> Floats:
    """The f with the largest (difference @ f)^2 / Var(sum of the others' f), (C,), up to a constant and a factor.

    Var = sum_t weight_t Var_t(f), so that mean f = difference + sum_t b_t others_t, b_t = (share of t) E_t f. Of many
    tiers neighbours are taken together; any f is sound.
    """
    share = weight / max(float(weight.sum()), 1.0)
    first = np.unique(np.linspace(0, len(others), min(len(others), MAX_ROWS) + 1).astype(np.int64))[:-1]
    group = np.add.reduceat(share, first)
    root = np.sqrt(group)
    law = np.add.reduceat(others * share[:, None], first) / root[:, None]  # sqrt(share) times the group's law
    apart = np.where(used, law / np.where(used, mean, 1.0), 0.0)
    # (1 - law apart^T) y = apart difference; a constant f, y = root, is in its kernel.
    y = np.linalg.pinv(np.eye(group.size) - apart @ law.T + np.outer(root, root), hermitian=True) @ (apart @ difference)
    scores: Floats = np.where(used, difference / np.where(used, mean, 1.0), 0.0) + y @ apart
    return scores
