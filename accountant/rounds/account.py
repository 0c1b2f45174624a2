"""An account: a copy of the ledger with the rounds that may still be entered, and the forecast of a round beside them.

The accountant's service answers from it, and an operator without the service from a ledger's file.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from croupier.accountant.numerics.decimals import difference
from croupier.accountant.rounds.forecast import AskLedger, Forecast, forecast
from croupier.accountant.rounds.ledger import Ledger
from croupier.accountant.spending import BudgetsTold, Entry, Limit, refusal_of, total_of_rounds
from croupier.protocol.codes import RefusalReason
from croupier.protocol.names import RoundId
from croupier.protocol.statements import Statement, messages_of
from croupier.protocol.surveys import QuestionTerms
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc

PENDING = (pb.ROUND_STATE_OPEN, pb.ROUND_STATE_CLOSED)
"""The states in which a round may still be entered in the ledger, and is not yet."""


@dataclass(frozen=True)
class Account:
    """A copy of the ledger, and the rounds that may be entered before the round in question.

    Attributes:
        rounds: the cost of each entered round for each tier.
        shown: the number of rounds that count for `Limit.max_rounds`.
        pending: the largest cost of each round that is open or being certified.
        planned: the largest cost of each round that is to be opened or closed together with the one in question.
        budgets: the information on one person's budget in the certificates of these rounds.
    """

    rounds: tuple[tuple[Entry, ...], ...] = ()
    shown: int = 0
    pending: tuple[tuple[Entry, ...], ...] = ()
    planned: tuple[tuple[Entry, ...], ...] = ()
    budgets: BudgetsTold = field(default_factory=BudgetsTold)

    @classmethod
    def of(cls, ledger: Ledger, without: Collection[RoundId] = (), limit: Limit | None = None) -> Account:
        """Returns the account of a ledger, without these rounds, and only with the rounds that a limit counts."""
        rounds = tuple(
            tuple(entries)
            for round_id, _, entries in ledger.entered()
            if round_id not in without and (limit is None or limit.counts(round_id))
        )
        shown = len(ledger.disclosed_rounds().difference(without))
        return cls(rounds, shown, budgets=ledger.budgets_told(without))

    @property
    def committed(self) -> tuple[tuple[Entry, ...], ...]:
        """The rounds that are entered, and the pending ones."""
        return (*self.rounds, *self.pending)

    def asker(self, limits: Sequence[Limit]) -> AskLedger:
        """Returns a function that checks a cost against the limits, with the rest of the tightest limit."""

        def ask(entries: Sequence[Entry]) -> tuple[list[Statement[RefusalReason]], float | None]:
            others = (*self.committed, *self.planned)
            refusals = [refusal for limit in limits if (refusal := refusal_of(others, entries, limit)) is not None]
            shown = self.shown + len(self.pending) + len(self.planned)
            used_up = [limit.max_rounds for limit in limits if 0 < limit.max_rounds <= shown]
            refusals += [Statement.of(RefusalReason.ROUNDS_SHOWN, rounds=most) for most in used_up]
            left = [
                max(0.0, difference(limit.epsilon, reached))
                for limit in limits
                if (reached := _total([*others, entries], limit)) is not None
            ]
            return refusals, min(left) if limits and len(left) == len(limits) else None

        return ask

    def state(self, limit: Limit) -> rpc.LedgerState:
        """Returns the rest of a limit, as the message of a service."""
        return rpc.LedgerState(
            limit=pb.PrivacyLimit(
                total_epsilon=limit.epsilon,
                total_delta=limit.delta,
                max_rounds=limit.max_rounds,
                fixed_terms=limit.fixed_terms,
            ),
            num_rounds=len(self.rounds),
            num_shown=self.shown,
            budget_epsilon=self.budgets.epsilon,
            budget_delta=self.budgets.delta,
            num_exact=self.budgets.exact,
            num_noised=self.budgets.rounds,
            spent_epsilon=_total(self.rounds, limit),
            num_pending=len(self.pending),
            committed_epsilon=_total(self.committed, limit),
        )


def _total(rounds: Sequence[Sequence[Entry]], limit: Limit) -> float | None:
    """Returns the spending of a person in all of these rounds at the limit's delta; None: no bound."""
    total = total_of_rounds(rounds, limit.delta, limit.fixed_terms)
    return None if total is None else total.epsilon


def answer(
    terms: QuestionTerms,
    num_reports: int,
    num_tickets: int,
    account: Account,
    limits: Sequence[Limit],
    of_survey: tuple[Account, Limit] | None = None,
) -> rpc.ForecastResponse:
    """Returns the accountant's forecast of a round.

    of_survey: the rounds of the round's study, and the study's limit.
    """
    askers = [account.asker(limits)] if limits else []
    askers += [] if of_survey is None else [of_survey[0].asker([of_survey[1]])]
    ledger = _all_of(askers) if askers else None
    response = rpc.ForecastResponse(
        num_reports=num_reports,
        num_tickets=num_tickets,
        outcomes=_outcomes(forecast(terms, num_reports, num_tickets, ledger)),
        ledger=account.state(limits[-1]) if limits else None,
    )
    if num_tickets > num_reports:
        response.without_stragglers.extend(_outcomes(forecast(terms, num_reports, None, ledger)))
    return response


def _all_of(askers: Sequence[AskLedger]) -> AskLedger:
    """Returns a function that asks all of them, with every refusal and the least rest."""

    def ask(entries: Sequence[Entry]) -> tuple[list[Statement[RefusalReason]], float | None]:
        told = [asker(entries) for asker in askers]
        left = [remaining for _, remaining in told if remaining is not None]
        return [refusal for refusals, _ in told for refusal in refusals], min(left) if len(left) == len(told) else None

    return ask


def _outcomes(forecast: Forecast) -> list[rpc.ForecastOutcome]:
    return [
        rpc.ForecastOutcome(
            budgets=[pb.Tier(local_epsilon=budget, count=count) for budget, count in outcome.budgets],
            epsilon=outcome.epsilon,
            standard_error=outcome.standard_error,
            refusals=messages_of(outcome.refusals),
            remaining_epsilon=outcome.remaining_epsilon,
        )
        for outcome in forecast.outcomes
    ]
