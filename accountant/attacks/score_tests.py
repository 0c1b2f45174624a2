"""Attacks that add a score per report, which uses the whole likelihood ratio, where a count uses one bit.

With the others at one value, the likelihood ratio of a shuffled batch is close to a sum over reports of
(p0 - e^epsilon p1 + sum_t b_t r_t)/q, r_t the densities of the others' tiers and q their mean. The number of users of
each tier is known, and the b_t remove from the score the part that only separates tiers. Reports are put into cells,
cells get that score as an integer, and the law of the sum is computed by Fourier inversion of its tilted law, as in
`poisson_binomial` but for any scores. `additive_noise` chooses the cells; `event_tests` turns events into bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from croupier.accountant.attacks.event_tests import NO_WITNESS, Target, Witness
from croupier.accountant.attacks.merged_scales import Merging
from croupier.accountant.numerics.binomial import UNIT, Floats, Ints
from croupier.accountant.numerics.fourier import STAGE
from croupier.accountant.numerics.poisson_binomial import SUM_ERROR
from croupier.accountant.numerics.roots import root_between
from croupier.accountant.numerics.tail_radii import bernstein_radius

MAX_ROWS = 64
"""More laws than this are grouped with their neighbours for the choice of scores."""
MAX_LENGTH = 2**20
"""The length of the longest window that is computed."""
MAX_WORK = 5e8
"""The largest number of terms that is computed: laws times scores times angles."""
BLOCK = 2**19
"""The number of pairs of a law and an angle that are computed at once."""
_LOG_OUTSIDE = 50.0
"""Bernstein's inequality leaves at most e^-50 of a law outside a window on each side; more lengthens every window."""
_LOG_UNHEARD = 60.0
"""Frequencies are omitted if a quick bound shows that the transform is at most e^-_LOG_UNHEARD there."""
_GRID = 4096
"""Angles of a whole turn at which that bound is evaluated."""
_FLOOR = 1e-7
"""Factors of the transform below this size count as this size, so that their logarithm is finite; an error term covers
it."""
_LOG_FLOOR = math.log(_FLOOR) + 1e-6


@dataclass(frozen=True, eq=False)
class ScoreTest:
    """S = V + X: scores 0..m of the victim and of the others, each with its law over the scores.

    first, second: float64 (m+1,), the victim's law at its two values; others: float64 (T, m+1), one law for each tier
    of count float64 (T,) users. Every entry has a relative error of at most probability_error. merged: the merging of
    the others' tiers; None if every user has the law of its tier.
    """

    first: Floats
    second: Floats
    others: Floats
    count: Floats
    probability_error: float
    merged: Merging | None = None

    def reflected(self) -> ScoreTest:
        """Returns the test of the scores counted from the other end, with the victim's values exchanged."""
        first, second, others = self.second[::-1], self.first[::-1], self.others[:, ::-1]
        return ScoreTest(first, second, others, self.count, self.probability_error, self.merged)

    def best(self, target: Target) -> Witness:
        """Returns the better of the two tails: events {S > t}, at a tilt that is moved towards the best event."""
        many, few = self._best(target), self.reflected()._best(target)
        if many[0] >= few[0]:
            return Witness(many[0], f"> {many[1]}")
        return Witness(few[0], f"< {self._top * (self._users + 1) - few[1]}")

    @property
    def length(self) -> float:
        """About the length of the window for the law of the sum, which must be at most MAX_LENGTH."""
        scores = np.arange(self.first.size, dtype=np.float64)
        mean = self.others @ scores
        variance = float(self.count @ (self.others @ scores**2 - mean**2))
        return 2 * bernstein_radius(max(variance, 0.0), _LOG_OUTSIDE, self._top)

    @property
    def _top(self) -> int:
        return self.first.size - 1

    @property
    def _users(self) -> int:
        return round(float(self.count.sum()))

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
            score, place = self.score_at(self._tilt(centre, math.sqrt(variance)), target)
            if score > best:
                best, at = score, place
            if abs(place - centre) < 0.5 * math.sqrt(variance):
                break
            centre = float(place)
        return best, at

    def _tilt(self, centre: float, width: float) -> float:
        """Returns a tilt > 0 whose mean is about `centre`, if there is one; any tilt is sound."""
        scores = np.arange(self.first.size, dtype=np.float64)
        high = min(20.0 / width + 1.0, 300.0 / self._top)

        def excess(tilt: float) -> float:
            grown = np.exp(tilt * (scores - self._top))
            return float(self.count @ ((self.others @ (grown * scores)) / (self.others @ grown))) - centre

        return root_between(excess, min(0.01 / width, high / 2), high)

    def score_at(self, tilt: float, target: Target) -> tuple[float, int]:
        """Returns the best score of {S > t} over the window of the tilted law, and its t."""
        steps = np.arange(self.first.size, dtype=np.float64)
        centre = np.round(self.others @ steps)
        distance = steps - centre[:, None]
        weight, grown = self.others * np.exp(tilt * distance), self.others * np.expm1(tilt * distance)
        whole, change = weight.sum(1), grown.sum(1)
        tilted = weight / whole[:, None]
        # Near 1 from the change, because entries sum to 1 only up to rounding, which would count once per user.
        log_whole = np.where(np.abs(change) < 0.5, np.log1p(np.maximum(change, -0.5)), np.log(whole))
        log_scale = float(((log_whole + tilt * centre) * self.count).sum())
        mean = tilted @ steps
        variance = float(self.count @ (tilted @ steps**2 - mean**2))
        middle = float(self.count @ mean)
        reach = bernstein_radius(variance, _LOG_OUTSIDE, self._top)
        low, high = max(0, math.floor(middle - reach)), min(self._top * self._users, math.ceil(middle + reach))
        # At the tilt of Bernstein's inequality the merged law is bounded as well: by a factor e.
        further = tilt + reach / (variance + self._top * reach / 3)
        if high - low + 1 > MAX_LENGTH or not self._log_error(further, np.zeros(1))[0] <= 1:
            return NO_WITNESS.score, 0
        # Bounds on the effect of a relative change of every entry on a transform: at frequency 0, and per radian.
        still = np.abs(grown).sum(1) / whole
        turning = (tilted * np.abs(distance)).sum(1)
        masses = self._masses(tilt, tilted, still, turning, low, high)
        if masses is None:
            return NO_WITNESS.score, 0
        place = np.arange(low, high + 1, dtype=np.int64)
        sizes = (np.abs(log_whole) + still + tilt * (centre + self._top)) * self.count
        rounding = SUM_ERROR * (float(sizes.sum()) + 1)
        scale = np.exp(np.minimum(log_scale - tilt * place, 600.0))
        return self._threshold(place, *masses, scale, rounding, target)

    def _log_error(self, tilt: float, angles: Floats) -> Floats:
        """See `Merging.log_error`."""
        if self.merged is None:
            return np.zeros(angles.shape)
        return self.merged.log_error(tilt * self._top, angles * self._top)

    def _masses(
        self, tilt: float, tilted: Floats, still: Floats, turning: Floats, low: int, high: int
    ) -> tuple[Floats, float] | None:
        """Returns the tilted law on low..high, and a bound on its absolute error, the scale's probabilities included.

        A transform of numbers of 1-norm s has an error of at most STAGE log2(length) s in every entry
        (docs/numerics.md, section 3.1). None if it would take long.
        """
        from scipy.fft import irfft, next_fast_len

        length = int(next_fast_len(max(high - low + 1, self.first.size), real=True))
        unlike = 0.0 if self.merged is None else self.merged.unlike(tilt * self._top)
        last = _last_angle(tilted, self.count, unlike)
        heard = min(math.ceil(last / (2 * math.pi) * length), length // 2) + 1
        if float(heard) * tilted.size > MAX_WORK:
            return None
        angles = np.arange(heard, dtype=np.float64) * (2 * math.pi / length)
        centre = np.round(tilted @ np.arange(self.first.size))
        phi, wrong = self.transforms(tilted, centre, still, turning, angles, self._log_error(tilt, angles))
        shift = math.fsum((self.count * centre).tolist())
        phi *= np.exp(-1j * angles * (shift - round(shift)))
        total = 2 * float(np.abs(phi).sum())
        wrong += 8 * UNIT * angles * (abs(shift) + 1) * np.abs(phi)
        error = (2 * float(wrong.sum()) + STAGE * math.log2(length + 1) * total) / length + 1e-20
        mass: Floats = irfft(phi, n=length)
        return np.asarray(mass[(np.arange(low, high + 1) - round(shift)) % length]), error

    def transforms(
        self, tilted: Floats, centre: Floats, still: Floats, turning: Floats, angles: Floats, log_error: Floats
    ) -> tuple[NDArray[np.complex128], Floats]:
        """Returns E e^(-i angle (X - sum of the centres)), (J,), and bounds on its error.

        phi - 1 is summed directly, because its error decreases with the angle. A product of many numbers of size <= g_t
        with errors d_t has an error of at most prod g_t (e^(sum of d_t/g_t) - 1).
        """
        steps = np.arange(self.first.size, dtype=np.float64)
        order = np.argsort(centre, kind="stable")
        starts = np.flatnonzero(np.diff(centre[order], prepend=-1.0))
        known = UNIT * (32 + 2 * steps.size) + 2 * self.probability_error
        at_rest, per_radian = self.count * 2 * self.probability_error * still, self.count * known * (turning + 1)
        phi, wrong = np.empty(angles.size, dtype=np.complex128), np.empty(angles.size)
        width = max(1, BLOCK // len(tilted))
        for begin in range(0, angles.size, width):
            part = slice(begin, begin + width)
            real, imaginary = np.empty((2, len(tilted), angles[part].size))
            for members in np.split(order, starts[1:]):
                turn = np.outer(steps - centre[members[0]], angles[part])
                real[members] = -2 * (tilted[members] @ np.sin(turn / 2) ** 2)
                imaginary[members] = -(tilted[members] @ np.sin(turn))
            change, phase = 2 * real + real * real + imaginary * imaginary, np.arctan2(imaginary, 1 + real)
            log_size = 0.5 * np.log1p(np.maximum(change, -0.5))
            small = change < -0.5
            if small.any():
                log_size[small] = np.log(np.maximum(np.hypot(1 + real[small], imaginary[small]), _FLOOR))
            log_phi = self.count @ log_size + 1j * (self.count @ phase)
            guarded = np.exp(-log_size)
            relative = at_rest @ guarded + (per_radian @ guarded) * np.minimum(angles[part], 2.0) + log_error[part]
            relative += (len(tilted) + 16) * UNIT * (self.count @ (np.abs(log_size) + np.abs(phase)))
            relative += 2 * (self.count @ (log_size <= _LOG_FLOOR))
            phi[part] = np.exp(log_phi)
            # phi is at most 1 in size; the truth too, or e with `log_error` (see `score_at`). 1 + e < 3.8 < e^2 - 1.
            grown = np.exp(np.minimum(log_phi.real + 1.01 * relative, 2.0))
            wrong[part] = np.minimum(grown * -np.expm1(-1.01 * relative), 3.8)
        return phi, wrong

    def _threshold(
        self, place: Ints, mass: Floats, error: float, scale: Floats, rounding: float, target: Target
    ) -> tuple[float, int]:
        """Uses Pr[S > t] = sum over the victim's score s of law(s) Pr[X > t - s]; `error` bounds the tail beyond."""
        rounding += place.size * UNIT + 2 * self.probability_error + 16 * UNIT
        least = np.maximum(mass - error, 0.0) * scale
        most = (np.maximum(mass, 0.0) + error) * scale
        # Index i is Pr[X >= place[0] + i].
        from_below = np.cumsum(least[::-1])[::-1]
        from_above = np.cumsum(most[::-1])[::-1] + error * scale[-1]
        first, second = self._with_victim(self.first, from_below), self._with_victim(self.second, from_above)
        scores = target.score(first * (1 - rounding), second * (1 + rounding))
        best = int(np.argmax(scores))
        return float(scores[best]), int(place[0]) + self.first.size - 2 + best

    @staticmethod
    def _with_victim(law: Floats, tail: Floats) -> Floats:
        """Returns Pr[V + X >= place[0] + m + j] at entry j, m the largest score; all tails used are in the window."""
        return np.asarray(np.convolve(tail, law, mode="valid"), dtype=np.float64)


def _last_angle(laws: Floats, count: Floats, unlike: float) -> float:
    """Returns an angle in (0, pi] beyond which the transforms multiply to e^-_LOG_UNHEARD at most, or pi.

    With D the difference of two scores of one user, drawn at random, and s, f its second and fourth moment, the users'
    mean of |phi|^2 is E cos(w D) <= 1 - w^2 s/2 + w^4 f/24, at most 1 - w^2 s/4 as long as w^2 <= 6 s/f; n/2 times its
    logarithm bounds the logarithm of the product. Beyond, a grid is enough, because the mean changes by at most E|D|
    per radian.

    unlike: the largest excess of the users' mean over that of these laws; see `Merging`.
    """
    users = float(count.sum())
    if not (users > 0 and users * unlike <= 1):
        return math.pi
    pairs = (laws * (count / users)[:, None]).T @ laws
    size = laws.shape[1]
    law = np.array([np.trace(pairs, step) * (2 if step else 1) for step in range(size)])
    steps = np.arange(size, dtype=np.float64)
    first, second, fourth = float(law @ steps), float(law @ steps**2), float(law @ steps**4)
    if not second > 0:
        return math.pi
    wide = math.sqrt(6 * second / fourth) * (1 - 1e-9)
    if not wide > 2 * math.pi / _GRID:
        return math.pi
    mean = np.fft.rfft(law, n=_GRID).real + first * math.pi / _GRID
    beyond = 2 * math.pi / _GRID * np.arange(mean.size) >= wide - 2 * math.pi / _GRID
    far = float(mean[beyond].max()) + unlike + 1e-9
    if users / 2 * math.log(min(max(far, 1e-300), 1.0)) > -_LOG_UNHEARD - 1:
        return math.pi
    angle = math.sqrt(8 * (_LOG_UNHEARD + 2) / (users * second)) * (1 + 1e-9)
    return angle if angle < wide else math.pi


def scores_of_cells(
    first: Floats, second: Floats, others: Floats, count: Floats, levels: int, epsilon: float = 0.0
) -> Ints | None:
    """Returns scores 0..levels of cells, linear in (first - e^epsilon second)/(the others' mean) without tier effects.

    Args:
        first: float64 (C,), the victim's probabilities of the cells at one of its values.
        second: the same at the other value.
        others: float64 (T, C), the probabilities of the other users' tiers.
        count: float64 (T,), the users of each tier.
        levels: the largest score, unless scores have a common factor.
        epsilon: about the epsilon that the test is to prove; any is sound.

    Returns:
        int64 (C,), or None if the score does not vary.
    """
    mean = count @ others / max(float(count.sum()), 1.0)
    used = (first + second > 0) & (mean > 0)
    if not used.any():
        return None
    ratio = best_scores(first - math.exp(epsilon) * second, others, count, mean, used)
    low, high = float(ratio[used].min()), float(ratio[used].max())
    if not high > low:
        return None
    score = np.clip(np.round((ratio - low) / (high - low) * levels), 0, levels).astype(np.int64)
    score //= max(int(np.gcd.reduce(score)), 1)
    return np.asarray(score)


def best_scores(difference: Floats, others: Floats, weight: Floats, mean: Floats, used: NDArray[np.bool_]) -> Floats:
    """Returns f with the largest (difference @ f)^2 / Var(sum of the others' f), (C,), up to a constant and a factor.

    Var = sum_t weight_t Var_t(f), so that mean f = difference + sum_t b_t others_t, b_t = (share of t) E_t f. If there
    are many tiers, neighbours are grouped; any f is sound.
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
