"""Differences between groups of different people who were asked the same question, with intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from croupier.analyzer.differences import Interval, Reach, apart, reach
from croupier.show.blocks import Block, Heading, Sentence, Tone
from croupier.show.language import say
from croupier.show.numbers import Number
from croupier.show.statistics import Statistic


def difference_blocks(rounds: Sequence[Statistic]) -> list[Block]:
    """Returns the differences between all groups that have a result, in sentences; nothing for one group."""
    read = [asked for asked in rounds if asked.granted]
    if not (compared := differences(read)):
        return []
    blocks: list[Block] = [Heading(say("Differences between groups"), 3)]
    about = read[0]
    blocks += [Sentence(each.sentence(about), Tone.PLAIN if each.is_seen else Tone.QUIET) for each in compared]
    if len(compared) > 1:
        told = "Each range is for one comparison. Of {count} comparisons, some can miss the truth by chance."
        blocks.append(Sentence(say(told, count=len(compared)), Tone.QUIET))
    return blocks


@dataclass(frozen=True)
class Difference:
    """The difference of a number between two groups, with intervals.

    Attributes:
        label: of the number; see `Number`.
        groups: the group, and the one that it is compared with.
        estimate: the difference of the estimates.
        participants, population: its intervals, as in `Number`.
    """

    label: str
    groups: tuple[str, str]
    estimate: float
    participants: Interval
    population: Interval

    @property
    def is_seen(self) -> bool:
        """Whether the interval for the people who took part leaves out 0."""
        return not self.participants[0] <= 0 <= self.participants[1]

    def sentence(self, statistic: Statistic) -> str:
        """Returns one sentence on the difference, with both intervals."""
        length = self.participants[1] - self.participants[0]
        size = statistic.written(abs(self.estimate), length)
        values = {
            "first": self.groups[0],
            "second": self.groups[1],
            "size": size.removesuffix(" %") + say(" points") if statistic.is_share else size,
            "own": statistic.interval(self.participants, of_differences=True),
            "level": statistic.level_text,
        }
        told = "{first} is {higher} than {second} by an estimated {size}"
        if not self.is_seen:
            told = "no difference between {first} and {second} can be told from the noise"
        said = say(told, higher=say("higher") if self.estimate > 0 else say("lower"), **values)
        said = say(
            "{said}: {first} minus {second} is {own} for the people who took part, and {whole} for the populations "
            "that they are random samples of ({level} intervals).",
            said=said,
            whole=statistic.interval(self.population, of_differences=True),
            **values,
        )
        return f"“{self.label}”: {said}" if self.label else said[0].upper() + said[1:]


def differences(groups: Sequence[Statistic]) -> list[Difference]:
    """Returns the difference of every number between every two groups, which hold different people.

    The noise of two rounds is independent, and so are samples of different people; see `analyzer.differences`.
    """
    compared = []
    for statistic, other in itertools.combinations(groups, 2):
        for number, against in zip(statistic.numbers, other.numbers, strict=True):
            estimate = number.shown - against.shown
            own = _reach(statistic, number, number.participants), _reach(other, against, against.participants)
            whole = _reach(statistic, number, number.population), _reach(other, against, against.population)
            intervals = (_difference(*reaches, statistic, estimate) for reaches in (own, whole))
            compared.append(Difference(number.label, (statistic.group, other.group), estimate, *intervals))
    return compared


def _reach(statistic: Statistic, number: Number, interval: Interval) -> Reach:
    margin = NormalDist().inv_cdf((1 + statistic.level) / 2) * number.standard_error
    return reach(number.estimate, interval, margin, statistic.scale or (-math.inf, math.inf))


def _difference(first: Reach, second: Reach, statistic: Statistic, estimate: float) -> Interval:
    """Returns the interval of a difference, which holds the difference of the numbers that are shown."""
    low, high = apart(first, second, math.inf if statistic.scale is None else statistic.scale[1] - statistic.scale[0])
    return min(low, estimate), max(high, estimate)
