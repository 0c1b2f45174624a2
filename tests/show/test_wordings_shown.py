"""The wording of a question: how an operator gives it, and where a person reads it before answering."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from croupier.cli.mechanism_options import HopNoiseOptions
from croupier.cli.question_options import QuestionOptions
from croupier.operator.survey_file import read_survey_file
from croupier.operator.survey_plans import survey_from
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
from tests.support.command_line import croupier
from tests.support.messages import naming


def opened(**options: Any) -> Question:
    (question,) = QuestionOptions(**options).file("q", "q").asked()
    return question


def test_choices_are_the_categories_unless_the_answer_is_a_bit() -> None:
    captions = ("very", "quite", "not at all")
    assert opened(question="How satisfied are you?", choices="very; quite ;not at all") == Question(
        "q", KaryResponse(3, captions), (Wording("en", "How satisfied are you?", choices=captions),)
    )
    bit = opened(question="Do you smoke?", choices="no;yes", language="de-CH", randomizer="rr")
    assert bit == Question("q", RandomizedResponse(), (Wording("de-CH", "Do you smoke?", choices=("no", "yes")),))
    assert opened(question="Do you smoke?").mechanism == RandomizedResponse()
    assert opened() == Question("q", RandomizedResponse())
    assert opened(choices="a;b") == Question("q", KaryResponse(2, ("a", "b")))
    with pytest.raises(ValueError, match=naming(3, "rr", 2)):
        opened(question="How satisfied are you?", choices="very;quite;not at all", randomizer="rr")
    with pytest.raises(ValueError, match="question is empty"):
        opened(title="Sleep")
    assert opened(question="How long?", unit="hours", low=0.0, high=24.0).wordings[0].unit == "hours"


def test_options_and_the_file_that_they_write_are_one_survey(tmp_path: Path) -> None:
    file = tmp_path / "mood.toml"
    options = ("--question", 'How "well"?', "--choices", "well;not well", "--grid", "0.5,4:2", "--hop-noise", "0.5")
    croupier("survey", "new", file, *options)
    described = QuestionOptions(
        question='How "well"?', choices="well;not well", grid="0.5,4:2", noise=HopNoiseOptions(hop_noise=0.5)
    ).file("mood", "mood")
    assert survey_from(read_survey_file(file), None).hash == survey_from(described, None).hash
    croupier("survey", "new", file, *options, expect=2)  # it is there


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
