"""`certify`: from budgets and a randomizer to the central guarantee that holds, tier by tier.

The bound is the personalised common blanket of docs/accounting.md, section 2:  δ(ε) ≤ Σ_m Pr[M = m]·δ(m).  This room
groups users, removes the dishonest, and inverts δ(ε); the law of M is `accountant.blanket`'s, δ(m) the randomizer's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from accountant.blanket import BlanketCount, blanket_count, remove_largest
from accountant.budgets import Budgets
from accountant.published import gspa_theorem_2
from accountant.randomizers import Randomizer
from accountant.results import Certificate, Grade, Guarantee, TierCertificate

__all__ = ["MIN_DELTA", "certify"]

MIN_DELTA = 1e-15
# With few tiers every victim gets the exact law of the others; with many they share a slightly pessimistic one.
_EXACT_TIERS = 24
_VICTIM_CELLS = 24
_GAMMA_CELLS = 2000
_RELATIVE_STEP = 1e-6


@dataclass(frozen=True, eq=False)
class _Victim:
    """One tier's divergence as a function of epsilon."""

    randomizer: Randomizer
    local_epsilon: float
    others: BlanketCount

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Returns an upper bound on δ(ε) and how much of it is numerical slack."""
        if epsilon >= self.local_epsilon:
            return 0.0, 0.0
        values, errors = self.randomizer.delta_given(self.others.m, self.local_epsilon, epsilon)
        slack = float(np.dot(self.others.mass, errors)) + self.others.slack
        return float(np.dot(self.others.mass, values)) + slack, slack

    def epsilon(self, delta: float) -> float:
        """Returns an ε with δ(ε) ≤ `delta`, at most a relative 1e-6 above the smallest; the local budget at worst."""
        from scipy.optimize import brentq

        def excess(epsilon: float) -> float:
            return math.log(max(self.delta(epsilon)[0], 1e-300) / delta)

        if self.delta(0.0)[0] <= delta:
            return 0.0
        low, high = 0.0, self.local_epsilon
        probe = min(high, 8 / math.sqrt(1 + float(np.dot(self.others.m, self.others.mass))))
        while probe < high and excess(probe) > 0:
            low, probe = probe, 2 * probe
        high = min(high, probe)
        if excess(math.nextafter(high, 0.0)) > 0:
            return high
        root = float(brentq(excess, low, math.nextafter(high, 0.0), xtol=1e-12, rtol=1e-7, maxiter=200))
        step = root * _RELATIVE_STEP + 1e-12
        while self.delta(root)[0] > delta:  # the upper end of the bracket: never below the root
            root, step = root + step, 2 * step
        return min(root, self.local_epsilon)


def _snap_gammas(randomizer: Randomizer, budgets: Budgets) -> list[tuple[float, int]]:
    """Returns (γ, count) groups; above `_GAMMA_CELLS` tiers γ is rounded down to a grid, which is sound."""
    epsilons = np.array([tier.local_epsilon for tier in budgets.tiers])
    counts = np.array([tier.count for tier in budgets.tiers])
    gammas = randomizer.gamma(epsilons)
    if len(gammas) > _GAMMA_CELLS:
        gammas = np.nextafter(np.floor(gammas * _GAMMA_CELLS) / _GAMMA_CELLS, 0.0)
    unique, position = np.unique(gammas, return_inverse=True)
    totals = np.bincount(position, weights=counts).astype(np.int64)
    return [(float(gamma), int(total)) for gamma, total in zip(unique, totals, strict=True)]


def _without_one(groups: list[tuple[float, int]], gamma: float) -> list[tuple[float, int]]:
    left = [(g, count - (g == gamma)) for g, count in groups]
    return [(g, count) for g, count in left if count]


def _victims(randomizer: Randomizer, budgets: Budgets, dishonest: int) -> list[_Victim]:
    """Returns one victim per tier, in the order of the tiers."""
    groups = _snap_gammas(randomizer, budgets)
    if len(budgets.tiers) <= _EXACT_TIERS:
        victims = []
        for tier in budgets.tiers:
            gamma = float(randomizer.gamma(np.array([tier.local_epsilon]))[0])
            others = remove_largest(_without_one(groups, gamma), dishonest)
            victims.append(_Victim(randomizer, tier.local_epsilon, blanket_count(others, randomizer.buckets_per_sigma)))
        return victims
    # The others of any victim hide it at least as well as everyone without the dishonest + 1 largest γ.
    shared = blanket_count(remove_largest(groups, dishonest + 1), randomizer.buckets_per_sigma)
    # A victim of a smaller budget can be made from one of a larger by post-processing: round budgets up to cells.
    smallest, largest = budgets.tiers[0].local_epsilon, budgets.largest
    edges = np.geomspace(smallest, largest, _VICTIM_CELLS + 1)[1:]
    edges[-1] = largest
    cells = {float(edge): _Victim(randomizer, float(edge), shared) for edge in edges}
    positions = np.searchsorted(edges, [tier.local_epsilon for tier in budgets.tiers])
    return [cells[float(edges[position])] for position in positions]


def _as_budgets(budgets: Budgets | Iterable[float]) -> Budgets:
    return budgets if isinstance(budgets, Budgets) else Budgets.from_epsilons(budgets)


def certify(
    budgets: Budgets | Iterable[float],
    randomizer: Randomizer,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    dishonest: int = 0,
) -> Certificate:
    """Returns the certified central guarantee of one shuffled batch, for the worst-off tier and for each.

    Args:
        budgets: the multiset of local epsilons of all n users.
        randomizer: what every user runs.
        delta: certify ε at this δ, 1e-15 ≤ δ < 1; or
        epsilon: certify δ at this ε ≥ 0. Exactly one of the two.
        dishonest: f, users who may collude with the reader; 0 ≤ f.

    Neighbours differ in the value of one user (replace-one). Direction of error: ε and δ are never below the true
    ones of the bound; truncation and round-off are in `numerical_slack`. Source: docs/accounting.md, section 2 (ours;
    for equal budgets Balle, Bell, Gascón, Nissim, CRYPTO 2019).

    Raises:
        ValueError: an argument out of its range, or not exactly one of delta and epsilon.
    """
    budgets = _as_budgets(budgets)
    if (delta is None) == (epsilon is None):
        raise ValueError(f"delta is {delta} and epsilon is {epsilon}; give exactly one of them")
    if delta is not None and not MIN_DELTA <= delta < 1:
        raise ValueError(f"delta is {delta}; allowed is {MIN_DELTA} ≤ delta < 1")
    if epsilon is not None and not (math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"epsilon is {epsilon}; allowed are finite numbers ≥ 0")
    if dishonest < 0:
        raise ValueError(f"dishonest is {dishonest}; allowed are whole numbers ≥ 0")
    victims = _victims(randomizer, budgets, dishonest)
    distinct = list(dict.fromkeys(victims))
    if epsilon is not None:
        target = max(_tier_delta(victim, epsilon) for victim in distinct)
        epsilons = {victim: min(epsilon, _tier_epsilon(victim, target)) for victim in distinct}
    else:
        target = delta or 0.0
        epsilons = {victim: _tier_epsilon(victim, target) for victim in distinct}
    tiers = tuple(
        TierCertificate(tier.local_epsilon, tier.local_delta, tier.count, min(epsilons[victim], tier.local_epsilon))
        for tier, victim in zip(budgets.tiers, victims, strict=True)
    )
    return Certificate(
        epsilon=max(tier.epsilon for tier in tiers) if epsilon is None else epsilon,
        delta=target,
        grade=Grade.CERTIFIED,
        method="local budget" if randomizer.local_only else "personalised common blanket, closed form",
        assumptions=_assumptions(randomizer, dishonest),
        randomizer=randomizer.name,
        num_users=budgets.num_users,
        dishonest=dishonest,
        numerical_slack=max(victim.delta(epsilons[victim])[1] for victim in distinct),
        tiers=tiers,
        everyone_else_colludes=_local_guarantee(budgets),
        comparison=(gspa_theorem_2(budgets, target),) if 0 < target < 1 else (),
    )


def _tier_epsilon(victim: _Victim, delta: float) -> float:
    """Returns the tier's ε; no amplification is sought where δ = 0, where there is none."""
    if victim.randomizer.local_only or delta < MIN_DELTA:
        return victim.local_epsilon
    return victim.epsilon(delta)


def _tier_delta(victim: _Victim, epsilon: float) -> float:
    if epsilon >= victim.local_epsilon:
        return 0.0
    local = -math.expm1(epsilon - victim.local_epsilon)
    return local if victim.randomizer.local_only else min(local, victim.delta(epsilon)[0])


def _local_guarantee(budgets: Budgets) -> Guarantee:
    return Guarantee(
        budgets.largest, 0.0, Grade.CERTIFIED, "local budget", ("the user's own device runs the declared randomizer",)
    )


def _assumptions(randomizer: Randomizer, dishonest: int) -> tuple[str, ...]:
    shuffled = (
        "at least one shuffler is honest",
        f"at most {dishonest} clients are dishonest",
        f"every other client runs {randomizer.name} at the budget that it reported",
    )
    return (*shuffled, randomizer.local_only) if randomizer.local_only else shuffled
