"""Local randomizers for vectors in the ball of radius C (the clipping norm) in R^d.

`hemisphere` and `gaussian` protect the vector of a client; `gaussian_mean_of_records` protects each one of the many
records whose mean a client sends.

Hemisphere: the vector is moved to the sphere without bias, and the report is a point of the half sphere around it with
probability e^v/(1 + e^v), v the local epsilon. The guarantee is exact in floating point, for any law D of the
point z: z comes with a fair sign, so D(z) = D(-z), and the side of z, the sign of an exactly rounded sum (math.fsum) of
products, changes with the sign of z without exception. A report y therefore has the probability 2 D(y) times the share
of its side (D(y) where the sum is zero), and the ratio between two vectors is at most e^v; the flip is that of `rr`,
rounded towards more privacy. In the shuffle model D is the common blanket of everybody, and z must be secret: it comes
from the operating system. Proofs: docs/bounds.md, section 2.1.

Gaussian: OpenDP's noise is exact on the lattice 2^-1074, and the rounding after it (to float32) is free, being a
post-processing. The rounding before it, by clipping and averaging, moves the sensitivity, so the mean is taken in
integers: every clipped vector is rounded to the lattice C 2^-32, and int64 sums of at most 2^30 of them are exact. A
vector's length in lattice steps is at most 2^32 (1 + 5e-11) + √d/2, with d ≤ 2^18: the length that clipping computes
is good to d/2 + 4 ulp, and each coordinate is rounded by half a step. So replacing one record moves the exact mean by
at most 2C/m (1 + 6.1e-8). The mean is then rounded twice (to float64, and times C 2^-32/m), which moves it by at most
2.3e-16 C; for both data sets together by 4.6e-16 C ≤ 2C/m × 2.5e-7, as m ≤ 2^30. Together less than the share
ROUNDING = 1e-6 that the noise is calibrated with (`GaussianVector.sigma`).

This module needs numpy, which every client that computes gradients has; no other part of the client does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croupier.client.thresholds import flip_threshold
from croupier.protocol.calibration import ROUNDING
from croupier.protocol.mechanisms.gaussian_vector import MAX_RECORDS, GaussianVector
from croupier.protocol.randomness import RandomSource

Vector = NDArray[np.float64]
_STEPS = 2.0**32
"""The number of lattice steps in the clipping norm, for averaged vectors."""


def normals(count: int, source: RandomSource) -> Vector:
    """Returns float64 (count,): independent standard normals, by Box and Muller from 53-bit uniforms of the source."""
    pairs = -(-count // 2)
    bits = np.frombuffer(source.block(16 * pairs), dtype="<u8") >> np.uint64(11)
    uniform = (bits.astype(np.float64) + 1.0) * 2.0**-53  # in (0, 1]
    radius, angle = np.sqrt(-2.0 * np.log(uniform[:pairs])), 2.0 * math.pi * uniform[pairs:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]


def zero(dimension: int) -> Vector:
    """Returns the zero vector, float64 (d,): the answer of a user without a usable gradient."""
    return np.zeros(dimension)


def clipped(vector: Vector, clipping_norm: float) -> Vector:
    """Returns the vector, scaled to length clipping_norm if it is longer. float64 (d,).

    Raises:
        ValueError: no vector, an entry that is not finite, or a clipping norm that is not a finite number > 0.
    """
    if not (clipping_norm > 0 and math.isfinite(clipping_norm)):
        raise ValueError(f"clipping_norm is {clipping_norm}; it must be a finite number > 0")
    if vector.ndim != 1 or vector.size < 1:
        raise ValueError(f"the vector has the shape {vector.shape}; it must be (d,) with d ≥ 1")
    bad = int(np.count_nonzero(~np.isfinite(vector)))
    if bad:
        raise ValueError(f"{bad} of the vector's {vector.size} entries are not finite numbers")
    largest = float(np.abs(vector).max())
    if largest == 0:
        return vector.astype(np.float64)
    scaled = vector.astype(np.float64) / largest  # no overflow in the square
    length = largest * math.sqrt(float(scaled @ scaled))
    return vector * min(1.0, clipping_norm / length)


def _onto_the_sphere(vector: Vector, clipping_norm: float, source: RandomSource) -> Vector:
    """Returns u on the unit sphere whose mean is vector/clipping_norm, up to 2^-64."""
    length = float(np.linalg.norm(vector))
    if length == 0:
        return _direction(vector.size, source)
    share = min(1.0, length / clipping_norm)
    forward = source.bits64() < (0.5 + share / 2) * 2**64
    return vector / length if forward else -vector / length


def _direction(dimension: int, source: RandomSource) -> Vector:
    while True:
        point = normals(dimension, source)
        length = float(np.linalg.norm(point))
        if length > 0:
            return point / length


def hemisphere(vector: Vector, clipping_norm: float, epsilon: float, source: RandomSource) -> NDArray[np.float32]:
    """Returns one report that is ε-locally differentially private in the vector: float32 (d,), of length 1.

    Its mean is vector/clipping_norm × tanh(ε/2) × Γ(d/2)/(√π Γ((d+1)/2)); its law apart from the side is uniform.

    Args:
        vector: float64 (d,); longer ones than clipping_norm are clipped.
        clipping_norm: the radius C of the ball, a finite number > 0.
        epsilon: the local budget, 0 < epsilon ≤ 20.
        source: draws the direction, its side and the flip.

    Raises:
        ValueError: epsilon out of range, or a vector as `clipped` refuses it.
    """
    threshold = flip_threshold(epsilon)
    towards = _onto_the_sphere(clipped(vector, clipping_norm), clipping_norm, source)
    point = _direction(vector.size, source).astype(np.float32)
    if source.bits64() & 1:
        point = -point
    side = math.fsum((point.astype(np.float64) * towards).tolist())
    away = side < 0
    flipped = source.bits64() < threshold
    return -point if away != flipped else point


def gaussian(vector: Vector, clipping_norm: float, sigma: float) -> NDArray[np.float32]:
    """Returns the clipped vector plus N(0, sigma² I), float32 (d,); a local guarantee only (docs/sgd.md).

    The noise is OpenDP's, exact on a fine lattice and from the operating system. sigma: by analytic calibration of a
    sensitivity of 2 clipping_norm, or of its rest after the caller's averaging.

    Raises:
        ValueError: sigma not a finite number > 0, or a vector as `clipped` refuses it.
    """
    if not (sigma > 0 and math.isfinite(sigma)):
        raise ValueError(f"sigma is {sigma}; it must be a finite number > 0")
    short = clipped(vector, clipping_norm)
    return np.asarray(_vector_noise(short.size, sigma)(short.tolist()), dtype=np.float32)


def _vector_noise(dimension: int, sigma: float) -> Any:
    from opendp import domains, measurements, metrics, mod  # not its prelude, which loads scikit-learn if it is there

    mod.enable_features("contrib")
    domain = domains.vector_domain(domains.atom_domain(T=float, nan=False), size=dimension)
    return measurements.make_gaussian(domain, metrics.l2_distance(T=float), scale=sigma)


def load_noise() -> None:
    """Loads the library of the Gaussian noise before the first answer is due."""
    gaussian(np.zeros(1), 1.0, 1.0)


def mean_of_records(records: Iterable[Any], dimension: int, clipping_norm: float, at_least: int) -> Vector:
    """Returns the mean of the records' vectors, each clipped first. float64 (d,), of length ≤ C (1 + ROUNDING).

    Replacing one of m records moves it by at most 2C/m (1 + ROUNDING): see above.

    Args:
        records: a float vector (d,) for each record; they are looked at once, one by one.
        dimension: d.
        clipping_norm: C, 1e-20 .. 1e20.
        at_least: the number of records that the noise is made for.

    Raises:
        ValueError: fewer records than that or more than 2^30, or, naming the record, a vector of another dimension or
            with an entry that is not finite.
    """
    total, count = np.zeros(dimension, dtype=np.int64), 0
    for count, record in enumerate(records, start=1):
        vector = np.asarray(record, dtype=np.float64)
        if vector.shape != (dimension,):
            raise ValueError(
                f"record {count} has a vector of the shape {vector.shape}; this round takes ({dimension},)"
            )
        if count > MAX_RECORDS:
            raise ValueError(f"the client has more than {MAX_RECORDS} records; it must have at most that many")
        try:
            short = clipped(vector, clipping_norm)
        except ValueError as error:
            raise ValueError(f"record {count}: {error}") from None
        total += np.rint(short * (_STEPS / clipping_norm)).astype(np.int64)
    if count < at_least:
        raise ValueError(f"this client has {count} records; this round takes clients with at least {at_least}")
    return total.astype(np.float64) * (clipping_norm / _STEPS / count)


def gaussian_mean_of_records(mechanism: GaussianVector, records: Iterable[Any], epsilon: float) -> NDArray[np.float32]:
    """Returns the report of a client with many records: the mean of their clipped vectors plus Gaussian noise.

    (epsilon, local_delta)-differentially private for one record (replace-one), the number of records being public; a
    person with several of the records has no stronger guarantee. float32 (d,).

    Args:
        mechanism: the round's.
        records: as in `mean_of_records`, at least the mechanism's records_per_client.
        epsilon: the local budget, 0 < epsilon ≤ 20.

    Raises:
        ValueError: as `mean_of_records` and `GaussianVector.sigma` say.
    """
    sigma, task = mechanism.sigma(epsilon), mechanism.vector
    mean = mean_of_records(records, task.dimension, task.clipping_norm, mechanism.records_per_client)
    # Its length is at most C (1 + ROUNDING), so that nothing is clipped a second time.
    return gaussian(mean, task.clipping_norm * (1 + ROUNDING), sigma)
