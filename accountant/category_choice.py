"""Which mechanism for one of many categories, with which parameters (docs/which-mechanism.md).

`planner` certifies the choice.
"""

from __future__ import annotations

import itertools
import re

from croupier.accountant.budgets import Budgets
from croupier.accountant.mechanism_choice import standard_error
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.registry import RANDOMIZERS
from croupier.accountant.release import SettledConditions
from croupier.protocol.mechanisms import MECHANISMS
from croupier.protocol.mechanisms.base import Form

_DEFAULT = SettledConditions()
_NAME = re.compile(r"categories\(\s*k\s*=\s*(\d+)\s*\)")


def categories_in(randomizer: Randomizer | str) -> int | None:
    """Returns the k of "categories(k=…)", which leaves the mechanism open; None for any other randomizer."""
    named = _NAME.fullmatch(randomizer.strip()) if isinstance(randomizer, str) else None
    return None if named is None else int(named[1])


def first_of_categories(k: int) -> tuple[Randomizer, ...]:
    """Returns the candidates that a search begins with: their budgets for the same target lie far apart."""
    return tuple(members[0] for members in _candidates(k) if members)


def best_of_categories(k: int, budgets: Budgets, conditions: SettledConditions = _DEFAULT) -> Randomizer:
    """Returns the candidate with the least standard error of a share for these budgets.

    Raises:
        ValueError: hop noise or hops outside their ranges.
    """

    def error(randomizer: Randomizer) -> float:
        return standard_error(budgets, randomizer, conditions.fakes(randomizer).variance)

    return min(itertools.chain(*_candidates(k)), key=error)


def _candidates(k: int) -> list[tuple[Randomizer, ...]]:
    """Returns the members for k categories of every kind for one choice of several."""
    return [
        randomizer.candidates(k) for kind, randomizer in RANDOMIZERS.items() if MECHANISMS[kind].form is Form.ONE_CHOICE
    ]
