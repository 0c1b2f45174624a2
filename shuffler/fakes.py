"""The fake reports of a hop: how many of each value, drawn once for a batch (protocol.hop_noise)."""

from __future__ import annotations

from croupier.protocol.hop_noise import FakeLaw
from croupier.runtime.noise import truncated_laplace


def draw_fakes(law: FakeLaw) -> list[int]:
    """Returns how many fake reports of each value a hop adds, shape (num_values,), from OpenDP's exact sampler.

    Noise beyond the radius is drawn again. Its randomness is the operating system's.
    """
    noise = truncated_laplace(law.scale, law.radius, 1 if law.is_paired else law.num_values)
    if law.is_paired:
        (shift,) = noise
        return [law.radius - shift, law.radius + shift]
    return [law.radius + shift for shift in noise]
