"""Studies in tests: a file of one, with a calendar."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from croupier.deploy.operator.study_file import StudyFile
from croupier.protocol.questions import Question
from croupier.protocol.studies import Study, StudyCalendar, study_question_hash, study_texts_hash
from croupier.protocol.surveys import stated_terms_hash
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import BIT, RoundKit, make_kit

__all__ = ["kit_of_wave", "study_file"]


def study_file(name: str = "wellbeing", *, calendar: dict[str, Any] | None = None, **changes: object) -> StudyFile:
    """A study of two questions, weekly on Monday 08:00 in Berlin, three waves."""
    values = {
        "name": name,
        "title": "How we are",
        "consent": "I answer for myself, of my own free will.",
        "budgets": [1, 2],
        "min_batch_size": 3,
        "epsilon_max": 6,
        "delta": 1e-4,
        "epsilon_total": 20,
        "delta_total": 1e-3,
        "calendar": {
            "first": "2026-01-01T08:00:00",
            "every": "week",
            "on": "Monday",
            "waves": 3,
            "timezone": "Europe/Berlin",
            "open_for": "5 days",
        }
        | (calendar or {}),
        "questions": [
            {"name": "mood", "question": "How was your week?", "choices": ["good", "mixed", "bad"]},
            {"name": "ill", "question": "Were you ill?"},
        ],
    }
    return StudyFile.model_validate(values | changes)


def kit_of_wave(
    number: int = 1,
    *,
    waves: int = 3,
    permanent: bool = True,
    question: Question = BIT,
    study_id: str = "wellbeing",
    **policy: Any,
) -> RoundKit:
    """The only round of a wave of a study, with everybody's keys; policy: fields of its manifest."""
    kit = make_kit(question=question, round_id=f"{study_id}-w{number}-1")
    manifest = kit.manifest
    manifest.MergeFrom(pb.Manifest(**{"epsilon_max": 2.0} | policy))
    survey = pb.Survey(
        survey_id=f"{study_id}-w{number}",
        wordings=[pb.SurveyWording(language="en", title="How we are", consent="I answer for myself.")],
        left_out=pb.LEFT_OUT_MISSING,
    )
    study = Study(
        study_id,
        1,
        None,
        "",
        StudyCalendar(datetime(2026, 1, 5, 8), "week", "Europe/Berlin", 432_000),
        1,
        waves,
        20.0,
        1e-3,
        permanent,
        "public",
        study_texts_hash(survey),
        (study_question_hash(manifest),),
    )
    wave = study.wave(number)
    manifest.close_deadline_unix_s = wave.closes_unix_s
    survey.wave.CopyFrom(wave.message())
    survey.rounds.add(round_id=manifest.round_id, terms_hash=stated_terms_hash(manifest))
    manifest.survey.CopyFrom(survey)
    return kit
