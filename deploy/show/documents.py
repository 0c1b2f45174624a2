"""Results as the JSON documents that the command line prints; the interface that others script against."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc.aio

from accountant.results import right_at_most
from protocol.manifest import RoundTerms
from protocol.v1 import messages_pb2 as pb
from protocol.v1 import services_pb2 as rpc

if TYPE_CHECKING:
    from accountant import Plan
    from accountant.service.ledger import Spent

__all__ = [
    "certificate_json",
    "plan_json",
    "publication_json",
    "round_json",
    "services_json",
    "spent_json",
    "state_name",
    "status_json",
    "terms_json",
    "write_json",
]

_MOST_BUDGETS = 1000


def certificate_json(certificate: pb.Certificate) -> dict[str, Any]:
    """Returns a round's certificate with the keys of `croupier certify --json`, and the round it is for."""
    return {
        "epsilon": certificate.epsilon,
        "delta": certificate.delta,
        "grade": certificate.grade,
        "method": certificate.method,
        "assumptions": list(certificate.assumptions),
        "num_users": certificate.num_users,
        "num_tickets": certificate.num_tickets,
        "num_reports": certificate.num_reports,
        "unknown_budgets": certificate.unknown_budgets,
        "unknown_budget_epsilon": certificate.unknown_budget_epsilon
        if certificate.HasField("unknown_budget_epsilon")
        else None,
        "dishonest": certificate.dishonest,
        "numerical_slack": certificate.numerical_slack,
        "tiers": [
            {
                "local_epsilon": tier.local_epsilon,
                "local_delta": tier.local_delta,
                "up_to": bool(certificate.merged_below),  # else every budget of the grid has its own
                "count": tier.count,
                "epsilon": tier.epsilon,
                "delta": certificate.delta,
            }
            for tier in certificate.tiers
        ],
        "everyone_else_colludes": {
            "epsilon": certificate.everyone_else_colludes_epsilon,
            "delta": max((tier.local_delta for tier in certificate.tiers), default=0.0),
        },
        "comparison": [
            {
                "name": bound.name,
                "epsilon": bound.epsilon if bound.HasField("epsilon") else None,
                "grade": bound.grade,
                "status": bound.status,
            }
            for bound in certificate.comparison
        ],
        "lower_bound": {
            "epsilon": certificate.lower_bound_epsilon if certificate.HasField("lower_bound_epsilon") else None,
            "attack": certificate.lower_bound_attack or None,
        },
        "round_id": certificate.round_id,
        "merged_below": certificate.merged_below,
        "granted": certificate.granted,
        "refusals": list(certificate.refusals),
        "batch_digest": certificate.batch_digest.hex(),
    }


def publication_json(publication: pb.Publication, certificate: pb.Certificate) -> dict[str, Any]:
    """Returns a published result: a number for a share or mean, a list for a histogram, None where it is sealed."""
    values, sealed = list(publication.values), bool(publication.sealed_result)
    listed = len(values) != 1 and not sealed

    def column(of: list[Any]) -> Any:
        return None if sealed else of if listed else of[0]

    return {
        "round_id": publication.round_id,
        "sealed": sealed,
        "labels": [value.label for value in values] if listed else None,
        "estimate": column([value.estimate for value in values]),
        "projected": column([value.projected for value in values]),
        "standard_error": column([value.standard_error for value in values]),
        "confidence_interval": column(
            [[value.confidence_interval.low, value.confidence_interval.high] for value in values]
        ),
        "confidence_level": None if sealed else publication.confidence_level,
        "sampling_standard_error": column([value.sampling_standard_error for value in values]),
        "num_reports": publication.num_reports,
        "clamping": _clamping_json(publication.clamping) if publication.HasField("clamping") else None,
        "merging_bias": publication.merging_bias if certificate.merged_below and not sealed else None,
        "drops": {drop.reason: drop.count for drop in publication.drops},
        "notes": list(publication.notes),
        "certificate": certificate_json(certificate),
    }


def _clamping_json(clamping: pb.Clamping) -> dict[str, Any]:
    return {
        "low": clamping.low,
        "high": clamping.high,
        "num_clamped": clamping.num_clamped,
        "bias": clamping.bias,
        "influence": clamping.influence,
    }


def status_json(answer: rpc.StatusResponse) -> dict[str, Any]:
    """Returns one service's state."""
    return {
        "service": answer.service,
        "version": answer.version,
        "pid": answer.pid,
        "peak_memory_bytes": answer.peak_memory_bytes,
        "keep_days": answer.keep_days,
        "revoked": answer.num_revoked,
        "rounds": [
            {
                "round_id": one.round_id,
                "state": state_name(one.state),
                "num_items": one.num_items,
                "bytes_sent": one.bytes_sent,
                "problem": one.problem,
                "kept_until_unix_s": answer.kept_until_unix_s.get(one.round_id),
                "stages": {cost.stage: {"wall_s": cost.wall_s, "cpu_s": cost.cpu_s} for cost in one.costs},
            }
            for one in answer.rounds
        ],
    }


def services_json(
    names: Sequence[str], answers: Sequence[rpc.StatusResponse | grpc.aio.AioRpcError], health: Sequence[str]
) -> list[dict[str, Any]]:
    """Returns the state of all services; one that is out of reach has a problem and no rounds."""
    return [
        {
            **(
                {"service": name, "problem": answer.code().name, "rounds": []}
                if isinstance(answer, grpc.aio.AioRpcError)
                else status_json(answer)
            ),
            "health": serving,
        }
        for name, answer, serving in zip(names, answers, health, strict=True)
    ]


def state_name(state: pb.RoundState.ValueType) -> str:
    """Returns a round's state as it is printed."""
    return pb.RoundState.Name(state).removeprefix("ROUND_STATE_")


def round_json(
    round_id: str,
    seen: Mapping[str, pb.RoundStatus],
    terms: RoundTerms | None,
    problem: str = "",
    end: int | None = None,
) -> dict[str, Any]:
    """Returns a round as the operator sees it.

    Args:
        round_id: of the round.
        seen: what the services say of it, in the order of the chain; those that are out of reach are missing.
        terms: verified; None where they cannot be had.
        problem: what is wrong with the terms.
        end: until when (Unix seconds) what the services keep of it is kept; None where it has not ended.
    """
    problems = {name: one.problem for name, one in seen.items() if one.problem}
    first = next(iter(seen.values()))
    return {
        "round_id": round_id,
        "stage": _stage([state_name(one.state) for one in seen.values()]),
        "num_reports": first.num_items,
        "terms": None if terms is None else terms_json(terms),
        "states": {name: state_name(one.state) for name, one in seen.items()},
        "problems": problems | ({"terms": problem} if problem else {}),
        "kept_until_unix_s": end,
    }


def _stage(states: Sequence[str]) -> str:
    """How far a round is, by the states of the services in the order of the chain."""
    if states[0] in ("PREPARED", "OPEN", "SEQUENTIAL", "DISPOSED"):
        return states[0]
    return states[-1] if states[-1] in ("PUBLISHED", "REFUSED", "DISPOSED") else "UNDER WAY"


def terms_json(terms: RoundTerms) -> dict[str, Any]:
    """Returns the terms of a round, and for every budget how often someone can be right about one answer."""
    manifest, mechanism = terms.manifest, terms.question.mechanism
    parameters = asdict(mechanism)
    if mechanism.task is not None:
        parameters |= asdict(mechanism.task)
        del parameters["vector"], parameters["parameters"]
    limit = terms.privacy_limit
    return {
        "round_id": terms.round_id,
        "deployment": manifest.deployment,
        "manifest_hash": terms.hash.hex(),
        "question": terms.question.name,
        "randomizer": mechanism.kind,
        "parameters": parameters,
        "budgets": [_budget_json(terms, budget) for budget in manifest.budget_grid],
        "delta": manifest.delta,
        "dishonest": manifest.dishonest,
        "min_batch_size": manifest.min_batch_size,
        "max_batch_size": manifest.max_batch_size or None,
        "short_batch": "hold" if manifest.short_batch_policy == pb.SHORT_BATCH_POLICY_HOLD else "dispose",
        "min_tier_size": manifest.min_tier_size,
        "small_tiers": "merge" if manifest.merge_small_tiers else "refuse",
        "close_deadline_unix_s": manifest.close_deadline_unix_s or None,
        "privacy_limit": None if limit is None else limit.model_dump(),
        "sealed_to_collector": bool(manifest.collector_public_key),
        "shufflers": [hop.service for hop in manifest.hops],
        "accountant": manifest.accountant.service,
        "analyzer": manifest.analyzer.service,
        "hpke_suite": terms.suite,
    }


def _budget_json(terms: RoundTerms, budget: pb.LocalBudget) -> dict[str, Any]:
    """What a budget means for the person that uses it: at worst, and if the round is released."""
    limit = terms.epsilon_max_of[budget.epsilon]
    alone = right_at_most(budget.epsilon, budget.delta)
    return {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "epsilon_max": limit,
        "released_right_at_most": min(alone, right_at_most(limit, terms.manifest.delta)),
        "alone_right_at_most": alone,
    }


def spent_json(tiers: Sequence[Spent], delta: float) -> dict[str, Any]:
    """Returns what all rounds together have cost, by tier; where epsilon is None, enough_delta would give one."""
    spent = [
        {
            "tier": one.tier,
            "rounds": one.rounds,
            "epsilon": one.guarantee.epsilon if one.guarantee else None,
            "enough_delta": one.enough_delta,
        }
        for one in tiers
    ]
    return {"delta": delta, "spent": spent}


def plan_json(plan: Plan) -> dict[str, Any]:
    """Returns the answer of a plan with its certificate; of very many budgets, the smallest."""
    budgets = [
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
    """Writes a document to a file, whose directory is made if need be."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=1), encoding="utf-8")
