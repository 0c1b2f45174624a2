"""The ledger: what every granted round has cost, kept for the life of a deployment, and what a next one may cost.

The ledger composes all rounds that a client may have joined, as if one client had joined all of them: per tier, and
over all tiers (in every round the worst one). Later rounds may be chosen by the results of earlier ones, so what is
spent is what a privacy filter admits; each entry keeps the certified profile of its tier for that. It works on a
connection that its caller owns: the accountant service enters a round in the very transaction that keeps its
certificate.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from croupier.accountant.bounds.profile import smallest_epsilon
from croupier.accountant.composition import LEAST_DELTA, ComposedProfile, PairProfile, Round
from croupier.accountant.numerics.decimals import as_decimal, difference, sum_above
from croupier.accountant.privacy_filter import PrivacyFilter, delta_for_basic, smallest_admitting_epsilon
from croupier.accountant.ranges import check_epsilon
from croupier.accountant.recorded_profile import Profile, RecordedProfile
from croupier.accountant.results import Grade, Guarantee, TierCertificate
from croupier.accountant.round_cost import RoundCost
from croupier.protocol.codes import Assumption, Method, RefusalReason
from croupier.protocol.names import Digest, RoundId
from croupier.protocol.rounding import round_up
from croupier.protocol.statements import Statement, state
from croupier.protocol.studies import is_round_of_study

__all__ = [
    "ANY_TIER",
    "BudgetsTold",
    "Entry",
    "Ledger",
    "Limit",
    "Spent",
    "once_each_series",
    "refusal_of",
    "series_of",
    "total_of_rounds",
]

ANY_TIER = "any tier"
"""The name under which the worst tier of every round is composed."""

_metadata = sa.MetaData()
_entries = sa.Table(
    "ledger",
    _metadata,
    sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("round_id", sa.String, nullable=False),
    sa.Column("batch_digest", sa.LargeBinary, nullable=False),
    sa.Column("local_epsilon", sa.Float, nullable=False),
    sa.Column("local_delta", sa.Float, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("epsilon", sa.Float, nullable=False),
    sa.Column("delta", sa.Float, nullable=False),
    sa.Column("profile", sa.String, nullable=False),
    sa.UniqueConstraint("round_id", "local_epsilon", "local_delta"),
)

_shown_rounds = sa.Table("ledger_shown_rounds", _metadata, sa.Column("round_id", sa.String, primary_key=True))
_record_rounds = sa.Table("ledger_record_rounds", _metadata, sa.Column("round_id", sa.String, primary_key=True))
_merged_rounds = sa.Table("ledger_merged_rounds", _metadata, sa.Column("round_id", sa.String, primary_key=True))
_unknown_rounds = sa.Table("ledger_unknown_rounds", _metadata, sa.Column("round_id", sa.String, primary_key=True))
_series = sa.Table(
    "ledger_series",
    _metadata,
    sa.Column("round_id", sa.String, primary_key=True),
    sa.Column("series", sa.String, nullable=False),
)
_budget_privacy = sa.Table(
    "ledger_budget_privacy",
    _metadata,
    sa.Column("round_id", sa.String, primary_key=True),
    sa.Column("epsilon", sa.Float, nullable=False),
    sa.Column("delta", sa.Float, nullable=False),
)


@dataclass(frozen=True)
class BudgetsTold:
    """What the certificates of all rounds tell of one person's budget, as if the person had been in all of them.

    Attributes:
        epsilon, delta: of the rounds with budget privacy, by basic composition, which holds however later rounds were
            chosen; the sums of decimals as they were written, rounded up.
        rounds: how many rounds these are.
        exact: how many further rounds count the users of every budget exactly, and so have no bound.
    """

    epsilon: float = 0.0
    delta: float = 0.0
    rounds: int = 0
    exact: int = 0


@dataclass(frozen=True)
class Limit:
    """The most that one client may lose over the life of the deployment: a total (epsilon, delta).

    Epsilon and delta are decimals as people write them.

    Attributes:
        epsilon: of everything together.
        delta: of everything together.
        max_rounds: the most rounds that may tell something about budgets, granted or refused; 0: any number.
        fixed_terms: whether the terms of all rounds are said to be fixed before the first result; see `Ledger.spent`.
        study_id: the study whose rounds alone count; empty: all rounds of the deployment do.
    """

    epsilon: float
    delta: float
    max_rounds: int = 0
    fixed_terms: bool = False
    study_id: str = ""

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if not 0 < self.delta < 1:
            raise ValueError(f"delta is {self.delta!r}; it must be 0 < delta < 1")

    def counts(self, round_id: str) -> bool:
        """Returns whether a round counts."""
        return not self.study_id or is_round_of_study(self.study_id, round_id)

    def allows(self, rounds: Sequence[Sequence[Entry]]) -> bool:
        """Returns whether these rounds, each in its worst tier, are within the limit.

        Unless terms are fixed the limit is a privacy filter, so that it holds however rounds are chosen by earlier
        results. It is kept as exactly as budgets are: local budgets count as the decimals that people wrote, so that
        0.1 three times is within 0.3 (docs/composition.md, section 5).
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

    The points increase in epsilon and do not increase in delta, and the last is the local budget or where the profile
    is given up (its delta is then lost); they may be missing, and then it is any (epsilon, delta)-private release.
    Entries with the same `series` are of waves in which clients send the same reports. Each is about all of these waves
    together, so that a series counts once. "": of a round by itself.
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
    """What a client of this tier has lost over `rounds` rounds, at the delta that was asked about; None: no bound.

    enough_delta: where there is none, a larger delta at which there is one; None where there is no such either.
    """

    tier: str
    rounds: int
    guarantee: Guarantee | None
    enough_delta: float | None = None


class Ledger:
    """The ledger on one connection; the caller's transaction decides when an entry is durable."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        _metadata.create_all(connection)

    def enter(
        self,
        round_id: RoundId,
        batch_digest: Digest,
        entries: Sequence[Entry],
        *,
        one_record: bool = False,
        merged: bool = False,
        unknown: bool = False,
    ) -> None:
        """Enters a granted round. The same round and batch again changes nothing.

        one_record: what it costs is about one record of a client, and not about a user. merged: in its tiers are
        clients with smaller budgets. unknown: of some of its clients the budget did not arrive.

        Raises ValueError if the round is entered already with another batch or other costs.
        """
        known = self._rows(_entries.c.round_id == round_id)
        if known:
            if {row.batch_digest for row in known} != {batch_digest} or [_entry(row) for row in known] != list(entries):
                raise ValueError(f"round {round_id!r} is in the ledger already, with another batch or cost")
            return
        if one_record and round_id not in self.record_rounds():
            self._connection.execute(sa.insert(_record_rounds).values(round_id=round_id))
        if merged and round_id not in self.merged_rounds():
            self._connection.execute(sa.insert(_merged_rounds).values(round_id=round_id))
        if unknown and round_id not in self.unknown_rounds():
            self._connection.execute(sa.insert(_unknown_rounds).values(round_id=round_id))
        if (series := series_of(entries)) and not self._connection.scalar(
            sa.select(_series.c.series).where(_series.c.round_id == round_id)
        ):
            self._connection.execute(sa.insert(_series).values(round_id=round_id, series=series))
        self._connection.execute(
            sa.insert(_entries),
            [
                {
                    "round_id": round_id,
                    "batch_digest": batch_digest,
                    "local_epsilon": entry.local_epsilon,
                    "local_delta": entry.local_delta,
                    "count": entry.count,
                    "epsilon": entry.epsilon,
                    "delta": entry.delta,
                    "profile": json.dumps(entry.profile),
                }
                for entry in entries
            ],
        )

    def amend(self, round_id: RoundId, entries: Sequence[Entry]) -> None:
        """Replaces what a round that is entered costs, when its end has shown it.

        Raises ValueError if the round is not entered.
        """
        known = self._rows(_entries.c.round_id == round_id)
        if not known:
            raise ValueError(f"round {round_id!r} is not in the ledger; only what is entered can be amended")
        self._connection.execute(sa.delete(_entries).where(_entries.c.round_id == round_id))
        self.enter(round_id, known[0].batch_digest, entries)

    def amendment(
        self, round_id: RoundId, entries: Sequence[Entry], limit: Limit
    ) -> tuple[list[Entry], Statement[RefusalReason] | None]:
        """Returns what a round that is entered is to cost from its end on, and why its end may not be granted, or None.

        What was entered stays where the limit admits it and not what the end has shown: a filter may refuse a smaller
        epsilon at a delta where it admits the whole local budget, of which nothing is lost with certainty.
        """
        refusal = self.refusal(round_id, entries, limit)
        entered = [_entry(row) for row in self._rows(_entries.c.round_id == round_id)]
        if refusal is not None and entered and self.refusal(round_id, entered, limit) is None:
            return entered, None
        return list(entries), refusal

    def disclose(self, round_id: RoundId) -> None:
        """Notes that a round has a certificate, which tells something about budgets even if it refuses the round."""
        if round_id not in self.disclosed_rounds():
            self._connection.execute(sa.insert(_shown_rounds).values(round_id=round_id))

    def tell_budgets(self, round_id: RoundId, epsilon: float, delta: float) -> None:
        """Notes that what a round tells of its budgets is (epsilon, delta)-private in those of one person.

        Both are 0 for a round that offers one budget only, and so tells nothing. The same round again changes nothing.
        """
        if round_id not in self.budget_privacy():
            self._connection.execute(sa.insert(_budget_privacy).values(round_id=round_id, epsilon=epsilon, delta=delta))

    def budgets_told(self, without: Collection[RoundId] = ()) -> BudgetsTold:
        """Returns what the certificates of all rounds, or of all but these, tell of one person's budget."""
        known = {round_id: cost for round_id, cost in self.budget_privacy().items() if round_id not in without}
        costs = [cost for cost in known.values() if any(cost)]
        epsilon, delta = (sum((as_decimal(cost[at]) for cost in costs), Fraction(0)) for at in (0, 1))
        exact = len(self.disclosed_rounds() - known.keys() - {*without})
        return BudgetsTold(_float_above(epsilon), _float_above(delta), len(costs), exact)

    def budget_privacy(self) -> dict[RoundId, tuple[float, float]]:
        """Returns the epsilon and delta of `tell_budgets`, of every round that has them."""
        rows = self._connection.execute(sa.select(_budget_privacy)).all()
        return {row.round_id: (row.epsilon, row.delta) for row in rows}

    def disclosed_rounds(self) -> set[RoundId]:
        """Returns the rounds whose certificates tell something about budgets, granted or refused."""
        refused = self._connection.execute(sa.select(_shown_rounds.c.round_id)).scalars()
        granted = self._connection.execute(sa.select(_entries.c.round_id)).scalars()
        return {*refused, *granted}

    def may_disclose(self, round_id: RoundId, limit: Limit) -> bool:
        """Returns whether one more certificate may show how many clients used each budget."""
        shown = self.disclosed_rounds()
        return not limit.max_rounds or round_id in shown or len(shown) < limit.max_rounds

    def record_rounds(self) -> set[RoundId]:
        """Returns the rounds whose cost is about one record of a client, and not about a user."""
        return set(self._connection.execute(sa.select(_record_rounds.c.round_id)).scalars())

    def merged_rounds(self) -> set[RoundId]:
        """Returns the rounds in whose tiers are clients with smaller budgets."""
        return set(self._connection.execute(sa.select(_merged_rounds.c.round_id)).scalars())

    def unknown_rounds(self) -> set[RoundId]:
        """Returns the rounds in which a client may have had any budget: of some the budget did not arrive."""
        return set(self._connection.execute(sa.select(_unknown_rounds.c.round_id)).scalars())

    def entered(self) -> list[tuple[RoundId, Digest, list[Entry]]]:
        """Every round as it was entered: its id, its batch and its costs, in the order in which these became known."""
        rounds: dict[tuple[RoundId, Digest], list[Entry]] = {}
        for row in self._rows():
            rounds.setdefault((row.round_id, row.batch_digest), []).append(_entry(row))
        return [(round_id, digest, entries) for (round_id, digest), entries in rounds.items()]

    def spent(self, delta: float, *, fixed_terms: bool = False) -> tuple[Spent, ...]:
        """What is spent at this total delta, 0 < delta < 1: per tier, and for the worst tier of every round.

        By default that is the least epsilon of a privacy filter that admits all of the rounds. Had it been the limit
        from the beginning, it would hold however rounds were chosen by earlier results; read afterwards it says how
        much of a limit remains, and the limit is the guarantee. fixed_terms: the caller knows that their terms, and who
        took part with which budget, were fixed before the first result; then privacy losses compose, to less.

        A tier's name says in how many of its rounds one record is protected, and not a user. In rounds whose small
        tiers are merged every client is taken to be in the worst tier; where a budget did not arrive, those are whose
        tier is not among the round's.
        """
        rounds, of_records, merged = self._rounds(), self.record_rounds(), self.merged_rounds()
        unknown = self.unknown_rounds()
        exact = [entries for round_id, entries in rounds.items() if round_id not in merged]
        tiers = sorted({(e.local_epsilon, e.local_delta) for entries in exact for e in entries})

        def costs_in(round_id: RoundId, tier: tuple[float, float]) -> list[Entry]:
            entries = rounds[round_id]
            own = [e for e in entries if round_id in merged or (e.local_epsilon, e.local_delta) == tier]
            return own or (entries if round_id in unknown else [])

        def spent(name: str, mine: Mapping[RoundId, list[Entry]]) -> Spent:
            records = len(of_records & mine.keys())
            unit = f"; ONE RECORD only, in {records} of {len(mine)} rounds" if records else ""
            costs = list(mine.values())
            found = total_of_rounds(costs, delta, fixed_terms)
            enough = None if found else _enough_delta(costs, delta, fixed_terms)
            return Spent(f"{name}{unit}", len(mine), found, enough)

        found = []
        for tier in tiers:
            name = f"local ε {round_up(tier[0])}" + (f", δ {round_up(tier[1])}" if tier[1] else "")
            mine = {round_id: chosen for round_id in rounds if (chosen := costs_in(round_id, tier))}
            found.append(spent(name, mine))
        return (*found, spent(ANY_TIER, rounds))

    def spent_in(self, round_ids: Collection[RoundId], delta: float, *, fixed_terms: bool = False) -> Guarantee | None:
        """What a client has lost that was in these rounds and in no others, in each in its worst tier; None: no bound.

        fixed_terms: see `spent`.

        Raises ValueError if one of them is not entered.
        """
        rounds = self._rounds()
        missing = sorted(set(round_ids) - rounds.keys())
        if missing:
            raise ValueError(f"the ledger has no {', '.join(missing)}; only granted rounds are entered")
        return total_of_rounds([rounds[round_id] for round_id in sorted(set(round_ids))], delta, fixed_terms)

    def refusal(self, round_id: RoundId, entries: Sequence[Entry], limit: Limit) -> Statement[RefusalReason] | None:
        """Why this round may not be granted, or None. A round that is entered already is not counted twice."""
        others = self._rounds(_entries.c.round_id != round_id)
        return refusal_of([costs for name, costs in others.items() if limit.counts(name)], entries, limit)

    def _rows(self, where: sa.ColumnElement[bool] | None = None) -> Sequence[sa.Row[Any]]:
        together = _entries.outerjoin(_series, _series.c.round_id == _entries.c.round_id)
        query = sa.select(_entries, _series.c.series).select_from(together).order_by(_entries.c.sequence)
        return self._connection.execute(query if where is None else query.where(where)).all()

    def _rounds(self, where: sa.ColumnElement[bool] | None = None) -> dict[RoundId, list[Entry]]:
        rounds: dict[RoundId, list[Entry]] = {}
        for row in self._rows(where):
            rounds.setdefault(row.round_id, []).append(_entry(row))
        return rounds


def _float_above(value: Fraction) -> float:
    near = float(value)
    return near if Fraction(near) >= value or as_decimal(near) == value else math.nextafter(near, math.inf)


def _entry(row: sa.Row[Any]) -> Entry:
    values = row._mapping  # `count` is also a method of a row
    pair = row.epsilon, row.delta
    return _read(row.local_epsilon, row.local_delta, values["count"], pair, row.profile, row.series or "")


@lru_cache(maxsize=4096)
def _read(
    local_epsilon: float, local_delta: float, count: int, pair: tuple[float, float], profile: str, series: str
) -> Entry:
    """Many rounds may be alike: a hundred thousand of them are read in seconds."""
    points = tuple((float(e), float(d)) for e, d in json.loads(profile))
    return Entry(local_epsilon, local_delta, count, *pair, points, series)


def series_of(entries: Sequence[Entry]) -> str:
    """Returns the series of a round, whose entries all have it; "" for a round by itself."""
    return next((entry.series for entry in entries if entry.series), "")


def once_each_series(rounds: Sequence[Sequence[Entry]]) -> list[Sequence[Entry]]:
    """Returns what rounds cost, with all waves of a series as one: each of their entries is about all of them."""
    alone = [entries for entries in rounds if not series_of(entries)]
    together: dict[str, list[Entry]] = {}
    for entries in rounds:
        if series := series_of(entries):
            together.setdefault(series, []).extend(entries)
    return [*alone, *together.values()]


def _cost(entries: Sequence[Entry]) -> RoundCost:
    """Returns what a filter has to know of a round. What is not amplified loses with certainty its local delta only."""
    return RoundCost(
        max(entry.epsilon for entry in entries),
        max(entry.delta for entry in entries),
        tuple(dict.fromkeys(entry.profile or (_pair(entry),) for entry in entries)),
        frozenset(e.local_epsilon for e in entries if e.profile or e.epsilon == e.local_epsilon),
    )


def _as_written(entries: Sequence[Entry]) -> Fraction:
    """Returns what a round costs in its worst tier: as it was written where that is a local budget, else the float."""
    cost = max(entry.epsilon for entry in entries)
    return as_decimal(cost) if any(e.epsilon == cost == e.local_epsilon for e in entries) else Fraction(cost)


def _pair(entry: Entry) -> tuple[float, float]:
    return (entry.epsilon, entry.local_delta if entry.epsilon >= entry.local_epsilon else entry.delta)


def _of_pair(epsilon: float, delta: float) -> Profile:
    """Points of the profile of any (epsilon, delta)-DP release, which is one chord."""
    at_zero = PairProfile(epsilon, delta).delta(0.0).value
    return ((0.0, max(at_zero, delta)), (epsilon, delta)) if epsilon else ((0.0, delta),)


def _enough_delta(rounds: Sequence[Sequence[Entry]], delta: float, fixed_terms: bool) -> float | None:
    """Returns a delta above this one at which something is proved, or None."""
    rounds = once_each_series(rounds)
    added_up = sum_above(max(e.delta for e in entries) for entries in rounds)
    candidates = [LEAST_DELTA, added_up] if fixed_terms else [added_up, delta_for_basic([_cost(e) for e in rounds])]
    larger = [candidate for candidate in candidates if delta < candidate < 1]
    return next((enough for enough in sorted(larger) if total_of_rounds(rounds, enough, fixed_terms) is not None), None)


def refusal_of(
    others: Sequence[Sequence[Entry]], entries: Sequence[Entry], limit: Limit
) -> Statement[RefusalReason] | None:
    """Returns why a round with these costs may not be granted beside the others, or None."""
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
        return state(RefusalReason.STUDY_UNBOUNDED if limit.study_id else RefusalReason.LEDGER_UNBOUNDED, **about)
    exceeded = RefusalReason.STUDY_EXCEEDED if limit.study_id else RefusalReason.LEDGER_EXCEEDED
    excess = difference(after.epsilon, limit.epsilon)
    return state(exceeded, reached=after.epsilon, excess=excess, spent=before.epsilon, **about)


def total_of_rounds(rounds: Sequence[Sequence[Entry]], delta: float, fixed_terms: bool) -> Guarantee | None:
    """One client in all rounds, in each of them in whichever of its tiers is the worst. None: nothing is proved."""
    if not rounds:
        return Guarantee(0.0, 0.0, Grade.CERTIFIED, (state(Method.NO_ROUND),))
    kept = (state(Assumption.ANSWERS_UNCHANGED),) if any(map(series_of, rounds)) else ()
    rounds = once_each_series(rounds)
    epsilon = smallest_admitting_epsilon([_cost(entries) for entries in rounds], delta)
    assumed = () if fixed_terms else (state(Assumption.TOTAL_BEFOREHAND),)
    method = (state(Method.PRIVACY_FILTER, rounds=len(rounds)),)
    found = [] if epsilon is None else [Guarantee(epsilon, delta, Grade.CERTIFIED, method, assumed)]
    if fixed_terms:
        found.extend(_of_fixed_terms(rounds, delta))
    least = min(found, key=lambda guarantee: guarantee.epsilon, default=None)
    return least and replace(least, assumptions=(*least.assumptions, *kept))


def _of_fixed_terms(rounds: Sequence[Sequence[Entry]], delta: float) -> list[Guarantee]:
    """Guarantees that hold where the terms of all rounds were fixed before the first result.

    Deltas that add up to delta as they are written are enough for basic composition; the guarantee is then at their
    sum, rounded up, which may be above delta by its last digit.
    """
    worst = [(max(e.epsilon for e in entries), max(e.delta for e in entries)) for entries in rounds]
    found, assumed = [], (state(Assumption.FIXED_TERMS),)
    lost = sum_above(d for _, d in worst)
    if lost <= delta or sum(as_decimal(d) for _, d in worst) <= as_decimal(delta):
        total = sum_above(e for e, _ in worst)
        method = state(Method.BASIC_COMPOSITION, rounds=len(rounds))
        found.append(Guarantee(total, max(delta, lost), Grade.CERTIFIED, (method,), assumed))
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
            method = state(Method.COMPOSED_LOSSES, rounds=len(rounds))
            found.append(Guarantee(inverse.epsilon, delta, Grade.CERTIFIED, (method,), assumed))
    return found
