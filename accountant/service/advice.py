"""What a refused round could have had: settings that would be granted, each certified before it is said."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress

from accountant.budgets import Budgets
from accountant.certification import certify
from accountant.mechanisms.registry import randomizer_of
from accountant.planner import plan, resized
from accountant.results import round_down
from protocol.manifest import RoundTerms

__all__ = ["nearest"]

_MOST_GROWTH = 21  # steps of a quarter: a hundred times as many users


def nearest(budgets: Budgets, limits: Sequence[float], terms: RoundTerms, dishonest: int) -> str:
    """Returns which settings would have been granted: smaller budgets for these users, or more users.

    Each is certified as it is printed, against the limit of every budget, before it is said; by the blanket bound,
    which is fast at any number of users, and above what the accountant would certify.
    """
    randomizer, delta = randomizer_of(terms.question.mechanism), terms.manifest.delta
    sequential = terms.question.sequential is not None

    def granted(candidate: Budgets) -> bool:
        found = certify(
            candidate,
            randomizer,
            delta=delta,
            dishonest=dishonest,
            adaptive_order=sequential,
            attack=False,
            bounds="blanket",
        )
        reached = [found.tier_of(epsilon).epsilon for epsilon in candidate.local_epsilon.tolist()]
        return found.delta <= delta and all(one <= limit for one, limit in zip(reached, limits, strict=True))

    found = []
    with suppress(ValueError):
        smaller = plan(
            randomizer,
            delta=delta,
            epsilon=min(limits),
            num_users=budgets.num_users,
            budgets=budgets,
            dishonest=dishonest,
            adaptive_order=sequential,
            bounds="blanket",
        ).budgets
        largest = float(budgets.local_epsilon[-1])
        share = round_down(float(smaller.local_epsilon[-1]) / largest, 3)
        if granted(Budgets(budgets.local_epsilon * float(share), budgets.local_delta, budgets.count)):
            found.append(f"local budgets {share} times as large (at most {round_down(float(share) * largest, 3)})")
    # In a sequential round more users may be missing, too, so that more of them alone need not be enough.
    sizes = [] if sequential else [int(budgets.num_users * 1.25**step) for step in range(1, _MOST_GROWTH)]
    enough = bisect_left(sizes, True, key=lambda users: granted(resized(budgets, users)))
    if enough < len(sizes):
        found.append(f"{sizes[enough]:,} users with these budgets in the same proportions")
    return f"this would be granted: {' or '.join(found) or 'only a larger epsilon_max'}"
