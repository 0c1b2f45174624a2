"""Certificates of different releases together: one guarantee over all of them, and their privacy loss distributions.

The client is assumed to join all the releases, each in the worst of its tiers. The curves of a certificate are
composed; a certificate without curves (read back from JSON, or with many budgets) enters as its (epsilon, delta).
`composition` composes the losses.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from croupier.accountant.basic_composition import WorstCases, all_together, weakest
from croupier.accountant.certificate import Certificate
from croupier.accountant.composition import LEAST_DELTA, ComposedProfile, PairProfile, Round
from croupier.accountant.group_guarantees import MAX_COMPOSED_ROUNDS
from croupier.accountant.guarantees import Grade, Guarantee
from croupier.accountant.mechanisms.table import TABLE_ROUNDING
from croupier.accountant.numerics.decimals import as_decimal, sum_above, sum_as_decimals
from croupier.accountant.numerics.inversion import smallest_epsilon
from croupier.accountant.privacy_curve import Bounded, PrivacyProfile, Proof
from croupier.accountant.privacy_filter import BASIC_SHARE, delta_for_basic, last_cut, smallest_admitting_epsilon
from croupier.accountant.ranges import check_target_delta, is_number, outside
from croupier.accountant.recertification import at_other
from croupier.accountant.round_cost import RoundCost, curve_points
from croupier.protocol.codes import Assumption, Method, Note, ProofStep
from croupier.protocol.notes import large_delta_notes
from croupier.protocol.permanent import PLANNED
from croupier.protocol.rounding import round_up
from croupier.protocol.statements import Statement


@dataclass(frozen=True, eq=False)
class _WorstProfile:
    """The largest of several tiers' curves. See `PrivacyProfile`."""

    curves: Sequence[PrivacyProfile]

    @property
    def method(self) -> Proof:
        """The methods of every curve."""
        return tuple(dict.fromkeys(statement for curve in self.curves for statement in curve.method))

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`."""
        return max((curve.delta(epsilon) for curve in self.curves), key=lambda bound: bound.value)

    def guess(self, delta: float) -> float:
        """Returns the largest guess."""
        return max(curve.guess(delta) for curve in self.curves)

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """Returns the steps of every curve."""
        return tuple(line for curve in self.curves for line in curve.explain())


def compose(certificates: Iterable[Certificate], *, delta: float | None = None, fixed_terms: bool = False) -> Guarantee:
    """Returns a CERTIFIED (epsilon, delta) for a client that takes part in all releases.

    By default it is the total of the smallest privacy filter that admits the releases: all releases together have this
    guarantee, however each was chosen by the results of earlier ones, if the total was fixed before the first. The
    guarantee states this assumption.

    Args:
        certificates: of the releases, each with its rounds; the same one twice is two releases. Every release is a
            batch of its own. With reports kept for several waves (`Certificate.series`), each certificate covers all
            waves of its question, and the certificates of one series count once.
        delta: the total delta, 0 < delta < 1; None: the sum of the releases' deltas with fixed terms, and without them
            the delta at which a filter adds up the releases.
        fixed_terms: the caller knows that the releases, and everyone's part and budget in each, were fixed before the
            first result. Then privacy losses compose, to less; the guarantee states this assumption.

    A certificate at a larger delta than this one is certified again for it, from its own budgets. If it does not hold
    all inputs for that (`recertification.can_be_repeated`), the guarantee holds, may be far too large, and says so in
    its notes. They also say if delta is at least one in the number of people of a release.

    Neighbouring relation: replace-one. Direction of error: epsilon is never below the exact one. With fixed terms:
    privacy loss distributions or basic composition, whichever gives less. Deltas that add up to delta as decimals give
    a guarantee at their sum, rounded up, which may be above delta by its last digit.
    Source: docs/composition.md, sections 5 and 5.1.

    Raises:
        ValueError: no certificate, delta outside its range, or a larger mass lost with certainty than delta.
    """
    stated = _once_each_series(_checked(certificates))
    if delta is None:
        delta = sum_as_decimals(c.delta for c in stated for _ in range(1 if fixed_terms else int(1 / BASIC_SHARE)))
    check_target_delta(delta)
    each = delta / sum(certificate.rounds for certificate in stated)
    larger = {id(c): c for c in stated if c.delta > delta}
    renewed = {key: at_other(c, delta=each * c.rounds) for key, c in larger.items()}
    again = [renewed.get(id(certificate)) or certificate for certificate in stated]
    ways = [
        total
        for ones in ([stated, again] if any(renewed.values()) else [stated])
        if (total := _composed(ones, delta, fixed_terms=fixed_terms)) is not None
    ]
    if not ways:
        costs = [_cost(c, last_cut(len(again), delta)) for c in again]
        raise _too_small(
            delta, math.fsum(c.delta for c in again) if fixed_terms else delta_for_basic(costs), fixed_terms
        )
    least = min(ways, key=lambda total: (total.epsilon, total.delta))
    notes = large_delta_notes(least.delta, max(c.num_users for c in stated))
    return replace(least, notes=(*notes, *_larger(delta, [c.delta for key, c in larger.items() if not renewed[key]])))


def _too_small(delta: float, enough: float, fixed_terms: bool = False) -> ValueError:
    """Returns the error for releases that lose more with certainty than delta; at `enough` they add up."""
    other = "" if fixed_terms else "; or, if the terms of all releases were fixed beforehand, compose with fixed_terms"
    return ValueError(
        f"delta is {delta!r}; it must be larger: at {round_up(enough)} the releases add up. Choose that delta; or "
        f"certify the releases at deltas that are smaller by a factor of {math.ceil(enough / delta):,}{other}"
    )


def _larger(delta: float, certified: Collection[float]) -> tuple[Statement[Note], ...]:
    """Returns the note on releases that are composed with certificates at these larger deltas."""
    return (Statement.of(Note.LARGER_DELTA, delta=delta, certified=max(certified)),) if certified else ()


def _composed(certificates: Sequence[Certificate], delta: float, *, fixed_terms: bool) -> Guarantee | None:
    """Returns the guarantee of these certificates together; None without a bound. See `compose`."""
    different = {id(certificate): certificate for certificate in certificates}  # equal ones may differ in their curves
    several = Counter(id(certificate) for certificate in certificates)
    rounds = [
        (certificate, replace(part, count=part.count * several[key]))
        for key, certificate in different.items()
        for part in [_round(certificate)]
    ]
    costs: Counter[RoundCost] = Counter()
    least = last_cut(sum(part.count for _, part in rounds), delta)
    for certificate, part in rounds:
        costs[_cost(certificate, least)] += part.count
    admitted = smallest_admitting_epsilon(costs, delta)
    totals = [] if admitted is None else [(admitted, Method.PRIVACY_FILTER, delta)]
    assumptions = dict.fromkeys(line for c in certificates for line in c.assumptions)
    if fixed_terms:
        totals.extend(_of_fixed_terms(certificates, [part for _, part in rounds], delta))
        assumptions[Statement.of(Assumption.FIXED_TERMS)] = None
    else:
        assumptions[Statement.of(Assumption.TOTAL_BEFOREHAND)] = None
    if not totals:
        return None
    epsilon, way, at = min(totals)
    methods = dict.fromkeys(statement for c in certificates for statement in c.method)
    together = sum(certificate.rounds for certificate in certificates)
    return Guarantee(epsilon, at, Grade.CERTIFIED, (*methods, Statement.of(way, rounds=together)), tuple(assumptions))


def worst_cases(certificates: Iterable[Certificate]) -> WorstCases:
    """Returns the guarantees of all releases for a person with the largest budgets whatever all other people do.

    All waves of a series, in which the person sends one report, count once: each certificate covers all of them.

    Raises:
        ValueError: no certificate.
    """
    stated = _once_each_series(_checked(certificates))
    return all_together([WorstCases(c.everyone_else_colludes, c.one_honest_hop) for c in stated])


def of_disjoint_groups(certificates: Iterable[Certificate | Guarantee], groups: int = 0) -> Guarantee:
    """Returns a CERTIFIED (epsilon, delta) for a person who takes part in one of several releases only.

    Parallel composition: earlier releases do not depend on the person, and later questions and releases depend only on
    the person's own release and on other people. So all releases together have the privacy of the person's own one,
    however each was chosen by the results of earlier ones. Each person draws their group before the first release,
    whatever their data are; the guarantee states this assumption.

    Args:
        certificates: of the release of each group.
        groups: the number of groups from which people draw, if not all have a release; 0: one per certificate.

    Neighbouring relation: replace-one. Direction of error: epsilon is never below the exact one; the largest epsilon
    at the largest delta of all.

    Raises:
        ValueError: no certificate, or one that is not CERTIFIED.
    """
    several = tuple(certificates)
    worst = weakest(
        certificate if isinstance(certificate, Guarantee) else certificate.guarantee for certificate in several
    )
    notes = tuple(note for note in worst.notes if note.code is not Note.TIERS_NOT_AMPLIFIED)
    disjoint = Statement.of(Assumption.DISJOINT_GROUPS, groups=groups or len(several))
    return replace(worst, assumptions=(*worst.assumptions, disjoint), notes=notes)


@dataclass(frozen=True, eq=False)
class ComposedRelease:
    """A release in a composition: its guarantee, its curve if known, and its number of repetitions.

    Attributes:
        guarantee: of one release.
        profile: its privacy profile; None: any (epsilon, delta)-private release.
        local_epsilon: the ceiling of the profile, at which no mass is lost.
        count: the number of such releases.
    """

    guarantee: Guarantee
    profile: PrivacyProfile | None = None
    local_epsilon: float = 0.0
    count: int = 1


def compose_releases(releases: Sequence[ComposedRelease], *, delta: float) -> Guarantee:
    """Returns a CERTIFIED (epsilon, delta) for a client in all of these releases.

    It is the total of the smallest privacy filter that admits them, the default of `compose`. A release holds no
    budgets to certify again: if its guarantee is for a larger delta than this one, the notes say so.

    Args:
        releases: at least one.
        delta: the total delta, 0 < delta < 1.

    Direction of error: epsilon is never below the exact one. Source: docs/composition.md.

    Raises:
        ValueError: no release, a count below 1, delta outside its range, or a larger mass lost with certainty.
    """
    check_target_delta(delta)
    if not releases:
        raise ValueError("releases is empty; it must hold at least one")
    total = sum(release.count for release in releases)
    costs: Counter[RoundCost] = Counter()
    for release in releases:
        epsilon, lost = release.guarantee.epsilon, release.guarantee.delta
        profile, ceiling = release.profile, (release.local_epsilon, 0.0)
        if profile is None:
            profile, ceiling = PairProfile(epsilon, lost), (epsilon, lost)
        points = curve_points(profile, ceiling, last_cut(total, delta))
        costs[RoundCost(epsilon, lost, (points,), frozenset({ceiling[0]}))] += release.count
    admitted = smallest_admitting_epsilon(costs, delta)
    if admitted is None:
        raise _too_small(delta, delta_for_basic([*costs.elements()]))
    methods = dict.fromkeys(statement for release in releases for statement in release.guarantee.method)
    assumed = dict.fromkeys(statement for release in releases for statement in release.guarantee.assumptions)
    assumed[Statement.of(Assumption.TOTAL_BEFOREHAND)] = None
    notes = dict.fromkeys(note for release in releases for note in release.guarantee.notes)
    larger = [release.guarantee.delta for release in releases if release.guarantee.delta > delta]
    way = Statement.of(Method.PRIVACY_FILTER, rounds=total)
    return Guarantee(
        admitted, delta, Grade.CERTIFIED, (*methods, way), tuple(assumed), (*notes, *_larger(delta, larger))
    )


def _of_fixed_terms(
    certificates: Sequence[Certificate], rounds: Sequence[Round], delta: float
) -> list[tuple[float, Method, float]]:
    """Returns (epsilon, method, delta) of the guarantees that hold if all terms were fixed beforehand."""
    added = [[(c.epsilon, c.delta) for c in certificates], [_alone(c) for c in certificates]]
    totals = [
        (sum_above([epsilon for epsilon, _ in parts]), Method.BASIC_COMPOSITION, max(delta, lost))
        for parts, lost in ((parts, sum_above([lost for _, lost in parts])) for parts in added)
        if lost <= delta or sum(as_decimal(lost) for _, lost in parts) <= as_decimal(delta)
    ]
    total = sum(part.count for part in rounds)
    if delta >= LEAST_DELTA and total <= MAX_COMPOSED_ROUNDS:
        curve = ComposedProfile(rounds, delta)
        ceiling = min((epsilon for epsilon, _, _ in totals), default=sum_above([p.ceiling * p.count for p in rounds]))
        inverse = smallest_epsilon(curve, delta, ceiling)
        if inverse.reached is not None:
            totals.append((inverse.epsilon, Method.COMPOSED_LOSSES, delta))
    return totals


def privacy_loss_distribution(
    certificate: Certificate, *, value_discretization_interval: float = 1e-4, delta: float | None = None
) -> Any:
    """Returns the certificate's privacy loss as a `PrivacyLossDistribution` of dp-accounting, for composition.

    Args:
        certificate: of one or more rounds; the distribution is of all of them, for the worst tier.
        value_discretization_interval: the step of its grid, > 0; the other distributions must have the same.
        delta: the largest mass that may be cut, in [1e-12, 1); None: a thousandth of the certificate's.

    Pessimistic: its delta at any epsilon is never below the exact one, in both directions of replace-one. Cut and
    rounded mass is in its mass at infinity. Below about 1e-12 the library's own tails are not reliable. A certificate
    read back from JSON has only its (epsilon, delta), and then delta is mass at infinity, too.

    Raises:
        ValueError: an interval or a delta outside its range.
    """
    from dp_accounting.pld.pld_pmf import DensePLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    _checked([certificate])
    if not (is_number(value_discretization_interval) and value_discretization_interval > 0):
        raise outside("value_discretization_interval", value_discretization_interval, "a finite number > 0")
    if delta is not None and not (is_number(delta) and LEAST_DELTA <= delta < 1):
        raise outside("delta", delta, f"{LEAST_DELTA} <= delta < 1")
    target = max(certificate.delta * 1e-3, LEAST_DELTA) if delta is None else delta
    pmf, slack = ComposedProfile([_round(certificate)], target, value_discretization_interval).losses
    lost = min(1.0, pmf._infinity_mass + slack)
    return PrivacyLossDistribution(DensePLDPmf(pmf._discretization, pmf._lower_loss, pmf._probs, lost, True))


def _checked(certificates: Iterable[Certificate]) -> tuple[Certificate, ...]:
    if not isinstance(certificates, Iterable):
        raise ValueError(f"certificates is of type {type(certificates).__name__}; it must hold Certificates")
    several = tuple(certificates)
    if not several:
        raise ValueError("certificates is empty; it must hold at least one")
    for place, certificate in enumerate(several):
        if not isinstance(certificate, Certificate):
            kind = type(certificate).__name__
            raise ValueError(
                f"certificates[{place}] is of type {kind}; it must be a Certificate, as from_json gives it"
            )
    return several


def _once_each_series(certificates: Sequence[Certificate]) -> tuple[Certificate, ...]:
    """Returns the certificates, with only the worst of each series, because each of them covers all of its waves.

    Raises:
        ValueError: two certificates of one series differ in its number of waves or in their question.
    """
    worst: dict[str, Certificate] = {}
    for certificate in certificates:
        series = certificate.series
        if series is None or series.name == PLANNED:
            continue
        other = worst.setdefault(series.name, certificate)
        if (other.series, other.delta, other.randomizer) != (series, certificate.delta, certificate.randomizer):
            raise ValueError(
                f"two certificates of the series {series.name:.12} differ in waves, delta or randomizer; they must be "
                "of the same question"
            )
        worst[series.name] = max(other, certificate, key=lambda c: (_alone(c), c.epsilon))
    others = [
        certificate for certificate in certificates if certificate.series is None or certificate.series.name == PLANNED
    ]
    return (*others, *worst.values())


def _alone(certificate: Certificate) -> tuple[float, float]:
    return certificate.everyone_else_colludes.epsilon, certificate.everyone_else_colludes.delta


def _round(certificate: Certificate) -> Round:
    """Returns the certificate's releases, with the client in the worst of the tiers, or in none of them.

    A client in none has a budget that did not arrive, which only the certificate as a whole covers.
    """
    alone = certificate.everyone_else_colludes
    if not _is_known_by_tier(certificate):
        return Round(_pair(certificate.epsilon, certificate.delta, alone), alone.epsilon)
    curves = [tier.privacy_profile or _pair(tier.epsilon, tier.delta, alone) for tier in certificate.tiers]
    return Round(_WorstProfile(curves), alone.epsilon, certificate.rounds)


def _is_known_by_tier(certificate: Certificate) -> bool:
    """Returns whether the tiers bound everybody's cost of one release; else only the whole certificate does."""
    tiers = certificate.tiers
    if certificate.epsilon > max(t.epsilon for t in tiers) or certificate.delta > max(t.delta for t in tiers):
        return False
    return certificate.rounds == 1 or all(tier.privacy_profile is not None for tier in tiers)


def _pair(epsilon: float, delta: float, alone: Guarantee) -> PairProfile:
    """Returns the profile of a release without a curve: its certified pair, or its local budget if that is less."""
    if epsilon >= alone.epsilon:
        epsilon, delta = alone.epsilon, min(delta, alone.delta)
    return PairProfile(epsilon, delta)


def _cost(certificate: Certificate, least: float) -> RoundCost:
    """Returns the cost of one of a certificate's rounds for a filter, or of all if only their total is known.

    least: the delta to which curves are followed.
    """
    alone = certificate.everyone_else_colludes
    if not _is_known_by_tier(certificate):
        whole = _pair(certificate.epsilon, certificate.delta, alone)
        return RoundCost.of_pair(whole.epsilon, whole.lost)
    largest = max(tier.local_epsilon for tier in certificate.tiers)
    # A table may show a little more than its declared budget.
    excess = TABLE_ROUNDING if alone.epsilon > largest * certificate.rounds else 0.0
    tiers = tuple(
        curve_points(
            tier.privacy_profile, (tier.local_epsilon + excess * (1 + tier.local_epsilon), tier.local_delta), least
        )
        if tier.privacy_profile is not None
        else ((pair.epsilon, pair.lost),)
        for tier in certificate.tiers
        for pair in [_pair(tier.epsilon, tier.delta, alone)]
    )
    budgets = frozenset(tier.local_epsilon for tier in certificate.tiers)
    if certificate.rounds == 1:
        return RoundCost(certificate.epsilon, certificate.delta, tiers, budgets)
    # The smallest certified epsilon of one round by itself is the ceiling.
    ceiling, lost = (max(points[-1][position] for points in tiers) for position in (0, 1))
    return RoundCost(ceiling, lost, tiers, budgets)
