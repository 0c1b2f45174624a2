"""The exact law of a sum of independent bits, from both sides, with a stated numerical error, for attacks.

An attack needs a mass from below and a tail from above: by Fourier inversion of the exponentially tilted law,

    Pr[X = t] = e^(K(theta) - theta t) (1/L) sum_j phi_theta(2 pi j/L) e^(-2 pi i j t/L),

which needs some 40 frequencies at any number of users, since |phi_theta(w)| <= exp(-var (1 - cos w)). Tails are the
same sum with a geometric factor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from croupier.accountant.numerics.binomial import UNIT, Floats, Ints
from croupier.accountant.numerics.fourier import STAGE, smooth_odd_length
from croupier.accountant.numerics.tail_radii import bernstein_radius

Complexes = NDArray[np.complex128]

MAX_GROUPS = 1024
"""Up to this many distinct probabilities are used exactly; a larger number is grouped, with four moments per group."""
MAX_SINGLE = 2000
"""Even then up to this many probabilities in (0.05, 0.95) are used exactly: few of them can make a law narrow."""
SUM_ERROR = 40 * UNIT
"""Relative error of numpy's pairwise sums of terms with an error of a few ulp, relative to the sum of their sizes."""
OUTSIDE = 1e-20
"""A bound on the tilted mass outside the window (Bernstein, e^-50 a side) and of the omitted frequencies together."""
_LOG_OUTSIDE = 50.0
"""Bernstein's inequality leaves at most e^-50 of the tilted law outside the window on each side; see `OUTSIDE`."""
_FLOOR = 1e-7
"""Factors of the transform are divided by at least this size, so that none is divided by zero."""


@dataclass(frozen=True, eq=False)
class PoissonBinomial:
    """X = sum of count_g bits with share_g, added where sign_g is +1 and taken away where it is -1.

    probability: float64 (G,), in (0, 1); count: float64 (G,), > 0; sign: float64 (G,).
    moments: float64 (4, G), sums of (probability - centre)^k of a group's members, k = 1..4; spread: float64 (G,), the
    largest such distance, 0 where the members are equal. rounding: a bound on the relative error of moments[0].
    probability_error: a bound on the relative error of every single probability.
    """

    probability: Floats
    count: Floats
    sign: Floats
    moments: Floats
    spread: Floats
    rounding: float
    probability_error: float

    @property
    def lowest(self) -> int:
        """The least value that X can take."""
        return -int(self.count[self.sign < 0].sum())

    @property
    def highest(self) -> int:
        """The largest value that X can take."""
        return int(self.count[self.sign > 0].sum())

    def reflected(self) -> PoissonBinomial:
        """The law of -X."""
        return replace(self, sign=-self.sign)

    def cumulants(self, tilts: Floats) -> tuple[Floats, Floats, Floats]:
        """Returns K, K' and K'' of ln E[e^(tilt X)], each shaped like tilts (J,), |tilt| <= 600; to a few digits."""
        power = tilts[:, None] * self.sign
        tilted = self._tilted(power)
        value = np.where(
            power > 30, power + np.log(self.probability), np.log1p(self.probability * np.expm1(np.minimum(power, 30)))
        )
        variance = tilted * (1 - tilted) * self.count
        return (value * self.count).sum(1), (self.sign * tilted * self.count).sum(1), variance.sum(1)

    def _tilted(self, power: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return 1 / (1 + (1 - self.probability) / self.probability * np.exp(-power))

    def window(self, tilt: float) -> Window:
        """Returns the tilted law where its mass lies. |tilt| <= 600; raises ValueError beyond."""
        if not abs(tilt) <= 600:
            raise ValueError(f"tilt is {tilt!r}; it must be -600 <= tilt <= 600")
        power = tilt * self.sign
        tilted = self._tilted(power)
        mean = float((self.sign * tilted * self.count).sum())
        variance = float((tilted * (1 - tilted) * self.count).sum())
        low, high = self._range(mean, variance, power)
        length = smooth_odd_length(high - low + 1)
        most = (length - 1) // 2
        least = variance / 1.05 if self.spread.any() else variance
        if 2 * least > _LOG_OUTSIDE:
            most = min(most, math.ceil(math.acos(1 - _LOG_OUTSIDE / least) * length / (2 * math.pi)))
        angles = 2 * math.pi / length * np.arange(most + 1, dtype=np.float64)
        return self._inverted(tilt, low, length, angles)

    def _range(self, mean: float, variance: float, power: Floats) -> tuple[int, int]:
        """Returns the ends of a range around the mean that holds all but e^-50 of the tilted mass on each side."""
        if self.spread.any():
            # The members of a group tilt a little differently from its centre, which moves mean and variance.
            gain = np.exp(np.minimum(power, 600))
            bend = np.abs(np.expm1(power)) * gain / (1 + self.probability * np.expm1(power)) ** 3
            mean_error = 1.1 * float((bend * self.moments[1]).sum())
            variance = 1.05 * variance + 1
        else:
            mean_error = 0.0
        reach = bernstein_radius(variance, _LOG_OUTSIDE) + mean_error
        return max(self.lowest, math.floor(mean - reach)), min(self.highest, math.ceil(mean + reach))

    def _inverted(self, tilt: float, low: int, length: int, angles: Floats) -> Window:
        power = tilt * self.sign
        tilted = self._tilted(power)[None, :]
        half = np.sin(angles / 2)[:, None] ** 2
        real = 1 - 2 * tilted * half
        imaginary = tilted * np.sin(angles)[:, None] * self.sign
        lost = 4 * tilted * (1 - tilted) * half  # 1 - |factor|^2
        size = np.where(lost < 0.5, np.sqrt(1 - np.minimum(lost, 0.5)), np.hypot(real, imaginary))
        safe = np.maximum(size, 1e-300)
        log_size = np.where(lost < 0.5, 0.5 * np.log1p(-np.minimum(lost, 0.5)), np.log(safe))
        turn = np.arctan2(imaginary, real)
        grown = np.where(
            power > 30, power + np.log(self.probability), np.log1p(self.probability * np.expm1(np.minimum(power, 30)))
        )
        log_scale = float((grown * self.count).sum())
        # Each computed factor is within 8 ulp of the probability's part in it and of its own logarithm.
        guarded = np.maximum(size, _FLOOR)
        # |d ln E[e^(sX)]| per relative change of every probability.
        shift = tilted * (2 * np.sqrt(half) + np.abs(np.expm1(-power)))
        relative = SUM_ERROR * ((np.abs(log_size) + np.abs(turn)) * self.count).sum(1)
        relative += (8 * UNIT + self.probability_error) * (shift / guarded * self.count).sum(1)
        relative += SUM_ERROR * float((np.abs(grown) * self.count).sum()) + UNIT * (abs(low) * angles + 4)
        log_phi = (log_size * self.count).sum(1) + 1j * (turn * self.count).sum(1)
        majorant = (np.log(guarded) * self.count).sum(1)
        if self.spread.any():
            extra, error = self._correction(tilt, angles, real + 1j * imaginary)
            log_scale += float(extra[0].real)
            log_phi += extra - extra[0].real
            majorant += extra.real - extra[0].real
            relative += error + error[0]
        phi = np.exp(log_phi - 1j * angles * low)
        wrong = np.exp(majorant) * np.expm1(np.minimum(relative, 50.0)) + 8 * UNIT * np.abs(phi)
        return Window(tilt, log_scale, low, length, angles, phi, wrong, self.highest)

    def _correction(self, tilt: float, angles: Floats, factor: Complexes) -> tuple[Complexes, Floats]:
        """Returns the effect of the members' distances from their centre on log E[e^(sX)], and a bound on the rest."""
        used = self.spread > 0
        s = (tilt + 1j * angles)[:, None] * self.sign[used]
        base = 1 + self.probability[used] * np.expm1(tilt * self.sign[used])
        u = np.expm1(s) / (base * np.where(np.abs(factor[:, used]) < _FLOOR, _FLOOR, factor[:, used]))
        total = np.zeros(u.shape, dtype=np.complex128)
        power = np.ones(u.shape, dtype=np.complex128)
        for k in range(1, 5):
            power = power * u
            total += (-1) ** (k + 1) / k * self.moments[k - 1, used] * power
        ratio = np.abs(u) * self.spread[used]
        with np.errstate(divide="ignore", invalid="ignore"):
            left = np.where(ratio < 0.5, self.moments[3, used] * np.abs(power) * ratio / (5 * (1 - ratio)), np.inf)
        left = left + self.rounding * np.abs(u) * self.spread[used] * self.count[used]
        return total.sum(1), np.minimum(left.sum(1), 100.0)


@dataclass(frozen=True, eq=False)
class Window:
    """The tilted law y of X on low .. low + length - 1, as its Fourier coefficients; mass(t) = e^(K - tilt t) y(t).

    angles, phi, wrong: shape (J,): the frequencies 2 pi j/length, the coefficients e^(-i w low) phi_tilt(w), and bounds
    on their errors, e^K included.
    """

    tilt: float
    log_scale: float
    low: int
    length: int
    angles: Floats
    phi: Complexes
    wrong: Floats
    highest: int

    @property
    def error(self) -> float:
        """A bound on the absolute error of every y(t)."""
        return (2 * float(self.wrong.sum()) + 4 * UNIT * self._size) / self.length + OUTSIDE

    @property
    def _size(self) -> float:
        return 2 * float(np.abs(self.phi).sum())

    def masses(self) -> tuple[Floats, float]:
        """Returns y on the whole window, shape (length,), and a bound on its absolute error."""
        padded = np.zeros(self.length // 2 + 1, dtype=np.complex128)
        padded[: self.phi.size] = self.phi.conj()
        error = self.error + STAGE * math.log2(self.length + 1) * self._size / self.length
        return np.fft.irfft(padded, self.length), error

    def scale(self, t: Ints) -> tuple[Floats, Floats]:
        """Returns e^(K - tilt t) and its relative rounding error (the error of K itself is part of `error`)."""
        # Far outside the window a mass of at most 1 has a y below any error, so the scale there is irrelevant.
        exponent = np.minimum(self.log_scale - self.tilt * t, 600.0)
        return np.exp(exponent), 2 * UNIT * (abs(self.log_scale) + np.abs(self.tilt * t) + np.abs(exponent) + 1)

    def upper(self, t: Ints) -> tuple[Floats, Floats, Floats, Floats]:
        """Returns y(t), its error, sum of y(s) e^(-tilt (s-t)) over all s > t, and its error; t inside the window.

        Multiplied by scale(t) they are Pr[X = t] and Pr[X > t]. Raises ValueError unless tilt > 0.
        """
        if not self.tilt > 0:
            raise ValueError(f"tilt is {self.tilt!r}; for an upper tail it must be > 0")
        place = t - self.low
        # Whole turns are removed in integers, so that the phase has an error of an ulp.
        turns = (place[:, None] * np.arange(self.angles.size)[None, :]) % self.length
        wave = np.exp(-2j * math.pi / self.length * turns)
        weight = np.full(self.angles.size, 2.0)
        weight[0] = 1.0
        point = (wave * (self.phi * weight)).real.sum(1) / self.length
        step = np.exp(-self.tilt - 1j * self.angles)
        inverse = 1 / -np.expm1(-self.tilt - 1j * self.angles)
        # Over the window the waves have whole periods: the geometric sum's far end has phase 0.
        left = self.length - place
        ends = np.exp(-self.tilt * left)[:, None]
        terms = (wave * step - ends) * (inverse * self.phi * weight)
        terms[:, 0] = (math.exp(-self.tilt) * -np.expm1(-self.tilt * (left - 1))) * (inverse[0] * self.phi[0])
        tail = terms.real.sum(1) / self.length
        reach = 2 * math.exp(-self.tilt) * np.abs(inverse)
        tail_error = (2 * float((self.wrong * reach).sum()) + 16 * UNIT * float((np.abs(self.phi) * reach).sum())) / (
            self.length
        ) + 2 * OUTSIDE
        return point, np.full(t.size, self.error), tail, np.full(t.size, tail_error)


def poisson_binomial(
    probability: Floats, count: Ints, flipped: NDArray[np.bool_] | None = None, probability_error: float = 8 * UNIT
) -> tuple[PoissonBinomial, int]:
    """Returns the law of the sum of count_t bits that are 1 with probability_t, or 1 - probability_t where flipped.

    Args:
        probability: float64 (T,), in [0, 1]; a probability near 1 is better given as its complement, flipped.
        count: int64 (T,), >= 0.
        flipped: bool (T,), whether the complement is given; None for never.
        probability_error: a bound on the relative error of every probability.

    Returns:
        (X, a): the sum is X + a.

    Raises:
        ValueError: a probability outside [0, 1].
    """
    if probability.size and not ((probability >= 0) & (probability <= 1)).all():
        raise ValueError(
            f"probability spans {float(probability.min())} to {float(probability.max())}; it must be in [0, 1]"
        )
    flipped = np.zeros(probability.shape, dtype=bool) if flipped is None else flipped
    sure = probability >= 1
    constant = int(count[flipped].sum()) + int(count[sure].sum()) - 2 * int(count[sure & flipped].sum())
    used = (probability > 0) & (probability < 1) & (count > 0)
    probability, weight = probability[used], count[used].astype(np.float64)
    sign = np.where(flipped[used], -1.0, 1.0)
    if probability.size <= MAX_GROUPS:
        zeros = np.zeros(probability.size)
        none = np.zeros((4, probability.size))
        return PoissonBinomial(probability, weight, sign, none, zeros, 0.0, probability_error), constant
    return _grouped(probability, weight, sign, probability_error), constant


def _grouped(probability: Floats, count: Floats, sign: Floats, probability_error: float) -> PoissonBinomial:
    log = np.log(probability)
    low = float(log.min())
    width = max(float(log.max()) - low, 1e-9) / (MAX_GROUPS // 2 - 1)
    label = 2 * ((log - low) / width).astype(np.int64) + (sign < 0)
    single = (probability > 0.05) & (probability < 0.95)
    if int(single.sum()) <= MAX_SINGLE:
        label[single] = MAX_GROUPS + np.arange(int(single.sum()))
    falling = bool((label[1:] <= label[:-1]).all())  # usual, because the others are sorted by budget
    if not falling:
        order = np.argsort(label.astype(np.int16), kind="stable")  # a radix sort
        label, probability, count, sign = label[order], probability[order], count[order], sign[order]
    starts = np.flatnonzero(np.diff(label, prepend=-1))
    members = np.diff(starts, append=label.size)
    total = np.add.reduceat(count, starts)
    centre = np.add.reduceat(count * probability, starts) / total
    # Members and centre lie in one cell of ln probability; a single member is its own centre up to rounding.
    spread = np.where(members > 1, centre * math.expm1(width) * 1.001 + 1e-300, 0.0)
    distance = probability - np.repeat(centre, members)
    power, moments = count, []
    for _ in range(4):
        power = power * distance
        moments.append(np.add.reduceat(power, starts))
    rounding = (int(members.max()) + 8) * UNIT
    sign, rows = sign[starts], np.array([centre, total, spread, *moments])
    if falling:
        sign, rows = sign[::-1].copy(), rows[:, ::-1].copy()
    return PoissonBinomial(rows[0], rows[1], sign, rows[3:], rows[2], rounding, probability_error)
