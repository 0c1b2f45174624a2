"""Means of vectors in the ball of radius C from randomized reports: unbiased, with their standard error.

A hemisphere report has the mean x/C tanh(v/2) / length(d), a Gaussian one the mean x (client.vectors). Only the sum of
the reports and the counts of the budgets are needed, so a round of any size is estimated in one pass. No report
weighs without bound: hemisphere ones have length 1, and Gaussian ones longer than any honest client's are refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from croupier.protocol.calibration import ROUNDING
from croupier.protocol.codes import Note
from croupier.protocol.statements import Statement, messages_of
from croupier.protocol.v1 import messages_pb2 as pb

Vector = NDArray[np.float64]
_LENGTH_TOLERANCE = 1e-3
_TAIL = 40 * math.log(2)
"""t with e^-t = 2^-40: the chance that an honest Gaussian report is refused as too long."""


@dataclass(frozen=True)
class VectorEstimate:
    """An estimated mean of vectors.

    Attributes:
        mean: float64 (d,).
        standard_error: of each of its coordinates, from the randomizers alone; at most this.
        notes: for the reader, beside the numbers.
    """

    mean: Vector
    standard_error: float
    notes: tuple[Statement[Note], ...] = ()

    def publish(self, publication: pb.Publication) -> None:
        """Writes the estimate into a publication."""
        publication.notes.extend(messages_of(self.notes))
        publication.vector = self.mean.astype("<f4").tobytes()
        publication.vector_standard_error = self.standard_error


def hemisphere_length(dimension: int) -> float:
    """1 / E|<z, u>| for z uniform on the unit sphere of R^d: √π Γ((d+1)/2) / Γ(d/2), d >= 1."""
    if dimension < 1:
        raise ValueError(f"dimension is {dimension}; it must be at least 1")
    return math.sqrt(math.pi) * math.exp(math.lgamma((dimension + 1) / 2) - math.lgamma(dimension / 2))


def decode_unit_vector(dimension: int, plaintext: bytes) -> NDArray[np.float32]:
    """Returns the report that a hemisphere client sent, float32 (d,).

    A longer vector would let one client outweigh all others. Raises ValueError for anything but a unit vector.
    """
    report = _floats(dimension, plaintext)
    length = _length(report)
    if not abs(length - 1) < _LENGTH_TOLERANCE:
        raise ValueError(f"the report has length {length}; it must be 1")
    return report


def longest_gaussian_report(dimension: int, clipping_norm: float, sigma: float) -> float:
    """Returns a length that a vector of length clipping_norm plus N(0, sigma^2 I) in R^d exceeds with at most 2^-40.

    C + σ √(d + 2√(dt) + 2t) with t = 40 ln 2: the noise has length σ√X, X chi-square with d degrees of freedom, and
    Pr[X ≥ d + 2√(dt) + 2t] ≤ e^-t (Laurent and Massart 2000, Lemma 1). Raised by ROUNDING twice, for the length of a
    clipped mean and for float32 (docs/bounds.md, section 4).
    """
    noise = sigma * math.sqrt(dimension + 2 * math.sqrt(dimension * _TAIL) + 2 * _TAIL)
    return (clipping_norm * (1 + ROUNDING) + noise) * (1 + ROUNDING)


def decode_gaussian_vector(dimension: int, longest: float, plaintext: bytes) -> NDArray[np.float32]:
    """Returns the report that a gaussian_vector client sent, float32 (d,).

    Raises ValueError for another number of bytes, entries that are not finite, and a vector longer than `longest`.
    """
    report = _floats(dimension, plaintext)
    length = _length(report)
    if not length <= longest:  # nor a number
        raise ValueError(f"the report has length {length}; it must be at most {longest}")
    return report


def _floats(dimension: int, plaintext: bytes) -> NDArray[np.float32]:
    if len(plaintext) != 4 * dimension:
        raise ValueError(f"a report has {len(plaintext)} bytes; {4 * dimension} are required")
    return np.frombuffer(plaintext, dtype="<f4")


def _length(report: NDArray[np.float32]) -> float:
    with np.errstate(invalid="ignore"):  # numpy warns of signalling NaNs, which any client may send
        return float(np.linalg.norm(report.astype(np.float64)))


def _count(tiers: Sequence[tuple[float, float]]) -> float:
    count = sum(number for _, number in tiers)
    if not count > 0:
        raise ValueError("0 reports; a mean needs at least 1")
    return count


def hemisphere_mean(total: Vector, tiers: Sequence[tuple[float, float]], clipping_norm: float) -> VectorEstimate:
    """Returns the mean of the users' vectors, each weighted by tanh(v/2), from the sum of their unit vectors.

    With equal budgets, or budgets that do not depend on the vectors, that is the mean. tiers: (local epsilon, users).

    Raises:
        ValueError: no users.
    """
    count = _count(tiers)
    weight = sum(number * math.tanh(epsilon / 2) for epsilon, number in tiers)
    scale = clipping_norm * hemisphere_length(total.size) / weight
    return VectorEstimate(total * scale, scale * math.sqrt(count / total.size))


def gaussian_mean(total: Vector, scales: Sequence[tuple[float, float]]) -> VectorEstimate:
    """Returns the mean of the users' vectors from the sum of their reports. scales: (sigma, users).

    Raises:
        ValueError: no users.
    """
    count = _count(scales)
    variance = sum(number * sigma**2 for sigma, number in scales)
    return VectorEstimate(total / count, math.sqrt(variance) / count)
