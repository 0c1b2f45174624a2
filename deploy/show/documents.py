"""Results as the JSON documents that the command line prints; the interface that others script against."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc.aio

from protocol.v1 import messages_pb2 as pb
from protocol.v1 import services_pb2 as rpc

if TYPE_CHECKING:
    from accountant import Plan
    from accountant.service.ledger import Spent

__all__ = [
    "certificate_json",
    "plan_json",
    "publication_json",
    "services_json",
    "spent_json",
    "status_json",
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
        "pid": answer.pid,
        "peak_memory_bytes": answer.peak_memory_bytes,
        "keep_days": answer.keep_days,
        "revoked": answer.num_revoked,
        "rounds": [
            {
                "round_id": one.round_id,
                "state": pb.RoundState.Name(one.state).removeprefix("ROUND_STATE_"),
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


def spent_json(tiers: Sequence[Spent], delta: float) -> dict[str, Any]:
    """Returns what all rounds together have cost, by tier; epsilon is None where there is no bound."""
    spent = [
        {"tier": one.tier, "rounds": one.rounds, "epsilon": one.guarantee.epsilon if one.guarantee else None}
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
