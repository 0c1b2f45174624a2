"""Which mechanism, where a purpose is named in place of one: a mean, or the shares of categories.

For a mean it is `levels`: at the same certified epsilon its error is at most that of `onebit`, which is two levels, and
of `laplace`. More levels round less, but spread the same budget over more values: fewer reports are the true level, and
hop noise is drawn for every level. `planner` and `accuracy` certify the choice. Numbers: docs/which-mechanism.md.
"""

from __future__ import annotations

import itertools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np

from croupier.accountant.budgets import Budgets
from croupier.accountant.hop_noise_choice import HopGuarantee, TooManyFakes
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.levels import LevelsMean
from croupier.accountant.mechanisms.registry import RANDOMIZERS
from croupier.accountant.release import SettledConditions
from croupier.protocol.mechanisms import MECHANISMS
from croupier.protocol.mechanisms.base import Form
from croupier.protocol.mechanisms.levels import MAX_LEVELS

MOST_CHOICES = 4
"""The most randomizers that are tried from each start; each is the best for the budgets of the previous one."""
MEANS = ("mean", "levels")
"""The names of a mean: the number of levels is chosen."""
_CATEGORIES = re.compile(r"categories\(\s*k\s*=\s*(\d+)\s*\)")


def standard_error(budgets: Budgets, randomizer: Randomizer, variance_of_fakes: float = 0.0) -> float:
    """Returns the standard error of an estimated mean (range 1) or share, from the randomizers' and hops' noise alone.

    Args:
        budgets: of all users.
        randomizer: of all users.
        variance_of_fakes: the variance that hop noise adds to a count of reports.

    Raises:
        ValueError: the randomizer is a table, which has no estimator.
    """
    gain, variance = randomizer.signal(budgets.local_epsilon, budgets.local_delta)
    return math.sqrt(float(variance @ budgets.count) + variance_of_fakes) / float(gain @ budgets.count)


class Purpose(ABC):
    """A quantity that several mechanisms estimate."""

    @property
    @abstractmethod
    def starts(self) -> tuple[Randomizer, ...]:
        """The candidates that a search begins with: their budgets for the same target lie far apart."""

    @abstractmethod
    def best(self, budgets: Budgets, conditions: SettledConditions) -> Randomizer:
        """Returns the candidate with the least standard error for these budgets, at the least favourable values.

        Raises:
            ValueError: hop noise or hops outside their ranges.
        """


def _error(budgets: Budgets, conditions: SettledConditions) -> Callable[[Randomizer], float]:
    def error(randomizer: Randomizer) -> float:
        try:
            return standard_error(budgets, randomizer, conditions.fakes(randomizer).variance)
        except TooManyFakes:
            return math.inf

    return error


class Mean(Purpose):
    """The mean of numbers."""

    @property
    def starts(self) -> tuple[Randomizer, ...]:
        """See `Purpose`: budgets for 9 levels are close to those of any best number of levels except 2."""
        return LevelsMean(9), LevelsMean(2)

    def best(self, budgets: Budgets, conditions: SettledConditions) -> LevelsMean:
        """See `Purpose`.

        The error has one minimum among three levels or more; two, whose hop noise is smaller, are compared with it.
        """
        if isinstance(conditions.hop_noise, HopGuarantee):  # nearly the same noise, and quick
            conditions = replace(conditions, hop_noise=conditions.hop_noise.of_values)
        error = _error(budgets, conditions)
        tried = np.unique(np.rint(np.geomspace(3, MAX_LEVELS, 60)).astype(int)).tolist()
        place = int(np.argmin([error(LevelsMean(k)) for k in tried]))
        near = range(tried[max(0, place - 1)], tried[min(len(tried) - 1, place + 1)] + 1)
        return min(map(LevelsMean, (2, *near)), key=error)


@dataclass(frozen=True)
class Categories(Purpose):
    """The shares of k categories, of which each person has one."""

    k: int

    @property
    def starts(self) -> tuple[Randomizer, ...]:
        """See `Purpose`."""
        return tuple(members[0] for members in self._candidates if members)

    def best(self, budgets: Budgets, conditions: SettledConditions) -> Randomizer:
        """See `Purpose`."""
        return min(itertools.chain(*self._candidates), key=_error(budgets, conditions))

    @property
    def _candidates(self) -> list[tuple[Randomizer, ...]]:
        """The members for k categories of every kind for one choice of several."""
        kinds = RANDOMIZERS.items()
        return [family.candidates(self.k) for kind, family in kinds if MECHANISMS[kind].form is Form.ONE_CHOICE]


def purpose_of(randomizer: Randomizer | str) -> Purpose | None:
    """Returns the purpose that is named: "mean", "levels", "categories(k=1024)"; None where it is a randomizer."""
    if not isinstance(randomizer, str):
        return None
    if randomizer.strip() in MEANS:
        return Mean()
    named = _CATEGORIES.fullmatch(randomizer.strip())
    return None if named is None else Categories(int(named[1]))


class HasBudgets(Protocol):
    """An answer that names budgets."""

    @property
    def budgets(self) -> Budgets:
        """The budgets of all users."""
        ...


Answer = TypeVar("Answer", bound=HasBudgets)


def best_answer(
    answer_with: Callable[[Randomizer], Answer],
    purpose: Purpose,
    conditions: SettledConditions,
    cost: Callable[[Answer], float | tuple[float, float]],
) -> Answer:
    """Returns the cheapest of a few answers, each with the best randomizer for the budgets of another answer."""
    answers: dict[Randomizer, Answer] = {}
    for start in purpose.starts:
        randomizer, steps = start, 0
        while randomizer not in answers and steps < MOST_CHOICES:
            try:
                answers[randomizer] = answer_with(randomizer)
            except TooManyFakes:
                if not answers and start == purpose.starts[-1]:
                    raise
                break
            randomizer, steps = purpose.best(answers[randomizer].budgets, conditions), steps + 1
    return min(answers.values(), key=cost)
