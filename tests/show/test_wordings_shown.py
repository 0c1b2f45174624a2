"""The wording of a question: how an operator gives it, and where a person reads it before answering."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from croupier.cli.round_options import ParameterOptions, QuestionOptions, WordingOptions
from croupier.operator.wordings import read_wordings
from croupier.protocol.mechanisms.base import Mechanism
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.questions import Question
from croupier.protocol.wordings import Wording
from croupier.show.documents import terms_json
from croupier.show.round_text import answering_sections
from tests.support import make_kit
from tests.support.blocks import shown as printed
from tests.support.messages import naming

FILE = """
[[wording]]
language = "en"
question = "How satisfied are you?"
choices = ["very", "not at all"]
[[wording]]
language = "de"
title = "Zufriedenheit"
question = "Wie zufrieden sind Sie?"
choices = ["sehr", "gar nicht"]
"""


def given(**options: Any) -> tuple[Wording, ...]:
    return WordingOptions(**options).wordings()


def opened(randomizer: str, wordings: tuple[Wording, ...], **parameters: Any) -> Question:
    return QuestionOptions(randomizer, parameters=ParameterOptions(**parameters)).question("q", wordings)


def test_choices_are_the_categories_unless_the_answer_is_a_bit() -> None:
    asked = given(question="How satisfied are you?", choices="very; quite ;not at all")
    assert opened("", asked) == Question("q", KaryResponse(3, ("very", "quite", "not at all")), asked)
    assert asked == (Wording("en", "How satisfied are you?", choices=("very", "quite", "not at all")),)
    bit = given(question="Do you smoke?", choices="no;yes", language="de-CH")
    assert opened("rr", bit) == Question("q", RandomizedResponse(), bit)
    assert opened("", given(question="Do you smoke?")).mechanism == RandomizedResponse()
    with pytest.raises(ValueError, match=naming(3, "rr", 2)):
        opened("rr", asked)
    hours = given(question="How long?", unit="hours")
    assert opened("onebit", hours, low=0.0, high=24.0).wordings[0].unit == "hours"


def test_several_languages_come_from_a_file(tmp_path: Path) -> None:
    (file := tmp_path / "wording.toml").write_text(FILE)
    english, german = given(wording=file)
    assert (english.language, german.title, german.choices) == ("en", "Zufriedenheit", ("sehr", "gar nicht"))
    with pytest.raises(ValueError, match=naming("--wording and --question")):
        given(wording=file, question="How?")
    with pytest.raises(ValueError, match=naming("--choices", "--question")):
        given(choices="a;b")
    for text, said in (
        (FILE.replace('"en"', '"x"'), "language.*'x'"),
        (FILE + "captions = 1", "captions"),
        ("wording = []", "has no wording"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=said):
            read_wordings(file)
    with pytest.raises(ValueError, match=naming("other.toml")):
        read_wordings(tmp_path / "other.toml")


@pytest.mark.parametrize(
    ("mechanism", "wordings", "lines"),
    [
        (
            KaryResponse(2, ("very", "none")),
            (
                Wording("en", "How satisfied?", help_text="Last week.", choices=("very", "none")),
                Wording("de", "Wie zufrieden?", "Zufriedenheit", choices=("sehr", "gar nicht")),
            ),
            [
                "[en] How satisfied?",
                "Last week.",
                "Answers: very; none",
                "[de] Zufriedenheit",
                "Wie zufrieden?",
                "Answers: sehr (very); gar nicht (none)",
            ],
        ),
        (
            RandomizedResponse(),
            (Wording("en", "Smoke?", choices=("never", "often")),),
            ["Answers: never (0); often (1)", "The answer is 1 (often) or 0 (never)."],
        ),
        (KaryResponse(2, ("very", "none")), (Wording("en", "How satisfied?"),), ["[en] How satisfied?"]),
        (
            OneBit(0.0, 24.0),
            (Wording("en", "Sleep?", unit="hours", low="never", high="always"),),
            ["A number in hours; 0: never; 24: always"],
        ),
    ],
)
def test_a_person_reads_the_wording_before_answering(
    mechanism: Mechanism, wordings: tuple[Wording, ...], lines: list[str]
) -> None:
    terms = terms_json(make_kit(question=Question("q", mechanism, wordings)).terms) | {"state": "OPEN"}
    shown = [line.strip() for line in printed(*answering_sections(terms, 0.0)).splitlines()]
    assert [line for line in shown if line in lines] == lines
    assert [wording["language"] for wording in terms["wordings"]] == [wording.language for wording in wordings]
