"""The golden vectors are reproducible, and the services' own code opens and accepts them."""

from __future__ import annotations

import hashlib
import json
import tomllib
from contextlib import suppress
from typing import Any

import pytest

from croupier.protocol.batches import read_commitments
from croupier.protocol.deployment import Deployment, OperatorEntry, PrivacyLimit, RetiredIdentity, ServiceEntry, Strict
from croupier.protocol.envelope import open_sealed
from croupier.protocol.errors import SignatureError
from croupier.protocol.identity import Kind, Pinned, read_signed, submission_is_authentic, verify_signed
from croupier.protocol.manifest import RoundTerms, parse_terms
from croupier.protocol.names import PrivateKey
from croupier.protocol.onion import BudgetRecord, Onion, decode_budget, split_report
from croupier.protocol.tickets import TicketIssuer, ticket_message
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.versions import follow
from tests.support.messages import naming
from tests.vectors.client import FILE, as_text, make_vectors
from tests.vectors.deployments import VERSIONS_FILE, make_versions

VECTORS: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
CASES = pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])


def raw(value: str) -> bytes:
    return bytes.fromhex(value)


def pinned(case: dict[str, Any]) -> Pinned:
    return {name: {raw(key): None} for name, key in case["identities"].items()}


def terms_of(case: dict[str, Any]) -> RoundTerms:
    document = pb.SignedRound.FromString(raw(case["round"]))
    verify_signed(Kind.MANIFEST, document.manifest, pinned(case), case["identities"])
    return parse_terms(document)


def deployment_of(signed: dict[str, Any]) -> Deployment:
    """Returns a version; raises ValueError if it is not one, or is not written as Python writes what is signed."""
    deployment = Deployment.model_validate(json.loads(signed["statement"]) | {"signatures": signed["signatures"]})
    if deployment.statement.decode() != signed["statement"]:
        raise ValueError("the statement has another form")
    return deployment


def issuer(case: dict[str, Any], lane: str) -> TicketIssuer:
    return TicketIssuer(raw(case["random"][f"ticket seed of {lane}"]), pb.Lane.Value(lane))


def test_the_files_are_made_again_byte_for_byte() -> None:
    assert FILE.read_text(encoding="utf-8") == as_text(make_vectors())
    assert VERSIONS_FILE.read_text(encoding="utf-8") == as_text(make_versions())


def test_every_field_of_the_file_is_described() -> None:
    described = tomllib.loads((FILE.parent / "fields.toml").read_text(encoding="utf-8"))
    for case in VECTORS["cases"]:
        assert described.keys() == (VECTORS.keys() | case.keys()) - {"about", "cases", "name"}


def test_a_version_with_every_line_is_among_those_that_are_followed() -> None:
    """A line that is added to the deployment file has to be added to the vectors, and so to what the page knows."""
    vectors = json.loads(VERSIONS_FILE.read_text(encoding="utf-8"))
    (case,) = [case for case in vectors["cases"] if case["what"] == "every line is there"]
    stated = json.loads(vectors["signed"][case["versions"][0]]["statement"])
    service = stated["services"][0]
    written: list[tuple[type[Strict], dict[str, Any]]] = [
        (Deployment, stated | {"signatures": []}),
        (OperatorEntry, stated["operator"]),
        (ServiceEntry, service),
        (RetiredIdentity, service["retired_identities"][0]),
        (PrivacyLimit, stated["privacy_limit"]),
    ]
    for model, fields in written:
        assert set(model.model_fields) == set(fields)


def test_versions_are_followed_or_refused() -> None:
    vectors = json.loads(VERSIONS_FILE.read_text(encoding="utf-8"))
    for case in vectors["cases"]:
        newest = None
        with suppress(ValueError):
            believed, *newer = [deployment_of(vectors["signed"][at]) for at in case["versions"]]
            if not believed.not_signed_by():
                newest = follow(believed, newer).fingerprint.hex()
        assert newest == case["newest"], case["what"]


@CASES
def test_the_manifest_is_one_that_our_client_accepts(case: dict[str, Any]) -> None:
    terms = terms_of(case)
    assert (terms.hash.hex(), terms.round_id) == (case["manifest_hash"], case["round_id"])
    survey = terms.survey
    assert (survey.hash.hex(), survey.invitation_hash.hex()) == (case["survey_hash"], case["invited_to"])
    document = pb.SignedRound.FromString(raw(case["round"])).manifest
    document.signatures[0].signature = document.signatures[1].signature
    with pytest.raises(SignatureError, match=naming("'shuffler-1'")):
        verify_signed(Kind.MANIFEST, document, pinned(case), case["identities"])


@CASES
def test_every_layer_opens_and_the_innermost_is_the_report(case: dict[str, Any]) -> None:
    terms = terms_of(case)
    onion = Onion(terms)
    names = {hop: keys.service for hop, keys in enumerate(terms.hops, start=1)}
    names |= {253: "accountant", 254: "release", 255: "analyzer"}
    assert len(case["layers"]) == 2 + 2 * terms.shared.num_hops
    for layer_case in case["layers"]:
        layer = onion.layer(pb.Lane.Value(layer_case["lane"]), layer_case["hop"])
        assert layer.label.info().hex() == layer_case["info"]
        key = raw(case["random"][f"key of {names[layer_case['hop']]}"])
        assert (
            open_sealed(terms.shared.hpke_suite, PrivateKey(key), layer.label, raw(layer_case["sealed"])).hex()
            == layer_case["plaintext"]
        )
        assert (layer.sealed_size, layer.plain_size) == (
            len(layer_case["sealed"]) // 2,
            len(layer_case["plaintext"]) // 2,
        )
    assert onion.joint.sealed_size == 264 + 96 * terms.shared.num_hops
    assert case["layers"][0]["plaintext"] == case["report"]
    submission = pb.Submission.FromString(raw(case["submission"]))
    assert submission.envelope.hex() == case["layers"][-1]["sealed"]
    assert terms.question.mechanism.encode_report(int(case["report"], 16)).hex() == case["report"]


@CASES
def test_tickets_are_valid_and_the_accountant_gives_them(case: dict[str, Any]) -> None:
    terms = terms_of(case)
    by_hop = {(layer_case["lane"], layer_case["hop"]): raw(layer_case["plaintext"]) for layer_case in case["layers"]}
    report_ticket, sealed = split_report(by_hop["LANE_REPORT", 255])
    parameter_ticket, record = BudgetRecord.split(by_hop["LANE_PARAMETER", 253])
    assert decode_budget(record.budget) == (case["budget"]["epsilon"], 0.0)
    messages = [
        ticket_message(terms.hash, pb.LANE_REPORT, hashlib.sha256(sealed).digest()),
        ticket_message(terms.hash, pb.LANE_PARAMETER, record.budget + record.salt),
    ]
    for issued, message, ticket in zip(case["tickets"], messages, (report_ticket, parameter_ticket), strict=True):
        accountant = issuer(case, issued["lane"])
        assert accountant.public_key.hex() == issued["key"]
        assert (message.hex(), ticket.hex()) == (issued["message"], issued["ticket"])
        assert accountant.is_valid(message, ticket)
        evaluated = accountant.evaluate([raw(issued["blinded"])])
        assert evaluated[64:].hex() == issued["evaluated"][128:]


@CASES
def test_signatures_are_the_clients(case: dict[str, Any]) -> None:
    request = pb.Submission.FromString(raw(case["request"]))
    submission = pb.Submission.FromString(raw(case["submission"]))
    assert request.envelope.hex() == "".join(ticket["blinded"] for ticket in case["tickets"])
    assert submission_is_authentic(terms_of(case).hash, request, "tickets")
    assert submission_is_authentic(terms_of(case).hash, submission)
    assert not submission_is_authentic(terms_of(case).hash, request)


@CASES
def test_the_trail_is_one_chain_in_which_the_answer_stands(case: dict[str, Any]) -> None:
    terms, keys = terms_of(case), pinned(case)
    document = pb.Signed.FromString(raw(case["certificate"]))
    certificate = read_signed(Kind.CERTIFICATE, pb.Certificate, document, keys, ["accountant"])
    chain = read_commitments(certificate.commitments, terms, keys, terms.shared.num_hops)
    assert chain[pb.LANE_REPORT][-1].digest_out == certificate.batch_digest
    for commitment, (at, shown) in zip(certificate.commitments, case["lists"].items(), strict=True):
        stated = pb.Commitment.FromString(commitment.payload)
        assert f"{stated.hop} {pb.Lane.Name(stated.lane)}" == at
        assert hashlib.sha256(raw(shown)).digest() == stated.digest_out
        report, budget = case["inclusion"][stated.hop - 1]
        assert (report if stated.lane == pb.LANE_REPORT else budget) in shown
