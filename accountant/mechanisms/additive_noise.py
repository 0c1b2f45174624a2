"""Additive noise on an interval: Laplace and Gaussian noise as cells for a common blanket.

Values lie in [0, 1]; a report is the value plus noise with density proportional to exp(-rate * energy(distance)), on
the real line or on a lattice of step 1/lattice. An exponential family is all that is needed: the log-density is concave
in the rate, and the densities are symmetric and fall with the distance, so that the two ends of the interval are the
worst pair of values (docs/bounds.md, section 2.3). The search for a blanket is `density_blanket`'s.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from croupier.accountant.bounds.density_blanket import Cells, LossPair
from croupier.accountant.numerics.binomial import Floats

MAX_SUMMED_POINTS = 2_000_000
"""The most lattice points that are summed one by one; Gaussian noise on a lattice has no closed form."""


@dataclass(frozen=True)
class AdditiveNoise(ABC):
    """Noise with density exp(-rate * energy(d)) / Z(rate); on a lattice, the density of a uniform point of its cell.

    Reports on a lattice are seen as reports spread uniformly over the lattice cell around them: an invertible
    post-processing, so that both have the same privacy.
    """

    lattice: int | None = None

    @abstractmethod
    def energy(self, distance: Floats) -> Floats:
        """Increasing in the distance, 0 at 0."""

    @abstractmethod
    def log_partition(self, rate: Floats) -> Floats:
        """Returns ln Z(rate)."""

    @abstractmethod
    def moments(self, rate: float) -> tuple[float, float]:
        """Mean and variance of the energy; both fall as the rate grows."""

    @abstractmethod
    def variance(self, rate: float) -> float:
        """The variance of the noise itself."""

    @abstractmethod
    def mass(self, low: Floats, high: Floats, rate: float) -> Floats:
        """Pr[low < noise < high] for 0 <= low <= high; on a lattice both are multiples of half a step."""

    @abstractmethod
    def tail_at(self, mass: float, rate: float) -> float:
        """A distance beyond which, on one side, the noise has mass at most `mass`, roughly."""

    @abstractmethod
    def beyond(self, distance: float, rate: float) -> float:
        """Pr[noise > distance], rounded up."""

    @property
    def falls_geometrically(self) -> bool:
        """Whether p(d + s)/p(d) is the same for all d >= 0: then no pair of values needs a correction."""
        return False

    @property
    def step(self) -> float:
        """The lattice step, 0 for the real line."""
        return 0.0 if self.lattice is None else 1.0 / self.lattice

    def place(self, distance: Floats) -> tuple[Floats, Floats]:
        """The lattice point whose cell begins or lies at a distance, and which part (0 or 1/2) of it lies before."""
        halves = np.round(2 * distance / self.step) + 1
        point = np.floor(halves / 2)
        return point, (halves - 2 * point) / 2

    def first_point(self, distance: Floats) -> Floats:
        """The distance of the first lattice point from here on (whose cell is not over); on the line, the distance."""
        return distance if self.lattice is None else self.place(distance)[0] * self.step

    def last_point(self, distance: Floats) -> Floats:
        """The distance of the last lattice point whose cell has begun before here; on the line, the distance."""
        if self.lattice is None:
            return distance
        point, part = self.place(distance)
        return np.asarray(np.where(part > 0, point, point - 1) * self.step)

    def log_density(self, distance: Floats, rate: Floats) -> Floats:
        """Returns ln p at a distance (a lattice point's, where there is a lattice)."""
        return np.asarray(-rate * self.energy(distance) - self.log_partition(rate))


@dataclass(frozen=True)
class LaplaceNoise(AdditiveNoise):
    """Density proportional to exp(-rate |d|): rate is the local epsilon for values in [0, 1]."""

    def energy(self, distance: Floats) -> Floats:
        """|d|: the distance itself."""
        return distance

    def log_partition(self, rate: Floats) -> Floats:
        """ln(2/rate); on a lattice of step h, ln(h (1+q)/(1-q)) with q = exp(-rate h)."""
        if self.lattice is None:
            return np.asarray(math.log(2.0) - np.log(rate))
        return np.asarray(math.log(self.step) - np.log(np.tanh(rate * self.step / 2)))

    def moments(self, rate: float) -> tuple[float, float]:
        """1/rate and its square; on a lattice of step h, h/sinh(rate h) and h^2 cosh/sinh^2."""
        if self.lattice is None:
            return 1 / rate, 1 / rate**2
        scaled = rate * self.step
        return self.step / math.sinh(scaled), self.step**2 * math.cosh(scaled) / math.sinh(scaled) ** 2

    def variance(self, rate: float) -> float:
        """2/rate^2; on a lattice of step h, 2 q h^2/(1-q)^2 with q = exp(-rate h)."""
        if self.lattice is None:
            return 2 / rate**2
        return (self.step / math.sinh(rate * self.step / 2)) ** 2 / 2

    def mass(self, low: Floats, high: Floats, rate: float) -> Floats:
        """Closed forms: exponentials on the line, geometric series on the lattice."""
        if self.lattice is None:
            return np.asarray(0.5 * np.exp(-rate * low) * -np.expm1(-rate * (high - low)))
        decay = rate * self.step
        scale = 1 / (1 + math.exp(-decay))
        (first, before), (last, part) = self.place(low), self.place(high)
        whole = np.exp(-decay * first) * -np.expm1(-decay * (last - first)) * scale
        point = -math.expm1(-decay) * scale
        return np.asarray(whole + part * point * np.exp(-decay * last) - before * point * np.exp(-decay * first))

    def tail_at(self, mass: float, rate: float) -> float:
        """Exact on the line: Pr[noise > t] = e^(-rate t)/2."""
        return math.log(0.5 / mass) / rate

    def beyond(self, distance: float, rate: float) -> float:
        """Pr[noise > distance], rounded up; on a lattice, from the point before."""
        return 0.5 * math.exp(-rate * (distance - self.step)) * (1 + 1e-9) + 1e-300

    @property
    def falls_geometrically(self) -> bool:
        """Yes: p(d + s)/p(d) = e^(-rate s)."""
        return True


@dataclass(frozen=True)
class GaussianNoise(AdditiveNoise):
    """Density proportional to exp(-rate d^2): rate is 1/(2 sigma^2)."""

    def energy(self, distance: Floats) -> Floats:
        """d^2: the square of the distance."""
        return distance * distance

    def log_partition(self, rate: Floats) -> Floats:
        """ln(sigma sqrt(2 pi)); on a lattice by Poisson summation where sigma >= h, else by the sum itself."""
        line = 0.5 * np.log(math.pi / np.asarray(rate))
        if self.lattice is None:
            return line
        h = self.step
        scaled = np.asarray(rate) * h * h
        dual = line + np.log1p(2 * np.exp(-(math.pi**2) / scaled) + 2 * np.exp(-4 * math.pi**2 / scaled))
        j = np.arange(1, 60)
        direct = math.log(h) + np.log1p(2 * np.exp(-np.multiply.outer(scaled, j * j)).sum(-1))
        return np.asarray(np.where(scaled < 0.5, dual, direct))

    def moments(self, rate: float) -> tuple[float, float]:
        """1/(2 rate) and 1/(2 rate^2), those of a square of a normal variable; on a lattice summed."""
        if self.lattice is None:
            return 1 / (2 * rate), 1 / (2 * rate**2)
        size = math.ceil(40 / (math.sqrt(2 * rate) * self.step)) + 2
        energy = (self.step * np.arange(-size, size + 1)) ** 2
        weight = np.exp(-rate * energy)
        mean = float(weight @ energy / weight.sum())
        return mean, float(weight @ (energy - mean) ** 2 / weight.sum())

    def variance(self, rate: float) -> float:
        """The mean of the energy."""
        return self.moments(rate)[0]

    def mass(self, low: Floats, high: Floats, rate: float) -> Floats:
        """A difference of erfc where the density falls by e^2 or more, else quadrature; on a lattice, sums.

        So nothing cancels (docs/numerics.md, section 3.2): 8-point quadrature of e^(-a s - b s^2) on [0, 1] is good
        to 1e-15 for a + b <= 2.
        """
        from scipy.special import erfc

        if self.lattice is None:
            difference = 0.5 * (erfc(low * math.sqrt(rate)) - erfc(high * math.sqrt(rate)))
            node, weight = np.polynomial.legendre.leggauss(8)
            inside = low[..., None] + (high - low)[..., None] * (node + 1) / 2
            quadrature = (high - low) / 2 * (np.exp(self.log_density(inside, np.asarray(rate))) @ weight)
            return np.where(rate * (high - low) * (high + low) <= 2, quadrature, difference)
        (first, before), (last, part) = self.place(low), self.place(high)
        size = int(last.max()) + 2
        if size > MAX_SUMMED_POINTS:
            raise ValueError(f"the lattice has {size} points within reach; there must be at most {MAX_SUMMED_POINTS}")
        j = np.arange(size, dtype=np.float64)
        points = self.step * np.exp(self.log_density(j * self.step, np.asarray(rate)))
        start, stop = first.astype(np.int64), last.astype(np.int64)
        # reduceat gives points[start] where start = stop.
        whole = np.where(start < stop, np.add.reduceat(points, np.column_stack([start, stop]).ravel())[::2], 0.0)
        return np.asarray(whole + part * points[stop] - before * points[start])

    def tail_at(self, mass: float, rate: float) -> float:
        """The normal quantile, on a lattice as well."""
        from scipy.special import ndtri

        return -float(ndtri(mass)) / math.sqrt(2 * rate)

    def beyond(self, distance: float, rate: float) -> float:
        """Pr[noise > distance], rounded up.

        On a lattice a point's mass is at most the line's over the step before it, up to the ratio of the constants.
        """
        from scipy.special import erfc

        line = 0.5 * float(erfc(max(0.0, distance - 2 * self.step) * math.sqrt(rate)))
        ratio = math.exp(0.5 * math.log(math.pi / rate) - float(self.log_partition(np.asarray(rate))))
        return line * ratio * (1 + 1e-9) + 1e-300


def interval_cells(
    noise: AdditiveNoise,
    least_rate: float,
    rate: float,
    reach: float,
    fineness: float,
    epsilon: float = 0.0,
) -> Cells:
    """Cells for victims with values 0 and 1 and any rate in [least_rate, rate]: shells of m = max(|z|, |1 - z|).

    The shells go from m = 1/2 to 1 + reach; each is two pieces, one on each side of the interval's middle. The least
    density of another user over all its values is that at distance m. fineness: relative width of a shell.
    Between two rates the density is a mixture of those at the two, up to a second-order remainder that is added.
    epsilon: up to which central epsilon the two ends have to be the worst pair (Gaussian noise; best effort).
    A valid shape is valid for victims of any rate from least_rate on.
    """
    edges = _edges(noise, reach, fineness)
    left, right = edges[:-1], edges[1:]
    width = 2 * (right - left)
    # Distances from the nearer end. On a lattice one shell holds the point 1 itself, from both sides.
    around = (left < 1 - 1e-12) & (right > 1 + 1e-12)
    left_distance, right_distance = np.abs(left - 1), np.abs(right - 1)
    near = (
        np.where(around, 0.0, np.minimum(left_distance, right_distance)),
        np.maximum(left_distance, right_distance),
        np.where(around, 2.0, 1.0),
    )
    far = (left, right, np.ones(left.size))
    rates = [rate] if least_rate >= rate else [least_rate, rate]
    pairs = []
    for at in rates:
        sides = []
        for low, high, times in (near, far):
            mass, least, largest = _range(noise, low, high, at)
            rest = _remainder(noise, least_rate, rate, low, high) if len(rates) > 1 else np.zeros(left.size)
            sides.append((times * mass, least, largest, rest))
        columns = [np.concatenate([a, b]) for a, b in zip(*sides, strict=True)]  # z = 1 - m, then z = m
        mirrored = [np.concatenate([b, a]) for a, b in zip(*sides, strict=True)]
        piece = np.concatenate([width, width]) / 2
        pairs.append(
            LossPair(
                cell=np.concatenate([np.arange(left.size)] * 2),
                width=piece,
                mass0=columns[0] + columns[3] * piece,
                low0=columns[1] + columns[3],
                high0=columns[2] + columns[3],
                mass1=np.maximum(mirrored[0] - mirrored[3] * piece, 0.0),
                low1=np.maximum(mirrored[1] - mirrored[3], 0.0),
                high1=np.maximum(mirrored[2] - mirrored[3], 0.0),
                tail0=noise.beyond(float(edges[-1]) - 1, least_rate),
                extra=0.0 if noise.falls_geometrically else noise.beyond(float(edges[-1]), least_rate),
            )
        )
    last = noise.last_point(right)
    flat, valid = (0, math.inf) if noise.falls_geometrically else _flat_shells(left, right, least_rate, epsilon)

    def log_floor(rates: Floats) -> Floats:
        return noise.log_density(last[None, :], rates[:, None])

    def pool(values: Floats) -> Floats:
        from scipy.optimize import isotonic_regression

        return np.sqrt(np.maximum(isotonic_regression(values**2, weights=width, increasing=False).x, 0.0))

    def shape(omega: Floats) -> Floats:
        omega = np.minimum.accumulate(omega)
        if noise.falls_geometrically:
            return omega
        # The worst-pair theorem: omega is constant near the middle, and omega(m) exp(rate energy(m)) does not fall.
        omega[:flat] = omega[flat]
        log = np.full(omega.shape, -np.inf)
        log[omega > 0] = np.log(omega[omega > 0])
        lift = least_rate * noise.energy(right)
        return np.exp(np.minimum.accumulate((log + lift)[::-1])[::-1] - lift)

    return Cells(width, log_floor, tuple(pairs), shape, pool, valid)


def _flat_shells(left: Floats, right: Floats, rate: float, epsilon: float) -> tuple[int, float]:
    """The first shell that may have an omega of its own, and the largest epsilon for which the ends are the worst pair.

    A constant omega on each shell falls at its edges faster than the victim's density. The pairs of places that this
    could matter for lie at m <= 1/2 + epsilon/rate, or are too far apart if the shells beyond are narrow enough.
    """
    room = (2 * left - 1 - (right**2 - left**2)) / 2
    least = np.minimum(left - 0.5, np.minimum.accumulate(room[::-1])[::-1])  # epsilon/rate, if flat up to left
    wanted = min(epsilon / rate, 0.5 / math.sqrt(2 * rate))
    flat = int(np.argmax(least >= wanted)) if (least >= wanted).any() else int(np.argmax(least))
    flat = min(max(flat, 1), least.size - 1)  # one shell is flat by itself
    return flat, max(0.0, rate * float(least[flat]))


def _edges(noise: AdditiveNoise, reach: float, fineness: float) -> Floats:
    inside = np.linspace(0.5, 1.0, max(8, math.ceil(1 / fineness)))
    # Shells are at most half as wide as the interval, which the worst-pair theorem needs for Gaussian noise.
    widest = math.inf if noise.falls_geometrically else 0.5
    last = min(1 + reach, max(1.0, widest / fineness))
    outside = np.exp(np.arange(1, math.ceil(math.log(last) / fineness) + 1) * fineness)
    if last < 1 + reach:
        outside = np.concatenate([outside, np.arange(outside[-1] + widest, 1 + reach + widest, widest)])
    edges = np.concatenate([inside, outside])
    if noise.lattice is None:
        return edges
    # Between lattice points, in units of half a step: odd numbers, with the cell of the point 1 by itself.
    h = noise.step
    halves = 2 * np.floor(edges / h).astype(np.int64) + 1
    end = 2 * int(noise.lattice)
    halves = np.unique(np.concatenate([halves, [end - 1, end + 1]]))
    return np.concatenate([[0.5], halves[halves > noise.lattice] * (h / 2)])


def _range(noise: AdditiveNoise, low: Floats, high: Floats, rate: float) -> tuple[Floats, Floats, Floats]:
    """Mass, least and largest density at distances from low to high."""
    rates = np.asarray(rate)
    least = np.exp(noise.log_density(noise.last_point(high), rates))
    largest = np.exp(noise.log_density(noise.first_point(low), rates))
    return noise.mass(low, high, rate), least, largest


def _remainder(noise: AdditiveNoise, least: float, rate: float, low: Floats, high: Floats) -> Floats:
    """A bound on |p_r - mixture of p_least and p_rate|, least <= r <= rate, at distances from low to high.

    (rate - least)^2/8 times the largest second derivative of the density in the rate, p ((T - E T)^2 - Var T), where T
    is the energy; its mean and variance and Z fall as the rate grows.
    """
    mean_most, variance = noise.moments(least)
    mean_least, _ = noise.moments(rate)
    first, last = noise.energy(noise.first_point(low)), noise.energy(noise.last_point(high))
    square = np.maximum(np.maximum((first - mean_most) ** 2, (last - mean_least) ** 2), variance)
    log_density = -least * first - noise.log_partition(np.asarray(rate))
    return np.asarray((rate - least) ** 2 / 8 * square * np.exp(log_density) * (1 + 1e-9))
