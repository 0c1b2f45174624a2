"""The attack on hop noise: everybody but the victim and one honest hop is dishonest, and reads that hop's counts.

The observer knows every report of the honest hop's output except the victim's and the fakes. The hop has added c + Z
fakes of every value. A report of the value changes the law f of their count N by the factor f(N - 1)/f(N), which
depends only on the case of N: zero, up to the middle c, or above it; N = 2c + 1 exposes the report. So a test needs
only the number of values in each case, for every group of values with the same two probabilities under the victim's two
answers. Those numbers are independent, and their laws are exact (docs/hop-noise.md, section 2.1).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from croupier.accountant.attacks.event_tests import AlikeReports, Target
from croupier.accountant.guarantees import LowerBound
from croupier.accountant.numerics.binomial import Floats, binomial_pmf
from croupier.protocol.fake_law import FakeLaw

_MARGIN = 1e-9
"""Far above the relative error of a probability, and of a sum of MAX_OUTCOMES of them."""
MAX_OUTCOMES = 2**20
"""More outcomes take seconds, so the groups with the smallest difference between the answers are then ignored."""
MAX_TRINOMIAL = 30
"""In larger groups a count of zero is read as one up to the middle. It excludes only one of many values."""
MAX_OUTCOMES_OF_GROUP = 1000
"""Counts of larger groups are read in steps; their standard deviation is more than 50."""
REACH = 9.0
"""The range of outcomes of larger groups, in standard deviations from the mean."""


def attack_on_hop_noise(
    law: FakeLaw, reports: AlikeReports, *, delta: float | None = None, epsilon: float | None = None
) -> LowerBound:
    """Returns the strongest test of a batch's counts, as a lower bound on any guarantee of one honest hop.

    Args:
        law: of the honest hop's fakes.
        reports: of two answers of the victim, grouped by equal probabilities.
        delta: 0 < delta < 1; the bound then gives epsilon. Exactly one of delta and epsilon.
        epsilon: >= 0; the bound then gives delta at this epsilon.

    Neighbouring relation: replace-one. Direction of error: rounded down.
    """
    target = Target(delta, epsilon)
    first, second = _laws_of_two_values(law, reports) if law.is_paired else _laws_of_more_values(law, reports)
    best = max(0.0, _best_event(first, second, target), _best_event(second, first, target))
    words = (
        "all but the victim and one hop are dishonest; the observer subtracts all reports that it knows, and compares "
        f"{'the count of ones' if law.is_paired else 'the counts of all values'} with the mean of the fakes"
    )
    if delta is not None:
        return LowerBound(best * (1 - _MARGIN), delta, words)
    return LowerBound(epsilon or 0.0, min(1.0, best * (1 - _MARGIN)), words)


def _best_event(first: Floats, second: Floats, target: Target) -> float:
    """Returns the score of the best event: all outcomes whose likelihood ratio is above a threshold."""
    used = (first > 0) | (second > 0)
    first, second = first[used], second[used]
    with np.errstate(divide="ignore"):
        order = np.argsort(-(first / second), kind="stable")
    scores = target.score(np.cumsum(first[order]) * (1 - _MARGIN), np.cumsum(second[order]) * (1 + _MARGIN))
    return float(np.max(scores))


def _cases(law: FakeLaw) -> tuple[float, float, float]:
    """Returns the probabilities that a count of fakes is zero, up to the middle, or above it."""
    middle = law.edge * math.exp(law.radius / law.scale)  # Pr[Z = 0]
    above = middle * math.expm1(-law.radius / law.scale) / -math.expm1(1 / law.scale)
    return law.edge, above + (middle - law.edge), above


def _laws_of_two_values(law: FakeLaw, reports: AlikeReports) -> tuple[Floats, Floats]:
    """Returns the laws of the cases of Z, which determines both counts, at two answers."""
    least, below, above = _cases(law)
    # A report of the one value leaves Z as it is; a report of the other one makes Z look larger by one.
    alone, raised = np.array([least, below, above, 0.0]), np.array([0.0, above, below, least])
    one, other = (answers for number, *answers in reports for _ in range(number))
    return one[0] * alone + other[0] * raised, one[1] * alone + other[1] * raised


@dataclass(frozen=True)
class _Group:
    """Values alike in the reports of two answers, with the law of the numbers of values in each case.

    fakes: float64 (J,), the probability of every outcome without a report; raised: float64 (J,), the sum of the
    probabilities of the outcome where one of the values has a report, over all values. An ignored group has J = 1.
    """

    fakes: Floats
    raised: Floats
    first: float
    second: float


def _laws_of_more_values(law: FakeLaw, reports: AlikeReports) -> tuple[Floats, Floats]:
    """Returns the laws of the observer's view at two answers; the last outcomes are exposed reports."""
    zero, *_ = _cases(law)
    groups, outcomes = [], 1
    for number, first, second in sorted(reports, key=lambda group: -group[0] * abs(group[1] - group[2])):
        fakes, raised = _group(law, number)
        if outcomes * fakes.size > MAX_OUTCOMES:
            fakes, raised = np.ones(1), np.full(1, number * (1 - zero))
        outcomes *= fakes.size
        groups.append(_Group(fakes, raised, first, second))
    laws = np.zeros((2, outcomes))
    for own in groups:
        parts = [group.raised if group is own else group.fakes for group in groups]
        outcome = functools.reduce(np.multiply.outer, parts).ravel()
        laws += np.outer([own.first, own.second], outcome)
    shown = np.array([(number * first * zero, number * second * zero) for number, first, second in reports]).T
    first_law, second_law = np.hstack([laws, shown])
    return first_law, second_law


def _group(law: FakeLaw, number: int) -> tuple[Floats, Floats]:
    """Returns `fakes` and `raised` of a `_Group` of `number` values."""
    zero, below, above = _cases(law)
    down, up = above / below, below / above  # the factor of a report on the probability of each case
    if number <= MAX_TRINOMIAL:
        zeros, high = (counts.ravel() for counts in np.mgrid[: number + 1, : number + 1])
        zeros, high = zeros[zeros + high <= number], high[zeros + high <= number]
        low = number - zeros - high
        fakes = binomial_pmf(zeros, number, zero) * binomial_pmf(high, number - zeros, above / (above + below))
        return fakes, fakes * (low * down + high * up)
    mean, width = number * above, REACH * math.sqrt(number * above * (1 - above)) + REACH
    high = np.arange(max(0, math.floor(mean - width)), min(number, math.ceil(mean + width)) + 1)
    fakes = binomial_pmf(high, number, above)
    # With a report a count is zero or up to the middle with probability `above`.
    raised = fakes * ((number - high) * above / (zero + below) + high * up)
    starts = np.arange(0, high.size, math.ceil(high.size / MAX_OUTCOMES_OF_GROUP))
    return np.add.reduceat(fakes, starts), np.add.reduceat(raised, starts)
