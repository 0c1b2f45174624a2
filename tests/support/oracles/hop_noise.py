"""The batch of an honest hop from the definition of hop noise: the law of its counts, whatever others send.

It shares no code with the bound that it is compared with (docs/hop-noise.md, section 2).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np


def truncated_laplace(scale: float, radius: int) -> dict[int, float]:
    """Returns the law of Z: proportional to exp(-|z| / scale) for |z| <= radius."""
    weights = {z: math.exp(-abs(z) / scale) for z in range(-radius, radius + 1)}
    total = math.fsum(weights.values())
    return {z: weight / total for z, weight in weights.items()}


def fakes_array(k: int, scale: float, radius: int) -> np.ndarray:
    """The law of one hop's numbers of fakes of each value, from the definition; shape (2 radius + 1,) * k."""
    noise = np.array(list(truncated_laplace(scale, radius).values()))
    if k == 2:
        return np.fliplr(np.diag(noise[::-1]))  # radius - z of the first value beside radius + z of the second
    return np.asarray(functools.reduce(np.multiply.outer, [noise] * k))


def batch_laws(fakes: np.ndarray, kept: Sequence[int], local_epsilon: float) -> list[np.ndarray]:
    """The laws of the counts of a batch, by the victim's value: its report, the fakes, and what others' messages hold.

    Args:
        fakes: see `fakes_array`.
        kept: the reports of all other messages that somebody in front of the honest hop has let through or put in.
        local_epsilon: of the victim's randomized response; infinite where its report is the value.
    """
    k, width = fakes.ndim, fakes.shape[0]
    shifted = []
    for report in range(k):
        counts = np.zeros((width + len(kept) + 1,) * k)
        first = [[*kept, report].count(value) for value in range(k)]
        counts[tuple(slice(start, start + width) for start in first)] = fakes
        shifted.append(counts)
    odds = math.exp(local_epsilon) if local_epsilon < math.inf else 0.0
    other = 1 / (odds + k - 1) if odds else 0.0
    everything = np.sum(shifted, axis=0)
    return [other * everything + (1 - k * other) * counts for counts in shifted]


def hockey_stick(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    """Returns the divergence of two laws of counts at epsilon."""
    return float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())
