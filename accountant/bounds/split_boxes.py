"""How large the divergence of bits is on a box of splits: as on the split in its middle, and not much more.

For one split of the others' bits the divergence is an exponential of a linear function of the split times what the
shape of a tilted law makes of it (docs/accounting.md, section 2.1). The linear part is largest at a corner of the box;
the shape hardly changes, because all splits have the same variance: its change is bounded by that of the
characteristic function. Which boxes to look at is left to `split_search`.
"""

from __future__ import annotations

import math

import numpy as np

from accountant.bounds.exact_binary import bit_probabilities, factors, tails_of, tilt_of, window
from accountant.numerics.binomial import UNIT, Floats, Ints
from accountant.numerics.fourier import STAGE

__all__ = ["like_the_middle"]

MAX_TILT = 1.0
"""Above it epsilon is nearly the local one, and nothing is proved here."""
FINENESS = 800.0
"""Steps at which the place of the lattice relative to the mean is looked at, in a standard deviation."""
MAX_POINTS = 2**17
"""Of the transform that does it; with more, the steps are longer."""
_CHUNK = 400_000
_SEEN = math.log(1e-6)
"""Where a factor is smaller than this its logarithm is not used."""


def like_the_middle(
    local_epsilon: float, epsilon: float, others: Floats, count: Ints, low: Ints, high: Ints
) -> tuple[Floats, Floats]:
    """Upper bounds on the divergence of all splits in each box, rounding included.

    Args:
        local_epsilon: the victim's; epsilon < local_epsilon.
        epsilon: where.
        others: (T,), T <= 4, the others' budgets.
        count: (T,), how many users have them.
        low: (S, T), how many of them hold a 1 at least.
        high: (S, T), at most.

    Returns:
        The bounds, infinite where none is known, and what they hold of rounding and tails, (S,).
    """
    head, back = tails_of(local_epsilon, epsilon)
    theta = math.log(back / head)
    users = int(count.sum())
    if theta > MAX_TILT or users == 0:
        return np.full(len(low), math.inf), np.zeros(len(low))
    keep, flip = bit_probabilities(others)
    tilted = np.stack([tilt_of(keep, theta), tilt_of(flip, theta)])  # (2, T): of a 1 and of a 0
    length = window(users)
    reach = length if users + 2 < length else length // 2  # if nothing wraps around there is no tail either
    wanted = FINENESS / math.sqrt(max(1.0, float((keep * flip) @ count)))
    steps = 1 << max(0, math.ceil(math.log2(min(wanted, MAX_POINTS / length))))
    angles = 2 * math.pi / length * np.arange(length // 2 + 1, dtype=np.float64)
    log_factor, most, wrong = (part.reshape(2, count.size, -1) for part in factors(tilted.ravel(), angles))
    centred = log_factor + 1j * tilted[:, :, None] * angles
    apart = np.where((most > _SEEN).all(0), np.abs(centred[0] - centred[1]) + wrong.sum(0), math.inf)

    middle = (low + high) // 2
    ones, zeros = middle.astype(np.float64), (count - middle).astype(np.float64)
    aside = np.maximum(high - middle, middle - low)[:, :, None]
    # The largest size of a transform in the box, and how far from the middle's any of them is, relative to that size.
    change = most[0] - most[1]
    size = ones @ most[0] + zeros @ most[1]
    size += np.maximum((high - middle)[:, :, None] * change, (low - middle)[:, :, None] * change).sum(1)
    turn = 2 * np.sin(angles / 2)  # |e^(-i angle) - 1|
    size = np.exp(size) * (1 + UNIT * (200 * users + 200)) * turn
    moved = np.multiply(aside, apart, where=aside > 0, out=np.zeros((len(low), *apart.shape))).sum(1)
    moved = np.minimum(2.0, moved + angles / (2 * steps))
    moved[:, -1] = 2.0  # the last frequency is left out of the middle's law
    wrong = ones @ wrong[0] + zeros @ wrong[1] + UNIT * (200 * users + 200)
    wrong = np.expm1(np.minimum(wrong, 50.0))
    off = _mean(size * moved, length)
    # Of the middle's law, and of `off`, whose sizes may be as wrong and whose factor is at most 2.
    noise = 3 * _mean(size * wrong, length) + STAGE * math.log2(length * steps) * _mean(size * (1 + wrong), length)

    # The middle's differences at k + (g + 1/2)/steps, 0 <= k < reach, 0 <= g < steps, are charged at k + g/steps.
    phase = -1j * turn * np.exp(0.5j * (1 / steps - 1) * angles)
    phase[-1] = 0.0
    weight = np.exp(-theta / steps * np.arange(reach * steps)).reshape(-1, steps)
    seen = min(float(reach), 1 / -math.expm1(-theta)) if theta > 0 else float(reach)  # at least weight.sum(0)
    shape = np.empty(len(low))
    rows = max(1, _CHUNK // (length * steps))
    for start in range(0, len(low), rows):
        part = slice(start, start + rows)
        law = np.exp(ones[part] @ centred[0] + zeros[part] @ centred[1]) * phase
        fall = steps * np.fft.irfft(law, length * steps, axis=1)[:, : weight.size].reshape(len(law), -1, steps)
        shape[part] = ((np.maximum(fall, 0.0) * weight).sum(1) + off[part, None] * seen * weight[0]).max(1)
    noise = noise * seen + 1e-16 + (10 + 2 * theta) * UNIT * math.exp(2 * theta)

    # The linear part, at the corner where it is largest.
    slope = np.log1p(np.stack([keep, flip]) * math.expm1(theta)) - theta * tilted
    ones = np.where(slope[0] > slope[1], high, low).astype(np.float64)
    scale = back * np.exp(ones @ slope[0] + (count - ones) @ slope[1])
    rounding = UNIT * (100 + 100 * theta * (users + length + 1) + 2 * length)
    slack = scale * (noise + (shape + noise) * rounding)
    return scale * shape + slack, slack


def _mean(half: Floats, length: int) -> Floats:
    """The mean over all frequencies, (S,), from those that are not negative, (S, length // 2 + 1)."""
    return np.asarray((2 * half.sum(1) - half[:, 0] - half[:, -1]) / length)
