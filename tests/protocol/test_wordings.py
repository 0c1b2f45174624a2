"""How a question is put to people: what a manifest may say, and what every service and client refuses to show."""

from __future__ import annotations

from typing import Any

import pytest

from croupier.protocol.errors import Code
from croupier.protocol.mechanisms.base import Mechanism
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.wordings import Wording
from tests.support import make_kit
from tests.support.messages import naming, refuses

MOOD = KaryResponse(k=3, labels=("very", "quite", "not at all"))
ENGLISH = Wording(
    "en", "How satisfied are you?", "Satisfaction", "Think of last week.", ("very", "quite", "not at all")
)
GERMAN = Wording("de-CH", "Wie zufrieden sind Sie?", choices=("sehr", "ziemlich", "gar nicht"))
HOURS = Wording("en", "How long do you sleep?", unit="hours", low="not at all", high="all day")


@pytest.mark.parametrize(
    ("mechanism", "wordings"),
    [
        (MOOD, (ENGLISH, GERMAN)),
        (RandomizedResponse(), (Wording("en", "Do you smoke? x < 3, R & D; a <3", choices=("no", "yes")),)),
        (OneBit(0.0, 24.0), (HOURS,)),
        (RandomizedResponse(), ()),
    ],
)
def test_a_wording_is_signed_and_read_back(mechanism: Mechanism, wordings: tuple[Wording, ...]) -> None:
    terms = make_kit(question=Question("q", mechanism, wordings)).terms
    assert terms.question.wordings == wordings
    plain = make_kit(question=Question("q", mechanism)).terms
    assert (plain.survey.hash == terms.survey.hash) == (not wordings)


@pytest.mark.parametrize(
    ("mechanism", "fields", "said"),
    [
        (MOOD, {"language": "English!"}, "language.*'English!'"),
        (MOOD, {"language": ""}, "language tag"),
        (MOOD, {"question": ""}, "question is empty"),
        (MOOD, {"question": "é" * 501}, "question has 1002 bytes; at most 1000 are allowed"),
        (MOOD, {"title": "a" * 201}, "title has 201 bytes; at most 200"),
        (MOOD, {"help_text": "a" * 4001}, "help_text has 4001 bytes; at most 4000"),
        (MOOD, {"question": "a\nb"}, "no control characters"),
        (MOOD, {"help_text": "\u202egnp.exe"}, "controls of"),
        (MOOD, {"question": " a"}, "with a space"),
        (MOOD, {"question": "a<b>c"}, "'<b'"),
        (MOOD, {"title": "</p>"}, "no markup"),
        (MOOD, {"title": "a &lt; b"}, "no markup"),
        (MOOD, {"title": "&#60;"}, "no markup"),
        (MOOD, {"choices": ["a", "b"]}, "has 2 choices; krr must have 3"),
        (MOOD, {"choices": ["a", "b", "b"]}, "must be different, and none empty"),
        (MOOD, {"choices": ["a", "b", ""]}, "must be different, and none empty"),
        (MOOD, {"choices": ["a", "b", "c" * 401]}, "a choice has 401 bytes; at most 400"),
        (MOOD, {"unit": "kg"}, "krr"),
        (RandomizedResponse(), {"choices": ["a", "b", "c"]}, "has 3 choices; rr must have 2"),
        (OneBit(0.0, 1.0), {"choices": ["a"]}, "has 1 choices; onebit has none"),
        (OneBit(0.0, 1.0), {"unit": "a" * 101}, "unit has 101 bytes; at most 100"),
        (OneBit(0.0, 1.0), {"low": "a" * 201}, "low has 201 bytes; at most 200"),
    ],
)
def test_a_wording_that_people_cannot_be_shown_is_refused(mechanism: Any, fields: dict[str, Any], said: str) -> None:
    kit = make_kit(question=Question("q", mechanism))
    wording = pb.Wording(**{"language": "en", "question": "What?", **fields})
    kit.survey.questions[0].question.wordings.append(wording)
    with refuses(Code.BAD_MANIFEST, said):
        _ = kit.terms


def test_each_language_has_one_wording_and_all_have_a_limit() -> None:
    with pytest.raises(ValueError, match=naming("wording")):
        Question("q", MOOD, (ENGLISH, Wording("EN".lower(), "Again?")))
    with pytest.raises(ValueError, match="33 wordings"):
        Question("q", MOOD, tuple(Wording(f"a{chr(97 + n % 26)}{chr(97 + n // 26)}", "?") for n in range(33)))
    with pytest.raises(ValueError, match="at most 32, of 65536 bytes together"):
        Question("q", MOOD, tuple(Wording(f"a{chr(97 + n)}", "?", help_text="a" * 4000) for n in range(17)))
