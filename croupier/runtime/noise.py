"""Noise of counts that services draw: truncated discrete Laplace, from OpenDP's exact sampler.

Its randomness is the operating system's. The law is described in `protocol.hop_noise`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any


def truncated_laplace(scale: float, radius: int, size: int) -> list[int]:
    """Returns `size` independent draws Z, Pr[Z = z] proportional to exp(-|z| / scale), conditioned on |Z| <= radius.

    Noise beyond the radius is drawn again.
    """
    draw = _discrete_laplace(scale)
    kept: list[int] = []
    while len(kept) < size:
        kept += [shift for shift in draw([0] * (size - len(kept))) if abs(shift) <= radius]
    return kept


@lru_cache(maxsize=64)
def _discrete_laplace(scale: float) -> Any:
    from opendp import domains, measurements, metrics, mod  # not its prelude, which loads scikit-learn if it is there

    mod.enable_features("contrib")
    vectors = domains.vector_domain(domains.atom_domain(T="i64"))
    return measurements.make_laplace(vectors, metrics.l1_distance(T="i64"), scale=scale)
