"""Frequent texts that are on no list: a tree of prefixes, one level per wave, and the choice of those to keep.

The categories of a level are the prefixes that the previous level has kept, each followed by every letter, and each as
a whole text; "…" takes all other texts. Every person's device finds its own category (`KaryResponse.parse_value`).
`deploy.local.discovering` asks the questions of a wave.

Statement and proof: docs/discover.md. `threshold` is τ there, `holders_found` is t, or u in groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from croupier.analyzer.estimates import Fakes
from croupier.protocol.fake_law import FakeLaw
from croupier.protocol.mechanisms.krr import OPEN

_NEGLECTED = 1e-15
"""Probability that is cut off at either end of a binomial law, and added to every tail."""
_ROUNDING = 1 + 1e-9
"""A factor on every tail: far above the rounding errors of binomial laws and their convolutions."""
Law = tuple[int, NDArray[np.float64]]
Noise = tuple[FakeLaw, int] | None
"""The law of each hop's fakes, and the number of hops; None without hop noise."""


@dataclass(frozen=True)
class DiscoverySettings:
    """The settings of a discovery.

    Attributes:
        alphabet: the letters of the texts, 2 .. 1000 different ones; texts with any other letter, such as a capital,
            count as others, and nothing is promised about them.
        longest: the largest length at which texts are told from longer ones, 1 .. 64.
        fewest: a text that fewer people hold is listed with probability at most `false_listed`, at least 1.
        false_listed: β, of all such texts together, 1e-9 .. 0.5.
        missed: the probability that a text of `Level.found` people is not found, 1e-9 .. 0.5.
        groups: whether each person answers one wave, which their device draws; else everybody answers every wave.

    Raises:
        ValueError: at construction, with the field, its value and its range.
    """

    alphabet: str
    longest: int = 10
    fewest: int = 1
    false_listed: float = 0.05
    missed: float = 0.05
    groups: bool = False

    def __post_init__(self) -> None:
        letters = set(self.alphabet)
        if not 2 <= len(letters) == len(self.alphabet) <= 1000 or OPEN in letters or any(map(str.isspace, letters)):
            raise ValueError(
                f"alphabet is {self.alphabet[:80]!r}; it must be 2..1000 different letters, without spaces and {OPEN!r}"
            )
        for name, value, least, most in (
            ("longest", self.longest, 1, 64),
            ("fewest", self.fewest, 1, math.inf),
            ("false_listed", self.false_listed, 1e-9, 0.5),
            ("missed", self.missed, 1e-9, 0.5),
        ):
            if not least <= value <= most:
                raise ValueError(f"{name} is {value:g}; it must be in {least:g}..{most:g}")

    @property
    def waves(self) -> int:
        """The largest number of waves: one for each letter, and one for the ends of the longest texts."""
        return self.longest + 1

    def categories(self, kept: Sequence[str]) -> tuple[str, ...]:
        """Returns the names of the next level's categories, for the beginnings that the last one kept."""
        if kept and len(kept[0]) >= self.longest:  # the last wave
            return (*kept, *(beginning + OPEN for beginning in kept), OPEN)
        longer = [beginning + letter + OPEN for beginning in kept for letter in self.alphabet]
        return (*(beginning for beginning in kept if beginning), *longer, OPEN)


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
    low, high = 0, people
    if _below(_law(people, people, own, other, noise), count) > probability:
        return None
    while low < high:
        middle = (low + high) // 2
        if _below(_law(middle, people, own, other, noise), count) <= probability:
            high = middle
        else:
            low = middle + 1
    return high


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
    """The state of a discovery: the question of the next wave, and the results so far."""

    def __init__(self, settings: DiscoverySettings, local_epsilon: float) -> None:
        """Begins a discovery.

        Args:
            settings: of the discovery.
            local_epsilon: of every report.
        """
        self.settings, self.local_epsilon = settings, local_epsilon
        self.levels: list[Level] = []
        self._kept: tuple[str, ...] = ("",)

    @property
    def _missed(self) -> float:
        """The probability that one wave may miss a text; in groups the draws of devices may miss it, too."""
        settings = self.settings
        return settings.missed / settings.waves / (2 if settings.groups else 1)

    @property
    def over(self) -> bool:
        """Whether the last wave is over."""
        return not self._kept or len(self.levels) == self.settings.waves

    def categories(self) -> tuple[str, ...]:
        """Returns the names of the next wave's categories."""
        return self.settings.categories(self._kept)

    def learn(self, shares: Sequence[float], reports: int, fakes: Fakes | None = None) -> Level:
        """Adds a wave's result.

        Args:
            shares: the estimated share of each category.
            reports: the number of people who answered.
            fakes: of the hops; None without hop noise.

        Raises:
            ValueError: another number of shares than of categories.
        """
        names, settings = self.categories(), self.settings
        k, grown = len(names), math.exp(self.local_epsilon)
        if len(shares) != k:
            raise ValueError(f"there are {len(shares)} shares; there must be {k}, one for each category")
        own, other = grown / (grown + k - 1), 1 / (grown + k - 1)
        noise = None if fakes is None else (fakes.law, fakes.hops)
        # The estimate subtracts the mean of the fakes given their total; the law is about their mean before.
        shift = 0.0 if fakes is None else fakes.mean - fakes.hops * fakes.law.radius
        least = threshold(reports, settings.fewest, own, other, settings.false_listed / settings.waves / k, noise)
        sure = holders_found(reports, least, own, other, self._missed, noise)
        counts = [reports * (other + (own - other) * share) + shift for share in shares]
        # An estimate is a count, scaled: a thousandth is more than floating point has changed it by.
        passed = [name for name, count in zip(names, counts, strict=True) if count >= least - 1e-3 and name != OPEN]
        share_of = dict(zip(names, shares, strict=True))
        last = len(self.levels) + 1 == settings.waves
        listed = [name for name in passed if last or not name.endswith(OPEN)]
        kept = () if last else tuple(name[: -len(OPEN)] for name in passed if name.endswith(OPEN))
        scale = reports * (settings.waves if settings.groups else 1)
        holders = tuple((name, share_of[name] * scale) for name in listed)
        self.levels.append(Level(k, reports, least, sure, kept, holders, max(0.0, share_of[OPEN] * scale)))
        self._kept = kept
        return self.levels[-1]

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
        if not self.settings.groups:
            return most
        low, high = most, 2 * most * self.settings.waves + 1
        while _in_group(high, self.settings.waves, most) > self._missed:
            low, high = high, 2 * high
        while low < high:
            middle = (low + high) // 2
            if _in_group(middle, self.settings.waves, most) <= self._missed:
                high = middle
            else:
                low = middle + 1
        return high


def _in_group(holders: int, waves: int, needed: int) -> float:
    """Returns the probability that fewer than `needed` of the holders draw a given wave."""
    return float(binom.cdf(needed - 1, holders, 1 / waves))
