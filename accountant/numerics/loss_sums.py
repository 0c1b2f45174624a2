"""The mean of [L_1 + ... + L_N]_+ for independent privacy-loss terms and a random N: never below, down to 1e-300.

Every blanket bound without a closed form is such a mean (docs/numerics.md, section 3). The law of one term comes as
atoms: cells with known range, mean and mass. They are moved to a lattice with their mean kept (larger in convex order),
tilted exponentially to where the sum is positive, and multiplied in the Fourier domain for all N at once. Wrap-around,
truncation and rounding are bounded and returned beside the value. `bounds.density_blanket` makes the atoms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from croupier.accountant.numerics.binomial import UNIT, Floats
from croupier.accountant.numerics.count_law import CountLaw
from croupier.accountant.numerics.fourier import STAGE, smooth_even_length
from croupier.accountant.numerics.roots import root_between

POINTS_PER_DEVIATION = 20.0
"""Lattice points per standard deviation of one term: the variance grows by about 1/(6 * 20^2) = 0.04 %."""
LEAST_POINTS = 12.0
"""Lattice points per deviation if the number of terms would make the transform longer than usual: 0.12 % of the
variance, and 0.06 % of epsilon."""
USUAL_LENGTH = 1 << 18
"""Longest Fourier transform, unless nine standard deviations need more; beyond it the lattice gets coarser."""
MAX_LENGTH = 1 << 23
"""Longest Fourier transform of all."""
MAX_TERM_POINTS = 1 << 16
"""Most lattice points one term may span."""
LITTLE, NOTHING = 1e-5, 1e-60
"""E[L]_+ is the bound if it exceeds E[L] by at most the first, relatively, or is at most the second."""
LEAST_SMOOTHED = 50_000.0
"""The fewest terms for a sum without a lattice."""
BEYOND = 25.0
"""e^-BEYOND bounds the omitted frequencies, relative to the first."""
MOMENTS = 16
"""The number of moments of one term that are used for its characteristic function near 0."""
WRAP = 1e-9
"""The mass that may wrap around, relative to the tilted mass. It is added to the error."""


@dataclass(frozen=True, eq=False)
class LossAtoms:
    """One privacy-loss term, known cell by cell: with probability mass[i] it lies in [low[i], high[i]], mean mean[i].

    float64 arrays of one shape (C,); the masses add up to 1, or a little more by rounding. Direction: means may be too
    large, never too small.
    """

    low: Floats
    high: Floats
    mean: Floats
    mass: Floats

    def __post_init__(self) -> None:
        """Raises ValueError for shapes that differ, empty ranges, or masses that do not add up to 1."""
        if not (self.low.shape == self.high.shape == self.mean.shape == self.mass.shape and self.low.ndim == 1):
            raise ValueError("low, high, mean and mass differ in shape; they must be four equal 1-D arrays")
        if not (np.isfinite(self.low).all() and np.isfinite(self.high).all() and (self.low <= self.high).all()):
            raise ValueError("a range is empty or infinite; it must be low <= high, both finite")
        total = float(self.mass.sum())
        if not ((self.mass >= 0).all() and abs(total - 1) < 1e-9):
            raise ValueError(f"masses add up to {total!r}; they must be >= 0 and add up to 1")


@dataclass(frozen=True)
class _Lattice:
    """The term as integer multiples `first + 0, 1, 2, ...` of `step`, its masses tilted and normalised.

    tilted[j] = mass[j] * exp(theta (first + j)) / kappa, log_kappa the logarithm of the normalisation. rounding: a
    bound on the relative error of kappa * tilted, for every entry, including the error of the masses.
    """

    step: float
    first: int
    tilted: Floats
    theta: float
    log_kappa: float
    rounding: float

    def log_moment(self, tau: float) -> float:
        """Returns ln E[exp(tau K)] of the tilted term K, in lattice units."""
        k = self.first + np.arange(self.tilted.size)
        used = self.tilted > 0
        exponent = tau * k[used] + np.log(self.tilted[used])
        top = float(exponent.max())
        return top + math.log(float(np.exp(exponent - top).sum()))


def mean_excess(atoms: LossAtoms, law: CountLaw, points: float = POINTS_PER_DEVIATION) -> tuple[float, float]:
    """Bounds the sum over m of Pr[M=m]/(m+1) E[L_1 + ... + L_{m+1}]_+ from above.

    Args:
        atoms: the law of one term.
        law: a stochastic lower bound for M; `law.lost` and `law.relative_error` are the caller's to add.
        points: lattice points per standard deviation of one term: any number is sound.

    Returns:
        (value, error), both >= 0: the exact figure for the atoms is at most value + error.
        Direction: never below. Source: docs/numerics.md, section 3.
    """
    if float(atoms.high.max(initial=-math.inf)) <= 0:
        return 0.0, 0.0
    sizes = law.counts.astype(np.float64) + 1
    values, mass = _on_their_ends(atoms)
    positive, mean = float(mass @ np.maximum(values, 0.0)), float(mass @ values)
    if positive <= max(mean * (1 + LITTLE), NOTHING):  # [L_1 + ... + L_N]_+ is at most the sum of the [L_i]_+
        return positive * float(law.mass.sum()) * (1 + (values.size + 64) * UNIT), 0.0
    smoothed = smoothed_excess(atoms, law, points)
    if smoothed is not None:
        return smoothed
    lattice, half, leak = _lattice(atoms, float(sizes[-1]), points)
    # ln of the weight of each N: Pr[M = N-1] / N * kappa^N.
    log_weight = np.full(sizes.shape, -np.inf)
    used = law.mass > 0
    log_weight[used] = np.log(law.mass[used]) - np.log(sizes[used]) + sizes[used] * lattice.log_kappa
    scale = float(log_weight.max())
    if scale < -690:  # below 1e-299
        return 0.0, float(law.mass.sum()) * 1e-290
    weight = np.exp(log_weight - scale)
    biggest, total = float(sizes[-1]), float(weight.sum())
    length = smooth_even_length(2 * half + 2)
    half = length // 2
    padded = np.zeros(length)
    np.add.at(padded, (lattice.first + np.arange(lattice.tilted.size)) % length, lattice.tilted)
    transform = np.fft.rfft(padded)
    sums = np.fft.irfft(_power_sum(transform, sizes.astype(np.int64), weight), length)
    s = np.arange(1, half, dtype=np.float64)
    gain = s * np.exp(-lattice.theta * s)
    value = float(sums[1:half] @ gain)
    error = _rounding(padded, transform, sizes, total, gain) + total * leak
    # N terms multiply their errors; the weights are exponentials of numbers up to N |log kappa| + 700, the gains of
    # numbers up to 700.
    relative = biggest * (lattice.rounding + 2 * UNIT * abs(lattice.log_kappa)) + 4096 * UNIT
    factor = math.exp(scale) * lattice.step * math.exp(relative)
    return max(0.0, value) * factor, error * factor + 1e-290  # never 0 from underflow


def smoothed_excess(
    atoms: LossAtoms, law: CountLaw, points: float = POINTS_PER_DEVIATION
) -> tuple[float, float] | None:
    """Returns `mean_excess` for sums of many terms, which are nearly Gaussian, from some 40 frequencies, no lattice.

    None if there are too few terms, or so large ones that the variance would grow by more than on a lattice with this
    many points per standard deviation. Formula, proof and errors: docs/numerics.md, section 3.3.
    """
    sizes, chance = law.counts.astype(np.float64) + 1, law.mass
    if float(sizes[0]) < LEAST_SMOOTHED:
        return None
    values, mass = _on_their_ends(atoms)
    largest = float(np.abs(values).max())
    if not largest > 0:
        return None
    values /= largest
    mean = float(mass @ values)
    deviation = math.sqrt(max(float(mass @ (values - mean) ** 2), 1e-300))
    least, most = float(sizes[0]), float(sizes[-1])
    drift = max(-mean * math.sqrt(most) / deviation, 0.0)
    theta = (drift + math.sqrt(drift * drift + 8)) / (2 * math.sqrt(most) * deviation)
    if theta > 1:
        return None
    surplus = max(math.fsum(mass.tolist()) - 1, 0.0) + math.fsum((mass * np.expm1(theta * values)).tolist())
    moments = _moments(mass * np.exp(theta * values) / (1 + surplus), values)
    first, second, third, fourth = moments[:4]
    variance = second - first**2
    fourth += 6 * second * first**2 - 4 * third * first - 3 * first**4
    if not (variance > 0 and fourth > 0):
        return None
    wide = math.sqrt(6 * variance / (fourth + 3 * variance**2))
    smoothing = 2 * BEYOND / wide**2
    period = 9 * math.sqrt(most * variance) + 25 / theta * math.sqrt(most / least)
    frequencies = math.ceil(math.sqrt(4 * BEYOND / (least * variance)) * period / (2 * math.pi))
    u = np.arange(frequencies + 1, dtype=np.float64) * (2 * math.pi / period)
    end = float(u[-1])
    if smoothing > least * variance / (5 * points * points) or end > min(wide, 1.0):
        return None
    log_phi, wrong = _near_one(moments, u, (64 + values.size) * UNIT)
    log_weight = np.full(sizes.shape, -np.inf)
    used = chance > 0
    log_weight[used] = np.log(chance[used] / sizes[used]) + sizes[used] * math.log1p(surplus)
    scale = float(log_weight.max())
    if scale < -690:  # below 1e-299
        return 0.0, float(chance.sum()) * 1e-290 * max(largest, 1.0)
    weight = np.exp(log_weight - scale)
    total = float(weight.sum())
    z = theta + 1j * u
    factor = np.exp(z * z * (smoothing / 2)) / (z * z)
    factor[1:] *= 2  # and the conjugate frequencies
    value = float((weight @ np.exp(np.outer(sizes, log_phi)) * factor).real.sum()) / period
    bound = np.abs(factor) * np.exp(least * np.minimum(log_phi.real, 0.0)) * total
    error = float((np.expm1(np.minimum(most * wrong + 1024 * UNIT, 50.0)) * bound).sum()) / period
    error += 1.01 * total / (math.pi * end) * math.exp(theta * theta * smoothing / 2 - BEYOND)
    relative = most * UNIT * (8 + 8 * theta) + 4096 * UNIT
    grown = math.exp(scale + relative) * largest
    return max(0.0, value) * grown, error * grown + 1e-290


def _moments(mass: Floats, values: Floats) -> list[float]:
    power, moments = mass, []
    for _ in range(MOMENTS):
        power = power * values
        moments.append(float(power.sum()))
    return moments


def _near_one(moments: list[float], u: Floats, rounding: float) -> tuple[NDArray[np.complex128], Floats]:
    """Returns ln E e^(iuX) from the moments of |X| <= 1, for 0 <= u <= 1, and its error: (J,) each."""
    change = np.zeros(u.size, dtype=np.complex128)
    for k in range(MOMENTS, 0, -1):
        change = (change + moments[k - 1]) * (1j * u / k)
    size = math.sqrt(moments[1]) * u  # at least E |uX|
    wrong = 2 * rounding * size + size**2 * u ** (MOMENTS - 1) / math.factorial(MOMENTS + 1)
    log_phi = 0.5 * np.log1p(2 * change.real + np.abs(change) ** 2) + 1j * np.arctan2(change.imag, 1 + change.real)
    return log_phi, 4 * wrong + 8 * UNIT * np.abs(log_phi)


def _on_their_ends(atoms: LossAtoms) -> tuple[Floats, Floats]:
    """Returns atoms on both ends of every range with its mass and its mean, which rounding may increase a little."""
    width = atoms.high - atoms.low
    share = (atoms.mean - atoms.low) / np.where(width > 0, width, 1.0)
    share += 8 * UNIT * (np.abs(atoms.low) + np.abs(atoms.high)) / np.where(width > 0, width, 1.0)
    share = np.where(width > 0, np.clip(share, 0.0, 1.0), 1.0)
    return np.concatenate([atoms.low, atoms.high]), np.concatenate([atoms.mass * (1 - share), atoms.mass * share])


def _lattice(atoms: LossAtoms, terms: float, points: float) -> tuple[_Lattice, int, float]:
    """Returns a lattice on which `terms` terms fit into a transform, half its length, and the loss beyond it."""
    centre = float(atoms.mass @ atoms.mean)
    reach = float(max(-atoms.low.min(), atoms.high.max()))
    furthest = max(float(np.abs(atoms.mean - centre).max()), 1e-150)
    spread = furthest * math.sqrt(max(float(atoms.mass @ ((atoms.mean - centre) / furthest) ** 2), 1e-300))
    points = min(points, max(LEAST_POINTS, USUAL_LENGTH / (18 * math.sqrt(terms))))
    needed = 18 * points * math.sqrt(terms)
    longest = min(MAX_LENGTH, max(USUAL_LENGTH, 4 * needed))
    step = max(spread / points * max(1.0, needed / MAX_LENGTH), reach / MAX_TERM_POINTS)
    while True:
        lattice = _tilted(atoms, step)
        half, leak = _window(lattice, terms)
        if 2 * half + 2 <= longest:
            return lattice, half, leak
        step *= max(1.5, 2 * half / longest)


def _tilted(atoms: LossAtoms, step: float) -> _Lattice:
    """Moves the atoms to the multiples of `step` with means kept, and tilts the mean of the result to 0."""
    first, mass, rounding = _on_lattice(atoms, step)
    k = (first + np.arange(mass.size)).astype(np.float64)
    theta = _zero_tilt(k, mass)
    exponent = theta * k
    top = float(exponent[mass > 0].max())
    tilted = mass * np.exp(exponent - top)
    kappa = float(tilted.sum())
    log_kappa = math.log(kappa)
    # Rounded: theta k, its distance from top, the exponential and the quotient; then ln kappa and its sum with top.
    # (An error of kappa itself cancels in kappa * tilted.)
    farthest = theta * float(max(abs(k[0]), abs(k[-1])))
    rounding += UNIT * (4 + farthest + abs(top) + abs(log_kappa))
    return _Lattice(step, first, tilted / kappa, theta, top + log_kappa, rounding)


def _on_lattice(atoms: LossAtoms, step: float) -> tuple[int, Floats, float]:
    """Returns the first multiple, the masses from there on, and a bound on their relative error."""
    below = np.floor(atoms.low / step)
    above = np.maximum(np.ceil(atoms.high / step), below + 1)
    # The share of the upper point keeps the mean; it is raised by more than its rounding error.
    share = (atoms.mean / step - below) / (above - below) + 8 * UNIT * (1 + np.abs(below) + np.abs(above))
    share = np.clip(share, 0.0, 1.0)
    first = int(below.min())
    size = int(above.max()) - first + 1
    to_upper, to_lower = (above - first).astype(np.int64), (below - first).astype(np.int64)
    upper = np.bincount(to_upper, weights=atoms.mass * share, minlength=size)
    lower = np.bincount(to_lower, weights=atoms.mass * (1 - share), minlength=size)
    # bincount adds terms one by one: half an ulp for every term, and a few for the products.
    terms = int(max(np.bincount(to_upper).max(), np.bincount(to_lower).max()))
    return first, np.asarray(upper + lower, dtype=np.float64), UNIT * (2 + terms / 2)


def _zero_tilt(k: Floats, mass: Floats) -> float:
    """Returns theta >= 0 with a mean of k under mass * exp(theta k) of about 0; 0 if the mean is not negative."""
    used = mass > 0
    k, mass = k[used], mass[used]
    if float(mass @ k) >= 0 or k[-1] <= 0:
        return 0.0

    def mean(theta: float) -> float:
        return float((mass * np.exp(theta * (k - k[-1]))) @ k)

    low, high = 0.0, 1.0 / float(k[-1])
    while mean(high) < 0:
        low, high = high, 2 * high
        if high * float(k[-1]) > 500:
            return low
    return root_between(mean, low, high, bits=20)


def _window(lattice: _Lattice, terms: float) -> tuple[int, float]:
    """Returns half the length of the transform, and a bound on the mean beyond it, relative to the tilted mass.

    Chernoff: Pr[S >= w] <= exp(terms * ln E e^(tau K) - tau w). Mass that wraps around only increases the value.
    """
    k = lattice.first + np.arange(lattice.tilted.size)
    variance = max(float(lattice.tilted @ (k.astype(np.float64) ** 2)), 1e-12)
    deviation = math.sqrt(terms * variance)
    log = -math.log(WRAP)
    span = float(max(abs(lattice.first), abs(lattice.first + lattice.tilted.size - 1), 1))
    best = {1: terms * span, -1: terms * span}
    for tau in np.geomspace(0.5, 16, 11) / deviation:
        for side in (1, -1):
            best[side] = min(best[side], (terms * max(0.0, lattice.log_moment(side * float(tau))) + log) / float(tau))
    half = math.ceil(max(best[1], best[-1])) + 1
    if half >= terms * span:
        return half, 0.0
    # s exp(-theta s) <= half * exp(-theta half) * exp((s - half)/half) for s >= half.
    leaks = []
    for tau in np.geomspace(0.5, 16, 11) / deviation:
        log_moment = lattice.log_moment(float(tau) + 1 / half)
        exponent = terms * max(0.0, log_moment) - 1 - float(tau) * half - lattice.theta * half
        leaks.append(half * math.exp(min(700.0, exponent)))
    return half, min(leaks)


def _power_sum(
    transform: np.ndarray[tuple[int, ...], np.dtype[np.complex128]],
    sizes: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    weight: Floats,
) -> np.ndarray[tuple[int, ...], np.dtype[np.complex128]]:
    """Returns the sum over N of weight_N * transform^N, by Horner's rule over the gaps between the Ns."""
    magnitude = np.maximum(np.abs(transform), 1e-300)
    # If even the smallest power is negligible, the sum is 0 to 1e-30.
    alive = np.flatnonzero(sizes[0] * np.log(magnitude) > -70)
    log = np.log(magnitude[alive]) + 1j * np.angle(transform[alive])
    powers = {int(gap): np.exp(int(gap) * log) for gap in np.unique(np.diff(sizes))}
    total = np.full(alive.shape, complex(weight[-1]))
    for index in range(sizes.size - 2, -1, -1):
        total = total * powers[int(sizes[index + 1] - sizes[index])] + weight[index]
    result = np.zeros(transform.shape, dtype=np.complex128)
    result[alive] = total * np.exp(int(sizes[0]) * log)
    return result


def _rounding(
    padded: Floats,
    transform: np.ndarray[tuple[int, ...], np.dtype[np.complex128]],
    sizes: Floats,
    total: float,
    gain: Floats,
) -> float:
    """Returns a bound on the effect of rounding in the two transforms and the powers on sums @ gain (section 3.1)."""
    length = padded.size
    stages = STAGE * math.log2(length)
    point = stages * math.sqrt(length) * float(np.linalg.norm(padded)) + 4 * UNIT
    least, biggest = float(sizes[0]), float(sizes[-1])
    bound = np.minimum(np.abs(transform) + point, 1.0)
    alive = (least - 1) * np.log(bound) > -70  # all others together are below 1e-30 * length
    powered = bound[alive] ** (least - 1)
    growth = math.exp(min(50.0, biggest * point))
    # A power F^N by its logarithm: N times the error of F, and of a logarithm of at most 70 + i pi; a step of Horner's
    # rule is one product and one sum of complex numbers.
    relative = biggest * (point + 8 * UNIT) + 4 * UNIT * sizes.size
    whole = 2 * float(powered.sum()) / length
    direct = total * growth * (relative * whole + 1e-29) * float(gain.sum())
    energy = math.sqrt(2 * float((powered**2).sum()) / length)
    return (
        direct
        + total * growth * stages * energy * float(np.linalg.norm(gain))
        + gain.size * UNIT * total * float(gain.max(initial=0.0))
    )
