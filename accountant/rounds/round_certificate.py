"""The certificate of a round from its batch: the counted clients, the refusals, and the end of a sequential round.

The guarantee is written in `round_guarantee`, a refusal in `refused_certificate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from croupier.accountant.mechanisms.registry import randomizer_of
from croupier.accountant.rounds.found import BudgetsFound, ReportsFound
from croupier.accountant.rounds.refused_certificate import refuse, withhold
from croupier.accountant.rounds.round_guarantee import certify_into
from croupier.accountant.spending import Entry
from croupier.protocol.batches import drop_counts, num_fakes
from croupier.protocol.codes import RefusalReason
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Lane
from croupier.protocol.statements import SCHEMA, Statement
from croupier.protocol.surveys import QuestionTerms
from croupier.protocol.v1 import messages_pb2 as pb

_MAX_REJECTED = 100_000
"""The most hashes of reports without a ticket that fit into the message with the grant."""


def certify_round(
    terms: RoundTerms,
    chain: Mapping[Lane, Sequence[pb.Commitment]],
    budgets: BudgetsFound,
    reports: ReportsFound,
    num_tickets: int,
    fake_tickets: Sequence[int] = (),
) -> tuple[pb.Certificate, list[Entry]]:
    """Returns the certificate of a released batch, and its cost for each tier.

    All reports with a ticket are from clients, apart from the number of tickets for the hops' fakes; a hop that crashed
    has more of these than it used. Why these counts cover all messages that hops drop, replace, add or repeat:
    docs/accounting.md, 7.
    """
    num_reports = max(0, reports.number - num_fakes(chain))
    last = chain[pb.LANE_REPORT][-1]
    num_budgets = budgets.on_grid + budgets.off_grid
    if reports.num_items != last.num_out:
        raise Refusal(Code.BAD_BATCH, f"the analyzer has handed in {reports.num_items:,} of {last.num_out:,} reports")
    released = max(0, reports.number - sum(fake_tickets))  # certainly from clients
    check_stated_fakes(chain[pb.LANE_REPORT], fake_tickets)
    if max(released, num_budgets, num_reports) > num_tickets:
        raise Refusal(Code.BAD_BATCH, "more messages have a ticket than tickets were given")
    if terms.question.sequential is not None:  # only this many need to answer
        released = min(num_reports, terms.shared.min_batch_size)
    message = pb.Certificate(
        schema=SCHEMA,
        round_id=terms.round_id,
        manifest_hash=terms.hash,
        batch_digest=last.digest_out,
        delta=terms.shared.delta,
        dishonest=terms.shared.dishonest + num_tickets - released,
        num_tickets=num_tickets,
        num_reports=num_reports,
        reports_digest=reports.digest,
        report_drops=drop_counts(reports.dropped),
        budget_drops=drop_counts(budgets.dropped),
        unknown_budgets=num_tickets - num_budgets,
        randomizer=randomizer_of(terms.question.mechanism).name,
        linkage="separate",
        rounds=1,
        fake_tickets=fake_tickets,
    )
    least = terms.shared.min_batch_size
    refusals: list[Statement[RefusalReason]] = []
    if num_reports < least:
        refusals.append(Statement.of(RefusalReason.TOO_FEW_REPORTS, reports=num_reports, least=least))
    if num_budgets < least:
        refusals.append(Statement.of(RefusalReason.TOO_FEW_BUDGETS, budgets=num_budgets, least=least))
    if len(reports.rejected) > _MAX_REJECTED:
        rejected = len(reports.rejected)
        refusals.append(Statement.of(RefusalReason.TOO_MANY_WITHOUT_TICKET, reports=rejected, most=_MAX_REJECTED))
    if not budgets.on_grid:  # all honest clients' budgets are on the grid
        refusals.append(Statement.of(RefusalReason.NO_BUDGET_ON_GRID))
    if refusals:  # before anything is computed from the budgets
        withhold(message, refusals)
        return message, []
    message.num_users, message.invalid_budgets = budgets.on_grid, budgets.off_grid
    entries = certify_into(message, terms, sorted(budgets.counts.items()))
    message.granted = not message.refusals
    if not message.granted:
        refuse(message, terms)
    return message, entries


def check_stated_fakes(chain: Sequence[pb.Commitment], fake_tickets: Sequence[int]) -> None:
    """Checks that no hop states more fake reports than the accountant gave it tickets for.

    Behind hop 1 the next hop's numbers would not add up. But hop 1 itself states its number of received reports, and
    the analyzer would subtract fakes that do not exist.

    Raises:
        Refusal: BAD_BATCH.
    """
    for commitment, given in zip_longest(chain, fake_tickets):
        if commitment.num_fakes > (given or 0):
            raise Refusal(Code.BAD_BATCH, "a hop states more fake reports than it was given tickets for")


def reserved(terms: QuestionTerms, first: pb.Certificate) -> list[Entry]:
    """Returns the cost of a sequential round that is cut short: every budget without amplification.

    Clients may vanish and the operator may end or withdraw the round after any answer, so the ledger has to bear this
    cost when the round is granted. The entry is amended, downwards, at the end of the round.
    """
    return after_sequential(terms, first, 0)[1]


def after_sequential(
    terms: QuestionTerms, first: pb.Certificate, num_answers: int
) -> tuple[pb.Certificate, list[Entry]]:
    """Returns the last certificate of a sequential round, for the clients that answered, and its cost for each tier.

    It is made from the round's first certificate, which has shown the tiers. So this one shows them with their bounds
    even if it refuses: the answers have been learnt. Hop 1 has stated the number of clients that answered; the analyzer
    publishes nothing unless it has learnt from the same number.
    """
    message = pb.Certificate(
        round_id=first.round_id,
        manifest_hash=first.manifest_hash,
        batch_digest=first.batch_digest,
        delta=first.delta,
        num_users=first.num_users,
        dishonest=terms.shared.dishonest + max(0, first.num_tickets - num_answers),
        invalid_budgets=first.invalid_budgets,
        commitments=first.commitments,
        num_answers=num_answers,
        num_tickets=first.num_tickets,
        num_reports=first.num_reports,
        reports_digest=first.reports_digest,
        report_drops=first.report_drops,
        budget_drops=first.budget_drops,
        unknown_budgets=first.unknown_budgets,
    )
    entries = certify_into(message, terms, [(tier.local_epsilon, tier.count) for tier in first.tiers])
    message.granted = not message.refusals
    return message, entries
