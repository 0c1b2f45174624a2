"""Surveys in tests: a file, an open survey, and links for people."""

from __future__ import annotations

import csv
from pathlib import Path

from croupier.operator.invitations import People, invite_people
from croupier.operator.survey_file import SurveyFile
from croupier.operator.survey_plans import open_survey
from croupier.protocol.surveys import Survey
from tests.support.rounds import Table

CONSENT = "I answer for myself, of my own free will."


def survey_file(name: str = "work-2026", **changes: object) -> SurveyFile:
    """A survey of three questions, one of each kind, in two languages."""
    values = {
        "name": name,
        "title": "How we work",
        "introduction": "The works council asks, to plan the offices.",
        "consent": CONSENT,
        "budgets": [1, 2, 6],
        "min_batch_size": 3,
        "epsilon_max": 6,
        "delta": 1e-4,
        "questions": [
            {"name": "mood", "question": "How satisfied are you?", "choices": ["very", "quite", "not at all"]},
            {"name": "remote", "question": "Do you work from home?"},
            {"name": "sleep", "question": "How long did you sleep?", "low": 0, "high": 24, "unit": "hours"},
        ],
        "translations": {
            "de": {
                "title": "Wie wir arbeiten",
                "consent": "Ich antworte für mich und freiwillig.",
                "questions": {
                    "mood": {"question": "Wie zufrieden sind Sie?", "choices": ["sehr", "ziemlich", "gar nicht"]},
                    "remote": {"question": "Arbeiten Sie zu Hause?"},
                    "sleep": {"question": "Wie lange haben Sie geschlafen?", "unit": "Stunden"},
                },
            }
        },
    }
    return SurveyFile.model_validate(values | changes)


async def opened_survey(at: Table, name: str = "work-2026", **changes: object) -> Survey:
    return await open_survey(at.inside.directory, survey_file(name, **changes), at.inside.transport)


async def links_of(
    at: Table, survey: Survey, folder: Path, *labels: str, gateway: str = "https://gateway.example", until: int = 0
) -> list[str]:
    """Returns a link for each label."""
    people = People.labelled(labels)
    how = {"gateway": gateway, "until": until, "qr_codes": False, "transport": at.inside.transport}
    await invite_people(at.inside.directory, survey.survey_id, people, folder, **how)  # type: ignore[arg-type]
    return [row["link"] for row in csv.DictReader((folder / "links.csv").read_text().splitlines())]
