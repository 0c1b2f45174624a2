"""What the accountant says of rounds to come: a forecast of one, and what is left of the ledger's limit.

Both follow from signed terms, certificates and numbers of tickets and reports, so the operator and hop 1 may know them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from croupier.accountant.numerics.decimals import difference
from croupier.accountant.service.forecast import AskLedger, Forecast, forecast
from croupier.accountant.service.ledger import BudgetsTold, Entry, Ledger, Limit, refusal_of, total_of_rounds
from croupier.accountant.service.round_certificate import as_limit, limit_of
from croupier.accountant.service.tickets import TicketDesk
from croupier.net.tls import Context
from croupier.protocol.codes import RefusalReason
from croupier.protocol.deployment import OPERATOR
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms, parse_terms
from croupier.protocol.statements import Statement, messages_of, state
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.peers import Peers
from croupier.runtime.round_engine import RoundEngine
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.transaction import Transaction

__all__ = ["Account", "Outlook", "answer"]

_MOST_REPORTS = 2**31 - 1


@dataclass(frozen=True)
class Account:
    """A copy of the ledger.

    Attributes:
        rounds: what each round that is entered costs each tier.
        shown: how many rounds count for `Limit.max_rounds`.
        budgets: what the certificates of these rounds tell of one person's budget.
    """

    rounds: tuple[tuple[Entry, ...], ...] = ()
    shown: int = 0
    budgets: BudgetsTold = field(default_factory=BudgetsTold)

    @classmethod
    def of(cls, ledger: Ledger, without: str = "") -> Account:
        """Returns the account of a ledger, without one round."""
        rounds = tuple(tuple(entries) for round_id, _, entries in ledger.entered() if round_id != without)
        return cls(rounds, len(ledger.shown_rounds() - {without}), ledger.budgets_told(without))

    def spent(self, limit: Limit, *more: Sequence[Entry]) -> float | None:
        """Returns what a person in all rounds, and in these, has spent at the limit's delta; None: no bound."""
        found = total_of_rounds([*self.rounds, *more], limit.delta, limit.fixed_terms)
        return None if found is None else found.epsilon

    def asker(self, limits: Sequence[Limit]) -> AskLedger:
        """Returns what says whether the ledger would bear a cost, and what it has left of the tightest limit then."""

        def ask(entries: Sequence[Entry]) -> tuple[list[Statement[RefusalReason]], float | None]:
            refusals = [found for limit in limits if (found := refusal_of(self.rounds, entries, limit)) is not None]
            used_up = [limit.max_rounds for limit in limits if 0 < limit.max_rounds <= self.shown]
            refusals += [state(RefusalReason.ROUNDS_SHOWN, rounds=most) for most in used_up]
            left = [
                max(0.0, difference(limit.epsilon, reached))
                for limit in limits
                if (reached := self.spent(limit, entries)) is not None
            ]
            return refusals, min(left) if limits and len(left) == len(limits) else None

        return ask

    def state(self, limit: Limit) -> rpc.LedgerState:
        """Returns what is left of a limit, as a service says it."""
        return rpc.LedgerState(
            limit=pb.PrivacyLimit(
                total_epsilon=limit.epsilon,
                total_delta=limit.delta,
                max_rounds=limit.max_rounds,
                fixed_terms=limit.fixed_terms,
            ),
            num_rounds=len(self.rounds),
            num_shown=self.shown,
            spent_epsilon=self.spent(limit),
            budget_epsilon=self.budgets.epsilon,
            budget_delta=self.budgets.delta,
            num_exact=self.budgets.exact,
            num_noised=self.budgets.rounds,
        )


def answer(
    terms: RoundTerms, num_reports: int, num_tickets: int, account: Account, limits: Sequence[Limit]
) -> rpc.ForecastResponse:
    """Returns the forecast of a round, as the accountant says it."""
    ledger = account.asker(limits) if limits else None
    response = rpc.ForecastResponse(
        num_reports=num_reports,
        num_tickets=num_tickets,
        outcomes=_outcomes(forecast(terms, num_reports, num_tickets, ledger)),
        ledger=account.state(limits[-1]) if limits else None,
    )
    if num_tickets > num_reports:
        response.without_stragglers.extend(_outcomes(forecast(terms, num_reports, None, ledger)))
    return response


def _outcomes(found: Forecast) -> list[rpc.ForecastOutcome]:
    return [
        rpc.ForecastOutcome(
            budgets=[pb.Tier(local_epsilon=budget, count=count) for budget, count in one.budgets],
            epsilon=one.epsilon,
            standard_error=one.standard_error,
            refusals=messages_of(one.refusals),
            remaining_epsilon=one.remaining_epsilon,
        )
        for one in found.outcomes
    ]


class Outlook:
    """Answers the operator and hop 1.

    Args:
        setup: of the service.
        peers: the other services.
        engine: knows the terms of rounds.
        desk: knows how many clients have tickets.
        search: runs what takes long, on the cluster or in a thread.
    """

    def __init__(
        self,
        setup: ServiceSetup,
        peers: Peers,
        engine: RoundEngine,
        desk: TicketDesk,
        search: Callable[..., Awaitable[Any]],
    ) -> None:
        self._store = setup.store
        self._metrics = setup.metrics
        self._peers = peers
        self._engine = engine
        self._desk = desk
        self._search = search
        self._known: tuple[Limit, rpc.LedgerState] | None = None

    def limits(self, terms: RoundTerms | None = None) -> list[Limit]:
        """Returns the limit in a round's manifest, and that of the deployment if it is another one by now.

        The people of later rounds have been promised the latter, over all rounds.
        """
        now = self._peers.deployment.privacy_limit
        found = [None if terms is None else limit_of(terms), None if now is None else as_limit(now)]
        return [limit for limit in dict.fromkeys(found) if limit is not None]

    async def forecast(self, request: rpc.ForecastRequest, context: Context) -> rpc.ForecastResponse:
        """Says what a round would come to with a number of reports, whatever budgets of its grid people use.

        Raises:
            Refusal: NOT_YOUR_CALL (neither the operator nor hop 1), BAD_REQUEST (the number of reports), UNKNOWN_ROUND,
                WRONG_STATE (the round is not open yet, or deleted), BAD_MANIFEST.
        """
        self._peers.require_caller(context, [OPERATOR, self._peers.deployment.shufflers[0].name])
        if not 1 <= request.num_reports <= _MOST_REPORTS:
            raise Refusal(Code.BAD_REQUEST, f"num_reports is {request.num_reports}; it must be in 1..{_MOST_REPORTS}")
        if request.round_id:
            terms = await self._engine.terms(request.round_id)
            tickets = max(request.num_reports, await self._desk.num_tickets(terms))
        else:
            terms, tickets = parse_terms(request.manifest), request.num_reports
            terms.check_place(self._peers.deployment)

        account, limits = await self._account(terms.round_id), self.limits(terms)
        found: rpc.ForecastResponse = await self._search(answer, terms, request.num_reports, tickets, account, limits)
        return found

    async def _account(self, without: str = "") -> Account:
        def read(tx: Transaction) -> Account:
            return Account.of(Ledger(tx.connection), without)

        return await self._store.run(StoreStep.READ_ACCOUNT, read)

    async def ledger(self) -> rpc.LedgerState | None:
        """Returns what is left of the deployment's limit; None without one."""
        limits = self.limits()
        if not limits:
            return None
        if self._known is None or self._known[0] != limits[0]:
            account = await self._account()
            self._known = limits[0], await self._search(account.state, limits[0])
            found = self._known[1]
            spent = found.spent_epsilon if found.HasField("spent_epsilon") else limits[0].epsilon
            self._metrics.ledger(limits[0].epsilon, max(0.0, difference(limits[0].epsilon, spent)))
        return self._known[1]

    async def ledger_changed(self) -> None:
        """Computes again what is left, after a round was entered, amended or shown."""
        self._known = None
        await self.ledger()
