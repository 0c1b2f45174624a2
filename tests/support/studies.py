"""Studies in tests: a file of one, with a calendar."""

from __future__ import annotations

from typing import Any

from croupier.deploy.operator.study_file import StudyFile

__all__ = ["study_file"]


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
