"""Noise of counts that services draw: truncated discrete Laplace, from OpenDP's exact sampler.

Their randomness is the operating system's. The law is described in `protocol.fake_law`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from croupier.protocol.fake_law import FakeLaw


def draw_fakes(law: FakeLaw) -> list[int]:
    """Returns how many fake reports of each value a hop adds to a batch, shape (num_values,)."""
    noise = truncated_laplace(law.scale, law.radius, 1 if law.is_paired else law.num_values)
    return [law.radius + shift for shift in ([-noise[0], noise[0]] if law.is_paired else noise)]


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
