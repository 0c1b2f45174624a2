"""The probability that a noisy report falls between two cuts, for Laplace and Gaussian noise of many scales at once.

Cuts are numbers that no report takes: any number on the line, half-way points on a lattice. Every probability comes
with its complement, both from forms without cancellation where they are small. `additive_noise` chooses the cuts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from croupier.accountant.numerics.binomial import Floats

MAX_LATTICE_TERMS = 20_000_000
"""Sums of the discrete Gaussian over more terms than this, scales times lattice points, are refused."""


class IntervalProbabilities(Protocol):
    """Additive noise on values in [0, 1]."""

    @property
    def probability_error(self) -> float:
        """A bound on the relative error of the smaller of the two probabilities of `between`."""
        ...

    @property
    def variation(self) -> float | None:
        """A bound on the 1-norm of d/dx of the density at scale e^x, |Im x| <= 1/2; None if none is known."""
        ...

    def between(self, scale: Floats, at: float, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Returns Pr[low < at + noise < high] and its complement; arrays broadcast; cuts low < high may be infinite."""
        ...

    def cut(self, place: float) -> float:
        """Returns a cut near a place."""
        ...

    def value(self, place: float) -> float:
        """Returns a value that a user may hold, near a place in [0, 1]."""
        ...


@dataclass(frozen=True)
class _Lattice:
    """The line, or the multiples of 1/lattice."""

    lattice: int | None = None

    def cut(self, place: float) -> float:
        """Returns a point half-way between lattice points."""
        if self.lattice is None or math.isinf(place):
            return place
        return (math.floor(place * self.lattice) + 0.5) / self.lattice

    def value(self, place: float) -> float:
        """Returns the nearest lattice point."""
        return place if self.lattice is None else round(place * self.lattice) / self.lattice


@dataclass(frozen=True)
class LaplaceIntervals(_Lattice):
    """Density proportional to e^(-|z|/scale), on the line or on the multiples of 1/lattice."""

    @property
    def probability_error(self) -> float:
        """A few ulp, including the errors of exponents up to 100."""
        return 5e-14

    @property
    def variation(self) -> float | None:
        """1/cos(1/2) + 1/cos(1/2)^2, rounded up, on the line."""
        return 2.44 if self.lattice is None else None

    def between(self, scale: Floats, at: float, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """See `IntervalProbabilities.between`. Beyond a cut at distance x: e^(-x/scale)/(2 cosh(step/(2 scale)))."""
        half = 0.0 if self.lattice is None else 0.5 / self.lattice
        cosh = np.cosh(np.minimum(half / scale, 300.0))
        excess = 2 * np.sinh(np.minimum(half / scale, 300.0) / 2) ** 2  # cosh - 1
        left, right = (at - low) / scale, (high - at) / scale
        near = np.maximum(np.minimum(np.abs(left), np.abs(right)), 0.0)
        width = (high - low) / scale
        within = (left > 0) & (right > 0)
        outside = (np.exp(-np.maximum(left, 0.0)) + np.exp(-np.maximum(right, 0.0))) / (2 * cosh)
        inside = (2 * excess - np.expm1(-np.maximum(left, 0.0)) - np.expm1(-np.maximum(right, 0.0))) / (2 * cosh)
        beside = np.exp(-near) * -np.expm1(-width) / (2 * cosh)
        return np.where(within, inside, beside), np.where(within, outside, 1 - beside)


@dataclass(frozen=True)
class GaussianIntervals(_Lattice):
    """Density proportional to e^(-z^2/(2 scale^2)), on the line or on the multiples of 1/lattice."""

    @property
    def probability_error(self) -> float:
        """The sum of 1e-12 for calibration, a few ulp for erfc, and at most three cancelled digits."""
        return 1e-10

    @property
    def variation(self) -> float | None:
        """1/cos(1)^(1/2) + 1/cos(1)^(3/2), rounded up, on the line."""
        return 3.88 if self.lattice is None else None

    def between(self, scale: Floats, at: float, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """See `IntervalProbabilities.between`: error functions, or a sum over the lattice points."""
        if self.lattice is not None:
            return self._on_lattice(scale, at, low, high, self.lattice)
        from scipy.special import erf, erfc

        root = math.sqrt(2) * scale
        left, right = (at - low) / root, (high - at) / root
        within = (left > 0) & (right > 0)
        outside = (erfc(np.maximum(left, 0)) + erfc(np.maximum(right, 0))) / 2
        inside = (erf(np.maximum(left, 0)) + erf(np.maximum(right, 0))) / 2
        near = np.maximum(np.minimum(np.abs(left), np.abs(right)), 0.0)
        beside = np.maximum(erfc(near) - erfc(np.maximum(np.abs(left), np.abs(right))), 0.0) / 2
        return np.where(within, inside, beside), np.where(within, outside, 1 - beside)

    def _on_lattice(self, scale: Floats, at: float, low: Floats, high: Floats, lattice: int) -> tuple[Floats, Floats]:
        shape = np.broadcast_shapes(scale.shape, low.shape, high.shape)
        distinct, place = np.unique(scale, return_inverse=True)
        size = math.ceil(12 * float(distinct.max(initial=0.0)) * lattice) + lattice + 2
        if distinct.size * size > MAX_LATTICE_TERMS:
            raise ValueError(
                f"{distinct.size} noise scales on a lattice of {lattice} steps need {distinct.size * size} terms; "
                f"they must be at most {MAX_LATTICE_TERMS}"
            )
        steps = np.arange(size + 1) / lattice
        mass = np.exp(-((steps / distinct[:, None]) ** 2) / 2)
        whole = 2 * mass.sum(1) - mass[:, 0]
        beyond = np.cumsum(mass[:, ::-1], axis=1)[:, ::-1] / whole[:, None]  # Pr[noise >= j/lattice]
        middle = mass[:, :1] / whole[:, None]
        # Pr[noise > x] for a cut x >= 0, and the mass between 0 (included, halved) and x.
        row = np.broadcast_to(place.reshape(scale.shape), shape)

        def tail(x: Floats) -> Floats:
            index = np.clip(np.ceil(np.broadcast_to(np.minimum(x, 1e15), shape) * lattice - 1e-6), 0, size)
            return np.asarray(beyond[row, index.astype(np.int64)] * np.broadcast_to(np.isfinite(x), shape))

        left, right = at - low, high - at
        within = (left > 0) & (right > 0)
        outside: Floats = tail(np.abs(left)) + tail(np.abs(right))
        near, far = np.minimum(np.abs(left), np.abs(right)), np.maximum(np.abs(left), np.abs(right))
        beside = np.maximum(tail(near) - tail(far), 0.0)
        inside = np.maximum(1 - outside, np.broadcast_to(middle[row, 0], shape))
        return np.where(within, inside, beside), np.where(within, outside, 1 - beside)
