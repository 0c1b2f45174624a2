"""Groups of victims that share a guarantee: each tier by itself, spans of many different budgets, or strata.

The curve of a group holds for every victim in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from croupier.accountant.bounds.profile import Others, Victim
from croupier.accountant.budgets import Budgets
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.ranges import Linkage

MAX_EXACT_TIERS = 32
"""Up to this many distinct budgets every tier is computed by itself; beyond, budgets are reported in groups."""
REPORTED_GROUPS = 4
"""The number of groups in which arbitrary budgets are reported, each at its largest local budget."""
MAX_STRATA = 64
"""With stratified linkage, the number of largest tiers for which amplification is computed."""


@dataclass(frozen=True, eq=False)
class Group:
    """Users with one guarantee: the worst victim among them, their number, the others, and whether budgets differ."""

    victim: Victim
    count: int
    others: Others
    several: bool = False


def groups_of_victims(
    budgets: Budgets,
    randomizer: Randomizer,
    dishonest: int,
    linkage: Linkage = "separate",
) -> list[Group]:
    """Returns the victims to compute for. Every user is in one group and spends at most its victim's local budget.

    Args:
        budgets: of all users.
        randomizer: of all users.
        dishonest: the number of a victim's others who may collude.
        linkage: "separate" or "stratified".
    """
    if linkage == "stratified":
        return _strata(budgets, dishonest)
    if budgets.num_tiers <= MAX_EXACT_TIERS:
        return [_single(budgets, tier, dishonest) for tier in range(budgets.num_tiers)]
    # A curve has to hold for every victim of its group (closed forms: a smaller budget is a post-processing of a larger
    # one, so the largest is the worst). The victim's own blanket is removed as if it were the most helpful one.
    others = Others(budgets.local_epsilon, budgets.local_delta, budgets.count, dishonest + 1)
    low, high = float(budgets.local_epsilon[0]), float(budgets.local_epsilon[-1])
    width = (high - low) / REPORTED_GROUPS
    part = np.minimum(((budgets.local_epsilon - low) / max(width, 1e-300)).astype(np.int64), REPORTED_GROUPS - 1)
    rates = randomizer.rates(budgets.local_epsilon, budgets.local_delta)
    groups = []
    starts = np.flatnonzero(np.diff(part, prepend=-1))  # increasing, as the budgets are
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), part.size], strict=True):
        members = slice(start, end)
        # With local deltas, the member of the largest epsilon need not be the one whose reports show most.
        ends = [start + int(np.argmin(rates[members])), start + int(np.argmax(rates[members]))]
        hides, shows = ((float(budgets.local_epsilon[end]), float(budgets.local_delta[end])) for end in ends)
        most = float(budgets.local_epsilon[members].max()), float(budgets.local_delta[members].max())
        groups.append(Group(Victim(*most, (hides, shows)), int(budgets.count[members].sum()), others, end - start > 1))
    return groups


def _single(budgets: Budgets, tier: int, dishonest: int) -> Group:
    count = budgets.count.copy()
    if budgets.num_users == 1:  # without others: as good as with one dishonest twin
        dishonest = max(1, dishonest)
    else:
        count[tier] -= 1
    kept = count > 0
    others = Others(
        budgets.local_epsilon[kept],
        budgets.local_delta[kept],
        count[kept],
        dishonest,
    )
    victim = Victim(float(budgets.local_epsilon[tier]), float(budgets.local_delta[tier]))
    return Group(victim, int(budgets.count[tier]), others)


def _strata(budgets: Budgets, dishonest: int) -> list[Group]:
    """Returns one group per tier with only its own tier around it; tiers beyond MAX_STRATA get no amplification.

    Neighbours among the latter are one group. No other tier lies between them, so that a budget's group is the first
    one whose budget is not below it.
    """
    order = np.argsort(-budgets.count, kind="stable")
    groups = []
    for tier in order[:MAX_STRATA].tolist():
        own = slice(tier, tier + 1)
        stratum = Budgets(budgets.local_epsilon[own], budgets.local_delta[own], budgets.count[own])
        groups.append(_single(stratum, 0, dishonest))
    rest = np.sort(order[MAX_STRATA:])
    none = Others(np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64), 0)
    for members in np.split(rest, np.flatnonzero(np.diff(rest) > 1) + 1) if rest.size else []:
        victim = Victim(float(budgets.local_epsilon[members].max()), float(budgets.local_delta[members].max()))
        groups.append(Group(victim, int(budgets.count[members].sum()), none, members.size > 1))
    return groups
