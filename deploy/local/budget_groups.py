"""The local budgets of a population on one line: "0.5:54,1:37,2:9", groups of a local epsilon and a share.

Light on purpose: the command line and the configuration of a training read it before anything else is loaded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

GSPA_BUDGETS = "0.5:54,1:37,2:9"
"""The conservative, the moderate and the liberal participants of GSPA's experiments."""
HOP_NOISE_BUDGETS = "4,6,8"
"""With hop noise people need less noise of their own: it is the second promise, for the case that no hop is honest."""


@dataclass(frozen=True)
class BudgetGroup:
    """A share of a population, and the most local epsilon that its members spend on a round.

    Attributes:
        max_local_epsilon: a finite number > 0.
        share: relative to the other groups; a finite number > 0.
    """

    max_local_epsilon: float
    share: float = 1.0

    def __post_init__(self) -> None:
        """Checks the ranges."""
        for name, value in (("epsilon", self.max_local_epsilon), ("share", self.share)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"the {name} of a group is {value:g}; it must be a finite number > 0")


def parse_budget_groups(text: str) -> tuple[BudgetGroup, ...]:
    """Returns the groups in "epsilon:share,epsilon:share"; a share that is left out is 1.

    Raises:
        ValueError: naming the part that cannot be read.
    """
    groups = []
    for part in text.split(","):
        epsilon, _, share = part.partition(":")
        must = f"budgets has the part {part!r}; it must be epsilon:share, such as 0.5:54"
        try:
            numbers = float(epsilon), float(share or 1)
        except ValueError as error:
            raise ValueError(must) from error
        try:
            groups.append(BudgetGroup(*numbers))
        except ValueError as error:
            raise ValueError(f"{must} ({error})") from error
    return tuple(groups)
