"""The certificate of a refused round, which shows nothing that depends on budgets.

Hop 1 chooses whose budgets arrive, and could otherwise read one person's budget from a round that it spoils
(docs/threat-model.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from croupier.accountant.mechanisms.registry import randomizer_of
from croupier.accountant.rounds.round_entries import limit_of, survey_limit_of
from croupier.accountant.spending import Limit
from croupier.protocol.codes import RefusalReason
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.statements import SCHEMA, Statement, messages_of
from croupier.protocol.v1 import messages_pb2 as pb


def refuse(message: pb.Certificate, terms: RoundTerms, limits_now: Sequence[Limit] = ()) -> None:
    """Refuses a round for its budgets. The refusal is the only information on them in the certificate: one bit.

    It names all limits of the round, because the limit that was not met, and the excess, would reveal more.

    limits_now: the deployment's limits that are not in the round's manifest.
    """
    now = [
        Statement.of(RefusalReason.LEDGER_LIMIT_NOW, epsilon=limit.epsilon, delta=limit.delta) for limit in limits_now
    ]
    reasons = [Statement.of(RefusalReason.LIMITS_NOT_MET), *_limits(terms), *now]
    reports_lost, budgets_lost = message.num_tickets - message.num_reports, message.unknown_budgets
    if reports_lost or budgets_lost:
        lost = {"tickets": message.num_tickets, "reports": reports_lost, "budgets": budgets_lost}
        reasons.append(Statement.of(RefusalReason.MESSAGES_LOST, **lost))
    withhold(message, reasons)


def _limits(terms: RoundTerms) -> list[Statement[RefusalReason]]:
    """Returns the limits of a round that depend on its budgets; they are in its manifest."""
    limit = limit_of(terms)
    reasons = []
    if randomizer_of(terms.question.mechanism).spends_local_delta:
        reasons.append(Statement.of(RefusalReason.DELTA_LIMIT, most=terms.shared.delta))
    smallest, *others = sorted(set(terms.epsilon_max_of.values()))
    if others:
        reasons.append(Statement.of(RefusalReason.EPSILON_LIMITS, least=smallest, most=others[-1]))
    else:
        reasons.append(Statement.of(RefusalReason.EPSILON_LIMIT, most=smallest))
    if limit is not None:
        may_end = terms.question.sequential is not None
        ledger = RefusalReason.SEQUENTIAL_LEDGER_LIMIT if may_end else RefusalReason.LEDGER_LIMIT
        reasons.append(Statement.of(ledger, epsilon=limit.epsilon, delta=limit.delta))
    if (of_survey := survey_limit_of(terms)) is not None:
        reasons.append(Statement.of(RefusalReason.STUDY_LIMIT, epsilon=of_survey.epsilon, delta=of_survey.delta))
    return reasons


def withhold(message: pb.Certificate, refusals: Sequence[Statement[RefusalReason]]) -> None:
    """Refuses a round, and removes everything that depends on the budgets from its certificate.

    The number of messages with a ticket stays, and everything that follows from it and the manifest.
    """
    message.CopyFrom(
        pb.Certificate(
            schema=SCHEMA,
            round_id=message.round_id,
            manifest_hash=message.manifest_hash,
            batch_digest=message.batch_digest,
            delta=message.delta,
            dishonest=message.dishonest,
            num_tickets=message.num_tickets,
            num_reports=message.num_reports,
            unknown_budgets=message.unknown_budgets,
            reports_digest=message.reports_digest,
            report_drops=message.report_drops,
            budget_drops=message.budget_drops,
            randomizer=message.randomizer,
            commitments=message.commitments,
            linkage=message.linkage,
            rounds=message.rounds,
            fake_tickets=message.fake_tickets,
            epsilon=math.inf,
            refusals=messages_of(refusals),
        )
    )
