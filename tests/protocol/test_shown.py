"""What others have named or said stands on a person's terminal as it is, and does not write over what is beside it."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest

from client.published import publication_json
from protocol.errors import Code, Refusal, refusal_of
from protocol.shown import as_shown, check_shown
from protocol.v1 import messages_pb2 as pb

HIDES = "epsilon 9\x1b[2K\rε 0.1"
SHOWN = "epsilon 9\ufffd[2K\ufffdε 0.1"


def test_text_that_does_nothing_stays() -> None:
    for text in ("", "Não sei", "\u05db\u05df", "می\u200cخواهم", "👩\u200d🔬", "a\u00a0b"):
        check_shown("a label", text)
        assert as_shown(text) == text
    for bad in ("\0", "\t", "\n", "\x7f", "\x85", "\u2028", "\u2066"):
        with pytest.raises(ValueError, match="it must have no control characters, ends of lines or overrides"):
            check_shown("a label", f"a{bad}b")
        assert as_shown({f"a{bad}": [f"{bad}b", 1, None]}) == {"a\ufffd": ["\ufffdb", 1, None]}


def test_the_words_of_a_service_do_not_move_the_cursor() -> None:
    sent = Refusal(Code.BAD_REQUEST, HIDES)
    metadata = grpc.aio.Metadata()
    heard = refusal_of(grpc.aio.AioRpcError(sent.code.status, metadata, metadata, sent.details()))
    assert heard is not None
    assert str(heard) == f"the request is malformed: {SHOWN}"


def test_nor_do_those_of_a_result() -> None:
    value = pb.EstimatedValue(label=HIDES)
    certificate = pb.Certificate(round_id=HIDES, refusals=[HIDES], assumptions=[HIDES])
    publication = pb.Publication(values=[value, value], notes=[HIDES], drops=[pb.Drop(reason=HIDES, count=1)])
    shown = publication_json(publication, certificate)
    assert "\x1b" not in str(shown)
    assert shown["labels"] == [SHOWN, SHOWN]
    assert shown["drops"] == {SHOWN: 1}
    assert shown["certificate"]["refusals"] == [SHOWN]
