"""A release to be certified, with its arguments checked: budgets, randomizer, target, rounds and conditions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self, TypedDict

import numpy as np

from croupier.accountant.budgets import AnyBudgets, Budgets, as_budgets
from croupier.accountant.hop_fakes import NO_FAKES, AnyHopNoise, Fakes, HopFakes
from croupier.accountant.hop_noise_choice import HopGuarantee, least_fakes
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
    is_number,
    outside,
)
from croupier.protocol.codes import Assumption
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.mechanisms import KINDS_WITH_FAKES
from croupier.protocol.permanent import PermanentSeries
from croupier.protocol.tier_counts import EXACT, TierCounts

if TYPE_CHECKING:
    from croupier.accountant.certificate import Certificate
    from croupier.protocol.surveys import QuestionTerms


class Conditions(TypedDict, total=False):
    """The conditions of a release; `certify`, `plan` and `privacy_profile` take each by its name.

    Attributes:
        dishonest: the number of other clients who may collude with the observer, or lie about their budget; 0 by
            default.
        linkage: "separate" (budgets and reports are shuffled apart), which is the default, or "stratified" (a report
            shows its tier).
        bounds: "all", the default (the least of the local budget, the blanket bound, the exchange bound and, if it can
            be enumerated, the exact worst case), or "blanket" (the local budget and the blanket bound).
        adaptive_order: the clients answer one after the other in a secret uniform order, and a client's question may
            depend on the answers before it. Only the blanket bound holds then, and only for bits and half spheres.
            False by default.
        hop_noise: the epsilon and delta of the law of the fake reports that every hop adds in every round; or a
            `HopGuarantee`, for which the law with the fewest is found; None, the default: hops add none. Every tier
            then has the least of three bounds (docs/hop-noise.md), and the certificate states the guarantee of one
            honest hop beside its own number.
        hops: the number of hops, >= 1; 2 by default. Without hop noise it changes nothing.
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
        counted_by: how the round counts its users (docs/accounting.md, 7.2). With budget privacy the budgets are those
            of the users that were counted, and of one user more for every budget of the grid: the victim, who need not
            exist. By default the budgets of all users are given.
    """

    counted_by: TierCounts


@dataclass(frozen=True)
class SettledConditions:
    """Conditions with their defaults; see `RoundConditions`."""

    dishonest: int = 0
    linkage: Linkage = "separate"
    bounds: Bounds = "all"
    adaptive_order: bool = False
    hop_noise: AnyHopNoise = None
    hops: int = 2
    counted_by: TierCounts = EXACT

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
        """Raises ValueError for a condition outside its range, or without a proof for the randomizer."""
        check_count(self.dishonest, "dishonest")
        check_linkage(self.linkage)
        check_bounds(self.bounds)
        check_order(randomizer, self.adaptive_order)
        if not isinstance(self.counted_by, TierCounts):
            raise outside("counted_by", self.counted_by, "TierCounts, such as TierCounts(BudgetPrivacy())")

    def fakes(self, randomizer: Randomizer) -> Fakes:
        """Returns the fakes that hops add to a randomizer's reports; raises ValueError where they cannot."""
        noise = self.hop_noise
        check_count(self.hops, "hops", 1)
        if noise is None:
            return NO_FAKES
        if not isinstance(noise, HopNoise | HopGuarantee):
            if not (isinstance(noise, tuple) and len(noise) == 2 and all(map(is_number, noise))):
                raise outside("hop_noise", noise, "a pair (epsilon, delta), such as (0.1, 1e-6)")
            noise = HopNoise(*noise)
        if randomizer.num_report_values is None:
            raise ValueError(
                f"hop_noise is given for {randomizer.name}; it must be for {', '.join(KINDS_WITH_FAKES)} or a "
                "table: hops can add fakes only where a report has one of finitely many values"
            )
        if self.linkage != "separate":
            raise ValueError(
                f"hop_noise is given with linkage {self.linkage!r}; it must be 'separate': fakes have no tier"
            )
        if self.adaptive_order:
            raise ValueError(
                "adaptive_order is true with hop_noise; it must be false: hops cannot add fakes to answers in turns"
            )
        if isinstance(noise, HopGuarantee):
            noise = least_fakes(randomizer, noise)
        return HopFakes(noise, self.hops, randomizer)


@dataclass(frozen=True)
class Release:
    """The arguments of a certificate.

    Attributes:
        budgets: of all counted users.
        randomizer: of each of them.
        delta: the total delta over all rounds; None if epsilon is given.
        epsilon: the total epsilon; None if delta is given.
        rounds: the number of rounds with fresh reports.
        series: the waves in which people send the same report; None for rounds with fresh reports.
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
        """Returns the release of the arguments of `certify`; raises ValueError for one outside its range."""
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
    def fakes(self) -> Fakes:
        """The fakes that hops add. Raises ValueError where they cannot."""
        return self.conditions.fakes(self.randomizer)

    @property
    def waves(self) -> int:
        """The number of waves in which people send the same report; 0: every round has fresh reports."""
        return 0 if self.series is None else self.series.waves

    @property
    def colluding(self) -> int:
        """How many users next to a victim are not counted upon."""
        # With noised counts the victims of other tiers need not be there, nor the one that is in its tier's count.
        absent = self.conditions.counted_by.victims * self.budgets.num_tiers
        return self.conditions.dishonest + absent + self.fakes.most  # behind its fakes a hop can hide lost reports

    @property
    def leaves_local_deltas(self) -> bool:
        """Whether users have local deltas that the randomizer does not spend."""
        return bool((self.budgets.local_delta > 0).any()) and not self.randomizer.spends_local_delta


def conditions_of_round(terms: QuestionTerms, dishonest: int | None = None, bounds: Bounds = "all") -> RoundConditions:
    """Returns the conditions of a round, as `certify` takes them; dishonest: in place of the manifest's."""
    return {
        "dishonest": terms.shared.dishonest if dishonest is None else dishonest,
        "bounds": bounds,
        "adaptive_order": terms.question.sequential is not None,
        "hop_noise": None if terms.fakes is None else terms.fakes.noise,
        "hops": terms.shared.num_hops,
        "counted_by": terms.counted_by,
    }


def conditions_of(certificate: Certificate) -> RoundConditions:
    """Returns the conditions of the releases of a certificate, as `certify` takes them."""
    hop = certificate.one_honest_hop
    stated = next((line for line in hop.assumptions if line.code is Assumption.ONE_HONEST_HOP), None) if hop else None
    return {
        "dishonest": certificate.dishonest,
        "linkage": certificate.linkage,
        "adaptive_order": any(line.code is Assumption.ADAPTIVE_ORDER for line in certificate.assumptions),
        "hop_noise": None if stated is None else HopNoise(stated["epsilon"], stated["delta"]),
        "hops": 1 if stated is None else stated["hops"],
        "counted_by": certificate.counted_by,
    }


def check_order(randomizer: Randomizer, adaptive_order: bool) -> None:
    """Raises ValueError if there is no proof for a randomizer whose clients answer one after the other."""
    if adaptive_order and not (randomizer.clones_are_fair_bits or randomizer.local_assumptions):
        raise ValueError(
            f"adaptive_order is true for {randomizer.name}; it must be false: the bound is proved for bits and half "
            "spheres only"
        )


def _check_permanent(randomizer: Randomizer, conditions: SettledConditions) -> None:
    """Raises ValueError if there is no proof for a release whose reports are drawn once for several waves."""
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
