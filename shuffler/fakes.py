"""The fake reports of a hop: how many of each value, drawn once for a batch (protocol.hop_noise)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from croupier.protocol.hop_noise import FakeLaw

__all__ = ["draw_fakes"]


def draw_fakes(law: FakeLaw) -> list[int]:
    """Returns how many fake reports of each value a hop adds, shape (num_values,), from OpenDP's exact sampler.

    Noise beyond the radius is drawn again. Its randomness is the operating system's.
    """
    noise = _truncated(law, 1 if law.is_paired else law.num_values)
    if law.is_paired:
        (shift,) = noise
        return [law.radius - shift, law.radius + shift]
    return [law.radius + shift for shift in noise]


def _truncated(law: FakeLaw, size: int) -> list[int]:
    draw = _discrete_laplace(law.scale)
    kept: list[int] = []
    while len(kept) < size:
        kept += [shift for shift in draw([0] * (size - len(kept))) if abs(shift) <= law.radius]
    return kept


@lru_cache(maxsize=64)
def _discrete_laplace(scale: float) -> Any:
    from opendp import domains, measurements, metrics, mod  # not its prelude, which loads scikit-learn if it is there

    mod.enable_features("contrib")
    vectors = domains.vector_domain(domains.atom_domain(T="i64"))
    return measurements.make_laplace(vectors, metrics.l1_distance(T="i64"), scale=scale)
