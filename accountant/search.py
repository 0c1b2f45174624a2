"""Where `kernel` evaluates its integral, and which epsilon it will prove: floats, which may be wrong without harm."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from croupier.accountant.exchange_bits import Grid
from croupier.accountant.kernel import MOST_POINTS, Line
from croupier.accountant.numerics.binomial import Floats
from croupier.accountant.numerics.roots import root_between

SMOOTHING, MOST_SMOOTHING = 0.01, 0.3
"""Deviation of the Gaussian that is added to a loss, as a part of the loss's own: at most the first, or the second
where there would be too many points."""
RAISED = 0.09
"""The Gaussian of all reports together has at most this deviation, in units of 1/theta: delta grows by about half of
its square."""
MANY_POINTS, FEW_POINTS, FEW = 5000, 1000, 100.0
"""With more points the Gaussian is made wider. The second is for few reports or many losses, where every point takes
time."""
RAISED_OF_FAKES, FEW_POINTS_OF_FAKES = (0.02, 0.05), 2400
"""For hop noise the Gaussian has the first deviation in units of 1/theta where that takes at most this many points."""
ROUNDING = 16.0
"""The error of an integral is about this many powers of e below its value."""
MANY_LOSSES, CHUNK = 64, 20
"""A law with more losses is nearly continuous: terms are added in chunks until they are negligible."""
PLACES = np.exp(np.linspace(-4.0, 10.0, 113)), np.exp(np.linspace(-0.15, 0.15, 17))
STRIPS = np.linspace(0.2, 0.95, 16)
REACH, STEPS = 5.5, 46
"""How many deviations of its integrand the exchange bound takes point by point, and at how many points."""
LARGEST_ANGLE = 2.8
"""A factor's angle at the last point is below pi, where nothing is known of its second derivative."""
LITTLE, MOST_PEAKS = 0.003, 4
"""The Gaussian of the exchange bound costs less than this part of delta, unless it would end after this many peaks."""
LEAST_STAGES, MORE_STAGES, MOST_STAGES, GROWTHS = 5, 15.0, 14, (1e-9, 1.0)
"""Stages of the clocks: more where the bound grows faster with time, at rates between the last two."""


class Heights(ABC):
    """The largest values of an integrand on lines, by which one line is chosen."""

    @abstractmethod
    def height(self, theta: Floats, sigma: float) -> Floats:
        """Returns the logarithm of about the largest value on the lines Re z = theta."""

    def lowest(self, theta: np.float64) -> np.float64:
        """Returns about where the integrand is lowest, near a place."""
        for places in PLACES:
            tried = theta * places
            theta = np.float64(tried[int(np.argmin(np.nan_to_num(self.height(tried, 0.0), nan=np.inf)))])
        return theta

    def spaced(self, theta: np.float64, sigma: float, longer: float, end: float, value: float) -> Line:
        """Returns the line at theta, with the widest step whose error is ROUNDING below the value.

        longer: the logarithm of how much longer the Gaussian makes the line. value: a logarithm.
        """
        strips = theta * STRIPS
        sides = np.logaddexp(self.height(theta - strips, sigma), self.height(theta + strips, sigma))
        steps = 2 * math.pi * strips / np.maximum(sides - value + longer + ROUNDING, ROUNDING)
        best = int(np.argmax(np.nan_to_num(steps)))
        return Line(*map(float, (theta, sigma, steps[best], strips[best], end)))


@dataclass(frozen=True, eq=False)
class Floated(Heights):
    """The laws of the kernel in floats.

    chance, loss: of a loss, (L,). gamma, count: weights of the others and their numbers, (T,).
    """

    chance: Floats
    loss: Floats
    gamma: Floats
    count: Floats

    def line(self) -> Line:
        """Returns where the kernel should evaluate its integral."""
        chance, loss = self.chance, self.loss
        with np.errstate(all="ignore"):  # numbers beyond the range of floats make a line that the kernel refuses
            theta = self.lowest(np.float64(3 / np.sqrt(chance @ (loss * loss) * self._reports)))
            tilted = chance * np.exp(theta * (loss - loss.max()))  # losses that hardly count there may be far larger
            deviation = np.float64(np.sqrt(tilted @ (loss * loss) / tilted.sum()))
            most = RAISED / (theta * math.sqrt(self._reports))
            line = self._along(theta, min(SMOOTHING * deviation, most), deviation)
            quick = loss.size <= MANY_LOSSES and self._reports > FEW
            if line.end > (MANY_POINTS if quick else FEW_POINTS) * line.step:
                line = self._along(theta, min(MOST_SMOOTHING * deviation, most), deviation)
        return line

    @property
    def _reports(self) -> float:
        return float(self.gamma @ self.count) + 1

    def _along(self, theta: np.float64, sigma: np.float64, deviation: np.float64) -> Line:
        """Returns the line at theta. deviation: of a loss, tilted by theta."""
        wider = np.log(deviation / sigma)  # how many powers of e longer the Gaussian makes the line
        value = self.height(np.array([theta]), sigma)[0] - math.log(self._reports)
        reach = 2 * (wider + ROUNDING + 4)
        fallen = 1 - reach / self._reports
        end = np.sqrt(reach) / sigma  # where every report's Gaussian has fallen so far
        if fallen > 0:  # where all of them together have
            end = min(end, np.sqrt(-2 * math.log(fallen)) / sigma)
        return self.spaced(theta, sigma, wider, end, value)

    def height(self, theta: Floats, sigma: float) -> Floats:
        """See `Heights`."""
        gaussian = theta * theta * (sigma * sigma / 2)
        grown = np.expm1(np.multiply.outer(theta, self.loss) + gaussian[:, None]) @ self.chance
        total: Floats = np.log1p(grown) + np.log1p(np.multiply.outer(grown, self.gamma)) @ self.count - np.log(theta)
        return total

    def bound(self, line: Line) -> float:
        """Returns about the kernel's bound."""
        if not line.end <= MOST_POINTS * line.step:
            with np.errstate(all="ignore"):
                return float(np.exp(self.height(np.array([line.theta]), line.sigma)[0] - 1))
        points = math.ceil(line.end / line.step) + 1
        chunk = points if self.loss.size <= MANY_LOSSES else CHUNK
        total, first = 0.0, 0.0
        with np.errstate(all="ignore"):
            for start in range(0, points, chunk):
                z = line.theta + 1j * line.step * np.arange(start, min(start + chunk, points))
                powers = np.exp(np.multiply.outer(z, self.loss) + (z * z * (line.sigma**2 / 2))[:, None])
                phi, slope = powers @ self.chance, powers @ (self.chance * self.loss)
                product = np.exp(np.log1p(np.multiply.outer(phi - 1, self.gamma)) @ self.count)
                terms = ((slope / z + line.sigma**2 * phi) * product).real
                first = first or float(terms[0])
                total += float(terms.sum())
                if float(np.abs(terms).max()) < 1e-9 * first:
                    break
        return line.step * (2 * total - first) / (2 * math.pi)


@dataclass(frozen=True, eq=False)
class FloatedFakes(Heights):
    """The sum of d_r rho_r of `hop_kernel` in floats, as independent classes of report values.

    chance, loss: of d rho, (G, 3) of every class. count: of its values, (G,).
    """

    chance: Floats
    loss: Floats
    count: Floats

    def line(self) -> Line:
        """Returns where the kernel should evaluate its integral."""
        with np.errstate(all="ignore"):
            mean = (self.chance * self.loss).sum(axis=1, keepdims=True)
            variance = (self.chance * (self.loss - mean) ** 2).sum(axis=1) @ self.count
            theta = self.lowest(np.float64(1 / np.sqrt(variance)))
            tilted = self.chance * np.exp(theta * (self.loss - self.loss.max(axis=1, keepdims=True)))
            tilted /= tilted.sum(axis=1, keepdims=True)
            mean = (tilted * self.loss).sum(axis=1, keepdims=True)
            deviation = np.sqrt((tilted * (self.loss - mean) ** 2).sum(axis=1) @ self.count)
            value = self.height(np.array([theta]), 0.0)[0] - math.log1p(theta * deviation)
            for part in RAISED_OF_FAKES:
                sigma = min(part / theta, MOST_SMOOTHING * deviation)
                longer = max(0.0, float(np.log(deviation / sigma)))
                line = self.spaced(theta, sigma, longer, math.sqrt(2 * (longer + ROUNDING + 4)) / sigma, value)
                if line.end <= FEW_POINTS_OF_FAKES * line.step:
                    break
        return line

    def height(self, theta: Floats, sigma: float) -> Floats:
        """See `Heights`."""
        powers = np.exp(np.multiply.outer(theta, self.loss))
        logs = np.log((powers * self.chance).sum(axis=2)) @ self.count
        total: Floats = logs + theta * theta * (sigma * sigma / 2) - 2 * np.log(theta)
        return total

    def bound(self, line: Line) -> float:
        """Returns about the kernel's bound, without what a recognised report shows."""
        with np.errstate(all="ignore"):
            if not line.end <= MOST_POINTS * line.step:
                return float(np.exp(self.height(np.array([line.theta]), line.sigma)[0] - 1) * line.theta)
            z = line.theta + 1j * line.step * np.arange(math.ceil(line.end / line.step) + 1)
            logs = np.log((np.exp(np.multiply.outer(z, self.loss)) * self.chance).sum(axis=2)) @ self.count
            terms = (np.exp(logs + z * z * (line.sigma**2 / 2)) / (z * z)).real
        return float(line.step * (2 * terms.sum() - terms[0]) / (2 * math.pi))


@dataclass(frozen=True, eq=False)
class FloatedHosts:
    """The hosts of the exchange bound in floats, all of a group alike.

    count, flip, weight: people of a group, the probability that one's bit is flipped and the weight of each, (T,).
    v: the victim's budget. horizon: the time at which the clocks stop.
    """

    count: Floats
    flip: Floats
    weight: Floats
    v: float
    horizon: float

    @property
    def variance(self) -> float:
        """The variance of the sum of all bits, or a little less."""
        return float(self.count @ self.weight)

    def grid(self, epsilon: float) -> Grid:
        """Returns where the kernel should evaluate its integral."""
        drift = math.expm1(epsilon)
        shown = -math.expm1(epsilon - self.v) / (1 + math.exp(-self.v))
        middle = min(1.0, self.horizon / 2)
        with np.errstate(all="ignore"):  # see `Floated.line`
            deviation = (shown + drift / 2) / math.sqrt(self.variance)
            theta = np.array([(drift + math.hypot(drift, deviation * math.sqrt(8))) / (2 * deviation * deviation)])
            for places in PLACES:
                tried = theta * places
                height = self._at(middle, tried, shown, drift)[0] - 2 * np.log(tried)
                theta = tried[[int(np.argmin(np.nan_to_num(height, nan=np.inf)))]]
            low, (bend,), _ = self._at(middle, theta, shown, drift)
            high, _, (widest,) = self._at(self.horizon, theta, shown, drift)
            growth = float(np.clip(np.nan_to_num((high[0] - low[0]) / (self.horizon - middle)), *GROWTHS))
            end = min(REACH / np.sqrt(bend + 2), LARGEST_ANGLE / widest)
            for peaks in range(1, MOST_PEAKS + 1):  # at multiples of the period 2 pi/widest all factors may be large
                far = 2 * math.pi * peaks / widest - end
                smoothing = np.log(1 + far / end) / far**2
                if smoothing < LITTLE:
                    break
            sigma = np.sqrt(2 * smoothing) / theta[0]
        number = min(MOST_STAGES, math.ceil(LEAST_STAGES + MORE_STAGES * math.sqrt(growth)))
        ends = stage_ends(self.horizon, growth, number)
        return Grid(float(theta[0]), float(sigma), float(end / STEPS), STEPS, float(far), ends)

    def _at(self, time: float, theta: Floats, shown: float, drift: float) -> tuple[Floats, Floats, Floats]:
        """Returns about the logarithm of the product at theta, its second derivative in r, and the largest shift d.

        See `exchange_bits._excess`.
        """
        alpha = self.weight / self.variance
        rung = -np.expm1(-alpha * time)
        q = (self.flip - rung / 2) / (1 - rung)
        bits = np.stack([1 - q, q])
        d = np.multiply.outer(theta, alpha * (shown + drift * bits) / (q * (1 - q)))
        grown = bits * np.expm1(d)
        product = (self.count * (np.log1p(grown) - bits * d)).max(1).sum(1) - theta * drift
        bend = (self.count * q * (1 - q) * np.exp(d) * (d / (1 + grown)) ** 2).max(1).sum(1)
        return product, bend, d.max((1, 2))


def stage_ends(horizon: float, growth: float, number: int) -> tuple[float, ...]:
    """Returns the ends of the stages of a clock of rate 1, each of which is charged at its end.

    If the charge grows as e^(growth t), the mean is least where each width is ln(1 + growth (e^w - 1))/growth for the
    width w before it.
    """

    def ends(first: float) -> list[float]:
        widths = [first]
        while len(widths) < number:
            widths.append(math.log1p(growth * math.expm1(min(widths[-1], 100.0))) / growth)
        return list(itertools.accumulate(widths))

    first = root_between(lambda width: ends(width)[-1] - horizon, 0.0, horizon)
    return (*(end for end in ends(first)[:-1] if end < horizon), horizon)
