"""`lower_bound`: the strongest attack that was found on the shuffled release, as a number that nothing can be below.

Grade LOWER_BOUND: one concrete pair of neighbouring data sets, one event, its two probabilities computed with their
numerical error taken off. The certificates are the other side; where the two are close, both are nearly the truth.
How an event becomes a bound is left to `attack_games`, which data sets exist to the families of attacks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from accountant.attacks.additive_noise import NoiseAttacks
from accountant.attacks.binary import BitAttacks
from accountant.attacks.event_tests import NOTHING, Bet, Family, Goal, Scene
from accountant.attacks.interval_probabilities import GaussianNoise, LaplaceNoise, gaussian_scales
from accountant.attacks.kary import LetterAttacks
from accountant.budgets import Budgets, as_budgets
from accountant.mechanisms.randomizers import (
    GaussianMechanism,
    KaryRandomizedResponse,
    LaplaceMechanism,
    Randomizer,
    randomizer_from_name,
)
from accountant.numerics.binomial import UNIT
from accountant.results import LowerBound, check_count

__all__ = ["ATTACKS", "NoAttack", "Progress", "is_attackable", "lower_bound", "tier_lower_bound"]

Progress = Callable[[LowerBound, int], None]
"""Called with the best attack so far and how many were tried."""

VICTIMS = 2
"""The largest tiers that are tried as the victim's."""
MANY_TIERS = 64
"""With more tiers only the largest is tried by default: its neighbours are no different."""
LINKAGES = ("separate", "stratified")
_STALE = 300
"""After this many variations in a row that were tried before, a victim's search is over."""


def lower_bound(
    budgets: Budgets | Iterable[float],
    randomizer: Randomizer | str,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    dishonest: int = 0,
    linkage: str = "separate",
    seconds: float | None = None,
    progress: Progress | None = None,
) -> LowerBound:
    """The strongest attack on any user that was found: no (epsilon', delta) with a smaller epsilon' can be true.

    Args:
        budgets: the public multiset of local budgets; a sequence of floats means one user each.
        randomizer: what every client runs; a name without parameters is allowed.
        delta: 0 < delta < 1; the bound then gives epsilon. Exactly one of delta and epsilon.
        epsilon: >= 0; the bound then gives delta at this epsilon.
        dishonest: that many other users, those of the smallest budgets, tell the observer which report is theirs.
        linkage: "separate", or "stratified" where a report shows its tier: only the victim's own tier is left.
        seconds: search on for this long (>= 0) with other data sets, events and victims; None plays only the first few.
        progress: called during the search.

    Neighbouring relation: replace-one. Direction of error: rounded down, numerical errors included, for the randomizer
    as declared. Source: docs/accounting.md, section 6. Raises ValueError for anything outside these ranges.
    """
    goal = Goal(delta, epsilon)
    budgets, randomizer = _checked(budgets, randomizer, dishonest, linkage, seconds)
    scenes = [_scene(budgets, tier, dishonest, linkage) for tier in _victims(budgets, linkage, goal, seconds)]
    return _search([(scene, _family(scene, randomizer, goal)) for scene in scenes], goal, seconds, progress)


def is_attackable(randomizer: Randomizer) -> bool:
    """Whether attacks on this randomizer are known here."""
    return not isinstance(_attack_on(randomizer), NoAttack)


def tier_lower_bound(
    budgets: Budgets | Iterable[float],
    randomizer: Randomizer | str,
    local_epsilon: float,
    local_delta: float | None = None,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    dishonest: int = 0,
    linkage: str = "separate",
    seconds: float | None = None,
    progress: Progress | None = None,
) -> LowerBound:
    """As `lower_bound`, with a victim of the tier (local_epsilon, local_delta) only.

    local_delta may be left out where only one tier has this local_epsilon. Raises ValueError also where no user has
    this budget.
    """
    goal = Goal(delta, epsilon)
    budgets, randomizer = _checked(budgets, randomizer, dishonest, linkage, seconds)
    found = budgets.local_epsilon == local_epsilon
    if local_delta is not None:
        found &= budgets.local_delta == local_delta
    if int(found.sum()) != 1:
        raise ValueError(
            f"local budget is ({local_epsilon!r}, {local_delta!r}), which {int(found.sum())} tiers have; allowed is "
            "the budget of exactly one tier"
        )
    scene = _scene(budgets, int(np.argmax(found)), dishonest, linkage)
    return _search([(scene, _family(scene, randomizer, goal))], goal, seconds, progress)


def _checked(
    budgets: Budgets | Iterable[float],
    randomizer: Randomizer | str,
    dishonest: int,
    linkage: str,
    seconds: float | None,
) -> tuple[Budgets, Randomizer]:
    check_count(dishonest, "dishonest")
    if linkage not in LINKAGES:
        raise ValueError(f"linkage is {linkage!r}; allowed is {', '.join(LINKAGES)}")
    if seconds is not None and not 0 <= seconds < math.inf:
        raise ValueError(f"seconds is {seconds!r}; allowed is a finite number >= 0, or None")
    randomizer = randomizer_from_name(randomizer) if isinstance(randomizer, str) else randomizer
    return as_budgets(budgets), randomizer


def _victims(budgets: Budgets, linkage: str, goal: Goal, seconds: float | None) -> list[int]:
    """The tiers whose members are attacked, the most promising first."""
    tiers = budgets.num_tiers
    if linkage == "separate":
        few = 1 if tiers > MANY_TIERS and seconds is None else VICTIMS
        return list(range(tiers - 1, max(-1, tiers - 1 - few), -1))
    # Stratified, a small tier may be worse off than a larger budget. The Gaussian limit of randomised response tells.
    decay = np.exp(-budgets.local_epsilon)
    hidden = np.maximum(budgets.count - 1, 1e-9) * 2 * decay / (1 + decay)
    spread = 2 * np.tanh(budgets.local_epsilon / 2) / np.sqrt(hidden) * math.sqrt(2 * goal.log_odds)
    order = np.argsort(-np.minimum(spread, budgets.local_epsilon), kind="stable")
    return [int(tier) for tier in order[: 3 * VICTIMS]]


def _scene(budgets: Budgets, tier: int, dishonest: int, linkage: str) -> Scene:
    if linkage == "stratified":
        kept = slice(tier, tier + 1)
        count, epsilons, deltas = budgets.count[kept] - 1, budgets.local_epsilon[kept], budgets.local_delta[kept]
    else:
        count, epsilons, deltas = budgets.count.copy(), budgets.local_epsilon, budgets.local_delta
        count[tier] -= 1
    before = np.cumsum(count) - count  # tiers are sorted: the smallest budgets hide best, and are the first to go
    count = count - np.clip(dishonest - before, 0, count)
    used = count > 0
    return Scene(
        float(budgets.local_epsilon[tier]), float(budgets.local_delta[tier]), epsilons[used], deltas[used], count[used]
    )


def _bits(scene: Scene, randomizer: Randomizer, goal: Goal) -> Family:
    return BitAttacks(scene)


def _rounded(scene: Scene, randomizer: Randomizer, goal: Goal) -> Family:
    return BitAttacks(scene, "values, at the ends of the interval,")


def _directions(scene: Scene, randomizer: Randomizer, goal: Goal) -> Family:
    return BitAttacks(scene, "directions (along one line)", "count of reports on the positive side")


def _letters(scene: Scene, randomizer: KaryRandomizedResponse, goal: Goal) -> Family:
    return BitAttacks(scene, "letters") if randomizer.k == 2 else LetterAttacks(scene, randomizer.k)


def _laplace(scene: Scene, randomizer: LaplaceMechanism, goal: Goal) -> Family:
    noise = LaplaceNoise(randomizer.lattice)
    return NoiseAttacks(scene, noise, 1 / scene.local_epsilon, 1 / scene.others_epsilon, goal)


def _gaussian(scene: Scene, randomizer: GaussianMechanism, goal: Goal) -> Family:
    own = gaussian_scales(np.array([scene.local_epsilon]), np.array([scene.local_delta]))
    scales = gaussian_scales(scene.others_epsilon, scene.others_delta)
    if randomizer.lattice is not None:  # a deployment's own calibration
        own = 1 / np.sqrt(2 * randomizer.rates(np.array([scene.local_epsilon]), np.array([scene.local_delta])))
        scales = 1 / np.sqrt(2 * randomizer.rates(scene.others_epsilon, scene.others_delta))
    # On a lattice only the coordinate along the axis is used: what is read off it is valid in any dimension.
    dimension = 1 if randomizer.lattice is not None else randomizer.dimension
    return NoiseAttacks(scene, GaussianNoise(randomizer.lattice), float(own[0]), scales, goal, dimension)


@dataclass(frozen=True)
class NoAttack:
    """Why there is none on a kind of mechanism."""

    reason: str


ATTACKS: dict[str, Callable[[Scene, Any, Goal], Family] | NoAttack] = {
    "rr": _bits,
    "krr": _letters,
    "onebit": _rounded,
    "laplace": _laplace,
    "gaussian": _gaussian,
    "hemisphere": _directions,
    "gaussian_vector": NoAttack("its certificate is the local guarantee, which no shuffle has to keep"),
}
"""The attacks that exist on every kind of mechanism."""


def _attack_on(randomizer: Randomizer) -> Callable[[Scene, Any, Goal], Family] | NoAttack:
    return ATTACKS.get(randomizer.kind, NoAttack("no attack on it is known"))


def _family(scene: Scene, randomizer: Randomizer, goal: Goal) -> Family:
    """The attacks that exist on this randomizer. Raises ValueError where there are none."""
    attack = _attack_on(randomizer)
    if isinstance(attack, NoAttack):
        raise ValueError(f"randomizer is {randomizer.name!r}; {attack.reason}")
    return attack(scene, randomizer, goal)


def _search(
    players: list[tuple[Scene, Family]], goal: Goal, seconds: float | None, progress: Progress | None
) -> LowerBound:
    """Plays what comes first for every victim, then varies each one's best data set in turn until the time is over."""
    deadline = None if seconds is None else time.monotonic() + seconds
    best = _answer(players[0][0], NOTHING, goal)
    for tried, (scene, bet) in enumerate(_turns(players, goal, deadline), 1):
        answer = _answer(scene, bet, goal)
        better = (answer.epsilon, answer.delta) > (best.epsilon, best.delta) or tried == 1
        best = answer if better else best
        if progress is not None and (better or deadline is not None):
            progress(best, tried)
    return best


def _turns(players: list[tuple[Scene, Family]], goal: Goal, deadline: float | None) -> Iterator[tuple[Scene, Bet]]:
    searches = []
    for scene, family in players:
        data: Any = None
        best = NOTHING
        seen = set()
        for one in family.defaults():
            if one in seen:
                continue
            seen.add(one)
            bet = family.play(one, goal)
            if bet.score > best.score or data is None:
                best, data = bet, one
            yield scene, bet
        searches.append(_vary(family, data, best.score, seen, goal))
    if deadline is None:
        return
    scenes = [scene for scene, _ in players]
    while searches:
        for place in range(len(searches) - 1, -1, -1):
            if time.monotonic() >= deadline:
                return
            bet = next(searches[place], NOTHING)
            if bet is NOTHING:  # nothing new is left for this victim
                del searches[place], scenes[place]
            else:
                yield scenes[place], bet


def _vary(family: Family, data: Any, score: float, seen: set[Any], goal: Goal) -> Iterator[Bet]:
    # Seeded: the same search finds the same attack. No secret depends on it.
    generator = np.random.default_rng(0)
    stale = 0
    while stale < _STALE:
        one = family.vary(data, generator)
        if one in seen:
            stale += 1
            continue
        stale = 0
        seen.add(one)
        bet = family.play(one, goal)
        if bet.score >= score:
            score, data = bet.score, one
        yield bet


def _answer(scene: Scene, bet: Bet, goal: Goal) -> LowerBound:
    """Rounded down; never above the local budget of a pure randomizer, at which no event proves anything."""
    score = max(0.0, bet.score)
    words = bet.event if bet.score > 0 else f"{scene}: no event proves more than 0"
    if goal.epsilon is not None:
        return LowerBound(goal.epsilon, min(1.0, score * (1 - 4 * UNIT)), words)
    return LowerBound(score * (1 - 4 * UNIT), float(goal.delta or 0.0), words)
