"""Studies as JSON documents and in the terminal: what people consent to who follow one, and when its waves open."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypedDict

from rich.text import Text

from croupier.protocol.rounding import round_up
from croupier.protocol.studies import RESULTS_TEXTS, Study
from croupier.show.tables import counted
from croupier.show.text import sections_text

__all__ = ["StudyView", "StudyWaveView", "study_json", "study_text"]

_EVERY = {"once": "once", "day": "every day", "week": "every week"}
_MOST_LISTED = 12


class StudyWaveView(TypedDict):
    """A wave of a study by the calendar; times are Unix seconds."""

    number: int
    survey_id: str
    opens_unix_s: int
    closes_unix_s: int


class StudyView(TypedDict):
    """One version of a study."""

    study_id: str
    version: int
    hash: str
    previous_hash: str | None
    change: str
    title: str
    consent: str
    questions: list[str]
    first: str
    every: str
    timezone: str
    open_for_s: int
    total_epsilon: float
    total_delta: float
    permanent: bool
    results: str
    waves: list[StudyWaveView]


def study_json(study: Study, title: str, consent: str, questions: list[str]) -> StudyView:
    """Returns a version of a study, with its title, what people consent to and its questions in the first language."""
    calendar = study.calendar
    return {
        "study_id": study.study_id,
        "version": study.version,
        "hash": study.hash.hex(),
        "previous_hash": None if study.previous_hash is None else study.previous_hash.hex(),
        "change": study.change,
        "title": title,
        "consent": consent,
        "questions": questions,
        "first": calendar.first.strftime("%Y-%m-%dT%H:%M"),
        "every": calendar.every,
        "timezone": calendar.timezone,
        "open_for_s": calendar.open_for_s,
        "total_epsilon": study.total_epsilon,
        "total_delta": study.total_delta,
        "permanent": study.permanent,
        "results": study.results,
        "waves": [
            {
                "number": wave.number,
                "survey_id": wave.survey_id,
                "opens_unix_s": wave.opens_unix_s,
                "closes_unix_s": wave.closes_unix_s,
            }
            for wave in study.waves()
        ],
    }


def study_text(document: StudyView) -> Text:
    """Returns a version of a study for people who are asked to follow it, from `study_json`."""
    waves = document["waves"]
    weekday = f" on {datetime.fromisoformat(document['first']):%A}" if document["every"] == "week" else ""
    often = f"It asks {_EVERY[document['every']]}{weekday} at {document['first'][-5:]} ({document['timezone']}), "
    often += f"{counted(len(waves), 'wave')}, each open for {_duration(document['open_for_s'])}."
    listed = [
        f"wave {one['number']}: {_utc(one['opens_unix_s'])} to {_utc(one['closes_unix_s'])}"
        for one in (waves if len(waves) <= _MOST_LISTED else [*waves[:3], waves[-1]])
    ]
    again = (
        "A device randomizes an answer once, and sends the same report again while the answer is the same."
        if document["permanent"]
        else "A device randomizes an answer afresh for every wave."
    )
    return sections_text(
        [
            {
                "title": f"{document['study_id']}: {document['title']}",
                "paragraphs": tuple(
                    filter(None, (f"Version {document['version']}, hash {document['hash']}.", document["change"]))
                ),
                "points": (),
            },
            {"title": "What a person agrees to", "paragraphs": (document["consent"],), "points": ()},
            {"title": "The questions of every wave", "paragraphs": (), "points": tuple(document["questions"])},
            {"title": "When it asks", "paragraphs": (often,), "points": tuple(listed)},
            {
                "title": "What it may cost, and who reads the results",
                "paragraphs": (
                    f"All waves together may cost a person at most ε = {round_up(document['total_epsilon'])} at "
                    f"δ = {round_up(document['total_delta'])}; the accountant refuses a wave beyond that.",
                    again,
                    RESULTS_TEXTS[document["results"]],  # type: ignore[index]
                ),
                "points": (),
            },
        ]
    )


def _utc(unix_s: int) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%a %Y-%m-%d %H:%M} UTC"


def _duration(seconds: int) -> str:
    for unit, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % unit == 0:
            return counted(seconds // unit, name)
    return counted(seconds, "second")
