"""`lower_bound`: the strongest attack found on the shuffled release, as a lower bound on every true epsilon.

Grade LOWER_BOUND: one concrete pair of neighbouring data sets, one event, its two probabilities computed with their
numerical error taken off. The certificates are the other side; where the two are close, both are nearly the truth.
How an event becomes a bound is left to `attacks.event_tests`, which data sets exist to the attacks on each mechanism.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from croupier.accountant.attacks.event_tests import NO_WITNESS, Attacks, Population, Target, Witness
from croupier.accountant.budgets import AnyBudgets, Budgets, as_budgets
from croupier.accountant.guarantees import LowerBound
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.registry import as_randomizer
from croupier.accountant.numerics.binomial import UNIT
from croupier.accountant.ranges import Linkage, check_count, check_linkage, outside

Progress = Callable[[LowerBound, int], None]
"""Called with the best attack so far and the number of attacks tried."""

VICTIMS = 2
"""The number of largest tiers that are tried as the victim's."""
MANY_TIERS = 64
"""With more tiers only the largest is tried by default, because its neighbours hardly differ."""
_STALE = 300
"""A victim's search ends after this many repeated variations in a row."""


def lower_bound(
    budgets: AnyBudgets,
    randomizer: Randomizer | str,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    dishonest: int = 0,
    linkage: Linkage = "separate",
    victim: float | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> LowerBound:
    """Returns the strongest attack found on any user: no (epsilon', delta) with a smaller epsilon' can be true.

    Args:
        budgets: the public multiset of local budgets, as for `certify`.
        randomizer: the randomizer of every client, or its name, as for `certify`.
        delta: 0 < delta < 1; the bound then gives epsilon. Exactly one of delta and epsilon.
        epsilon: >= 0; the bound then gives delta at this epsilon.
        dishonest: the number of other users, with the smallest budgets, who tell the observer which report is theirs.
        linkage: "separate", or "stratified" if a report shows its tier: only the victim's own tier hides it.
        victim: the local epsilon of the users to attack; None: the few tiers that promise the strongest attack.
        seconds: search on for this time (>= 0) with other data sets, events and victims; None: the first few only.
        progress: called during the search.

    Returns:
        The bound and a description of its data set and event. Neighbouring relation: replace-one. Direction of error:
        rounded down, numerical errors included, for the randomizer as declared. Source: docs/lower-bounds.md.

    Raises:
        ValueError: anything outside these ranges.
    """
    target = Target(delta, epsilon)
    budgets, randomizer = _checked(budgets, randomizer, dishonest, linkage, seconds)
    tiers = _victims(budgets, linkage, target, seconds) if victim is None else _tiers_of(budgets, victim)
    populations = [_population(budgets, tier, dishonest, linkage) for tier in tiers]
    victims = [(population, randomizer.attacks(population, target)) for population in populations]
    return _search(victims, target, seconds, progress)


def is_attackable(randomizer: Randomizer) -> bool:
    """Whether attacks on this randomizer are known here."""
    return randomizer.no_attack is None


def _checked(
    budgets: AnyBudgets,
    randomizer: Randomizer | str,
    dishonest: int,
    linkage: Linkage,
    seconds: float | None,
) -> tuple[Budgets, Randomizer]:
    check_count(dishonest, "dishonest")
    check_linkage(linkage)
    if seconds is not None and not 0 <= seconds < math.inf:
        raise outside("seconds", seconds, "a finite number >= 0, or None")
    return as_budgets(budgets), as_randomizer(randomizer)


def _tiers_of(budgets: Budgets, victim: float) -> list[int]:
    indices: list[int] = np.flatnonzero(budgets.local_epsilon == victim).tolist()
    if not indices:
        raise outside("victim", victim, "the local epsilon of a tier")
    return indices


def _victims(budgets: Budgets, linkage: Linkage, target: Target, seconds: float | None) -> list[int]:
    """Returns the tiers whose members are attacked, the most promising first."""
    tiers = budgets.num_tiers
    if linkage == "separate":
        few = 1 if tiers > MANY_TIERS and seconds is None else VICTIMS
        return list(range(tiers - 1, max(-1, tiers - 1 - few), -1))
    # Stratified, a small tier may be worse off than a larger budget; the Gaussian limit of randomised response decides.
    decay = np.exp(-budgets.local_epsilon)
    hidden = np.maximum(budgets.count - 1, 1e-9) * 2 * decay / (1 + decay)
    spread = 2 * np.tanh(budgets.local_epsilon / 2) / np.sqrt(hidden) * math.sqrt(2 * target.log_odds)
    order = np.argsort(-np.minimum(spread, budgets.local_epsilon), kind="stable")
    return [int(tier) for tier in order[: 3 * VICTIMS]]


def _population(budgets: Budgets, tier: int, dishonest: int, linkage: Linkage) -> Population:
    if linkage == "stratified":
        kept = slice(tier, tier + 1)
        count, epsilons, deltas = budgets.count[kept] - 1, budgets.local_epsilon[kept], budgets.local_delta[kept]
    else:
        count, epsilons, deltas = budgets.count.copy(), budgets.local_epsilon, budgets.local_delta
        count[tier] -= 1
    before = np.cumsum(count) - count  # tiers are sorted: the smallest budgets hide best, and are removed first
    count = count - np.clip(dishonest - before, 0, count)
    used = count > 0
    return Population(
        float(budgets.local_epsilon[tier]), float(budgets.local_delta[tier]), epsilons[used], deltas[used], count[used]
    )


def _search(
    victims: list[tuple[Population, Attacks]], target: Target, seconds: float | None, progress: Progress | None
) -> LowerBound:
    """Tests the default data sets of every victim, then varies each one's best in turn until the time is over."""
    deadline = None if seconds is None else time.monotonic() + seconds
    best = _answer(victims[0][0], NO_WITNESS, target)
    for tried, (population, witness) in enumerate(_witnesses(victims, target, deadline), 1):
        answer = _answer(population, witness, target)
        better = (answer.epsilon, answer.delta) > (best.epsilon, best.delta) or tried == 1
        best = answer if better else best
        if progress is not None and (better or deadline is not None):
            progress(best, tried)
    return best


def _witnesses(
    victims: list[tuple[Population, Attacks]], target: Target, deadline: float | None
) -> Iterator[tuple[Population, Witness]]:
    searches = []
    for population, attacks in victims:
        data: Any = None
        best = NO_WITNESS
        seen = set()
        for default in attacks.defaults():
            if default in seen:
                continue
            seen.add(default)
            witness = attacks.test(default, target)
            if witness.score > best.score or data is None:
                best, data = witness, default
            yield population, witness
        searches.append(_vary(attacks, data, best.score, seen, target))
    if deadline is None:
        return
    populations = [population for population, _ in victims]
    while searches:
        for place in range(len(searches) - 1, -1, -1):
            if time.monotonic() >= deadline:
                return
            witness = next(searches[place], NO_WITNESS)
            if witness is NO_WITNESS:  # the search for this victim has ended
                del searches[place], populations[place]
            else:
                yield populations[place], witness


def _vary(attacks: Attacks, data: Any, score: float, seen: set[Any], target: Target) -> Iterator[Witness]:
    # Seeded: the same search finds the same attack. No secret depends on it.
    generator = np.random.default_rng(0)
    stale = 0
    while stale < _STALE:
        variant = attacks.vary(data, generator)
        if variant in seen:
            stale += 1
            continue
        stale = 0
        seen.add(variant)
        witness = attacks.test(variant, target)
        if witness.score >= score:
            score, data = witness.score, variant
        yield witness


def _answer(population: Population, witness: Witness, target: Target) -> LowerBound:
    """Returns the witness's bound, rounded down; never above a pure randomizer's budget, where no event has a score."""
    score = max(0.0, witness.score)
    words = witness.event if witness.score > 0 else f"{population}: no event proves more than 0"
    if target.epsilon is not None:
        return LowerBound(target.epsilon, min(1.0, score * (1 - 4 * UNIT)), words)
    return LowerBound(score * (1 - 4 * UNIT), float(target.delta or 0.0), words)
