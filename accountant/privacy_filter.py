"""The total cost of rounds, if each round may be chosen after the results of the rounds before it.

Composing privacy loss distributions (`composition`) is valid for terms that were fixed before the first result. If an
operator may choose the size, the budgets or the mechanism of the next round from the last one's result, a *privacy
filter* is needed: a rule, fixed beforehand, that admits a round only while the total (epsilon, delta) is kept on every
path. The rule here admits rounds by any of three sums, each with its own share of delta: basic composition (Rogers et
al. 2016), Gaussian variances, and moments at Renyi orders (Feldman, Zrnic 2021; Lecuyer 2021). The last two cut the
tail off every curve, further out with more rounds (`_Cut`), so that a total has no largest number of rounds. The proof:
docs/composition.md, section 5.1. `round_cost` reads the cost of one round from its curve.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from croupier.accountant.numerics.binomial import UNIT, Floats
from croupier.accountant.numerics.decimals import as_decimal, sum_above
from croupier.accountant.numerics.gaussian import gaussian_delta, gaussian_error
from croupier.accountant.ranges import check_epsilon, check_target_delta
from croupier.accountant.round_cost import ORDERS, RoundCost

BASIC_SHARE = Fraction(1, 4)
"""The part of delta for paths on which epsilons and deltas add up to little enough; pure budgets use none of it."""
LOST_SHARE = Fraction(1, 8)
"""The part of delta for the certain losses of the other paths: local deltas, and the cut tails of curves."""
GAUSSIAN_SHARE = Fraction(3, 8)
"""The part of delta for paths that Gaussian variances admit, the most common case for rounds of many people: 3/8
instead of all of it costs 4 % of epsilon at delta = 1e-6."""
RENYI_SHARE = Fraction(1, 4)
"""The part of delta for paths that moments admit; they are sharper for rounds with a large and bounded loss."""
FIRST_CUT = 1e-4
"""The first cut: a curve is followed to where its delta is at most this part of the total delta, and the tail counts as
lost. Enough for 1,093 rounds. Further out a curve is less sharp: at 1e-5 some rounds cost 9 % more."""
_NEXT_CUT = 1 / 50
"""Every further cut is further out by this factor, with `_NEXT_PART` of the shares of delta: each is enough for 6.25
times as many rounds as the one before it, the second for 6,835."""
_NEXT_PART = Fraction(1, 8)
"""The first cut has 7/8 of the shares, which costs 0.5 % of epsilon at delta = 1e-6; the second 8 %, the third 15 %."""
_CONVERSION: Floats = (ORDERS - 1) * np.log1p(-1 / ORDERS) - np.log(ORDERS)
"""For every order a, ln of the least c with (1 - e^-x)_+ <= c e^((a - 1) x) for all x: ((a - 1)/a)^(a - 1) / a."""


@dataclass(frozen=True)
class PrivacyFilter:
    """A total (epsilon, delta) that is fixed before the first round, and the rounds that it admits.

    If every released round is one for which `admits` accepts all rounds up to it, the releases together are
    (epsilon, delta)-private, however rounds are chosen by earlier results. Neighbouring relation: that of the rounds.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        """Raises ValueError for a field outside its range."""
        check_epsilon(self.epsilon)
        check_target_delta(self.delta)

    def admits(self, rounds: Mapping[RoundCost, int] | Sequence[RoundCost]) -> bool:
        """Returns whether these rounds (or the number of each) keep the total."""
        return _Sums.of(rounds, self.delta).within(self.epsilon)


def smallest_admitting_epsilon(
    rounds: Mapping[RoundCost, int] | Sequence[RoundCost], delta: float, tolerance: float = 1e-6
) -> float | None:
    """Returns about the least epsilon whose filter admits these rounds at this delta; None if none does.

    The filter of exactly the returned epsilon admits the rounds. Direction of error: above. It is the total that would
    have been needed: a guarantee only if it was fixed beforehand (`TOTAL_BEFOREHAND`), or the rounds were.

    Raises:
        ValueError: no rounds, a count below 1, or delta is outside (0, 1).
    """
    check_target_delta(delta)
    sums = _Sums.of(rounds, delta)
    certified = [] if sums.single is None else [sums.single.epsilon]
    basic = [] if sums.basic is None else [sums.basic]
    exact = [epsilon for epsilon in (*certified, *basic) if sums.within(epsilon)]
    high = 1e-9
    most = min(exact, default=1e12)
    while high < most and not sums.within(high):
        high *= 2
    if high >= most:
        if not exact:
            return None
        high = most
    low = 0.0 if high <= 1e-9 else min(high, most) / 2
    while high - low > tolerance * high:
        middle = (low + high) / 2
        low, high = (low, middle) if sums.within(middle) else (middle, high)
    return high


def delta_for_basic(rounds: Sequence[RoundCost]) -> float:
    """Returns a total delta at which basic composition admits the rounds for some epsilon; it may be above 1."""
    return sum_above(cost.basic[1] for cost in rounds for _ in range(int(1 / BASIC_SHARE)))


def last_cut(rounds: int, delta: float) -> float:
    """Returns the smallest delta to which the curves of this many rounds are followed for a total delta."""
    return filter_cuts(rounds)[-1].at * delta


@dataclass(frozen=True)
class _Cut:
    """One of the ways to cut all curves, which are fixed beforehand. Rounds are admitted by any of them.

    Attributes:
        at: a curve is cut where its delta is at most this part of the total delta.
        part: of the three shares of delta. The parts of all ways add up to 1.
    """

    at: float
    part: Fraction

    @property
    def rounds(self) -> int:
        """The number of rounds that lose at most this way's share, for any curves."""
        return int(self.part * LOST_SHARE / Fraction(self.at))


def filter_cuts(rounds: int) -> list[_Cut]:
    """Returns the ways to cut up to the first that is enough for this number of rounds."""
    cuts = [_Cut(FIRST_CUT, 1 - _NEXT_PART)]
    while cuts[-1].rounds < rounds:
        cuts.append(_Cut(cuts[-1].at * _NEXT_CUT, cuts[-1].part * _NEXT_PART))
    return cuts


@dataclass(frozen=True, eq=False)
class _AfterCut:
    """The sums over all rounds whose curves are cut in one way, if their loss is within its share.

    Attributes:
        delta: the total.
        part: this way's part of it.
        variance, moments: the sums of variances and of logarithms of moments.
    """

    delta: float
    part: float
    variance: float
    moments: Floats

    @classmethod
    def of(cls, counts: Mapping[RoundCost, int], delta: float, cut: _Cut) -> _AfterCut | None:
        tails = [(cost.tail(cut.at * delta), count) for cost, count in counts.items()]
        if sum(count * Fraction(tail.lost) for tail, count in tails) > cut.part * LOST_SHARE * Fraction(delta):
            return None
        rounding = 1 + (len(tails) + 2) * UNIT  # of a sum of as many products of numbers >= 0
        return cls(
            delta=delta,
            part=float(cut.part),
            variance=math.fsum(count * tail.variance for tail, count in tails) * rounding,
            moments=np.sum([count * tail.moments for tail, count in tails], axis=0) * rounding,
        )

    def within(self, epsilon: float) -> bool:
        return self._gaussian_within(epsilon) or self._renyi_within(epsilon)

    def _gaussian_within(self, epsilon: float) -> bool:
        if math.isinf(self.variance):
            return False
        if self.variance == 0:
            return True
        mu = math.sqrt(self.variance) * (1 + 2 * UNIT)
        share = float(GAUSSIAN_SHARE) * self.part * self.delta
        return bool(gaussian_delta(mu, epsilon) * (1 + gaussian_error(mu)) <= share)

    def _renyi_within(self, epsilon: float) -> bool:
        whole = float(RENYI_SHARE) * self.delta
        share = math.log(whole * self.part)
        reached = _CONVERSION + self.moments - (ORDERS - 1) * epsilon
        margin = 1e-9 + 1e-12 * (self.moments + (ORDERS - 1) * epsilon)  # far above the rounding here
        return bool(np.any(reached + margin <= share + np.log(_weights(epsilon, math.log(whole)))))


@dataclass(frozen=True, eq=False)
class _Sums:
    """The sums over all rounds at a total delta.

    Attributes:
        delta: the total.
        single: the round, if there is only one.
        basic: the sum of epsilons, rounded up; None if deltas add up to more than their share.
        written: the same sum, with local budgets as the decimals that people wrote: see `Ledger`.
        cut: the sums for every way to cut curves whose loss is within its share.
    """

    delta: float
    single: RoundCost | None
    basic: float | None
    written: Fraction
    cut: tuple[_AfterCut, ...]

    @classmethod
    def of(cls, rounds: Mapping[RoundCost, int] | Sequence[RoundCost], delta: float) -> _Sums:
        counts = Counter(rounds)
        if not counts or min(counts.values()) < 1:
            raise ValueError("rounds is empty or has a count below 1; it must hold at least one round")
        deltas = sum(count * as_decimal(cost.basic[1]) for cost, count in counts.items())
        kept = deltas <= BASIC_SHARE * as_decimal(delta)
        after = (_AfterCut.of(counts, delta, cut) for cut in filter_cuts(counts.total()))
        return cls(
            delta=delta,
            single=next(iter(counts)) if counts.total() == 1 else None,
            basic=sum_above(cost.basic[0] for cost in counts.elements()) if kept else None,
            written=sum((count * _as_written(cost) for cost, count in counts.items()), Fraction(0)),
            cut=tuple(sums for sums in after if sums is not None),
        )

    def within(self, epsilon: float) -> bool:
        """Says whether the filter of this epsilon and the total delta admits the rounds."""
        if self.single is not None and self._single_within(self.single, epsilon):
            return True
        if self.basic is not None and (self.basic <= epsilon or self.written <= as_decimal(epsilon)):
            return True
        return any(sums.within(epsilon) for sums in self.cut)

    def _single_within(self, single: RoundCost, epsilon: float) -> bool:
        pair = single.epsilon <= epsilon and as_decimal(single.delta) <= as_decimal(self.delta)
        return pair or single.above(epsilon) <= self.delta


def _as_written(cost: RoundCost) -> Fraction:
    epsilon, _ = cost.basic
    return as_decimal(epsilon) if epsilon in cost.budgets else Fraction(epsilon)


def _weights(epsilon: float, share: float) -> Floats:
    """Returns the division of a share of delta, given as its logarithm, among the orders; the sum is below 1.

    It is the same for all cuts, so that a later cut with smaller shares admits nothing that the first one does not.

    The largest part goes to the best order for Gaussian losses: their variance v has the moment
    exp(order (order - 1) v / 2), and the best order admits the largest v. The weights depend on the total alone, which
    is fixed before the first round.
    """
    variance = (epsilon - (_CONVERSION - share) / (ORDERS - 1)) / ORDERS
    distance = np.arange(ORDERS.size) - np.argmax(variance)
    weights = 1 / (1.0 + distance**2)
    return np.asarray(weights / (weights.sum() * (1 + 1e-12)))
