"""The attack on hop noise: everybody but the victim and one honest hop is dishonest, and reads that hop's counts.

The observer knows every report of the honest hop's output but the victim's and the fakes. It counts the two values
between which the victim chose. The likelihood of a count of fakes changes by the same factor below and above its
middle, so each count has four cases, and all tests of them are tried. docs/hop-noise.md, section 2.
"""

from __future__ import annotations

import math

import numpy as np

from croupier.accountant.attacks.event_tests import Target
from croupier.accountant.numerics.binomial import Floats
from croupier.accountant.results import LowerBound
from croupier.protocol.hop_noise import FakeLaw

__all__ = ["attack_on_hop_noise"]

_MARGIN = 1e-9
"""Far above the relative error of a probability: of the four cases' masses, and of randomised response."""


def attack_on_hop_noise(
    law: FakeLaw, variation: float, *, delta: float | None = None, epsilon: float | None = None
) -> LowerBound:
    """Returns the strongest test of two counts, as a bound that no guarantee of one honest hop can be below.

    Args:
        law: of the honest hop's fakes.
        variation: the total variation between the reports of two values, by binary or k-ary randomised response.
        delta: 0 < delta < 1; the bound then gives epsilon. Exactly one of delta and epsilon.
        epsilon: >= 0; the bound then gives delta at this epsilon.

    Neighbouring relation: replace-one. Direction of error: rounded down.
    """
    target = Target(delta, epsilon)
    first, second = _laws_of_counts(law, variation)
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(-(first / second), kind="stable")
    scores = target.score(np.cumsum(first[order]) * (1 - _MARGIN), np.cumsum(second[order]) * (1 + _MARGIN))
    best = max(0.0, float(np.max(scores)))
    words = (
        "all but the victim and one hop are dishonest; the observer subtracts all reports that it knows, and compares "
        f"{'the count of ones' if law.is_paired else 'the counts of the two values'} with the mean of the fakes"
    )
    if delta is not None:
        return LowerBound(best * (1 - _MARGIN), delta, words)
    return LowerBound(epsilon or 0.0, min(1.0, best * (1 - _MARGIN)), words)


def _laws_of_counts(law: FakeLaw, variation: float) -> tuple[Floats, Floats]:
    """The laws of the cases if the victim has the one value, and if it has the other; cases without mass left out."""
    q = math.exp(-1 / law.scale)
    edge = law.edge
    middle = edge / q**law.radius
    below, above = (1 + middle) / 2 - edge, (1 - middle) / 2
    # A count of fakes is -radius, up to 0, up to radius, or radius + 1; and the same with a report on top.
    alone, raised = np.array([edge, below, above, 0.0]), np.array([0.0, above, below, edge])
    other = (1 - variation) / law.num_values
    kept = other + variation
    if law.is_paired:
        first, second = kept * raised + other * alone, kept * alone + other * raised
    else:
        neither = max(0.0, 1 - kept - other) * np.outer(alone, alone)
        first_raised, second_raised = np.outer(raised, alone), np.outer(alone, raised)
        first, second = (
            (kept * a + other * b + neither).ravel()
            for a, b in ((first_raised, second_raised), (second_raised, first_raised))
        )
    used = (first > 0) | (second > 0)
    return first[used], second[used]
