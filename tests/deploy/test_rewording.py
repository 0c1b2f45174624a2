"""Rewording a sentence changes that sentence and nothing else: with "x" for every text all decisions are the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from croupier import Certificate, certify
from croupier.accountant.mechanisms.gaussian_vector import RecordGaussian
from croupier.accountant.rounds.round_certificate import after_sequential
from croupier.client.round_checks import fetch_signed_result
from croupier.protocol import texts
from croupier.protocol.certificates import certificate_json
from croupier.protocol.codes import Note
from croupier.protocol.documents import document_of
from croupier.protocol.errors import Code, Refusal, refusal_of
from croupier.protocol.mechanisms.hemisphere import Hemisphere
from croupier.protocol.mechanisms.vector_task import SequentialOrder, VectorTask
from croupier.protocol.names import JsonObject, RoundId
from croupier.protocol.questions import Question
from croupier.protocol.statements import Statement
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.certificate_tables import assumptions_line, certificate_table, steps_table
from croupier.show.explanation import explain, profile_around
from tests.support import BIT, make_kit
from tests.support import settings as round_settings
from tests.support.command_line import invoke
from tests.support.rounds import people, table


def reword(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TEXTS", "PLAIN", "DEVICE_STEPS", "SECRETS"):
        monkeypatch.setattr(texts, name, dict.fromkeys(getattr(texts, name), "x"))
    for code in Code:
        monkeypatch.setattr(code, "message", "x")


def both(monkeypatch: pytest.MonkeyPatch, decide: Callable[[], Any]) -> tuple[Any, Any]:
    """What is decided with the texts, and with "x" for each of them."""
    before = decide()
    with monkeypatch.context() as changed:
        reword(changed)
        assert str(Statement.of(Note.DEPENDENT_BUDGETS)) == str(Refusal(Code.NOT_READY)) == "x"
        return before, decide()


def without_texts(document: Any) -> Any:
    """A JSON document without its sentences."""
    if isinstance(document, list):
        return [without_texts(part) for part in document]
    if isinstance(document, dict):
        return {name: without_texts(value) for name, value in document.items() if name != "text"}
    return document


def numbers(certificate: Certificate | JsonObject | JsonObject) -> Any:
    """The numbers of an explanation, and how much it says."""
    explanation = explain(certificate)
    promised = [
        explanation.certified,
        *explanation.tiers,
        explanation.everyone_else_colludes,
        *explanation.improvements,
    ]
    return (
        [document_of(promise) for promise in promised],
        [(section.title, len(section.paragraphs), len(section.points)) for section in explanation.sections],
    )


def profile(certificate: Certificate) -> Any:
    try:
        return [(point.epsilon, point.delta) for point in profile_around(certificate).points]
    except ValueError as error:
        return str(error)


def sequential() -> pb.Certificate:
    """The last certificate of a round in which people were asked one after the other."""
    task = VectorTask(2, 1.0, "line", bytes(8), SequentialOrder(500, 0.1))
    terms = make_kit(question=Question("model", Hemisphere(task))).terms
    first = pb.Certificate(round_id="r", num_users=40, num_tickets=40, num_reports=40, delta=terms.shared.delta)
    first.tiers.add(local_epsilon=1.0, count=40)
    return after_sequential(terms, first, 30)[0]


CERTIFIED: dict[str, Callable[[], Certificate]] = {
    "bits": lambda: certify({0.5: 40, 1.0: 20}, "rr", delta=1e-3, dishonest=3),
    "categories in rounds": lambda: certify({1.0: 30}, "krr(k=3)", delta=1e-3, rounds=3, attack=False),
    "vectors in many dimensions": lambda: certify([(1.0, 30, 1e-6)], "gaussian(d=3)", delta=1e-3),
    "records": lambda: certify([(1.0, 30, 1e-6)], RecordGaussian(dimension=3, records=5), delta=1e-3),
    "one after the other": lambda: certify({1.0: 30}, "hemisphere", delta=1e-3, adaptive_order=True, attack=False),
    "no less than the budget": lambda: certify({5.0: 2}, "hemisphere", delta=1e-9),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CERTIFIED)
def test_certificates_explanations_and_tables_are_the_same(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def decide() -> Any:
        certificate = CERTIFIED[name]()
        document = json.loads(json.dumps(certificate.to_json()))
        assert Certificate.from_json(document) == certificate
        steps_table(certificate)
        return {
            "certificate": certificate,
            "document": without_texts(document),
            "steps": [[step.code for step in tier.steps] for tier in certificate.tiers],
            "explained": numbers(document),
            "profile": profile(certificate) if name in ("one after the other", "records") else None,
            "trust": assumptions_line(document),
            "notes": [note.code for note in certificate.notes],
            "rows": len(certificate_table(document).rows),
        }

    before, after = both(monkeypatch, decide)
    assert before == after


def test_what_was_written_before_a_rewording_is_read_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = CERTIFIED["bits"]()
    document, round_document = certificate.to_json(), certificate_json(sequential())
    before = numbers(document), numbers(round_document)
    reword(monkeypatch)
    assert Certificate.from_json(document) == certificate
    assert (numbers(document), numbers(round_document)) == before


def test_refusals_are_read_back_as_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def decide() -> Any:
        refusals = []
        for code in Code:
            details = Refusal(code, "a hint").details()
            refusal = refusal_of(grpc.aio.AioRpcError(code.status, grpc.aio.Metadata(), grpc.aio.Metadata(), details))
            assert refusal is not None
            refusals.append((refusal.code, refusal.hint, refusal.code.may_pass))
        return refusals

    before, after = both(monkeypatch, decide)
    assert before == after
    assert [code for code, *_ in before] == list(Code)


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_commands_end_with_the_same_exit_codes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    documents: dict[str, Path] = {}
    async with table(tmp_path, 1) as at:
        for name, epsilon_max in (("granted", 4.0), ("refused", 0.001)):
            terms = await at.operator.open_round(round_settings(epsilon_max=epsilon_max), RoundId(name))
            await at.submit(terms, people(BIT, 40, seed=1))
            await at.finish(terms)
            async with at.operator.client_channel("analyzer") as channel:
                signed = await fetch_signed_result(channel, RoundId(name), 60.0)
            documents[name] = tmp_path / f"{name}.signed"
            documents[name].write_bytes(signed.SerializeToString())
    budgets = tmp_path / "budgets.csv"
    budgets.write_text("epsilon,count\n1.0,90\n")
    place = ("--dir", at.inside.directory)

    def run(*arguments: object, typed: str = "") -> Any:
        done = invoke(*arguments, typed=typed)
        return done.exit_code, done.stdout

    def decide() -> Any:
        results = [
            run("survey", "results", name, "--document", file, "--json", *place) for name, file in documents.items()
        ]
        explained = [run("explain", "-", "--json", typed=text) for _, text in results]
        shown = [run("survey", "results", name, "--document", file, *place)[0] for name, file in documents.items()]
        certified = [run("certify", budgets, *more)[0] for more in (["--delta", "1e-3"], [])]
        planned = [run("plan", "--users", users, "--epsilon", "0.5", "--json") for users in (100, 0)]
        return [code for code, _ in (*results, *explained)], shown, certified, [code for code, _ in planned]

    before, after = both(monkeypatch, decide)
    assert before == after == ([0, 5, 0, 2], [0, 5], [0, 2], [0, 2])
