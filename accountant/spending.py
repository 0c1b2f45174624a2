"""The costs of rounds for a client, their total, and the limit that a deployment or a study sets for it.

All rounds that a client may have joined are composed as if one client had joined all of them: per tier, and over all
tiers (in every round the worst one). Later rounds may be chosen by the results of earlier ones, so the total is that
of a privacy filter; each entry keeps the certified profile of its tier for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from croupier.accountant.composition import LEAST_DELTA, ComposedProfile, PairProfile, Round
from croupier.accountant.guarantees import Grade, Guarantee, TierCertificate
from croupier.accountant.numerics.decimals import as_decimal, difference, sum_above
from croupier.accountant.numerics.inversion import smallest_epsilon
from croupier.accountant.privacy_filter import PrivacyFilter, delta_for_basic, smallest_admitting_epsilon
from croupier.accountant.ranges import check_epsilon
from croupier.accountant.recorded_profile import Profile, RecordedProfile
from croupier.accountant.round_cost import RoundCost
from croupier.protocol.codes import Assumption, Method, RefusalReason
from croupier.protocol.statements import Statement
from croupier.protocol.surveys import is_round_of

ANY_TIER = "any tier"
"""The name under which the worst tier of every round is composed."""


@dataclass(frozen=True)
class BudgetsTold:
    """The information on one person's budget in the certificates of all rounds, if the person was in all of them.

    Attributes:
        epsilon, delta: of the rounds with budget privacy, by basic composition, which holds however later rounds were
            chosen; the sums of decimals as they were written, rounded up.
        rounds: the number of these rounds.
        exact: the number of further rounds that count the users of every budget exactly, and so have no bound.
    """

    epsilon: float = 0.0
    delta: float = 0.0
    rounds: int = 0
    exact: int = 0


@dataclass(frozen=True)
class Limit:
    """The largest loss of one client over the life of the deployment: a total (epsilon, delta).

    Epsilon and delta are decimals as people write them.

    Attributes:
        epsilon: of all rounds together.
        delta: of all rounds together.
        max_rounds: the most rounds that may reveal information on budgets, granted or refused; 0: any number.
        fixed_terms: whether the terms of all rounds are said to be fixed before the first result; see `Ledger.spent`.
        survey_id: the only survey whose rounds count; empty: all rounds of the deployment.
    """

    epsilon: float
    delta: float
    max_rounds: int = 0
    fixed_terms: bool = False
    survey_id: str = ""

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if not 0 < self.delta < 1:
            raise ValueError(f"delta is {self.delta!r}; it must be 0 < delta < 1")

    def counts(self, round_id: str) -> bool:
        """Returns whether a round counts."""
        return not self.survey_id or is_round_of(self.survey_id, round_id)

    def allows(self, rounds: Sequence[Sequence[Entry]]) -> bool:
        """Returns whether these rounds, each in its worst tier, are within the limit.

        Unless terms are fixed the limit is a privacy filter, so that it holds however rounds are chosen by earlier
        results. It is as exact as budgets are: local budgets count as the decimals that people wrote, so that 0.1 three
        times is within 0.3 (docs/composition.md, section 5).
        """
        rounds = once_each_series(rounds)
        costs = [_cost(entries) for entries in rounds]
        if not rounds or PrivacyFilter(self.epsilon, self.delta).admits(costs):
            return True
        if not self.fixed_terms:
            return False
        composed = total_of_rounds(rounds, self.delta, True)
        return (composed is not None and composed.epsilon <= self.epsilon) or (
            sum(_as_written(entries) for entries in rounds) <= as_decimal(self.epsilon)
            and sum(as_decimal(cost.delta) for cost in costs) <= as_decimal(self.delta)
        )


@dataclass(frozen=True)
class Entry(TierCertificate):
    """One tier of one granted round: certified (epsilon, delta), and points (epsilon, delta) of its certified profile.

    The points increase in epsilon and do not increase in delta. The last is the local budget or the end of the profile
    (its delta is then lost). Without points the entry is any (epsilon, delta)-private release. Entries with the same
    `series` are of waves in which clients send the same reports. Each covers all of these waves together, so that a
    series counts once. "": of a round by itself.
    """

    profile: Profile = ()
    series: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a field outside its range."""
        super().__post_init__()
        epsilons, deltas = [point[0] for point in self.profile], [point[1] for point in self.profile]
        if epsilons != sorted(set(epsilons)) or deltas != sorted(deltas, reverse=True):
            raise ValueError(f"profile is {self.profile[:3]!r}...; epsilon must increase and delta must not")


@dataclass(frozen=True)
class Spent:
    """The loss of a client of this tier over `rounds` rounds, at the requested delta; None: no bound.

    enough_delta: without a bound, a larger delta at which there is one; None if there is no such delta either.
    """

    tier: str
    rounds: int
    guarantee: Guarantee | None
    enough_delta: float | None = None


def series_of(entries: Sequence[Entry]) -> str:
    """Returns the series of a round, which all its entries have; "" for a round by itself."""
    return next((entry.series for entry in entries if entry.series), "")


def once_each_series(rounds: Sequence[Sequence[Entry]]) -> list[Sequence[Entry]]:
    """Returns rounds with all waves of a series as one round, because each of their entries covers all of them."""
    alone = [entries for entries in rounds if not series_of(entries)]
    together: dict[str, list[Entry]] = {}
    for entries in rounds:
        if series := series_of(entries):
            together.setdefault(series, []).extend(entries)
    return [*alone, *together.values()]


def _cost(entries: Sequence[Entry]) -> RoundCost:
    """Returns the cost of a round for a filter. Without amplification only the local delta is lost for certain."""
    return RoundCost(
        max(entry.epsilon for entry in entries),
        max(entry.delta for entry in entries),
        tuple(dict.fromkeys(entry.profile or (_pair(entry),) for entry in entries)),
        frozenset(e.local_epsilon for e in entries if e.profile or e.epsilon == e.local_epsilon),
    )


def _as_written(entries: Sequence[Entry]) -> Fraction:
    """Returns a round's cost in its worst tier: a local budget as it was written, else the float."""
    cost = max(entry.epsilon for entry in entries)
    return as_decimal(cost) if any(e.epsilon == cost == e.local_epsilon for e in entries) else Fraction(cost)


def _pair(entry: Entry) -> tuple[float, float]:
    return (entry.epsilon, entry.local_delta if entry.epsilon >= entry.local_epsilon else entry.delta)


def _of_pair(epsilon: float, delta: float) -> Profile:
    """Returns points of the profile of any (epsilon, delta)-DP release, which is one chord."""
    at_zero = PairProfile(epsilon, delta).delta(0.0).value
    return ((0.0, max(at_zero, delta)), (epsilon, delta)) if epsilon else ((0.0, delta),)


def enough_delta_of(rounds: Sequence[Sequence[Entry]], delta: float, fixed_terms: bool) -> float | None:
    """Returns a delta above this one at which there is a bound, or None."""
    rounds = once_each_series(rounds)
    added_up = sum_above(max(e.delta for e in entries) for entries in rounds)
    candidates = [LEAST_DELTA, added_up] if fixed_terms else [added_up, delta_for_basic([_cost(e) for e in rounds])]
    larger = [candidate for candidate in candidates if delta < candidate < 1]
    return next((enough for enough in sorted(larger) if total_of_rounds(rounds, enough, fixed_terms) is not None), None)


def refusal_of(
    others: Sequence[Sequence[Entry]], entries: Sequence[Entry], limit: Limit
) -> Statement[RefusalReason] | None:
    """Returns the reason why a round with these costs may not be granted beside the others, or None."""
    if limit.allows([*others, entries]):
        return None
    both = (others, [*others, list(entries)])
    before, after = (total_of_rounds(rounds, limit.delta, limit.fixed_terms) for rounds in both)
    remaining = 0.0 if before is None else max(0.0, difference(limit.epsilon, before.epsilon))
    about = {
        "delta": limit.delta,
        "rounds": len(others) + 1,
        "most": limit.epsilon,
        "requested": max(entry.epsilon for entry in entries),
        "remaining": remaining,
    }
    if before is None or after is None:
        return Statement.of(
            RefusalReason.STUDY_UNBOUNDED if limit.survey_id else RefusalReason.LEDGER_UNBOUNDED, **about
        )
    exceeded = RefusalReason.STUDY_EXCEEDED if limit.survey_id else RefusalReason.LEDGER_EXCEEDED
    excess = difference(after.epsilon, limit.epsilon)
    return Statement.of(exceeded, reached=after.epsilon, excess=excess, spent=before.epsilon, **about)


def total_of_rounds(rounds: Sequence[Sequence[Entry]], delta: float, fixed_terms: bool) -> Guarantee | None:
    """Returns the total of one client in all rounds, in each of them in its worst tier. None: there is no bound."""
    if not rounds:
        return Guarantee(0.0, 0.0, Grade.CERTIFIED, (Statement.of(Method.NO_ROUND),))
    kept = (Statement.of(Assumption.ANSWERS_UNCHANGED),) if any(map(series_of, rounds)) else ()
    rounds = once_each_series(rounds)
    epsilon = smallest_admitting_epsilon([_cost(entries) for entries in rounds], delta)
    assumed = () if fixed_terms else (Statement.of(Assumption.TOTAL_BEFOREHAND),)
    method = (Statement.of(Method.PRIVACY_FILTER, rounds=len(rounds)),)
    guarantees = [] if epsilon is None else [Guarantee(epsilon, delta, Grade.CERTIFIED, method, assumed)]
    if fixed_terms:
        guarantees.extend(_of_fixed_terms(rounds, delta))
    least = min(guarantees, key=lambda guarantee: guarantee.epsilon, default=None)
    return least and replace(least, assumptions=(*least.assumptions, *kept))


def _of_fixed_terms(rounds: Sequence[Sequence[Entry]], delta: float) -> list[Guarantee]:
    """Returns guarantees that hold if the terms of all rounds were fixed before the first result.

    Deltas that add up to delta as decimals are enough for basic composition; the guarantee is then at their sum,
    rounded up, which may be above delta by its last digit.
    """
    worst = [(max(e.epsilon for e in entries), max(e.delta for e in entries)) for entries in rounds]
    guarantees, assumed = [], (Statement.of(Assumption.FIXED_TERMS),)
    lost = sum_above(d for _, d in worst)
    if lost <= delta or sum(as_decimal(d) for _, d in worst) <= as_decimal(delta):
        total = sum_above(e for e, _ in worst)
        method = Statement.of(Method.BASIC_COMPOSITION, rounds=len(rounds))
        guarantees.append(Guarantee(total, max(delta, lost), Grade.CERTIFIED, (method,), assumed))
    if delta >= LEAST_DELTA:
        # Many rounds may be alike.
        costs = Counter(
            tuple(dict.fromkeys(e.profile or _of_pair(e.epsilon, e.delta) for e in entries)) for entries in rounds
        )
        parts = [
            Round(RecordedProfile(profiles), max(profile[-1][0] for profile in profiles), count)
            for profiles, count in costs.items()
        ]
        curve = ComposedProfile(parts, delta)
        inverse = smallest_epsilon(curve, delta, sum(part.ceiling * part.count for part in parts))
        if inverse.reached is not None:
            method = Statement.of(Method.COMPOSED_LOSSES, rounds=len(rounds))
            guarantees.append(Guarantee(inverse.epsilon, delta, Grade.CERTIFIED, (method,), assumed))
    return guarantees
