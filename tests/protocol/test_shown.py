"""Text from others is shown on a person's terminal as it is, and does not write over the text beside it."""

from __future__ import annotations

import re
import sys
import unicodedata

import grpc
import grpc.aio
import pytest

from croupier.protocol.codes import Assumption
from croupier.protocol.errors import Code, Refusal, refusal_of
from croupier.protocol.shown import check_shown, sanitize_for_display
from croupier.protocol.statements import Statement, messages_of
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.published import publication_json
from tests.support.messages import naming

HIDES = "epsilon 9\x1b[2K\rε 0.1"
SHOWN = "epsilon 9\ufffd[2K\ufffdε 0.1"


def test_text_that_does_nothing_stays() -> None:
    for text in ("", "Não sei", "\u05db\u05df", "می\u200cخواهم", "👩\u200d🔬", "a\u00a0b", "❤\ufe0f"):
        check_shown("a label", text)
        assert sanitize_for_display(text) == text
    for bad in ("\0", "\t", "\n", "\x7f", "\x85", "\u2028", "\u2066", "\u200f", "\u200b", "\ufeff"):
        with pytest.raises(ValueError, match=naming("a label", "control characters")):
            check_shown("a label", f"a{bad}b")
        assert sanitize_for_display({f"a{bad}": [f"{bad}b", 1, None]}) == {"a\ufffd": ["\ufffdb", 1, None]}


def test_no_direction_of_writing_and_nothing_invisible_gets_through() -> None:
    """U+200E, U+200F and U+061C did: they turn the text around them, and are not seen."""
    written_with = {"\u200c", "\u200d"}  # in Persian, and in emoji
    has_a_shape = re.compile("ARABIC (?!LETTER MARK)|SYRIAC|KAITHI|EGYPTIAN")
    invisible = re.compile("FILLER|VOWEL INHERENT|GRAPHEME JOINER")
    for character in map(chr, range(sys.maxunicode + 1)):
        category, name = unicodedata.category(character), unicodedata.name(character, "")
        if category == "Cf" and has_a_shape.match(name):
            continue
        if category in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in written_with:
            assert sanitize_for_display(character) == "\ufffd", hex(ord(character))
        elif category[0] in "LMNPSZ" and not invisible.search(name):
            assert sanitize_for_display(character) == character, hex(ord(character))


def test_the_words_of_a_service_do_not_move_the_cursor() -> None:
    sent = Refusal(Code.BAD_REQUEST, HIDES)
    metadata = grpc.aio.Metadata()
    heard = refusal_of(grpc.aio.AioRpcError(sent.code.status, metadata, metadata, sent.details()))
    assert heard is not None
    assert str(heard) == f"{Code.BAD_REQUEST.message}: {SHOWN}"


def test_nor_do_those_of_a_result() -> None:
    value = pb.EstimatedValue(label=HIDES)
    table = messages_of([Statement.of(Assumption.RUNS_TABLE, label=HIDES)])
    certificate = pb.Certificate(schema=1, round_id=HIDES, assumptions=table, randomizer=HIDES)
    publication = pb.Publication(values=[value, value], drops=[pb.Drop(reason=HIDES, count=1)])
    shown = publication_json(publication, certificate)
    assert "\x1b" not in str(shown)
    assert [value["label"] for value in shown["values"]] == [SHOWN, SHOWN]
    assert shown["drops"] == [{"reason": SHOWN, "count": 1}]
    assert shown["certificate"]["randomizer"] == SHOWN
    (stated,) = shown["certificate"]["assumptions"]
    assert stated["parameters"] == {"label": SHOWN}
