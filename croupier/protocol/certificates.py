"""The two written forms of a certificate: the signed message of the wire, and a JSON document with the same content.

`certificate_json` writes the document and `read_certificate` reads it back without loss. Its JSON schema is
`certificate.schema.json` beside this file; `python -m croupier.protocol.certificates` prints it. What the numbers must
satisfy is checked by the accountant's `Certificate`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, WithJsonSchema, model_validator
from pydantic.json_schema import models_json_schema

from croupier.protocol.codes import Assumption, Method, Note, ProofStep, RefusalReason
from croupier.protocol.names import JsonObject, RoundId
from croupier.protocol.notes import certificate_notes
from croupier.protocol.statements import (
    SCHEMA,
    Statement,
    messages_of,
    read_json,
    read_messages,
    schema_of,
    written_json,
)
from croupier.protocol.v1 import messages_pb2 as pb

READABLE = (
    "it must be what 'croupier certify --json', 'croupier survey results --json' or 'croupier demo --json' prints"
)
"""What an error says of a document that is not a certificate."""


def method_of(message: pb.Certificate) -> tuple[Statement[Method], ...]:
    """Returns how a certificate was proved. Raises ValueError for a code that is not known here."""
    return read_messages(Method, message.method)


def assumptions_of(message: pb.Certificate) -> tuple[Statement[Assumption], ...]:
    """Returns what a certificate rests on. Raises ValueError for a code that is not known here."""
    return read_messages(Assumption, message.assumptions)


def refusals_of(message: pb.Certificate) -> tuple[Statement[RefusalReason], ...]:
    """Returns why a round was refused, and nothing of a granted one. Raises ValueError for an unknown code."""
    return read_messages(RefusalReason, message.refusals)


class _PublishedBound(Protocol):
    """What a published bound has in every form: the accountant's `Comparison`, and the entry of a JSON document."""

    @property
    def name(self) -> str: ...
    @property
    def epsilon(self) -> float | None: ...
    @property
    def grade(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def reference(self) -> str: ...
    @property
    def notes(self) -> tuple[Statement[Note], ...]: ...


def comparison_messages(bounds: Iterable[_PublishedBound]) -> list[pb.ComparedBound]:
    """Returns the messages of the published bounds beside a certificate."""
    return [
        pb.ComparedBound(
            name=bound.name,
            epsilon=bound.epsilon,
            grade=bound.grade,
            status=bound.status,
            reference=bound.reference,
            notes=messages_of(bound.notes),
        )
        for bound in bounds
    ]


def certificate_json(message: pb.Certificate) -> JsonObject:
    """Returns a certificate as a JSON document, without the keys about a round.

    Raises:
        ValueError: a statement has a code that is not known here.
    """
    return {"schema": SCHEMA, "epsilon": message.epsilon, **_fields(message)}


def _fields(message: pb.Certificate) -> JsonObject:
    return {
        "delta": message.delta,
        "grade": message.grade,
        "method": written_json(method_of(message)),
        "assumptions": written_json(assumptions_of(message)),
        "notes": written_json(certificate_notes(message)),
        "num_users": message.num_users,
        "dishonest": message.dishonest,
        "numerical_slack": message.numerical_slack,
        "tiers": [
            {
                "local_epsilon": tier.local_epsilon,
                "local_delta": tier.local_delta,
                "up_to": tier.up_to,
                "count": tier.count,
                "epsilon": tier.epsilon,
                "delta": tier.delta,
            }
            for tier in message.tiers
        ],
        "one_honest_hop": _guarantee_json(message.one_honest_hop) if message.HasField("one_honest_hop") else None,
        "everyone_else_colludes": {
            "epsilon": message.everyone_else_colludes_epsilon,
            "delta": message.everyone_else_colludes_delta,
            "grade": "CERTIFIED",
            "method": written_json(read_messages(Method, message.everyone_else_colludes_method)),
            "assumptions": written_json(read_messages(Assumption, message.everyone_else_colludes_assumptions)),
        },
        "comparison": [
            {
                "name": bound.name,
                "epsilon": _optional(bound, "epsilon"),
                "grade": bound.grade,
                "status": bound.status,
                "reference": bound.reference,
                "notes": written_json(read_messages(Note, bound.notes)),
            }
            for bound in message.comparison
        ],
        "lower_bound": {
            "epsilon": _optional(message, "lower_bound_epsilon"),
            "delta": _optional(message, "lower_bound_delta"),
            "attack": message.lower_bound_attack or None,
        },
        "randomizer": message.randomizer,
        "linkage": message.linkage,
        "rounds": message.rounds,
        "budget_privacy": _budget_privacy_json(message),
    }


def _budget_privacy_json(message: pb.Certificate) -> JsonObject | None:
    if not message.HasField("budget_privacy"):
        return None
    stated = message.budget_privacy
    return {"epsilon": stated.epsilon, "delta": stated.delta, "most_uncounted": message.most_uncounted}


def _guarantee_json(message: pb.Guarantee) -> JsonObject:
    return {
        "epsilon": message.epsilon,
        "delta": message.delta,
        "grade": "CERTIFIED",
        "method": written_json(read_messages(Method, message.method)),
        "assumptions": written_json(read_messages(Assumption, message.assumptions)),
    }


def round_certificate_json(message: pb.Certificate) -> JsonObject:
    """Returns the certificate of a round as a JSON document.

    The terms of a round are in the manifest with this hash.

    Raises:
        ValueError: a statement has a code that is not known here.
    """
    return {
        "schema": SCHEMA,
        "epsilon": message.epsilon if math.isfinite(message.epsilon) else None,
        **_fields(message),
        "round_id": RoundId(message.round_id),
        "manifest_hash": message.manifest_hash.hex(),
        "batch_digest": message.batch_digest.hex(),
        "granted": message.granted,
        "refusals": written_json(refusals_of(message)),
        "num_tickets": message.num_tickets,
        "num_reports": message.num_reports,
        "num_answers": _optional(message, "num_answers"),
        "reports_digest": message.reports_digest.hex(),
        "report_drops": {drop.reason: drop.count for drop in message.report_drops},
        "budget_drops": {drop.reason: drop.count for drop in message.budget_drops},
        "invalid_budgets": message.invalid_budgets,
        "unknown_budgets": message.unknown_budgets,
        "unknown_budget_epsilon": _optional(message, "unknown_budget_epsilon"),
        "fake_tickets": list(message.fake_tickets),
        "commitments": [
            {
                "payload": signed.payload.hex(),
                "signatures": {signature.signer: signature.signature.hex() for signature in signed.signatures},
            }
            for signed in message.commitments
        ],
    }


def _optional(message: Any, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def proved_epsilon(certificate: JsonObject) -> float:
    """Returns the epsilon of a certificate. Raises ValueError for a refused round, which has none."""
    if certificate["epsilon"] is None:
        raise ValueError("the accountant refused this round: it has no epsilon")
    return float(certificate["epsilon"])


# ---------------------------------------------------------------- reading


def _list_of(name: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "array", "items": {"$ref": f"#/$defs/{name}"}})


_Assumptions = Annotated[
    tuple[Statement[Assumption], ...], PlainValidator(partial(read_json, Assumption)), _list_of("Assumption")
]
_Methods = Annotated[tuple[Statement[Method], ...], PlainValidator(partial(read_json, Method)), _list_of("Method")]
_Notes = Annotated[tuple[Statement[Note], ...], PlainValidator(partial(read_json, Note)), _list_of("Note")]
_Steps = Annotated[
    tuple[Statement[ProofStep], ...], PlainValidator(partial(read_json, ProofStep)), _list_of("ProofStep")
]
_Reasons = Annotated[
    tuple[Statement[RefusalReason], ...], PlainValidator(partial(read_json, RefusalReason)), _list_of("RefusalReason")
]
_Count = Annotated[int, Field(ge=0, le=2**64 - 1)]
_Hex = Annotated[str, Field(pattern="^([0-9a-f]{2})*$")]
_Grade = Literal["CERTIFIED", "ASYMPTOTIC", "HEURISTIC", "LOWER_BOUND"]


class _Document(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class _Tier(_Document):
    local_epsilon: float
    local_delta: float
    up_to: bool
    count: _Count
    epsilon: float
    delta: float
    steps: _Steps = ()
    """How the number came about, where that was asked for."""


class _Guarantee(_Document):
    epsilon: float
    delta: float
    grade: Literal["CERTIFIED"]
    method: _Methods
    assumptions: _Assumptions


class _BudgetPrivacy(_Document):
    epsilon: float
    delta: float
    most_uncounted: Annotated[int, Field(ge=0, le=2**32 - 1)]


class _Comparison(_Document):
    name: str
    epsilon: float | None
    grade: _Grade
    status: Literal["valid", "refuted", "out of range", "not checked"]
    reference: str
    notes: _Notes


class _Attack(_Document):
    """All three, or none of them where no attack was run."""

    epsilon: float | None
    delta: float | None
    attack: str | None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if len({value is None for value in (self.epsilon, self.delta, self.attack)}) > 1:
            raise ValueError("epsilon, delta and attack must all be given, or all be null")
        return self


class _Certificate(_Document):
    schema_version: Literal[1] = Field(alias="schema")
    epsilon: float
    delta: float
    grade: _Grade
    method: _Methods
    assumptions: _Assumptions
    notes: _Notes
    """Made from the numbers, and not read back."""
    num_users: _Count
    dishonest: _Count
    numerical_slack: float
    tiers: list[_Tier]
    everyone_else_colludes: _Guarantee
    comparison: list[_Comparison]
    lower_bound: _Attack
    randomizer: str
    linkage: Literal["separate", "stratified"]
    rounds: _Count
    one_honest_hop: _Guarantee | None = None
    """What the fake reports of one honest hop guarantee; absent without hop noise."""
    budget_privacy: _BudgetPrivacy | None = None
    """Where a round's tiers count only some of their users, so that they hide one person's budget; else absent."""


class _Commitment(_Document):
    payload: _Hex
    signatures: dict[str, _Hex]


class _RoundCertificate(_Certificate):
    """What the accountant has signed about one round. A refused one has no epsilon, no grade and no tiers."""

    epsilon: float | None  # type: ignore[assignment]
    grade: _Grade | Literal[""]  # type: ignore[assignment]
    round_id: Annotated[str, Field(min_length=1)]
    manifest_hash: _Hex
    batch_digest: _Hex
    granted: bool
    refusals: _Reasons
    num_tickets: _Count
    num_reports: _Count
    num_answers: _Count | None
    reports_digest: _Hex
    report_drops: dict[str, _Count]
    budget_drops: dict[str, _Count]
    invalid_budgets: _Count
    unknown_budgets: _Count
    unknown_budget_epsilon: float | None
    fake_tickets: list[_Count] = Field(default_factory=list)
    """With hop noise: how many tickets for fake reports each hop was given."""
    commitments: list[_Commitment]


def read_certificate(document: object) -> pb.Certificate:
    """Returns the message of a JSON document. Sentences in it, its notes and the steps of tiers are not read.

    Raises:
        ValueError: it is not the document of a certificate, or one that only a newer croupier can read.
    """
    if not isinstance(document, Mapping):
        raise ValueError(f"the document is {document!r:.60}; {READABLE}")
    if isinstance(document.get("schema"), int) and document["schema"] > SCHEMA:
        raise ValueError(f"schema is {document['schema']}; this croupier reads {SCHEMA}: install a newer one")
    if "schema" not in document and "assumptions" in document:
        raise ValueError(
            "schema is missing: an earlier croupier has written the document; print it again with this one"
        )
    of_round = "round_id" in document
    try:
        certificate = (_RoundCertificate if of_round else _Certificate).model_validate(dict(document))
    except ValidationError as error:
        (wrong, *_) = error.errors()  # as a text it is many lines
        place = ".".join(map(str, wrong["loc"]))
        raise ValueError(f"the document is not a certificate ({place}: {wrong['msg']}); {READABLE}") from error
    alone, lower = certificate.everyone_else_colludes, certificate.lower_bound
    message = pb.Certificate(
        schema=SCHEMA,
        epsilon=math.inf if certificate.epsilon is None else certificate.epsilon,
        delta=certificate.delta,
        grade=certificate.grade,
        method=messages_of(certificate.method),
        assumptions=messages_of(certificate.assumptions),
        num_users=certificate.num_users,
        dishonest=certificate.dishonest,
        numerical_slack=certificate.numerical_slack,
        tiers=[pb.Tier(**tier.model_dump(exclude={"steps"})) for tier in certificate.tiers],
        everyone_else_colludes_epsilon=alone.epsilon,
        everyone_else_colludes_delta=alone.delta,
        everyone_else_colludes_method=messages_of(alone.method),
        everyone_else_colludes_assumptions=messages_of(alone.assumptions),
        comparison=comparison_messages(certificate.comparison),
        lower_bound_epsilon=lower.epsilon,
        lower_bound_delta=lower.delta,
        lower_bound_attack=lower.attack or "",
        randomizer=certificate.randomizer,
        linkage=certificate.linkage,
        rounds=certificate.rounds,
    )
    if (hop := certificate.one_honest_hop) is not None:
        message.one_honest_hop.CopyFrom(
            pb.Guarantee(
                epsilon=hop.epsilon,
                delta=hop.delta,
                method=messages_of(hop.method),
                assumptions=messages_of(hop.assumptions),
            )
        )
    if (privacy := certificate.budget_privacy) is not None:
        message.budget_privacy.CopyFrom(pb.BudgetPrivacy(epsilon=privacy.epsilon, delta=privacy.delta))
        message.most_uncounted = privacy.most_uncounted
    if isinstance(certificate, _RoundCertificate):
        message.MergeFrom(_round_message(certificate))
    return message


def _round_message(certificate: _RoundCertificate) -> pb.Certificate:
    return pb.Certificate(
        round_id=certificate.round_id,
        manifest_hash=bytes.fromhex(certificate.manifest_hash),
        batch_digest=bytes.fromhex(certificate.batch_digest),
        granted=certificate.granted,
        refusals=messages_of(certificate.refusals),
        num_tickets=certificate.num_tickets,
        num_reports=certificate.num_reports,
        num_answers=certificate.num_answers,
        reports_digest=bytes.fromhex(certificate.reports_digest),
        report_drops=_drops(certificate.report_drops.items()),
        budget_drops=_drops(certificate.budget_drops.items()),
        invalid_budgets=certificate.invalid_budgets,
        unknown_budgets=certificate.unknown_budgets,
        unknown_budget_epsilon=certificate.unknown_budget_epsilon,
        fake_tickets=certificate.fake_tickets,
        commitments=[
            pb.Signed(
                payload=bytes.fromhex(commitment.payload),
                signatures=[
                    pb.Signature(signer=signer, signature=bytes.fromhex(signature))
                    for signer, signature in commitment.signatures.items()
                ],
            )
            for commitment in certificate.commitments
        ],
    )


def _drops(counts: Iterable[tuple[str, int]]) -> list[pb.Drop]:
    return [pb.Drop(reason=reason, count=count) for reason, count in counts]


def json_schema() -> JsonObject:
    """Returns the JSON schema of certificates: those of 'croupier certify', and those of rounds."""
    _, schema = models_json_schema(
        [(_Certificate, "validation"), (_RoundCertificate, "validation")], ref_template="#/$defs/{model}"
    )
    definitions = {name.removeprefix("_"): definition for name, definition in schema["$defs"].items()}
    definitions |= {codes.__name__: schema_of(codes) for codes in (Assumption, Method, Note, RefusalReason, ProofStep)}
    text = json.dumps(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": f"A certificate of croupier, version {SCHEMA}",
            "description": "Programs read codes and parameters. A text is a sentence for people, and may change.",
            "oneOf": [{"$ref": "#/$defs/_Certificate"}, {"$ref": "#/$defs/_RoundCertificate"}],
            "$defs": definitions,
        }
    )
    document: JsonObject = json.loads(text.replace("#/$defs/_", "#/$defs/"))
    return document


def _lines(value: Any, depth: int) -> str:
    """Returns JSON with a line for each entry, down to this depth."""
    if depth == 0 or not value or not isinstance(value, dict | list):
        return json.dumps(value)
    if isinstance(value, list):
        return "[\n" + ",\n".join(_lines(entry, depth - 1) for entry in value) + "\n]"
    entries = (f"{json.dumps(name)}: {_lines(entry, depth - 1)}" for name, entry in value.items())
    return "{\n" + ",\n".join(entries) + "\n}"


if __name__ == "__main__":
    import sys

    sys.stdout.write(_lines(json_schema(), 4) + "\n")
