"""The number of ordered levels for a number with the least error of the mean (docs/levels.md).

More levels round less, but spread the same budget over more values: fewer reports are the true level, and hop noise is
drawn for every level. `planner` and `accuracy` certify the choice.
"""

from __future__ import annotations

import numpy as np

from croupier.accountant.budgets import Budgets
from croupier.accountant.mechanism_choice import standard_error
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.levels import LevelsMean
from croupier.accountant.release import SettledConditions
from croupier.protocol.mechanisms.levels import MAX_LEVELS

LEVELS = "levels"
"""The name of the randomizer without its number of levels, which is then chosen."""
FIRST_LEVELS = LevelsMean(9), LevelsMean(2)
"""The first candidates: budgets for 9 levels are close to those of any best number of levels except 2."""
_DEFAULT = SettledConditions()


def is_open(randomizer: Randomizer | str) -> bool:
    """Says whether a randomizer is named without the number of its levels."""
    return isinstance(randomizer, str) and randomizer.strip() == LEVELS


def best_levels(budgets: Budgets, conditions: SettledConditions = _DEFAULT) -> LevelsMean:
    """Returns the levels with the least standard error of the mean, at the least favourable values, for these budgets.

    The error has one minimum among three levels or more; two, whose hop noise is smaller, are compared with it.

    Raises:
        ValueError: hop noise or hops outside their ranges.
    """

    def error(k: int) -> float:
        return standard_error(budgets, LevelsMean(k), conditions.fakes(LevelsMean(k)).variance)

    tried = np.unique(np.rint(np.geomspace(3, MAX_LEVELS, 60)).astype(int)).tolist()
    errors = [error(k) for k in tried]
    place = int(np.argmin(errors))
    near = range(tried[max(0, place - 1)], tried[min(len(tried) - 1, place + 1)] + 1)
    return LevelsMean(min((2, *near), key=error))
