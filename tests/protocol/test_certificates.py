"""The two written forms of a certificate: nothing is lost between them, and the published schema describes both."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from croupier import Certificate, LaplaceMechanism, certify
from croupier.accountant.mechanisms.gaussian_vector import RecordGaussian
from croupier.protocol import certificates
from croupier.protocol.certificates import OF_A_ROUND, certificate_json, read_certificate
from croupier.protocol.codes import Assumption
from croupier.protocol.documents import NUMBERS, WHOLE, codes_of, is_list
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.levels import Levels
from croupier.protocol.questions import Question
from croupier.protocol.statements import Statement, messages_of
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.wordings import Wording
from croupier.show.cross_tables import add_computed, has_table
from croupier.show.published import publication_json
from research.json_schema import SCHEMAS
from tests.support import BIT
from tests.support import settings as round_settings
from tests.support.accounting import draw_points_only
from tests.support.command_line import invoke
from tests.support.messages import naming
from tests.support.rounds import people, table
from tests.support.statements import codes, statements

PUBLISHED: dict[str, dict[str, Any]] = {
    name: json.loads(Path(certificates.__file__).with_name(f"{name}.schema.json").read_text()) for name in SCHEMAS
}
VALID, RESULT = (Draft202012Validator(PUBLISHED[name]) for name in ("certificate", "result"))


def values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    """Anything that a field can have."""
    one: st.SearchStrategy[Any] = st.text(max_size=6)
    codes_ = codes_of(field)
    if codes_ is not None:
        one = statements(codes_).map(lambda statement: messages_of([statement])[0])
    elif field.message_type is not None:
        one = drawn(field.message_type)
    elif field.cpp_type in WHOLE:
        one = st.integers(*WHOLE[field.cpp_type])
    elif field.cpp_type in NUMBERS:
        one = st.floats(allow_nan=False, allow_infinity=False)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        one = st.booleans()
    elif field.type == FieldDescriptor.TYPE_BYTES:
        one = st.binary(max_size=9)
    return st.lists(one, max_size=2) if is_list(field) else st.none() | one if field.has_presence else one


def drawn(message: Descriptor) -> st.SearchStrategy[Any]:
    """A message with anything in any field."""
    fields = st.fixed_dictionaries({field.name: values(field) for field in message.fields})
    return fields.map(lambda given: GetMessageClass(message)(**given))


@st.composite
def certificates_of_any_kind(draw: st.DrawFn) -> pb.Certificate:
    """A certificate of a round, or without one."""
    message: pb.Certificate = draw(drawn(pb.Certificate.DESCRIPTOR))
    message.schema = 1
    if not message.round_id or draw(st.booleans()):
        for name in OF_A_ROUND:
            message.ClearField(name)  # type: ignore[arg-type]
    elif draw(st.booleans()):
        message.epsilon = math.inf
    return message


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(certificates_of_any_kind())
def test_nothing_is_lost_between_message_and_json(message: pb.Certificate) -> None:
    written = certificate_json(message)
    document = json.loads(json.dumps(written, allow_nan=False))
    assert read_certificate(document) == message
    VALID.validate(document)


@pytest.mark.parametrize(
    ("randomizer", "more"),
    [
        ("rr", {"dishonest": 2, "linkage": "stratified"}),
        ("rr", {"rounds": 3, "compare_all": True}),
        ("rr", {"delta": None, "epsilon": 0.3}),
        ("krr(k=5)", {"attack": False}),
        (LaplaceMechanism(lattice=20), {"compare_all": True}),
        ("gaussian(d=2)", {}),
        (RecordGaussian(dimension=3, records=5), {"rounds": 2}),
        ("hemisphere(d=3)", {"adaptive_order": True}),
    ],
)
def test_what_is_certified_is_read_back_from_both_forms(randomizer: Any, more: dict[str, Any]) -> None:
    certificate = certify([(0.5, 30, 1e-6), (1.0, 20, 1e-6)], randomizer, **{"delta": 1e-3} | more)
    sent = pb.Certificate.FromString(certificate.to_message().SerializeToString())
    assert Certificate.from_message(sent) == certificate
    for steps in (False, True):
        document = json.loads(json.dumps(certificate.to_json(steps=steps), allow_nan=False))
        assert Certificate.from_json(document) == certificate
        VALID.validate(document)
        assert all(document.get("steps", [[]])) == steps


@pytest.mark.parametrize("document", SCHEMAS)
def test_the_published_schema_is_that_of_this_version(document: str) -> None:
    assert SCHEMAS[document]() == PUBLISHED[document], "run 'make protos'"
    Draft202012Validator.check_schema(PUBLISHED[document])


def test_the_schema_refuses_what_the_reader_refuses() -> None:
    document = certify({1.0: 50}, "rr", delta=1e-3).to_json()
    (first, *others) = document["assumptions"]
    for changed in (
        {"schema": 2},
        {"epsilon": "0.1"},
        {"more": 1},
        {"assumptions": [{**first, "code": "of-a-newer-version"}, *others]},
        {"assumptions": [{**first, "parameters": {"rounds": 3}}, *others]},
        {"assumptions": ["neighbouring data sets differ in the value of one user (replace-one)"]},
        {"method": "exchange bound"},
        {"method": document["assumptions"]},
        {"tiers": [{**document["tiers"][0], "count": -1}]},
    ):
        assert not VALID.is_valid(document | changed), changed
        with pytest.raises(ValueError, match=r"must be|newer one"):
            Certificate.from_json(document | changed)


def test_half_an_attack_is_not_read() -> None:
    """Without its delta the attack would stand at delta 0."""
    document = certify({1.0: 50}, "rr", delta=1e-3).to_json()
    for name, nothing in (("epsilon", None), ("delta", None), ("attack", "")):
        with pytest.raises(ValueError, match=naming("lower_bound_delta", "all be given")):
            Certificate.from_json({**document, f"lower_bound_{name}": nothing})


def test_other_versions_documents_are_refused_with_what_to_do() -> None:
    document = certify({1.0: 50}, "rr", delta=1e-3).to_json()
    earlier = {name: value for name, value in document.items() if name != "schema"}
    with pytest.raises(ValueError, match=naming("earlier croupier")):
        read_certificate(earlier)
    with pytest.raises(ValueError, match=naming("schema", 2, 1)):
        read_certificate({**document, "schema": 2})
    message = certify({1.0: 50}, "rr", delta=1e-3).to_message()
    message.assumptions.add(code="of-a-newer-version")
    with pytest.raises(ValueError, match=naming("newer")):
        certificate_json(message)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("certify", "--delta", "1e-6", "--compare", "--explain"),
        ("certify", "--epsilon", "0.5", "--randomizer", "krr(k=4)", "--dishonest", "3"),
        ("plan", "--epsilon", "0.2", "--users", "2000"),
        ("curve",),
    ],
    ids=lambda arguments: str(arguments[0]),
)
def test_what_commands_print_is_as_the_schema_says(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_points_only(monkeypatch)
    budgets = tmp_path / "budgets.csv"
    budgets.write_text("epsilon,count\n0.5,540\n1.0,90\n")
    command, *options = arguments
    file = [] if command == "plan" else [budgets]
    where = ["--out", tmp_path / "curve.png"] if command == "curve" else []
    done = invoke(command, *file, *options, *where, "--json")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    printed = document["points"] if command == "curve" else [document.get("certificate", document)]
    for printed_document in printed:
        VALID.validate(printed_document)


@pytest.mark.virtual_time
async def test_results_of_rounds_are_as_the_schema_says(tmp_path: Path) -> None:
    async with table(tmp_path, 2) as at:
        for epsilon_max, granted in ((4.0, True), (0.001, False)):
            terms = await at.operator.open_round(round_settings(epsilon_max=epsilon_max))
            await at.submit(terms, people(BIT, 40, seed=1))
            publication, certificate = await at.finish(terms)
            document = json.loads(json.dumps(publication_json(publication, certificate), allow_nan=False))
            stated_in = document["certificate"]
            VALID.validate(stated_in)
            RESULT.validate(document)
            assert not RESULT.is_valid(document | {"num_reports": -1})
            assert not RESULT.is_valid(document | {"certificate": {}})
            assert bool(document["values"]) == granted
            assert read_certificate(stated_in) == certificate
            assert len(stated_in["commitments"]) == 4
            assert (stated_in["granted"], bool(stated_in["refusals"])) == (granted, not granted)
            if granted:
                again = Certificate.from_json(stated_in)
                assert Assumption.HONEST_ACCOUNTANT in codes(again.assumptions)
                assert again.everyone_else_colludes.assumptions == (Statement.of(Assumption.EVERYONE_ELSE_DISHONEST),)


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_every_kind_of_result_is_as_the_schema_says(tmp_path: Path) -> None:
    """Numbers on levels have quantiles, and answers to two questions a table."""
    pairs = Question("smokes_x_mood", KaryResponse(4, tuple(f"{a} × {b}" for a in ("yes", "no") for b in "ab")))
    letters = Question(
        "mood", KaryResponse(3, ("a", "b", "c")), (Wording("en", "How are you?", choices=("x", "y", "z")),)
    )
    async with table(tmp_path, 2) as at:
        for question in (pairs, letters, Question("hours", Levels(0.0, 10.0, 5)), Question("age", Laplace(0.0, 9.0))):
            terms = await at.operator.open_round(round_settings(question))
            await at.submit(terms, people(question, 40, seed=1))
            published = await at.finish(terms)
            result = publication_json(*published)
            add_computed(result, *published, [["a", "c"]] if question is letters else [], table=has_table(result))
            assert ("table" in result, "sums" in result) == (question is pairs, question is letters)
            assert (result["distribution"] is None) == (question.mechanism.kind != "levels")
            RESULT.validate(json.loads(json.dumps(result, allow_nan=False)))
