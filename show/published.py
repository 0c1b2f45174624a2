"""A published result and its certificate as JSON documents: what the command line prints, and what applications get.

The messages come from `client.rounds`, which has verified them. Their words are those of accountant and analyzer: what
a terminal would not show as it is, is replaced.
"""

from __future__ import annotations

import math
from typing import Any

from croupier.protocol.shown import as_shown
from croupier.protocol.v1 import messages_pb2 as pb

__all__ = ["certificate_json", "publication_json"]

_PRECISIONS = {
    pb.PRECISION_USABLE: "usable",
    pb.PRECISION_COVERS_RANGE: "covers range",
    pb.PRECISION_HIDES_SHARES: "hides shares",
}
"""Whether a result can be used, in its JSON document; `show.tables` says it in a sentence."""


def certificate_json(certificate: pb.Certificate) -> dict[str, Any]:
    """Returns a round's certificate with the keys of `croupier certify --json`, and the round it is for.

    Its terms, the randomizer among them, are those of the manifest with this hash.
    """
    document: dict[str, Any] = {
        "epsilon": certificate.epsilon if math.isfinite(certificate.epsilon) else None,  # refused: nothing is certified
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
        "manifest_hash": certificate.manifest_hash.hex(),
        "randomizer": certificate.randomizer or None,  # of older certificates only the manifest says it
        "merged_below": certificate.merged_below,
        "granted": certificate.granted,
        "refusals": list(certificate.refusals),
        "batch_digest": certificate.batch_digest.hex(),
    }
    shown: dict[str, Any] = as_shown(document)
    return shown


def publication_json(publication: pb.Publication, certificate: pb.Certificate) -> dict[str, Any]:
    """Returns a published result: a number for a share or mean, a list for a histogram, None if sealed or refused."""
    values, sealed = list(publication.values), bool(publication.sealed_result)
    hidden = sealed or not (values or certificate.granted)
    listed = len(values) != 1 and not hidden

    def column(of: list[Any]) -> Any:
        return None if hidden else of if listed else of[0]

    document: dict[str, Any] = {
        "round_id": publication.round_id,
        "sealed": sealed,
        "labels": [value.label for value in values] if listed else None,
        "estimate": column([value.estimate for value in values]),
        "projected": column([value.projected for value in values]),
        "standard_error": column([value.standard_error for value in values]),
        "confidence_interval": column(
            [[value.confidence_interval.low, value.confidence_interval.high] for value in values]
        ),
        "confidence_level": None if hidden else publication.confidence_level,
        "sampling_standard_error": column([value.sampling_standard_error for value in values]),
        "population_interval": column([_interval_json(value) for value in values]),
        "precision": None if sealed else _PRECISIONS.get(publication.precision),
        "num_reports": publication.num_reports,
        "clamping": _clamping_json(publication.clamping) if publication.HasField("clamping") else None,
        "merging_bias": publication.merging_bias if certificate.merged_below and not sealed else None,
        "drops": {drop.reason: drop.count for drop in publication.drops},
        "notes": list(publication.notes),
        "certificate": certificate_json(certificate),
    }
    shown: dict[str, Any] = as_shown(document)
    return shown


def _interval_json(value: pb.EstimatedValue) -> list[float] | None:
    """Returns the interval for the population; None in a result of an earlier version, which has none."""
    if not value.HasField("population_interval"):
        return None
    return [value.population_interval.low, value.population_interval.high]


def _clamping_json(clamping: pb.Clamping) -> dict[str, Any]:
    return {
        "low": clamping.low,
        "high": clamping.high,
        "num_clamped": clamping.num_clamped,
        "bias": clamping.bias,
        "influence": clamping.influence,
    }
