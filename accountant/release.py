"""A release to be certified, all of it checked: budgets, randomizer, target, rounds and conditions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self, TypedDict

import numpy as np

from croupier.accountant.budgets import AnyBudgets, Budgets, as_budgets
from croupier.accountant.hop_fakes import AnyHopNoise, HopFakes
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.registry import as_randomizer
from croupier.accountant.ranges import (
    DEFAULT_DELTA,
    Bounds,
    Linkage,
    check_bounds,
    check_count,
    check_epsilon,
    check_linkage,
    check_target_delta,
    outside,
)
from croupier.protocol.budget_privacy import BudgetPrivacy
from croupier.protocol.permanent import PermanentSeries


class Conditions(TypedDict, total=False):
    """The conditions of a release; `certify`, `plan` and `privacy_profile` take each by its name.

    Attributes:
        dishonest: how many of the other clients may collude with the observer, or lie about their budget; 0 if not
            given.
        linkage: "separate" (budgets and reports are shuffled apart), which is the default, or "stratified" (a report
            shows its tier).
        bounds: "all", the default (the least of the local budget, the blanket bound, the exchange bound and, where it
            can be enumerated, the exact worst case), or "blanket" (the local budget and the blanket bound).
        adaptive_order: the clients answer one after the other in a secret uniform order, and what a client is asked may
            depend on the answers before it. Only the blanket bound holds then, and only for bits and half spheres.
            False if not given.
        hop_noise: the epsilon and delta of the fake reports that every hop adds in every round; None, the default: hops
            add none. Every tier then has the least of three bounds (docs/hop-noise.md), and the certificate states
            beside its own number what one honest hop guarantees.
        hops: how many hops there are, >= 1; without hop noise it changes nothing. 2 if not given.
    """

    dishonest: int
    linkage: Linkage
    bounds: Bounds
    adaptive_order: bool
    hop_noise: AnyHopNoise
    hops: int


class RoundConditions(Conditions, total=False):
    """The conditions of a round that has been, or will be, certified by a deployment.

    Attributes:
        counted_by: the budget privacy of the round (docs/accounting.md, 7.2). The budgets are then those of the users
            that were counted, and of one user more for every budget of the grid: the victim, who need not exist. None,
            the default: the budgets of all users are given.
    """

    counted_by: BudgetPrivacy | None


@dataclass(frozen=True)
class SettledConditions:
    """Conditions with their defaults; see `RoundConditions`."""

    dishonest: int = 0
    linkage: Linkage = "separate"
    bounds: Bounds = "all"
    adaptive_order: bool = False
    hop_noise: AnyHopNoise = None
    hops: int = 2
    counted_by: BudgetPrivacy | None = None

    @classmethod
    def of(cls, conditions: Conditions, names: type = RoundConditions) -> Self:
        """Returns the conditions that were given by name, and the defaults of the others.

        Raises:
            TypeError: a name names no condition.
        """
        known = names.__annotations__
        for name in conditions:
            if name not in known:
                raise TypeError(f"there is no argument {name!r}; the conditions of a release are {', '.join(known)}")
        return cls(**conditions)

    def check(self, randomizer: Randomizer) -> None:
        """Raises ValueError for a condition outside its range, or of which nothing is proved for the randomizer."""
        check_count(self.dishonest, "dishonest")
        check_linkage(self.linkage)
        check_bounds(self.bounds)
        check_order(randomizer, self.adaptive_order)
        if not isinstance(self.counted_by, BudgetPrivacy | None):
            raise outside("counted_by", self.counted_by, "a BudgetPrivacy, or None")

    def fakes(self, randomizer: Randomizer) -> HopFakes | None:
        """Returns the fakes of the release; raises ValueError as `HopFakes.of` does."""
        return HopFakes.of(self.hop_noise, self.hops, randomizer, self.linkage, adaptive_order=self.adaptive_order)


@dataclass(frozen=True)
class Release:
    """What is certified.

    Attributes:
        budgets: of all users that are counted.
        randomizer: what each of them runs.
        delta: the total delta over all rounds; None where epsilon is given.
        epsilon: the total epsilon; None where delta is given.
        rounds: of reports of their own.
        series: the waves in which people send the same report; None where every round has reports of its own.
        conditions: of every round.
    """

    budgets: Budgets
    randomizer: Randomizer
    delta: float | None
    epsilon: float | None
    rounds: int
    series: PermanentSeries | None
    conditions: SettledConditions

    @classmethod
    def of(
        cls,
        budgets: AnyBudgets,
        randomizer: Randomizer | str,
        delta: float | None,
        epsilon: float | None,
        rounds: int | PermanentSeries,
        conditions: SettledConditions,
    ) -> Self:
        """Returns what the arguments of `certify` state; raises ValueError for what is outside its range."""
        multiset, family = as_budgets(budgets), as_randomizer(randomizer)
        series, count = (rounds, 1) if isinstance(rounds, PermanentSeries) else (None, rounds)
        release = cls(multiset, family, delta, epsilon, count, series, conditions)
        _check_local_deltas(multiset, family)
        _check_target(delta, epsilon)
        if delta is not None:
            check_target_delta(delta)
        check_count(count, "rounds", 1)
        conditions.check(family)
        if series is not None:
            _check_permanent(family, conditions)
        return release

    @cached_property
    def fakes(self) -> HopFakes | None:
        """The fakes that hops add; None without hop noise. Raises ValueError where they cannot."""
        return self.conditions.fakes(self.randomizer)

    @property
    def waves(self) -> int:
        """In how many waves people send the same report; 0: every round has reports of its own."""
        return 0 if self.series is None else self.series.waves

    @property
    def colluding(self) -> int:
        """How many users next to a victim are not counted upon."""
        fakes = 0 if self.fakes is None else self.fakes.most  # behind its fakes a hop can hide lost reports
        # With noised counts the victims of other tiers need not be there, nor the one that is in its tier's count.
        uncounted = 0 if self.conditions.counted_by is None else self.budgets.num_tiers
        return self.conditions.dishonest + fakes + uncounted

    @property
    def leaves_local_deltas(self) -> bool:
        """Whether users have local deltas that the randomizer does not spend."""
        return bool((self.budgets.local_delta > 0).any()) and not self.randomizer.spends_local_delta


def check_order(randomizer: Randomizer, adaptive_order: bool) -> None:
    """Raises ValueError where nothing is proved of a randomizer whose clients answer one after the other."""
    if adaptive_order and not (randomizer.clones_are_fair_bits or randomizer.local_assumptions):
        raise ValueError(
            f"adaptive_order is true for {randomizer.name}; it must be false: the bound is proved for bits and half "
            "spheres only"
        )


def _check_permanent(randomizer: Randomizer, conditions: SettledConditions) -> None:
    """Raises ValueError for a release of which nothing is proved where reports are drawn once for several waves."""
    if randomizer.num_report_values is None or randomizer.spends_local_delta:
        raise ValueError(
            f"rounds is a series of waves of {randomizer.name}; it must be of a randomizer or a table whose reports "
            "have one of finitely many values"
        )
    if conditions.linkage != "separate" or conditions.adaptive_order:
        raise ValueError(
            f"rounds is a series of waves, with linkage {conditions.linkage!r} and adaptive_order "
            f"{conditions.adaptive_order}; it must be with 'separate' and false"
        )


def _check_local_deltas(budgets: Budgets, randomizer: Randomizer) -> None:
    without = np.flatnonzero(budgets.local_delta == 0)
    if randomizer.spends_local_delta and without.size:
        epsilon, count = float(budgets.local_epsilon[without[0]]), int(budgets.count[without[0]])
        raise ValueError(
            f"local_delta is 0 where local_epsilon is {epsilon:g}; {randomizer.kind} spends one, 0 < local_delta < 1: "
            f"give budgets=Budgets.from_tiers([({epsilon:g}, {count}, 1e-8)]), each (local_epsilon, users, local_delta)"
        )


def _check_target(delta: float | None, epsilon: float | None) -> None:
    if delta is None and epsilon is None:
        raise ValueError(f"neither delta nor epsilon is given; give exactly one, such as delta {DEFAULT_DELTA:.0e}")
    if delta is not None and epsilon is not None:
        raise ValueError(f"delta is {delta!r} and epsilon is {epsilon!r}; give exactly one")
    if epsilon is not None:
        check_epsilon(epsilon)
