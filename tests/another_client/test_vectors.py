"""The golden vectors are what the second client makes, and what the services' own code opens and accepts."""

from __future__ import annotations

import ast
import hashlib
import json
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from croupier.client.thresholds import blanket_threshold, flip_threshold
from croupier.protocol import voprf
from croupier.protocol.batches import read_commitments
from croupier.protocol.deployment import Deployment, OperatorEntry, PrivacyLimit, RetiredIdentity, ServiceEntry, Strict
from croupier.protocol.envelope import open_sealed
from croupier.protocol.errors import SignatureError
from croupier.protocol.identity import Kind, Pinned, read_signed, submission_is_authentic, verify_signed
from croupier.protocol.manifest import RoundTerms, parse_terms
from croupier.protocol.names import PrivateKey, PublicKey
from croupier.protocol.onion import BudgetRecord, Onion, decode_budget, split_report
from croupier.protocol.tickets import TicketIssuer, TicketRequest, collect_tickets, ticket_message
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.versions import follow
from tests.another_client import ristretto
from tests.another_client.rounds import Round, check_included, signed_by_all
from tests.another_client.vectors import FILE, as_text, make_vectors
from tests.another_client.versions import VERSIONS_FILE, make_versions
from tests.support.messages import naming

VECTORS: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
CASES = pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
RFC_9497: dict[str, Any] = json.loads((FILE.parent / "rfc9497-voprf-ristretto255.json").read_text(encoding="utf-8"))


def raw(value: str) -> bytes:
    return bytes.fromhex(value)


def pinned(case: dict[str, Any]) -> Pinned:
    return {name: {raw(key): None} for name, key in case["identities"].items()}


def terms_of(case: dict[str, Any]) -> RoundTerms:
    document = pb.Signed.FromString(raw(case["manifest"]))
    return parse_terms(verify_signed(Kind.MANIFEST, document, pinned(case), case["identities"]))


def deployment_of(signed: dict[str, Any]) -> Deployment:
    """Returns a version; raises ValueError if it is not one, or is not written as Python writes what is signed."""
    deployment = Deployment.model_validate(json.loads(signed["statement"]) | {"signatures": signed["signatures"]})
    if deployment.statement.decode() != signed["statement"]:
        raise ValueError("the statement has another form")
    return deployment


def issuer(case: dict[str, Any], lane: str) -> TicketIssuer:
    return TicketIssuer(raw(case["random"][f"ticket seed of {lane}"]), pb.Lane.Value(lane))


def test_the_second_client_shares_no_code_with_ours() -> None:
    for name in ("ristretto", "hpke", "rounds", "vectors", "versions"):
        tree = ast.parse((Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8"))
        modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        modules += [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
        ours = {module for module in modules if module.split(".")[0] == "croupier"}
        assert ours <= {"croupier.protocol.names", "croupier.protocol.v1"}  # types and messages


def test_the_files_are_what_the_second_client_makes() -> None:
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


def test_probabilities_are_those_of_our_client() -> None:
    for vector in VECTORS["thresholds"]:
        assert int(vector["blanket"]) == blanket_threshold(vector["epsilon"], vector["k"])
        assert vector["k"] > 2 or int(vector["flip"]) == flip_threshold(vector["epsilon"])


@CASES
def test_the_manifest_is_one_that_our_client_accepts(case: dict[str, Any]) -> None:
    terms = terms_of(case)
    assert terms.hash.hex() == case["manifest_hash"] == Round(terms.payload).hash.hex()
    document = pb.Signed.FromString(raw(case["manifest"]))
    document.signatures[0].signature = document.signatures[1].signature
    with pytest.raises(SignatureError, match=naming("'shuffler-1'")):
        verify_signed(Kind.MANIFEST, document, pinned(case), case["identities"])
    with pytest.raises(ValueError, match=naming("shuffler-1")):
        signed_by_all("manifest", document, pinned(case))


@CASES
def test_every_layer_opens_and_the_innermost_is_the_report(case: dict[str, Any]) -> None:
    terms = terms_of(case)
    onion, manifest = Onion(terms), terms.manifest
    names = {hop: keys.service for hop, keys in enumerate(manifest.hops, start=1)}
    names |= {253: "accountant", 254: "release", 255: "analyzer"}
    assert len(case["layers"]) == 2 + 2 * terms.num_hops
    for layer_case in case["layers"]:
        layer = onion.layer(pb.Lane.Value(layer_case["lane"]), layer_case["hop"])
        assert layer.label.info().hex() == layer_case["info"]
        key = raw(case["random"][f"key of {names[layer_case['hop']]}"])
        assert (
            open_sealed(terms.suite, PrivateKey(key), layer.label, raw(layer_case["sealed"])).hex()
            == layer_case["plaintext"]
        )
        assert (layer.sealed_size, layer.plain_size) == (
            len(layer_case["sealed"]) // 2,
            len(layer_case["plaintext"]) // 2,
        )
    assert onion.joint.sealed_size == 264 + 96 * terms.num_hops
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
        assert ristretto.proof_holds(raw(issued["key"]), [raw(issued["blinded"])], evaluated)
        wrong = evaluated[:40] + bytes([evaluated[40] ^ 1]) + evaluated[41:]
        assert not ristretto.proof_holds(raw(issued["key"]), [raw(issued["blinded"])], wrong)


def test_a_batch_of_the_second_issuer_is_one_for_our_client() -> None:
    secret, key = ristretto.issuer_key(bytes(32), b"batch")
    requests = [TicketRequest(bytes([number])) for number in range(3)]
    answer = ristretto.evaluate(secret, [request.blinded for request in requests], 12345)
    assert len(set(collect_tickets(requests, answer, PublicKey(key)))) == 3


@pytest.mark.parametrize("case", RFC_9497["cases"], ids=["A.1.2.1", "A.1.2.2", "A.1.2.3"])
def test_the_group_is_that_of_the_rfc(case: dict[str, Any]) -> None:
    secret, key = ristretto.issuer_key(raw(RFC_9497["seed"]), raw(RFC_9497["key_info"]))
    assert key.hex() == RFC_9497["public_key"]
    scalars = [int.from_bytes(raw(scalar), "little") for scalar in case["blind"]]
    blinded = [ristretto.blind(raw(message), scalar) for message, scalar in zip(case["input"], scalars, strict=True)]
    assert [element.hex() for element in blinded] == case["blinded"]
    nonce = int.from_bytes(raw(case["proof_random_scalar"]), "little")
    answer = ristretto.evaluate(secret, blinded, nonce)
    assert answer.hex() == case["proof"] + "".join(case["evaluated"])
    assert ristretto.proof_holds(key, blinded, answer)
    each = zip(case["input"], scalars, ristretto.split_evaluations(answer), case["output"], strict=True)
    for message, scalar, evaluated, output in each:
        assert ristretto.finalize(raw(message), scalar, evaluated).hex() == output


def test_the_clients_group_and_ours_agree() -> None:
    """The client computes with libsodium, this directory with integers."""
    secret, key = voprf.derive_key_pair(bytes(32), b"info")
    messages, scalars = [b"a", b"b", b"c"], [voprf.random_scalar() for _ in range(3)]
    blinded = list(map(voprf.blind, messages, scalars))
    evaluated, proof = voprf.blind_evaluate(secret, key, blinded)
    number, same_key = ristretto.issuer_key(bytes(32), b"info")
    assert (number.to_bytes(32, "little"), same_key) == (secret, key)
    assert ristretto.proof_holds(key, blinded, proof + b"".join(evaluated))
    answer = ristretto.evaluate(number, blinded, 1234567)
    assert ristretto.split_evaluations(answer) == evaluated
    voprf.verify(key, blinded, evaluated, answer[: voprf.PROOF_BYTES])
    numbers = [int.from_bytes(scalar, "little") for scalar in scalars]
    outputs = [ristretto.finalize(*each) for each in zip(messages, numbers, evaluated, strict=True)]
    assert outputs == voprf.finalize(messages, scalars, evaluated)


@CASES
def test_signatures_are_the_clients(case: dict[str, Any]) -> None:
    request = pb.Submission.FromString(raw(case["request"]))
    submission = pb.Submission.FromString(raw(case["submission"]))
    assert request.envelope.hex() == "".join(ticket["blinded"] for ticket in case["tickets"])
    assert request.token == submission.token == raw(case["random"].get("token", ""))
    assert submission_is_authentic(terms_of(case).hash, request, "tickets")
    assert submission_is_authentic(terms_of(case).hash, submission)
    assert not submission_is_authentic(terms_of(case).hash, request)


@CASES
def test_the_trail_is_one_chain_in_which_the_answer_stands(case: dict[str, Any]) -> None:
    terms, keys = terms_of(case), pinned(case)
    document = pb.Signed.FromString(raw(case["certificate"]))
    certificate = read_signed(Kind.CERTIFICATE, pb.Certificate, document, keys, ["accountant"])
    chain = read_commitments(certificate.commitments, terms, keys, terms.num_hops)
    assert chain[pb.LANE_REPORT][-1].digest_out == certificate.batch_digest
    inclusion = [[raw(digest) for digest in pair] for pair in case["inclusion"]]

    def check(hashes: Sequence[Sequence[bytes]], lists: dict[str, str]) -> None:
        asked = Round(terms.payload)
        check_included(asked, certificate, lambda hop, lane: raw(lists[f"{hop} {pb.Lane.Name(lane)}"]), hashes, keys)

    check(inclusion, case["lists"])
    with pytest.raises(ValueError, match=naming("hop 1")):
        check([pair[::-1] for pair in inclusion], case["lists"])
    with pytest.raises(ValueError, match=naming("hop 1", "list")):
        check(inclusion, dict.fromkeys(case["lists"], case["lists"]["1 LANE_REPORT"]))
