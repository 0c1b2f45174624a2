"""Results as the JSON documents that the command line prints; the interface that others script against."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc.aio

from croupier.accountant.guessing import right_at_most
from croupier.net.retrying import why_unreachable
from croupier.protocol.codes import Assumption
from croupier.protocol.documents import document_of, fields_of
from croupier.protocol.errors import refusal_of
from croupier.protocol.manifest import RoundTerms, state_name
from croupier.protocol.names import JsonObject, RoundId
from croupier.protocol.statements import Statement
from croupier.protocol.surveys import QuestionTerms
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.show.promises import promises_of
from croupier.show.question import question_json

if TYPE_CHECKING:
    from croupier.accountant import Plan
    from croupier.accountant.spending import BudgetsTold, Spent

_UNREACHABLE = "UNREACHABLE"
"""Shown instead of a state for a service that does not answer."""

_MOST_BUDGETS = 1000


def services_json(
    names: Sequence[str], answers: Sequence[rpc.StatusResponse | grpc.aio.AioRpcError], health: Sequence[str]
) -> list[JsonObject]:
    """Returns the state of all services; one that is out of reach has a problem and no rounds."""
    return [
        {**_service_json(name, answer), "health": serving}
        for name, answer, serving in zip(names, answers, health, strict=True)
    ]


def _service_json(name: str, answer: rpc.StatusResponse | grpc.aio.AioRpcError) -> JsonObject:
    if isinstance(answer, grpc.aio.AioRpcError):
        return {"service": name, "problem": str(refusal_of(answer) or why_unreachable(answer)), "rounds": []}
    document: JsonObject = document_of(answer)
    return document


def round_json(
    round_id: RoundId,
    seen: Mapping[str, pb.RoundStatus | None],
    terms: RoundTerms | None,
    problem: str = "",
    end: int | None = None,
) -> JsonObject:
    """Returns the operator's view of a round; only hop 1, which may be out of reach, knows the number of answers.

    Args:
        round_id: of the round.
        seen: the answers of the services, in the order of the chain; None for those that are out of reach.
        terms: verified; None if they are not available.
        problem: of the terms.
        end: the time (Unix seconds) until which the services keep its data; None if it has not ended.
    """
    problems = {name: status.problem for name, status in seen.items() if status and status.problem}
    states = {name: state_name(status.state) if status else _UNREACHABLE for name, status in seen.items()}
    return {
        "round_id": round_id,
        "stage": _stage(list(states.values())),
        "num_reports": first.num_items if (first := next(iter(seen.values()))) else None,
        "terms": None if terms is None else terms_json(terms),
        "states": states,
        "problems": problems | ({"terms": problem} if problem else {}),
        "kept_until_unix_s": end,
    }


def _stage(states: Sequence[str]) -> str:
    """Returns the stage of a round, by the states of the services in the order of the chain."""
    if states[0] in ("PREPARED", "OPEN", "SEQUENTIAL", "DISPOSED"):
        return states[0]
    if "REFUSED" in states:  # the accountant's word is enough
        return "REFUSED"
    if states[-1] in ("PUBLISHED", "DISPOSED"):
        return states[-1]
    return "UNKNOWN" if _UNREACHABLE in (states[0], states[-1]) else "UNDER WAY"


def terms_json(terms: QuestionTerms, chain: Sequence[str] = ()) -> JsonObject:
    """Returns the terms of a round, with the largest probability of a right guess of an answer for every budget.

    "parameters" are the mechanism's. Callers add "state" at hop 1 with "granted" and "refusals"; and with the keys of a
    service or the operator "ledger", and "approved_by": organisations by the service that has them on record.

    chain: the names of the services, for a round that has no keys yet; those of a new deployment if empty.
    """
    limit = terms.survey.privacy_limit
    named = chain or (*(f"shuffler-{hop + 1}" for hop in range(terms.shared.num_hops)), "accountant", "analyzer")
    *shufflers, accountant, analyzer = terms.services if isinstance(terms, RoundTerms) else named
    return {
        "round_id": terms.round_id,
        "deployment": terms.shared.deployment,
        "manifest_hash": terms.hash.hex() if isinstance(terms, RoundTerms) else "",
        **question_json(terms.question),
        "budgets": [_budget_json(terms, epsilon) for epsilon in terms.budget_grid],
        "delta": terms.shared.delta,
        "dishonest": terms.shared.dishonest,
        "min_batch_size": terms.shared.min_batch_size,
        "max_batch_size": terms.shared.max_batch_size or None,
        "short_batch": "dispose" if terms.survey.disposes_if_short else "hold",
        "hop_noise": _hop_noise_json(terms),
        "budget_privacy": _budget_privacy_json(terms),
        "close_deadline_unix_s": terms.close_deadline_unix_s or None,
        "privacy_limit": None if limit is None else limit.model_dump(),
        "sealed_to_collector": bool(terms.shared.collector_public_key),
        "shufflers": shufflers,
        "accountant": accountant,
        "analyzer": analyzer,
        "hpke_suite": terms.shared.hpke_suite,
    }


def _hop_noise_json(terms: QuestionTerms) -> JsonObject | None:
    if terms.fakes is None:
        return None
    epsilon, delta = terms.shown_of_one
    right, fakes = right_at_most(epsilon, delta), terms.fakes.law.mean_total
    return {"epsilon": epsilon, "delta": delta, "right_at_most": right, "fakes": fakes}


def _budget_privacy_json(terms: QuestionTerms) -> JsonObject | None:
    counts = terms.counted_by
    return None if counts.privacy is None else fields_of(counts.privacy) | {"most_uncounted": counts.most_uncounted}


def _budget_json(terms: QuestionTerms, epsilon: float) -> JsonObject:
    """Returns the consequences of a budget for its user: at worst, and if the round is released.

    "released_right_at_most" is under the certificate's assumptions; see `show.promises`.
    """
    limit, promised = terms.epsilon_max_of[epsilon], promises_of(terms, epsilon)
    alone = promised.no_honest_hop
    return {
        "epsilon": epsilon,
        "delta": terms.local_delta,
        "epsilon_max": limit,
        "released_right_at_most": min(alone, right_at_most(limit, terms.shared.delta)),
        "one_honest_right_at_most": promised.one_honest_hop,
        "alone_right_at_most": alone,
    }


def spent_json(tiers: Sequence[Spent], delta: float, told: BudgetsTold, *, fixed_terms: bool) -> JsonObject:
    """Returns the total cost of all rounds, by tier; if "guarantee" is None, "enough_delta" would give one."""
    assumed = (Statement.of(Assumption.FIXED_TERMS),) if fixed_terms else ()
    document: JsonObject = document_of({"delta": delta, "assumptions": assumed, "spent": tiers, "budgets": told})
    return document


def plan_json(plan: Plan) -> JsonObject:
    """Returns the answer of a plan with its certificate; of very many budgets, the smallest."""
    budgets: list[JsonObject] = [
        {"epsilon": tier.local_epsilon, "delta": tier.local_delta, "count": tier.count}
        for tier in plan.budgets.tiers[:_MOST_BUDGETS]
    ]
    return {
        "goal": str(plan.goal),
        "num_users": plan.budgets.num_users,
        "budgets": budgets,
        "standard_error": plan.standard_error,
        "certificate": plan.certificate.to_json(),
    }


def write_json(file: Path, document: Any) -> None:
    """Writes a document to a file, and makes its directory if needed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=1), encoding="utf-8")
