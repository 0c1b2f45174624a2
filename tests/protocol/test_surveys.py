"""The description of a survey: what a manifest may say, and which rounds belong together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms, canonical, parse_terms
from croupier.protocol.names import Digest, RoundId
from croupier.protocol.surveys import Survey, SurveyRound, SurveyWording, rounds_together, stated_terms_hash
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import RoundKit, make_kit
from tests.support.messages import naming

WORDINGS = (
    SurveyWording("en", "How we work", "I am asked by the works council.", "Five questions."),
    SurveyWording("de", "Wie wir arbeiten", "Ich werde vom Betriebsrat gefragt."),
)


def kits(count: int = 3) -> list[RoundKit]:
    """Rounds of one survey, each with the description in its manifest."""
    made = [make_kit(round_id=f"work-{number}") for number in range(1, count + 1)]
    rounds = [SurveyRound(RoundId(opening.manifest.round_id), stated_terms_hash(opening.manifest)) for opening in made]
    for opening in made:
        opening.manifest.survey.CopyFrom(Survey("work", WORDINGS, tuple(rounds), "random").message())
    return made


def test_rounds_of_one_survey_are_recognised() -> None:
    terms = [kit.terms for kit in kits()]
    survey = rounds_together(terms)
    assert (survey.survey_id, survey.wordings, survey.left_out) == ("work", WORDINGS, "random")
    assert {round_terms.survey.hash for round_terms in terms if round_terms.survey} == {survey.hash}
    assert Survey.read(survey.message()) == survey
    assert make_kit().terms.survey is None


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
        rounds_together(change([kit.terms for kit in kits()]))


@pytest.mark.parametrize("field", ["close_deadline_unix_s", "grid"])
def test_rounds_of_a_survey_share_budgets_and_deadline(field: str) -> None:
    made = [make_kit(round_id=f"work-{number}") for number in (1, 2)]
    if field == "grid":
        del made[1].manifest.budget_grid[2:]
    else:
        made[1].manifest.close_deadline_unix_s = 5
    rounds = tuple(
        SurveyRound(RoundId(opening.manifest.round_id), stated_terms_hash(opening.manifest)) for opening in made
    )
    for opening in made:
        opening.manifest.survey.CopyFrom(Survey("work", WORDINGS, rounds).message())
    named = ("budgets", "[3, 2]") if field == "grid" else ("deadlines", "[0, 5]")
    with pytest.raises(ValueError, match=naming(*named)):
        rounds_together([opening.terms for opening in made])


def another_text(manifest: pb.Manifest) -> None:
    manifest.question.wordings.append(pb.Wording(language="en", question="Who are you?"))


def another_budget(manifest: pb.Manifest) -> None:
    manifest.budget_grid[2].epsilon = 4.0


def another_round(manifest: pb.Manifest) -> None:
    del manifest.survey.rounds[0]


def no_policy(manifest: pb.Manifest) -> None:
    manifest.survey.left_out = pb.LEFT_OUT_UNSPECIFIED


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (another_text, "'work-1'"),
        (another_budget, "'work-1'"),
        (another_round, "has no round 'work-1'"),
        (no_policy, "left_out"),
    ],
)
def test_a_round_with_other_terms_than_its_survey_is_refused(change: Any, said: str) -> None:
    manifest = kits()[0].manifest
    change(manifest)
    with pytest.raises(Refusal, match=said) as refused:
        parse_terms(canonical(manifest))
    assert refused.value.code is Code.BAD_MANIFEST


ROUND = SurveyRound(RoundId("a"), Digest(bytes(32)))
FITS = Survey("work", WORDINGS, (ROUND,))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"survey_id": "a b"}, "survey_id is 'a b'; it must be 1..64 of"),
        ({"wordings": ()}, "one wording"),
        ({"wordings": WORDINGS[:1] * 2}, "one wording"),
        ({"rounds": ()}, "has 0 rounds; it must have 1..64, each once"),
        ({"rounds": (ROUND, ROUND)}, "has 2 rounds; it must have 1..64, each once"),
        ({"rounds": (SurveyRound(RoundId("a"), Digest(b"")),)}, "has 0 bytes, not 32"),
        ({"left_out": "maybe"}, "left_out.*'maybe'"),
    ],
)
def test_a_description_that_is_not_one_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(FITS, **fields)


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
