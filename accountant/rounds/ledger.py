"""The ledger: the cost of every granted round, kept for the life of a deployment.

It works on its caller's connection: the accountant service enters a round in the same transaction as its certificate.
`accountant.spending` adds up the entries and decides whether a limit admits a round.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from croupier.accountant.guarantees import Guarantee
from croupier.accountant.numerics.decimals import sum_as_decimals
from croupier.accountant.spending import (
    ANY_TIER,
    BudgetsTold,
    Entry,
    Limit,
    Spent,
    enough_delta_of,
    refusal_of,
    series_of,
    total_of_rounds,
)
from croupier.protocol.codes import RefusalReason
from croupier.protocol.names import Digest, RoundId
from croupier.protocol.rounding import round_up
from croupier.protocol.statements import Statement

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
_unknown_rounds = sa.Table("ledger_unknown_rounds", _metadata, sa.Column("round_id", sa.String, primary_key=True))
_series = sa.Table(
    "ledger_series",
    _metadata,
    sa.Column("round_id", sa.String, primary_key=True),
    sa.Column("series", sa.String, nullable=False),
)
_budget_costs = sa.Table(
    "ledger_budget_privacy",
    _metadata,
    sa.Column("round_id", sa.String, primary_key=True),
    sa.Column("epsilon", sa.Float, nullable=False),
    sa.Column("delta", sa.Float, nullable=False),
)


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
        unknown: bool = False,
    ) -> None:
        """Enters a granted round. The same round and batch again changes nothing.

        one_record: the cost protects one record of a client, and not a user. unknown: the budgets of some of its
        clients did not arrive.

        Raises ValueError if the round is already entered with another batch or other costs.
        """
        known = self._rows(_entries.c.round_id == round_id)
        if known:
            if {row.batch_digest for row in known} != {batch_digest} or [_entry(row) for row in known] != list(entries):
                raise ValueError(f"round {round_id!r} is in the ledger already, with another batch or cost")
            return
        if one_record and round_id not in self.record_rounds():
            self._connection.execute(sa.insert(_record_rounds).values(round_id=round_id))
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
        """Replaces the cost of an entered round after its end.

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
        """Returns the cost of an entered round from its end on, and the reason why its end may not be granted, or None.

        The entered cost stays if the limit admits it but not the final cost: a filter may refuse a smaller epsilon at a
        delta where it admits the whole local budget, of which nothing is lost with certainty.
        """
        refusal = self.refusal(round_id, entries, limit)
        entered = [_entry(row) for row in self._rows(_entries.c.round_id == round_id)]
        if refusal is not None and entered and self.refusal(round_id, entered, limit) is None:
            return entered, None
        return list(entries), refusal

    def disclose(self, round_id: RoundId) -> None:
        """Notes that a round has a certificate, which reveals information on budgets even if it refuses the round."""
        if round_id not in self.disclosed_rounds():
            self._connection.execute(sa.insert(_shown_rounds).values(round_id=round_id))

    def tell_budgets(self, round_id: RoundId, epsilon: float, delta: float) -> None:
        """Notes that the round's information on budgets is (epsilon, delta)-private in the budget of one person.

        Both are 0 for a round with only one budget, which reveals nothing. The same round again changes nothing.
        """
        if round_id not in self.budget_costs():
            self._connection.execute(sa.insert(_budget_costs).values(round_id=round_id, epsilon=epsilon, delta=delta))

    def budgets_told(self, without: Collection[RoundId] = ()) -> BudgetsTold:
        """Returns what the certificates of all rounds, or of all but these, tell of one person's budget."""
        known = {round_id: cost for round_id, cost in self.budget_costs().items() if round_id not in without}
        costs = [cost for cost in known.values() if any(cost)]
        epsilon, delta = (sum_as_decimals(cost[at] for cost in costs) for at in (0, 1))
        exact = len(self.disclosed_rounds() - known.keys() - {*without})
        return BudgetsTold(epsilon, delta, len(costs), exact)

    def budget_costs(self) -> dict[RoundId, tuple[float, float]]:
        """Returns the epsilon and delta of `tell_budgets`, of every round that has them."""
        rows = self._connection.execute(sa.select(_budget_costs)).all()
        return {row.round_id: (row.epsilon, row.delta) for row in rows}

    def disclosed_rounds(self) -> set[RoundId]:
        """Returns the rounds whose certificates reveal information on budgets, granted or refused."""
        refused = self._connection.execute(sa.select(_shown_rounds.c.round_id)).scalars()
        granted = self._connection.execute(sa.select(_entries.c.round_id)).scalars()
        return {*refused, *granted}

    def may_disclose(self, round_id: RoundId, limit: Limit) -> bool:
        """Returns whether one more certificate may show the number of clients of each budget."""
        shown = self.disclosed_rounds()
        return not limit.max_rounds or round_id in shown or len(shown) < limit.max_rounds

    def record_rounds(self) -> set[RoundId]:
        """Returns the rounds whose cost protects one record of a client, and not a user."""
        return set(self._connection.execute(sa.select(_record_rounds.c.round_id)).scalars())

    def unknown_rounds(self) -> set[RoundId]:
        """Returns the rounds in which a client may have had any budget, because some budgets did not arrive."""
        return set(self._connection.execute(sa.select(_unknown_rounds.c.round_id)).scalars())

    def entered(self) -> list[tuple[RoundId, Digest, list[Entry]]]:
        """Returns every entered round: its id, its batch and its costs, in the order of entry."""
        rounds: dict[tuple[RoundId, Digest], list[Entry]] = {}
        for row in self._rows():
            rounds.setdefault((row.round_id, row.batch_digest), []).append(_entry(row))
        return [(round_id, digest, entries) for (round_id, digest), entries in rounds.items()]

    def spent(self, delta: float, *, fixed_terms: bool = False) -> tuple[Spent, ...]:
        """Returns the spending at this total delta, 0 < delta < 1: per tier, and for the worst tier of every round.

        By default it is the least epsilon of a privacy filter that admits all of the rounds. As a limit from the
        beginning it would hold however rounds were chosen by earlier results; read afterwards it shows the rest of a
        limit, and the limit is the guarantee. fixed_terms: the caller knows that their terms, and who took part with
        which budget, were fixed before the first result; then privacy losses compose, to less.

        A tier's name states in how many of its rounds one record is protected, and not a user. In rounds with lost
        budgets, clients count in the worst tier if their own is not among the round's.
        """
        rounds, of_records, unknown = self._rounds(), self.record_rounds(), self.unknown_rounds()
        tiers = sorted({(e.local_epsilon, e.local_delta) for entries in rounds.values() for e in entries})

        def costs_in(round_id: RoundId, tier: tuple[float, float]) -> list[Entry]:
            entries = rounds[round_id]
            own = [e for e in entries if (e.local_epsilon, e.local_delta) == tier]
            return own or (entries if round_id in unknown else [])

        def spent(name: str, mine: Mapping[RoundId, list[Entry]]) -> Spent:
            records = len(of_records & mine.keys())
            unit = f"; ONE RECORD only, in {records} of {len(mine)} rounds" if records else ""
            costs = list(mine.values())
            total = total_of_rounds(costs, delta, fixed_terms)
            enough = None if total else enough_delta_of(costs, delta, fixed_terms)
            return Spent(f"{name}{unit}", len(mine), total, enough)

        of_tiers = []
        for tier in tiers:
            name = f"local ε {round_up(tier[0])}" + (f", δ {round_up(tier[1])}" if tier[1] else "")
            mine = {round_id: chosen for round_id in rounds if (chosen := costs_in(round_id, tier))}
            of_tiers.append(spent(name, mine))
        return (*of_tiers, spent(ANY_TIER, rounds))

    def spent_in(self, round_ids: Collection[RoundId], delta: float, *, fixed_terms: bool = False) -> Guarantee | None:
        """Returns the loss of a client in these rounds only, in the worst tier of each; None: no bound.

        fixed_terms: see `spent`.

        Raises ValueError if one of them is not entered.
        """
        rounds = self._rounds()
        missing = sorted(set(round_ids) - rounds.keys())
        if missing:
            raise ValueError(f"the ledger has no {', '.join(missing)}; only granted rounds are entered")
        return total_of_rounds([rounds[round_id] for round_id in sorted(set(round_ids))], delta, fixed_terms)

    def refusal(self, round_id: RoundId, entries: Sequence[Entry], limit: Limit) -> Statement[RefusalReason] | None:
        """Returns the reason why this round may not be granted, or None. An entered round is not counted twice."""
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


def _entry(row: sa.Row[Any]) -> Entry:
    values = row._mapping  # `count` is also a method of a row
    pair = row.epsilon, row.delta
    return _read(row.local_epsilon, row.local_delta, values["count"], pair, row.profile, row.series or "")


@lru_cache(maxsize=4096)
def _read(
    local_epsilon: float, local_delta: float, count: int, pair: tuple[float, float], profile: str, series: str
) -> Entry:
    """Reads an entry; cached, because many rounds may be alike: a hundred thousand are read in seconds."""
    points = tuple((float(e), float(d)) for e, d in json.loads(profile))
    return Entry(local_epsilon, local_delta, count, *pair, points, series)
