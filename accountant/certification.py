"""`certify`: from a multiset of local budgets to a certificate for the shuffled release.

It certifies every group of victims, takes the worst, and puts the assumptions, an attack and published figures beside
the number. `release` checks the arguments, `victims` forms the groups, `group_guarantees` certifies one group,
`assumptions` states the certificate's assumptions, and `evidence` finds the attack and the published figures.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np

from croupier.accountant.assumptions import (
    EVERYONE_ELSE_DISHONEST,
    assumptions_of_one_hop,
    assumptions_of_shuffle,
    same_report,
)
from croupier.accountant.bounds.profile import Victim
from croupier.accountant.budgets import AnyBudgets, Budgets
from croupier.accountant.certificate import Certificate
from croupier.accountant.evidence import attack_on_one_hop, attack_on_shuffle, published_bounds
from croupier.accountant.group_guarantees import (
    LOCAL,
    BoundPolicy,
    GroupGuarantee,
    composed_curve,
    group_guarantee,
    times,
)
from croupier.accountant.guarantees import Grade, Guarantee, LowerBound, TierCertificate
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.privacy_curve import PrivacyProfile, Proof
from croupier.accountant.ranges import is_number, outside
from croupier.accountant.release import Release, RoundConditions, SettledConditions, check_order
from croupier.accountant.victims import groups_of_victims
from croupier.protocol.codes import Assumption, Method
from croupier.protocol.permanent import PermanentSeries
from croupier.protocol.statements import Statement


def certify(
    budgets: AnyBudgets,
    randomizer: Randomizer | str,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    rounds: int | PermanentSeries = 1,
    attack: bool = True,
    compare_all: bool = False,
    seconds: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    **conditions: Unpack[RoundConditions],
) -> Certificate:
    """Returns a CERTIFIED central (epsilon, delta) for the shuffled multiset of reports, at the actual number of users.

    Args:
        budgets: the public multiset of local budgets: `Budgets`, a mapping from local epsilon to users, a sequence of
            (local epsilon, users) pairs, or a sequence of floats, one user each.
        randomizer: the randomizer of every client, or its name for `randomizer_from_name`: "rr", "krr(k=5)".
        delta: the total delta over all rounds, 0 < delta < 1; the certificate then gives the least epsilon found.
        epsilon: alternatively the total epsilon, >= 0; the certificate then gives delta. Exactly one of the two.
        rounds: the number of such releases that one client may take part in, each a batch of its own. With a
            `PermanentSeries` people send the same report in all of its waves, and the certificate covers all of them
            together, by the local budget and by hop noise: no bound of the shuffle holds (docs/permanent.md).
        attack: put the strongest quick attack beside the certificate, and refute published figures below it.
        compare_all: put every published bound beside the certificate, and not only the one that has personal budgets.
        seconds: after this time no slower bound is begun, and the remaining tiers keep the blanket's. None: no limit.
        progress: called with the number of tiers that are done, and of all.
        conditions: of each release, every one by its name; see `RoundConditions`.

    Neighbouring relation: replace-one. Direction of error: epsilon (or delta) is never below the exact one, and never
    above that of the local budget alone. Source: docs/accounting.md, section 2, personalised common blanket. Several
    rounds are composed by privacy loss distributions or by basic composition, whichever gives less.

    Raises ValueError for anything outside these ranges, naming the value and the range; and RuntimeError if the attack
    is above the certificate, so that no certificate contradicts itself.
    """
    release = Release.of(budgets, randomizer, delta, epsilon, rounds, SettledConditions.of(conditions))
    if seconds is not None and not (is_number(seconds) and seconds >= 0):
        raise outside("seconds", seconds, "a finite number >= 0, or None")
    guarantees = _group_guarantees(release, math.inf if seconds is None else time.monotonic() + seconds, progress)
    worst = max(guarantees, key=lambda guarantee: (guarantee.tier.epsilon, guarantee.tier.delta))
    reached = max(guarantee.tier.delta for guarantee in guarantees)
    # The attack uses the certified delta, which may be a local one and larger than the target.
    at = None if delta is None else reached
    fakes, rests_on_one_hop = release.fakes, {guarantee.rests_on_one_hop for guarantee in guarantees}
    of_shuffle = assumptions_of_shuffle(release) if False in rests_on_one_hop else ()
    of_one_hop = assumptions_of_one_hop(release, fakes) if fakes else ()
    lower = _attack(release, at, rests_on_one_hop) if attack else None
    tiers = _as_counted(release, [guarantee.tier for guarantee in guarantees])
    certificate = Certificate(
        epsilon=worst.tier.epsilon,
        delta=reached,
        grade=Grade.CERTIFIED,
        method=_of_unit(worst.method, release.randomizer),
        assumptions=tuple(dict.fromkeys((*of_shuffle, *(of_one_hop if True in rests_on_one_hop else ())))),
        num_users=sum(tier.count for tier in tiers),
        dishonest=release.conditions.dishonest,
        numerical_slack=max(guarantee.slack for guarantee in guarantees),
        tiers=tuple(tiers),
        everyone_else_colludes=_local(release),
        one_honest_hop=_one_honest_hop(guarantees, of_one_hop) if fakes else None,
        comparison=published_bounds(release, reached, at, lower, everything=compare_all),
        lower_bound=lower,
        randomizer=release.randomizer.name,
        linkage=release.conditions.linkage,
        rounds=release.rounds,
        counted_by=release.conditions.counted_by,
    )
    certificate.check_attack(lower)
    return certificate


def tier_profiles(
    budgets: Budgets, randomizer: Randomizer, delta: float, dishonest: int = 0, *, adaptive_order: bool
) -> list[tuple[Victim, PrivacyProfile | None]]:
    """Returns the curve behind every tier's certificate at this delta; None if there is none, or only one for a span.

    Arguments as for `certify`, with separate linkage.
    """
    check_order(randomizer, adaptive_order)
    policy = BoundPolicy(blanket_only=adaptive_order)
    return [
        (group.victim, composed_curve(group, randomizer, delta, policy))
        for group in groups_of_victims(budgets, randomizer, dishonest)
    ]


def _group_guarantees(
    release: Release, deadline: float, progress: Callable[[int, int], None] | None
) -> list[GroupGuarantee]:
    """Returns the guarantee of every group of victims, in increasing order of their local budgets."""
    randomizer, conditions, delta, rounds = release.randomizer, release.conditions, release.delta, release.rounds
    blanket_only = conditions.adaptive_order or conditions.bounds == "blanket"
    policy = BoundPolicy(blanket_only, deadline, fakes=release.fakes, waves=release.waves)
    groups = groups_of_victims(release.budgets, randomizer, release.colluding, conditions.linkage)
    guarantees: list[GroupGuarantee] = []
    for group in reversed(groups):  # the largest budgets first: they nearly always decide
        enough = max((guarantee.one_round for guarantee in guarantees), default=0.0)
        guarantee = group_guarantee(group, randomizer, delta, release.epsilon, rounds, policy, enough)
        if delta is None and rounds > 1:  # again, with bounds for about the total delta of all rounds
            about = guarantee.tier.delta / rounds
            again = group_guarantee(group, randomizer, delta, release.epsilon, rounds, policy, enough, about)
            guarantee = min(guarantee, again, key=lambda candidate: candidate.tier.delta)
        guarantees.append(guarantee)
        if progress is not None:
            progress(len(guarantees), len(groups))
    guarantees.sort(key=lambda guarantee: (guarantee.tier.local_epsilon, guarantee.tier.local_delta))
    return guarantees


def _local(release: Release) -> Guarantee:
    """Returns the guarantee of the largest local budget, which holds even if nobody else is honest."""
    budgets, randomizer, rounds = release.budgets, release.randomizer, release.rounds
    largest = float(budgets.local_epsilon[-1])  # as declared, also where a table shows less
    method = LOCAL if rounds == 1 else (*LOCAL, Statement.of(Method.BASIC_COMPOSITION, rounds=rounds))
    return Guarantee(
        epsilon=times(max(largest, randomizer.effective_epsilon(largest)), rounds),
        delta=min(1.0, times(float(budgets.local_delta.max()), rounds)) if randomizer.spends_local_delta else 0.0,
        grade=Grade.CERTIFIED,
        method=_of_unit(method, randomizer),
        assumptions=(EVERYONE_ELSE_DISHONEST, *same_report(release)),
    )


def _of_unit(method: Proof, randomizer: Randomizer) -> Proof:
    """Returns the method, with the protected unit if it is smaller than a user's data."""
    return method if randomizer.unit == "user" else (*method, Statement.of(Method.ONE_RECORD))


def _one_honest_hop(guarantees: Sequence[GroupGuarantee], assumptions: tuple[Statement[Assumption], ...]) -> Guarantee:
    """Returns the guarantee of one honest hop's fakes for the users of all tiers."""
    known = [guarantee.one_honest_hop for guarantee in guarantees if guarantee.one_honest_hop is not None]
    worst = max(known, key=lambda guarantee: (guarantee.tier.epsilon, guarantee.tier.delta))
    largest = max(guarantee.tier.delta for guarantee in known)
    return Guarantee(worst.tier.epsilon, largest, Grade.CERTIFIED, worst.method, assumptions)


def _attack(release: Release, delta: float | None, rests_on_one_hop: set[bool]) -> LowerBound | None:
    """Returns an attack on the bound behind all tiers; None if they have different ones."""
    if rests_on_one_hop == {False} and release.series is None:
        return attack_on_shuffle(release, delta)
    if rests_on_one_hop == {True} and release.fakes:
        return attack_on_one_hop(release, release.fakes, delta)
    return None


def _as_counted(release: Release, tiers: list[TierCertificate]) -> list[TierCertificate]:
    """Returns tiers without the victim that was added to each budget for budget privacy.

    Very many budgets are certified in groups.
    """
    victims = release.conditions.counted_by.victims
    if not victims:
        return tiers
    answered_in = np.searchsorted([tier.local_epsilon for tier in tiers], release.budgets.local_epsilon)
    added = (victims * np.bincount(answered_in, minlength=len(tiers))).tolist()
    return [replace(tier, count=tier.count - more) for tier, more in zip(tiers, added, strict=True)]
