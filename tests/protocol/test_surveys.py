"""A survey: what its bytes may say, the names of its rounds, and which rounds belong together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from croupier.protocol.errors import Code
from croupier.protocol.identity import canonical
from croupier.protocol.manifest import RoundTerms, one_survey
from croupier.protocol.surveys import Survey, SurveyWording, is_round_of, read_survey
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import RoundKit, make_kit
from tests.support.messages import naming, refuses
from tests.support.studies import kit_of_wave

WORDINGS = (
    SurveyWording("en", "How we work", "I am asked by the works council.", "Five questions."),
    SurveyWording("de", "Wie wir arbeiten", "Ich werde vom Betriebsrat gefragt."),
)


def kits(count: int = 3) -> list[RoundKit]:
    """The rounds of a survey that is asked once."""
    made = [make_kit(round_id=f"work-{number}") for number in range(1, count + 1)]
    for place, kit in enumerate(made):
        kit.survey.survey_id, kit.survey.left_out, kit.manifest.question = "work", pb.LEFT_OUT_RANDOM, place
        kit.survey.questions.extend([kit.survey.questions[0]] * (count - 1))
        for text in WORDINGS:
            kit.survey.wordings.add(
                language=text.language, title=text.title, consent=text.consent, introduction=text.introduction
            )
    return made


def test_rounds_of_one_survey_are_recognised() -> None:
    terms = [kit.terms for kit in kits()]
    survey = one_survey(terms)
    assert (survey.survey_id, survey.wordings, survey.left_out) == ("work", WORDINGS, "random")
    assert {round_terms.survey.hash for round_terms in terms} == {survey.hash}
    assert [round_terms.round_id for round_terms in terms] == ["work-1", "work-2", "work-3"] == [*survey.round_ids()]


def test_a_round_is_named_by_its_survey_its_wave_and_its_question() -> None:
    assert make_kit(round_id="one").terms.round_id == "one"
    assert kit_of_wave(2).terms.round_id == "wellbeing-w2-1"
    assert is_round_of("wellbeing", "wellbeing-w2-1")
    assert not is_round_of("well", "wellbeing-w2-1")


def without(rounds: list[RoundTerms]) -> list[RoundTerms]:
    return rounds[1:]


def swapped(rounds: list[RoundTerms]) -> list[RoundTerms]:
    return [rounds[1], rounds[0], rounds[2]]


def with_a_stranger(rounds: list[RoundTerms]) -> list[RoundTerms]:
    return [*rounds[:2], make_kit().terms]


@pytest.mark.parametrize(
    ("change", "said"),
    [(without, "other rounds"), (swapped, "another order"), (with_a_stranger, "one survey")],
)
def test_rounds_that_are_not_all_of_a_survey_are_refused(change: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        one_survey(change([kit.terms for kit in kits()]))


def test_rounds_of_different_waves_are_not_together() -> None:
    first, second = kit_of_wave(1).terms, kit_of_wave(2).terms
    assert first.survey.hash == second.survey.hash
    with pytest.raises(ValueError, match="different waves"):
        one_survey([first, second])


def survey_with(**fields: Any) -> Survey:
    message = kits()[0].survey
    for name, value in fields.items():
        if isinstance(value, list | tuple):
            del getattr(message, name)[:]
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    return read_survey(canonical(message))


ASKED = kits(2)[0].survey.questions[0]


def with_fewer_budgets() -> pb.SurveyQuestion:
    asked = pb.SurveyQuestion()
    asked.CopyFrom(ASKED)
    del asked.budget_grid[2:]
    return asked


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"survey_id": "a b"}, "survey_id is 'a b'; it must be 1..64 of"),
        # Reproduction: leaving "wellbeing" destroyed the reports that are kept for these, and its limit counted them.
        ({"survey_id": "wellbeing-w1"}, "survey_id is 'wellbeing-w1'; it must not have '-w1'"),
        ({"survey_id": "wellbeing-w12-more"}, "must not have '-w12'"),
        ({"wordings": [pb.SurveyWording(language="en", title="t", consent="c")] * 2}, "one wording"),
        ({"questions": []}, "has 0 questions; it must have 1..64"),
        ({"questions": [ASKED] * 65}, "has 65 questions; it must have 1..64"),
        ({"questions": [ASKED, with_fewer_budgets()]}, r"\[3, 2\] budgets"),
        ({"left_out": pb.LEFT_OUT_UNSPECIFIED}, "left_out"),
    ],
)
def test_a_survey_that_is_none_is_refused(fields: dict[str, Any], said: str) -> None:
    with refuses(Code.BAD_MANIFEST, said):
        survey_with(**fields)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"consent": ""}, "consent is empty"),
        ({"title": ""}, "title is empty"),
        ({"title": "a" * 201}, "title has 201 bytes"),
        ({"consent": "<b>"}, "no markup"),
        ({"introduction": "a\nb"}, "no control characters"),
        ({"language": "?"}, "language tag"),
    ],
)
def test_a_text_of_a_survey_that_cannot_be_shown_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(WORDINGS[0], **fields)


def version(number: int, previous: bytes = b"", **promises: Any) -> Survey:
    message = kit_of_wave().survey
    message.schedule.version, message.schedule.previous_hash = number, previous
    message.schedule.change = "One question less." if number > 1 else ""
    message.schedule.MergeFrom(pb.Schedule(**promises))
    return read_survey(canonical(message))


def test_a_version_continues_the_one_that_it_names() -> None:
    first = version(1)
    second = version(2, first.hash)
    third = version(3, second.hash)
    first.check_continued_by(first)
    first.check_continued_by(second)
    first.check_continued_by(third, [second])
    for known, newer in (
        (first, third),
        (first, version(2, bytes(32))),
        (second, first),
        (first, make_kit().terms.survey),
    ):
        with pytest.raises(ValueError, match=naming("does not follow")):
            known.check_continued_by(newer, [third])


@pytest.mark.parametrize(
    ("promise", "named"),
    [({"total_epsilon": 21.0}, "total_epsilon"), ({"total_delta": 1e-2}, "total_delta")],
)
def test_a_version_that_breaks_a_promise_is_refused(promise: dict[str, Any], named: str) -> None:
    first = version(1)
    with pytest.raises(ValueError, match=naming(named, "version 2", "must stay")):
        first.check_continued_by(version(2, first.hash, **promise))
