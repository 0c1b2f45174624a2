"""Frequent texts that are on no list: a tree of prefixes, one level per wave, and the choice of those to keep.

The categories of a level are the prefixes that the previous level has kept, each followed by every letter, and each as
a whole text; "…" takes all other texts (`protocol.rules.Prefixes`). Every person's device finds its own category
(`KaryResponse.parse_value`).

Statement and proof: docs/discover.md. `threshold` is τ there, `holders_found` is t, or u in groups.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from croupier.analyzer.estimates import Fakes
from croupier.protocol.fake_law import FakeLaw
from croupier.protocol.histograms import values_of
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.krr import OPEN
from croupier.protocol.rules import Prefixes
from croupier.protocol.v1 import messages_pb2 as pb

_NEGLECTED = 1e-15
"""Probability that is cut off at either end of a binomial law, and added to every tail."""
_ROUNDING = 1 + 1e-9
"""A factor on every tail: far above the rounding errors of binomial laws and their convolutions."""
Law = tuple[int, NDArray[np.float64]]
Noise = tuple[FakeLaw, int] | None
"""The law of each hop's fakes, and the number of hops; None without hop noise."""


def _binomial(count: int, probability: float) -> Law:
    """Returns the smallest value and the probabilities of a binomial law, but for `_NEGLECTED` at either end."""
    low, high = (int(binom.ppf(end, count, probability)) for end in (_NEGLECTED, 1 - _NEGLECTED))
    low, high = max(0, low - 1), min(count, high + 1)
    values: NDArray[np.float64] = binom.pmf(np.arange(low, high + 1), count, probability)
    return low, values


@lru_cache(maxsize=64)
def _fakes(law: FakeLaw, hops: int) -> Law:
    """Returns the law of all hops' fakes of one category, minus their mean."""
    single = np.exp(-np.abs(np.arange(-law.radius, law.radius + 1)) / law.scale)
    single /= single.sum()
    together = single
    for _ in range(hops - 1):
        together = np.convolve(together, single)
    return -hops * law.radius, together


def _law(holders: int, people: int, own: float, other: float, noise: Noise) -> Law:
    """Returns the law of a category's count: its holders report it with probability `own`, others with `other`."""
    (first, theirs), (second, others) = _binomial(holders, own), _binomial(people - holders, other)
    low, values = first + second, np.convolve(theirs, others)
    if noise is None:
        return low, values
    shift, fakes = _fakes(*noise)
    return low + shift, np.convolve(values, fakes)


def _below(law: Law, count: int) -> float:
    low, values = law
    return min(1.0, _ROUNDING * float(values[: max(0, count - low)].sum()) + 4 * _NEGLECTED)


@lru_cache(maxsize=1024)
def threshold(people: int, fewest: int, own: float, other: float, probability: float, noise: Noise = None) -> int:
    """Returns the least count that a category with fewer than `fewest` holders reaches with at most this probability.

    Args:
        people: the number of possible reports, n.
        fewest: s >= 1; the law with s - 1 holders is the largest of them, as own >= other.
        own: the probability that a holder reports the category.
        other: the same for anybody else.
        probability: in (0, 1).
        noise: of the hops, whose fakes count with their mean subtracted.
    """
    low, values = _law(min(fewest - 1, people), people, own, other, noise)
    tail = _ROUNDING * np.cumsum(values[::-1])[::-1] + 4 * _NEGLECTED
    within = np.flatnonzero(tail <= probability)
    return low + (int(within[0]) if len(within) else len(values))


@lru_cache(maxsize=1024)
def holders_found(
    people: int, count: int, own: float, other: float, probability: float, noise: Noise = None
) -> int | None:
    """Returns the fewest holders with whom a category stays below a count with at most this probability.

    None: not even all people are enough. The law grows with the holders, so that bisection finds them.
    """

    def found(holders: int) -> bool:
        return _below(_law(holders, people, own, other, noise), count) <= probability

    return bisect_left(range(people), True, key=found) if found(people) else None


@dataclass(frozen=True)
class Level:
    """A finished wave.

    Attributes:
        categories: their number.
        reports: of all people.
        threshold: the least count of a kept category: its reports, and with hop noise the fakes of all hops minus their
            mean.
        found: the number of the wave's people from which on a text passes it with the promised probability; None: no
            number is enough.
        kept: the prefixes for the next wave.
        listed: the texts that ended here, with the estimated number of their holders.
        others: the estimated number of people whose text begins with none of the wave's prefixes; in the first wave,
            with no letter of the alphabet.
    """

    categories: int
    reports: int
    threshold: int
    found: int | None
    kept: tuple[str, ...]
    listed: tuple[tuple[str, float], ...]
    others: float


class Discovery:
    """A discovery: the question of the next wave, and the results so far.

    Attributes:
        rule: the texts that are looked for.
        local_epsilon: of every report.
        groups: whether each person answers one wave, which their device draws; else everybody answers every wave.
        levels: the finished waves.
        kept: the beginnings of the next wave; none after the last one.
    """

    def __init__(self, rule: Prefixes, local_epsilon: float, *, groups: bool = False) -> None:
        self.rule, self.local_epsilon, self.groups = rule, local_epsilon, groups
        self.levels: list[Level] = []
        self.kept: tuple[str, ...] = ("",)

    @classmethod
    def at(cls, rule: Prefixes, local_epsilon: float, kept: tuple[str, ...]) -> Self:
        """Returns a discovery before the wave that asks about these beginnings, without the levels before it."""
        discovery = cls(rule, local_epsilon)
        discovery.kept = kept
        return discovery

    @property
    def _missed(self) -> float:
        """The probability that one wave may miss a text; in groups the draws of devices may miss it, too."""
        return self.rule.missed / self.rule.waves / (2 if self.groups else 1)

    @property
    def over(self) -> bool:
        """Whether the last wave is over."""
        return not self.kept

    def categories(self) -> tuple[str, ...]:
        """Returns the names of the next wave's categories."""
        return self.rule.categories(self.kept)

    def learn(self, shares: Sequence[float], reports: int, fakes: Fakes | None = None) -> Level:
        """Adds a wave's result.

        Args:
            shares: the estimated share of each category.
            reports: the number of people who answered.
            fakes: of the hops; None without hop noise.

        Raises:
            ValueError: another number of shares than of categories.
        """
        names, rule = self.categories(), self.rule
        k, grown = len(names), math.exp(self.local_epsilon)
        if len(shares) != k:
            raise ValueError(f"there are {len(shares)} shares; there must be {k}, one for each category")
        own, other = grown / (grown + k - 1), 1 / (grown + k - 1)
        noise = None if fakes is None else (fakes.law, fakes.hops)
        # The estimate subtracts the mean of the fakes given their total; the law is about their mean before.
        shift = 0.0 if fakes is None else fakes.mean - fakes.hops * fakes.law.radius
        least = threshold(reports, rule.fewest, own, other, rule.false_listed / rule.waves / k, noise)
        sure = holders_found(reports, least, own, other, self._missed, noise)
        counts = [reports * (other + (own - other) * share) + shift for share in shares]
        # An estimate is a count, scaled: a thousandth is more than floating point has changed it by.
        passed = [name for name, count in zip(names, counts, strict=True) if count >= least - 1e-3 and name != OPEN]
        share_of = dict(zip(names, shares, strict=True))
        last = len(self.kept[0]) == rule.longest
        listed = [name for name in passed if last or not name.endswith(OPEN)]
        kept = () if last else tuple(name[: -len(OPEN)] for name in passed if name.endswith(OPEN))
        scale = reports * (rule.waves if self.groups else 1)
        holders = tuple((name, share_of[name] * scale) for name in listed)
        self.levels.append(Level(k, reports, least, sure, kept, holders, max(0.0, share_of[OPEN] * scale)))
        self.kept = kept
        return self.levels[-1]

    def learn_published(self, publication: pb.Publication, terms: RoundTerms, certificate: pb.Certificate) -> Level:
        """Adds the published result of a wave, whose round has these terms; raises as `learn`."""
        shares = [value.estimate for value in values_of(publication)]
        return self.learn(shares, publication.num_reports, Fakes.of(terms, certificate))

    @property
    def texts(self) -> list[tuple[str, float]]:
        """The listed texts with the estimated number of their holders, the most frequent first; "abc…" is longer."""
        texts = [text for level in self.levels for text in level.listed]
        return sorted(texts, key=lambda text: (-text[1], text[0]))

    @property
    def found(self) -> int | None:
        """A text in the alphabet of this many people or more was found with probability 1 - `missed`.

        None: no number is enough.
        """
        needed = [level.found for level in self.levels]
        if not needed or None in needed:
            return None
        most = max(number for number in needed if number is not None)
        if not self.groups:
            return most

        def enough(holders: int) -> bool:
            """Whether fewer of the holders than needed draw a given wave with at most this probability."""
            return bool(binom.cdf(most - 1, holders, 1 / self.rule.waves) <= self._missed)

        return bisect_left(range(1 << 62), True, lo=most, key=enough)


def next_state(publication: pb.Publication, terms: RoundTerms, certificate: pb.Certificate) -> pb.RuleState | None:
    """Returns the state to which a wave's result has led a discovery; None for no discovery, or no further wave."""
    if not isinstance(terms.rule, Prefixes) or terms.wave is None or not values_of(publication):
        return None
    manifest = pb.Manifest.FromString(terms.payload)
    state = manifest.rule_state if manifest.HasField("rule_state") else None
    discovery = Discovery.at(terms.rule, terms.budget_grid[0], terms.rule.kept(state, terms.wave.number))
    kept = discovery.learn_published(publication, terms, certificate).kept
    return pb.RuleState(kept=kept) if kept else None
