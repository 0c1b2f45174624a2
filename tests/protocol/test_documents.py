"""The JSON documents of messages: nothing is lost, whatever is not as croupier writes it is refused."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.protocol.codes import Assumption
from croupier.protocol.documents import document_of, read_document, read_json
from croupier.protocol.statements import Statement, messages_of
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from tests.support.messages import naming
from tests.support.statements import statements

TIER = document_of(pb.Tier(local_epsilon=1.0, count=3))


def sent(message: Any) -> Any:
    return json.loads(json.dumps(document_of(message), allow_nan=False))


@pytest.mark.parametrize(
    "number", [5e-324, 2.2250738585072014e-308, 1e-300, 0.1, 1 / 3, -0.0, sys.float_info.max, math.inf]
)
def test_a_number_is_read_back_to_the_bit(number: float) -> None:
    message = pb.Guarantee(epsilon=number, delta=math.nextafter(1.0, 0))
    assert read_document(pb.Guarantee, sent(message)).SerializeToString() == message.SerializeToString()


def test_an_optional_number_of_zero_is_not_an_absent_one() -> None:
    for message in (pb.ComparedBound(epsilon=0.0), pb.ComparedBound()):
        read = read_document(pb.ComparedBound, sent(message))
        assert (read, read.HasField("epsilon")) == (message, message.HasField("epsilon"))


def test_every_kind_of_field_is_read_back() -> None:
    commitment = pb.Commitment(
        round_id="“1”", manifest_hash=b"\x00\xff", lane=pb.LANE_REPORT, num_in=2**64 - 1, drops=[pb.Drop(reason="late")]
    )
    written = sent(commitment)
    assert (written["manifest_hash"], written["lane"], written["num_in"]) == ("00ff", "REPORT", 2**64 - 1)
    assert read_document(pb.Commitment, written) == commitment
    states = pb.RoundStatus(state=pb.ROUND_STATE_OPEN, approved_by=["a", "b"])
    assert sent(states)["state"] == "OPEN"
    assert read_document(pb.RoundStatus, sent(states)) == states


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"local_epsilon": "1"}, ("local_epsilon", "'1'", "number")),
        ({"local_epsilon": True}, ("local_epsilon", "True")),
        ({"local_epsilon": math.nan}, ("local_epsilon", "nan")),
        ({"local_epsilon": math.inf}, ("local_epsilon", "inf")),
        ({"local_epsilon": 10**400}, ("local_epsilon", "finite")),
        ({"count": 3.0}, ("count", "3.0", "whole number, 0 to 18446744073709551615")),
        ({"count": "3"}, ("count", "'3'")),
        ({"count": -1}, ("count", "-1")),
        ({"count": 2**64}, ("count", 2**64)),
        ({"count": None}, ("count", None)),
        ({"up_to": 0}, ("up_to", "true or false")),
        ({"localEpsilon": 1.0}, ("localEpsilon", "not known")),
        ({7: 1}, ("7", "not known")),
    ],
    ids=str,
)
def test_another_form_is_refused(changed: dict[Any, Any], said: tuple[Any, ...]) -> None:
    assert read_document(pb.Tier, TIER).count == 3
    with pytest.raises(ValueError, match=naming(*said)):
        read_document(pb.Tier, TIER | changed)


def test_a_missing_field_is_refused_and_the_place_is_named() -> None:
    outcome = document_of(rpc.ForecastOutcome(budgets=[pb.Tier(), pb.Tier()]))
    del outcome["budgets"][1]["epsilon"]
    with pytest.raises(ValueError, match=r"budgets\.1\.epsilon is missing"):
        read_document(rpc.ForecastOutcome, outcome)
    for name, wrong in (("budgets", {}), ("refusals", "x"), ("refusals", [3])):
        with pytest.raises(ValueError, match="must be"):
            read_document(rpc.ForecastOutcome, document_of(rpc.ForecastOutcome()) | {name: wrong})


@pytest.mark.parametrize("wrong", ["f", "0G", "ZZ", "Zm9v", 3, None, "00\n"])
def test_bytes_are_hexadecimal_digits(wrong: Any) -> None:
    with pytest.raises(ValueError, match=naming("signature", "hexadecimal")):
        read_document(pb.Signature, {"signer": "a", "signature": wrong})


def test_a_code_that_is_not_known_is_neither_written_nor_read() -> None:
    with pytest.raises(ValueError, match="newer"):
        document_of(rpc.ForecastOutcome(refusals=[pb.Statement(code="of-a-newer-version")]))


@given(st.lists(statements([*Assumption]), max_size=3))
def test_statements_are_read_back_with_their_message(stated: list[Statement[Any]]) -> None:
    message = pb.Guarantee(assumptions=messages_of(stated))
    written = sent(message)
    assert [each["text"] for each in written["assumptions"]] == [*map(str, stated)]
    assert read_document(pb.Guarantee, written) == message


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '[{"a": {"b": 1, "b": 1}}]', "NaN", "[-Infinity]", "[" * 100_000])
def test_a_text_that_readers_read_differently_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"twice|not a number|too deeply"):
        read_json(text)
