"""The exact worst case of binary randomised response, by enumerating the data sets of the others.

A shuffled batch of bits shows the number of ones only, and by symmetry it depends only on how many users of each budget
hold a 1. With one or two budgets those splits can be enumerated, so that the largest divergence over them is a proof
and not a search (docs/bounds.md, section 2.1). The mechanisms choose between this bound and the blanket bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from croupier.accountant.bounds.blanket import shown_alone
from croupier.accountant.bounds.least import MANY_POINTS, ChordProfile
from croupier.accountant.bounds.profile import UNDERFLOW, Curve
from croupier.accountant.numerics.binomial import UNIT, Floats, Ints
from croupier.accountant.numerics.gaussian import gaussian_epsilon
from croupier.accountant.numerics.tail_radii import bernstein_radius
from croupier.accountant.privacy_curve import Bounded
from croupier.accountant.ranges import check_epsilon
from croupier.protocol.codes import Method, ProofStep
from croupier.protocol.statements import Statement

MAX_WORK = 2_500_000
"""Limit on splits times the length of their laws. Beyond it time would grow, and another bound is almost as small."""
CUT = 1e-40
"""Masses of binomial laws below this are omitted and charged; few users never have a target delta as small."""


def is_enumerable(count: Ints, dishonest: int) -> bool:
    """Says whether the splits of the others (count: users of each budget) are few and the dishonest users are fixed."""
    users = int(count.sum())
    if users <= dishonest or count.size > 2 or (count.size == 2 and dishonest > 0):
        return False
    length = min(users + 1.0, 2 * bernstein_radius(users / 4, -math.log(CUT)))
    return math.prod(int(c) + 1 for c in count) * length <= MAX_WORK


@dataclass(frozen=True, eq=False)
class ExactBinaryProfile(Curve):
    """delta(epsilon) = max over all splits of the others of H(Bern(w) + X, Bern(1-w) + X), rounding included.

    local_epsilon: the victim's, w = e^v/(1+e^v). others, count: float64/int64 (T,), T <= 2, the others' budgets.
    """

    proved_by: ClassVar[Method] = Method.WORST_CASE
    local_epsilon: float
    others: Floats
    count: Ints

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`; exact up to the slack. Raises ValueError for a negative or non-finite epsilon.

        X is log-concave, so that the best event is a threshold: delta is the largest of head Pr[X >= t-1] - back
        Pr[X >= t] over all splits and t, with head = w - e^epsilon (1-w) and back = e^epsilon w - (1-w).
        """
        check_epsilon(epsilon)
        if epsilon >= self.local_epsilon:
            return Bounded(0.0, 0.0)
        both = 1 + math.exp(-self.local_epsilon)
        head = -math.expm1(epsilon - self.local_epsilon) / both
        back = math.exp(epsilon) * -math.expm1(-epsilon - self.local_epsilon) / both
        users, reached = int(self.count.sum()), self._reached
        error = 8 * UNIT * (users + 8)
        place = int(np.argmax(head * (1 + error) * reached[:, :-1] - back * (1 - error) * reached[:, 1:]))
        most, least = float(reached[:, :-1].flat[place]), float(reached[:, 1:].flat[place])
        lost = 4 * (users + 1) * CUT * (head + back) + UNDERFLOW
        value = head * (1 + error) * most - back * (1 - error) * least + lost
        value = min(1.0, value, shown_alone(self.local_epsilon, epsilon))
        return Bounded(value, min(value, 2 * error * (head * most + back * least) + lost))

    @cached_property
    def _reached(self) -> Floats:
        """Pr[X >= t] of every split, for increasing t from the last with probability 1 to the first with 0: (S, L).

        All sums are of positive terms: the error of every mass is 8 ulp per user, apart from masses below CUT.
        """
        laws = [np.ones(1)]
        for keep, flip, number in zip(*bit_probabilities(self.others), self.count.tolist(), strict=True):
            flipped = [np.ones(1)]
            for _ in range(number):
                law = np.convolve(flipped[-1], [keep, flip])
                used = np.flatnonzero(law >= CUT)
                flipped.append(law[used[0] : used[-1] + 1])
            tier = [np.convolve(flipped[n][::-1], flipped[number - n]) for n in range(number + 1)]
            laws = [np.convolve(law, own) for law in laws for own in tier]
        length = max(law.size for law in laws) + 1
        return np.stack([np.pad(law[::-1].cumsum()[::-1], (0, length - law.size)) for law in laws])

    def to_compose(self, delta: float, ceiling: float) -> Curve:
        """See `Curve.to_compose`: chords."""
        return ChordProfile(self, delta, ceiling, MANY_POINTS)

    def guess(self, delta: float) -> float:
        """The Gaussian limit with the variance of the others' bits."""
        keep, flip = bit_probabilities(self.others)
        variance = float(self.count @ (keep * flip)) + 0.25
        return gaussian_epsilon(max(1e-9, math.tanh(self.local_epsilon / 2) / math.sqrt(variance)), delta)

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """See `PrivacyProfile`."""
        return (Statement.of(ProofStep.SPLITS_ENUMERATED, splits=math.prod(int(c) + 1 for c in self.count)),)


def bit_probabilities(local_epsilon: Floats) -> tuple[Floats, Floats]:
    """Returns the probability that a report is 1, for users who hold a 1 and for users who hold a 0."""
    decay = np.exp(-local_epsilon)
    return 1 / (1 + decay), decay / (1 + decay)
