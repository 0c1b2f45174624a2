"""The law of a privacy loss on a grid: made from points of a privacy profile, composed, and asked for delta.

Pessimistic all the way: what is cut off counts as an infinite loss. dp-accounting has such a class, with which the
tests compare every number here; its import takes a second, most of it for the documentation of functions that are not
called. What rounding does in the Fourier transforms is left to `composition`, which adds it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accountant.numerics.binomial import Floats, Ints

__all__ = ["LossLaw"]

ORDERS = np.concatenate([np.arange(-20.0, 0.0), np.arange(1.0, 21.0)])
"""Orders of the moments that tails are bounded by, in units of 1/(points of the grid)."""


@dataclass(frozen=True, eq=False)
class LossLaw:
    """A loss is (first + j) step with probability mass[j], and infinite with probability `infinite`.

    mass: float64 (L,); after a convolution some may be below 0, by rounding. step > 0.
    """

    step: float
    first: int
    mass: Floats
    infinite: float

    @classmethod
    def through(cls, step: float, multiples: Ints, values: Floats) -> LossLaw:
        """The law whose profile connects the dots (multiples step, values), and is 1 at e^epsilon = 0, by chords.

        Chords in e^epsilon (Doroshenko et al. 2022). multiples: increasing; values: not increasing, a convex function
        of e^epsilon. Shapes (n,), n >= 1. The last value becomes mass at infinity.
        """
        width, fall = np.diff(multiples) * step, np.diff(np.minimum.accumulate(values))
        above = np.append(1 - values[0], fall / np.expm1(-width))  # from the chord that ends here
        below = np.append(fall / np.expm1(width), 0.0)  # from the one that begins here
        mass = np.zeros(int(multiples[-1] - multiples[0]) + 1)
        mass[multiples - multiples[0]] = np.maximum(0, above + below)
        return cls(step, int(multiples[0]), mass, float(values.min()))

    def delta(self, epsilon: float) -> float:
        """E[1 - e^(epsilon - loss)]_+: the divergence at e^epsilon."""
        losses = (np.arange(self.mass.size) + self.first) * self.step
        start = int(np.searchsorted(losses, epsilon, side="right"))
        return self.infinite + float(-np.expm1(epsilon - losses[start:]) @ self.mass[start:])

    def plus(self, other: LossLaw) -> LossLaw:
        """The law of the sum of two independent losses on grids of the same step; nothing is cut."""
        from scipy.fft import irfft, next_fast_len, rfft

        size = self.mass.size + other.mass.size - 1
        length = next_fast_len(size, real=True)
        mass = irfft(rfft(self.mass, length) * rfft(other.mass, length), length)[:size]
        infinite = self.infinite + other.infinite - self.infinite * other.infinite
        return LossLaw(self.step, self.first + other.first, mass, infinite)

    def times(self, count: int, cut: float) -> LossLaw:
        """The law of the sum of `count` >= 1 independent losses of this law, whose masses must be >= 0.

        Tails of mass at most `cut` > 0 are outside the window that is kept: `cut` is added to the mass at infinity.
        What wraps around from outside the window only adds.
        """
        from scipy.fft import fft, ifft, next_fast_len

        low, high = self._window(count, cut)
        size = high - low + 1
        length = next_fast_len(max(size, self.mass.size))
        mass = np.roll(np.real(ifft(fft(self.mass, length) ** count)), -low)[:size]
        infinite = cut - math.expm1(count * math.log1p(-self.infinite)) if self.infinite < 1 else 1.0
        return LossLaw(self.step, count * self.first + low, mass, infinite)

    def _window(self, count: int, cut: float) -> tuple[int, int]:
        """From where to where the sum of `count` places is but with probability `cut`, by Chernoff's bound."""
        places = np.arange(self.mass.size)
        low, high = 0, (self.mass.size - 1) * count
        for order in (ORDERS / self.mass.size).tolist():
            moment = float(np.exp(places * order) @ self.mass)
            if moment > 0:
                bound = (count * math.log(moment) - math.log(cut / 2)) / order
                low, high = (low, min(high, math.ceil(bound))) if order > 0 else (max(low, math.floor(bound)), high)
        return low, high
