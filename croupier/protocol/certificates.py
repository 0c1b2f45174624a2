"""The JSON document of a certificate: its message (`protocol.documents`), and the notes that follow from its numbers.

`certificate_json` writes the document and `read_certificate` reads it back without loss. Its JSON Schema is
`certificate.schema.json` beside this file. What the numbers must satisfy is checked by the accountant's `Certificate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from croupier.protocol.codes import Assumption, Method, RefusalReason
from croupier.protocol.documents import document_of, read_document
from croupier.protocol.names import JsonObject
from croupier.protocol.notes import certificate_notes
from croupier.protocol.statements import SCHEMA, Statement, read_messages
from croupier.protocol.v1 import messages_pb2 as pb

READABLE = (
    "it must be what 'croupier certify --json', 'croupier survey results --json' or 'croupier demo --json' prints"
)
"""What an error says of a document that is not a certificate."""
OF_A_ROUND = (
    "round_id",
    "manifest_hash",
    "batch_digest",
    "granted",
    "invalid_budgets",
    "commitments",
    "num_answers",
    "num_tickets",
    "num_reports",
    "reports_digest",
    "report_drops",
    "budget_drops",
    "unknown_budgets",
    "unknown_budget_epsilon",
    "unknown_budget_witness",
    "refusals",
    "fake_tickets",
)
"""The fields that the document of a certificate without a round leaves out."""
PROVED = ("everyone_else_colludes", "one_honest_hop")
"""The guarantees of a certificate beside that of its tiers; the accountant's `Certificate` takes only proved ones."""
NOT_READ = ("notes", "steps", *(f"{name}_grade" for name in PROVED))
"""Keys that are made from the certificate, for the reader of its document."""


def method_of(message: pb.Certificate) -> tuple[Statement[Method], ...]:
    """Returns how a certificate was proved. Raises ValueError for a code that is not known here."""
    return read_messages(Method, message.method)


def assumptions_of(message: pb.Certificate) -> tuple[Statement[Assumption], ...]:
    """Returns what a certificate rests on. Raises ValueError for a code that is not known here."""
    return read_messages(Assumption, message.assumptions)


def refusals_of(message: pb.Certificate) -> tuple[Statement[RefusalReason], ...]:
    """Returns why a round was refused, and nothing of a granted one. Raises ValueError for an unknown code."""
    return read_messages(RefusalReason, message.refusals)


def certificate_json(message: pb.Certificate) -> JsonObject:
    """Returns a certificate as a JSON document; the keys in `OF_A_ROUND` only if it is of a round.

    Raises:
        ValueError: a statement has a code that is not known here.
    """
    document: JsonObject = document_of(message) | {"notes": document_of(certificate_notes(message))}
    absent = () if message.HasField("one_honest_hop") else ("one_honest_hop",)
    document |= {f"{name}_grade": "CERTIFIED" for name in PROVED if name not in absent}
    return {name: value for name, value in document.items() if message.round_id or name not in OF_A_ROUND}


def alone_in(certificate: Mapping[str, Any]) -> JsonObject:
    """Returns the epsilon and the delta of a certificate's document if everyone but the victim colludes."""
    return {name: certificate[f"everyone_else_colludes_{name}"] for name in ("epsilon", "delta")}


def proved_epsilon(certificate: JsonObject) -> float:
    """Returns the epsilon of a certificate. Raises ValueError for a refused round, which has none."""
    if certificate["epsilon"] is None:
        raise ValueError("the accountant refused this round: it has no epsilon")
    return float(certificate["epsilon"])


def read_certificate(document: object) -> pb.Certificate:
    """Returns the message of a JSON document. Sentences in it and the keys in `NOT_READ` are not read.

    Raises:
        ValueError: it is not the document of a certificate, or one that only a newer croupier can read.
    """
    if not isinstance(document, Mapping):
        raise ValueError(f"the document is {document!r:.60}; {READABLE}")
    if isinstance(document.get("schema"), int) and document["schema"] != SCHEMA:
        raise ValueError(f"schema is {document['schema']}; this croupier reads {SCHEMA}: install a newer one")
    if "schema" not in document and "assumptions" in document:
        raise ValueError(
            "schema is missing: an earlier croupier has written the document; print it again with this one"
        )
    given = {name: value for name, value in document.items() if name not in NOT_READ}
    if not given.keys() & {*OF_A_ROUND}:
        blank = document_of(pb.Certificate())
        given |= {name: blank[name] for name in OF_A_ROUND}
    try:
        return read_document(pb.Certificate, given)
    except ValueError as error:
        raise ValueError(f"the document is not a certificate ({error}); {READABLE}") from error
