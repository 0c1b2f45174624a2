"""Statements: every code has a text that names its parameters, and both forms are read back by code and values."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings

from croupier.protocol import texts
from croupier.protocol.codes import (
    RUNS,
    Assumption,
    Code,
    Method,
    Note,
    ProofStep,
    RefusalReason,
    runs_by_code,
)
from croupier.protocol.mechanisms import MECHANISMS
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.statements import Statement, messages_of, read_messages, read_statements, to_prose, written_json
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support.statements import statements

CODES: list[Code] = [*Assumption, *Method, *Note, *RefusalReason, *ProofStep]
BY_CODE = pytest.mark.parametrize("code", CODES, ids=str)
EXAMPLES: dict[type, list[Any]] = {int: [3, 41_000], float: [0.25, 0.375], str: ["krr(k=5)", "laplace"]}


def example(code: Code, changed: str = "") -> Statement[Code]:
    """A statement with this code; its parameter of this name has another value."""
    values = {name: EXAMPLES[kind][name == changed] for name, kind in code.parameters.items()}
    return Statement.of(code, **values)


def test_every_code_has_one_text_and_no_text_is_left_over() -> None:
    assert [code for code, count in Counter(map(str, CODES)).items() if count > 1] == []
    assert set(texts.TEXTS) == set(CODES)
    assert set(texts.PLAIN) == set(Assumption)
    assert set(texts.DEVICE_STEPS) == set(texts.SECRETS) == {*RUNS, Assumption.RUNS_TABLE}


def test_a_kind_does_not_inherit_what_another_one_runs() -> None:
    class Another(RandomizedResponse):
        kind: ClassVar[str] = "another"

    with pytest.raises(ValueError, match="another and rr both have the code runs-rr"):
        runs_by_code(MECHANISMS | {"another": Another})


@BY_CODE
def test_every_text_names_all_its_parameters(code: Code) -> None:
    sentence = str(example(code))
    assert sentence
    assert sentence == sentence.strip()
    assert "{" not in sentence
    for name in code.parameters:
        assert str(example(code, name)) != sentence, name


@pytest.mark.parametrize("code", Assumption, ids=str)
def test_every_assumption_has_a_plain_sentence_too(code: Assumption) -> None:
    statement = Statement.of(code, **dict(example(code).parameters))
    sentence = to_prose(statement)
    assert sentence.endswith(".")
    assert "{" not in sentence
    assert sentence != str(statement)
    if "dishonest" in code.parameters and code is not Assumption.STEP_DISHONEST_USERS:
        assert "none" in to_prose(Statement.of(code, dishonest=0)).lower()
        assert "41,000" in to_prose(Statement.of(code, dishonest=41_000))


def test_numbers_in_sentences_are_rounded_to_their_sound_side() -> None:
    above = Statement.of(RefusalReason.DELTA_ABOVE_LIMIT, delta=1.00001e-6, most=1.99999e-6)
    assert "certified delta is 1.01e-06; it must be at most 1.99e-06" in str(above)
    lost = Statement.of(RefusalReason.MESSAGES_LOST, tickets=12_345, reports=1, budgets=0)
    assert "of 12,345 clients" in str(lost)


@settings(max_examples=40)
@given(statements(CODES))
def test_both_forms_are_read_back_without_loss(statement: Statement[Any]) -> None:
    codes = type(statement.code)
    (message,) = messages_of([statement])
    sent = pb.Statement.FromString(message.SerializeToString())
    assert read_messages(codes, [sent]) == (statement,)
    written = json.loads(json.dumps(written_json([statement])))
    assert read_statements(codes, written) == (statement,)


def test_no_sentence_is_read() -> None:
    (written,) = written_json([Statement.of(Assumption.DISHONEST_CLIENTS, dishonest=7)])
    for changed in ({**written, "text": "at most 0 are dishonest"}, {**written, "text": 3}):
        assert read_statements(Assumption, [changed]) == (Statement.of(Assumption.DISHONEST_CLIENTS, dishonest=7),)
    without = {name: value for name, value in written.items() if name != "text"}
    assert read_statements(Assumption, [without]) == (Statement.of(Assumption.DISHONEST_CLIENTS, dishonest=7),)


@pytest.mark.parametrize(
    ("given_code", "parameters", "match"),
    [
        ("dishonest-clients", {}, r"are \[\]; they must be \['dishonest'\]"),
        ("dishonest-clients", {"dishonest": 1, "more": 1}, "they must be"),
        ("dishonest-clients", {"dishonest": True}, "dishonest of dishonest-clients is True; it must be a whole"),
        ("dishonest-clients", {"dishonest": 1.5}, "a whole number"),
        ("dishonest-clients", {"dishonest": -1}, "a whole number, 0 to"),
        ("dishonest-clients", {"dishonest": 2**63}, "a whole number, 0 to"),
        ("runs-table", {"label": 3}, "it must be text"),
        ("fixed-terms", [], "it must be an object"),
        ("too-few-reports", {"reports": 1, "least": 2}, "one that this croupier knows"),
        ("of-a-newer-version", {}, "has a newer one written it"),
        (["fixed-terms"], {}, "one that this croupier knows"),
    ],
)
def test_what_is_not_a_statement_is_refused(given_code: Any, parameters: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        read_statements(Assumption, [{"code": given_code, "parameters": parameters}])


def test_a_message_has_the_parameters_of_its_code_in_order() -> None:
    (message,) = messages_of([Statement.of(Assumption.CLIENTS_ANSWERED, answered=3, clients=4)])
    assert [parameter.name for parameter in message.parameters] == ["answered", "clients"]
    swapped = pb.Statement(code=message.code, parameters=[*message.parameters][::-1])
    number = pb.Statement(code="dishonest-clients", parameters=[pb.Parameter(name="dishonest", number=1.0)])
    empty = pb.Statement(code="dishonest-clients", parameters=[pb.Parameter(name="dishonest")])
    for wrong in (swapped, number, empty, pb.Statement(code="exchange")):
        with pytest.raises(ValueError, match="must be"):
            read_messages(Assumption, [wrong])
