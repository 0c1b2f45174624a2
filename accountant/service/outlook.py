"""The accountant's statements on future rounds: a forecast of one, and the rest of the ledger's limit.

Both follow from signed terms, certificates and numbers of tickets and reports, so the operator and hop 1 may know them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace

from croupier.accountant.numerics.decimals import difference
from croupier.accountant.rounds.account import PENDING, Account, answer
from croupier.accountant.rounds.forecast import highest_cost
from croupier.accountant.rounds.ledger import Ledger
from croupier.accountant.rounds.round_entries import as_limit, limit_of, survey_limit_of
from croupier.accountant.service.tickets import TicketDesk
from croupier.accountant.spending import Entry, Limit
from croupier.net.tls import Context
from croupier.protocol.deployment import OPERATOR
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import RoundId
from croupier.protocol.surveys import MOST_QUESTIONS, QuestionTerms, read_survey
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.kinds import DocumentKind
from croupier.runtime.peers import Peers
from croupier.runtime.round_engine import RoundEngine
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.transaction import Transaction

_MOST_REPORTS = 2**31 - 1
"""The most reports that a forecast is made for: the largest signed integer of 32 bits."""
_MOST_COSTS = 1024
"""Costs of pending rounds that are kept, so that each is computed once; every one takes up to half a second."""


class Outlook:
    """Answers the operator and hop 1.

    Args:
        setup: of the service.
        peers: the other services.
        engine: knows the terms of rounds.
        desk: knows how many clients have tickets.
    """

    def __init__(
        self,
        setup: ServiceSetup,
        peers: Peers,
        engine: RoundEngine,
        desk: TicketDesk,
    ) -> None:
        self._store = setup.store
        self._metrics = setup.metrics
        self._peers = peers
        self._engine = engine
        self._desk = desk
        self._compute = setup.compute
        self._known: tuple[Limit, rpc.LedgerState] | None = None
        self._costs: OrderedDict[tuple[bytes, int, int, int], tuple[Entry, ...]] = OrderedDict()
        self._turn = asyncio.Lock()

    def limits(self, terms: QuestionTerms | None = None) -> list[Limit]:
        """Returns the limit in a round's manifest, and that of the deployment if it is another one by now.

        The people of later rounds have been promised the latter, over all rounds.
        """
        now = self._peers.deployment.privacy_limit
        limits = [None if terms is None else limit_of(terms), None if now is None else as_limit(now)]
        return [limit for limit in dict.fromkeys(limits) if limit is not None]

    async def forecast(self, request: rpc.ForecastRequest, context: Context) -> rpc.ForecastResponse:
        """Returns the forecast of a round with a number of reports, for any of the grid's budgets.

        The ledger is evaluated as if other rounds that are not certified yet were granted before this one; the rounds
        of a survey, for example, reach their deadline together, and each alone would fit. Before this one opens, these
        are all rounds that are open, each with its smallest batch. Once it is open, they are those that hop 1 is
        closing, each with the batch that hop 1 has named: if two rounds do not fit together, hop 1 closes one and holds
        the other.

        Raises:
            Refusal: NOT_YOUR_CALL (neither the operator nor hop 1), BAD_REQUEST (the number of reports or of rounds),
                UNKNOWN_ROUND, WRONG_STATE (the round is not open yet, or deleted), BAD_MANIFEST.
        """
        hop_1 = self._peers.deployment.shufflers[0].name
        caller = self._peers.require_caller(context, [OPERATOR, hop_1])
        if (number := len(request.closed_before)) >= MOST_QUESTIONS:
            raise Refusal(Code.BAD_REQUEST, f"{number} rounds in closed_before; there must be below {MOST_QUESTIONS}")
        for number in (request.num_reports, *(closed.num_reports for closed in request.closed_before)):
            if not 1 <= number <= _MOST_REPORTS:
                raise Refusal(Code.BAD_REQUEST, f"num_reports is {number}; it must be in 1..{_MOST_REPORTS}")
        terms: QuestionTerms
        others: list[tuple[QuestionTerms, int, int]] = []
        asked: Sequence[RoundId]
        if request.round_id:
            terms = await self._engine.terms(RoundId(request.round_id))
            tickets = max(request.num_reports, await self._desk.num_tickets(terms))
            for closed in request.closed_before:
                closing = await self._engine.terms(RoundId(closed.round_id))
                others.append((closing, closed.num_reports, await self._desk.num_tickets(closing)))
            asked = [terms.round_id, *(other.round_id for other, *_ in others)]
        else:
            survey, tickets = read_survey(request.survey), request.num_reports
            survey.check_place(self._peers.deployment)
            if request.question >= len(survey.questions):
                raise Refusal(Code.BAD_REQUEST, f"question is {request.question}; there are {len(survey.questions)}")
            terms = survey.questions[request.question]
            others = [(other, request.num_reports, 0) for other in survey.questions if other is not terms]
            asked = survey.round_ids(request.wave)
        limits, of_survey = self.limits(terms), None
        async with self._turn:  # else hop 1 could learn of two rounds at once that each of them fits
            account = Account()
            if limits:
                account = await self._account_beside(asked, others, is_open=bool(request.round_id))
            if (limit := survey_limit_of(terms)) is not None:
                beside = await self._account_beside(asked, others, is_open=bool(request.round_id), limit=limit)
                of_survey = beside, limit
            response = await self._compute(answer, terms, request.num_reports, tickets, account, limits, of_survey)
            if (limits or of_survey) and request.round_id and caller == hop_1:
                closes = request.closes_anyway or not any(outcome.refusals for outcome in response.outcomes)
                await self._keep_closing(terms.round_id, (request.num_reports, tickets) if closes else None)
        return response

    async def _keep_closing(self, round_id: RoundId, batch: tuple[int, int] | None) -> None:
        """Stores the numbers of reports and tickets with which hop 1 may close a round; None: it may not.

        It is durable, because a round may be under way between hops for hours, and the service may restart.
        """
        content = b"" if batch is None else b"%d %d" % batch

        def keep(tx: Transaction) -> None:
            known = tx.document(round_id, DocumentKind.CLOSING) or b""
            if known != content and tx.round(round_id).state in PENDING:
                tx.replace_document(round_id, DocumentKind.CLOSING, content)

        await self._store.run(StoreStep.KEEP_CLOSING, keep)

    async def _account(self, without: Collection[RoundId] = ()) -> Account:
        def read(tx: Transaction) -> Account:
            return Account.of(Ledger(tx.connection), without)

        return await self._store.run(StoreStep.READ_ACCOUNT, read)

    async def _account_beside(
        self,
        without: Collection[RoundId],
        others: Sequence[tuple[QuestionTerms, int, int]],
        *,
        is_open: bool,
        limit: Limit | None = None,
    ) -> Account:
        """Returns the ledger without some rounds, with the rounds that are granted before one.

        others: the terms, reports and tickets of the rounds that the caller names. limit: only rounds that it counts.
        """

        def counts(round_id: RoundId) -> bool:
            return round_id not in without and (limit is None or limit.counts(round_id))

        def read(tx: Transaction) -> tuple[Account, dict[RoundId, bytes]]:
            under_way = [row.round_id for row in tx.rounds_in(*PENDING) if counts(row.round_id)]
            closing = {round_id: tx.document(round_id, DocumentKind.CLOSING) or b"" for round_id in under_way}
            return Account.of(Ledger(tx.connection), without, limit), closing

        account, closing = await self._store.run(StoreStep.READ_ACCOUNT, read)
        planned = [await self._cost(*other) for other in others if limit is None or limit.counts(other[0].round_id)]
        pending = []
        for round_id, batch in closing.items():
            if is_open and not batch:
                continue
            with suppress(Refusal):  # it has ended meanwhile
                known = await self._engine.terms(round_id)
                cost = () if is_open else await self._cost(known, known.shared.min_batch_size)
                pending.append((*cost, *(await self._cost(known, *map(int, batch.split())) if batch else ())))
        return replace(account, pending=tuple(pending), planned=tuple(planned))

    async def _cost(self, terms: QuestionTerms, num_reports: int, num_tickets: int = 0) -> tuple[Entry, ...]:
        """Returns the largest cost of a round with this number of reports, and of tickets if there are more."""
        key = terms.survey.hash, terms.place, num_reports, num_tickets
        if key not in self._costs:
            self._costs[key] = await self._compute(highest_cost, terms, num_reports, num_tickets)
            while len(self._costs) > _MOST_COSTS:
                self._costs.popitem(last=False)
        return self._costs[key]

    async def ledger(self) -> rpc.LedgerState | None:
        """Returns the rest of the deployment's limit; None without a limit."""
        limits = self.limits()
        if not limits:
            return None
        if self._known is None or self._known[0] != limits[0]:
            account = await self._account()
            self._known = limits[0], await self._compute(account.state, limits[0])
            ledger = self._known[1]
            spent = ledger.spent_epsilon if ledger.HasField("spent_epsilon") else limits[0].epsilon
            self._metrics.ledger(limits[0].epsilon, max(0.0, difference(limits[0].epsilon, spent)))
        return self._known[1]

    async def ledger_changed(self) -> None:
        """Computes the rest of the limit again, after a round was entered, amended or shown."""
        self._known = None
        await self.ledger()
