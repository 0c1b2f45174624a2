"""The demonstration of a study: five questions in four waves, asked of the survey's people in a deployment on loopback.

The survey in deploy/examples was asked once. Its people become four waves with a trend that is known: they are ordered
by their years of marriage, and every wave asks the people of a window of half of them, of whom the next window begins
a sixth further on, as if the same town were asked again while its marriages grow older. So in every wave the truth is
what real rows say, and from wave to wave people are married for longer, have more children and more often an affair.

The services run by the real clock. The study's own clock leaps from one thing that is due to the next: waves that are a
day apart are played within minutes, and close by the operator's command.
"""

from __future__ import annotations

import asyncio
import csv
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from croupier.client.submission import Participant
from croupier.deploy.local.demo_plan import SURVEY, true_numbers
from croupier.deploy.local.fleet import fleet_of
from croupier.deploy.local.users import Fleet
from croupier.operator.opened_surveys import kept_rounds
from croupier.operator.operator import Operator
from croupier.operator.survey_file import SurveyFile
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import JsonObject
from croupier.protocol.questions import Question
from croupier.runtime.workers import WorkerPool
from croupier.study.journal import StudyJournal
from croupier.study.runs import StudyRun
from croupier.study.versions import journal_file, start_study
from croupier.study.wave_results import study_state, study_view

STUDY = "marriage"
WAVES = 4
PEOPLE = 700
"""The people of each wave: enough to see the trend, and few enough for three minutes on two cores."""
BUDGETS = (5.0, 10.0)
"""For all five answers of a wave together; people choose the first and the second in turn."""
Truth = Mapping[tuple[str, str], Mapping[int, float]]
"""The true number of each (question, value) by wave."""
_COLUMNS = {"affair": "had_affair", "rating": "rate_marriage", "religious": "religious", "years": "yrs_married"}
_COLUMNS |= {"children": "children"}
_QUESTIONS = (
    {"name": "affair", "question": "Have you had an affair?"},
    {"name": "rating", "question": "How do you rate your marriage?", "choices": ["1", "2", "3", "4", "5"]},
    {"name": "religious", "question": "How religious are you?", "choices": ["1", "2", "3", "4"]},
    {"name": "years", "question": "How many years have you been married?", "low": 0, "high": 25, "unit": "years"},
    {"name": "children", "question": "How many children do you have?", "low": 0, "high": 6},
)


@dataclass(frozen=True)
class DemoStudy:
    """A study that was played: its results, and the truth beside them."""

    results: JsonObject
    truth: Truth


class _LeapingClock:
    """The machine's clock, which can be set ahead."""

    ahead_s = 0.0

    def now(self) -> float:
        return time.time() + self.ahead_s


def study_file() -> SurveyFile:
    """Returns the study: daily waves from tomorrow on."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    return SurveyFile.model_validate(
        {
            "name": STUDY,
            "title": "Marriages, four times",
            "consent": "I answer for myself.",
            "budgets": list(BUDGETS),
            "min_batch_size": PEOPLE // 2,
            "epsilon_max": 3,
            "epsilon_total": 20,
            "calendar": {
                "first": f"{tomorrow:%Y-%m-%dT08:00:00}",
                "every": "day",
                "waves": WAVES,
                "open_for": "12 hours",
            },
            "questions": list(_QUESTIONS),
        }
    )


def wave_rows(rows: Sequence[Mapping[str, str]], wave: int, people: int = PEOPLE) -> list[Mapping[str, str]]:
    """Returns the people of a wave, from 1, as the opening of this module says; evenly spread over their window."""
    ordered = sorted(rows, key=lambda row: float(row["yrs_married"]))  # stable: equal ones stay in the file's order
    first = (wave - 1) * len(ordered) // (2 * (WAVES - 1))
    window = ordered[first : first + len(ordered) // 2]
    return [window[place * len(window) // people] for place in range(people)]


async def play_study(directory: Path, tell: Callable[[str], None] = lambda _: None) -> DemoStudy:
    """Plays the study in a running deployment, and returns what it came to.

    tell: called with a sentence for everything that happens.

    Raises:
        RuntimeError, Refusal: a wave did not come to its end.
    """
    with SURVEY.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    begun = start_study(directory, study_file())
    clock, answered = _LeapingClock(), set[int]()
    truth: dict[tuple[str, str], dict[int, float]] = {}
    with closing(WorkerPool()) as pool, StudyJournal.running(journal_file(directory, STUDY)) as journal:
        async with Operator(directory) as operator, fleet_of(operator, directory, pool) as fleet:
            run = StudyRun(directory, STUDY, journal, clock=clock, tell=tell)
            while (due := await run.step()) is not None:
                for number, record in journal.records().items():
                    if record.step == "opened" and number not in answered:
                        answered.add(number)
                        await _answer(fleet, kept_rounds(directory, begun, number), wave_rows(rows, number))
                        _add_truth(truth, number, wave_rows(rows, number))
                clock.ahead_s += max(0.0, due - clock.now())
                await asyncio.sleep(0.1)
    return DemoStudy(study_view(study_state(directory, STUDY), "first"), truth)


async def _answer(fleet: Fleet, rounds: Sequence[RoundTerms], people: Sequence[Mapping[str, str]]) -> None:
    for terms in rounds:
        budgets = terms.budget_grid
        users = {
            f"{terms.round_id}-{place}": Participant(_value(terms.question, row), budgets[place % len(budgets)])
            for place, row in enumerate(people)
        }
        report = await fleet.answer(terms, users)
        if report.accepted < len(users):
            raise RuntimeError(f"round {terms.round_id}: {report.accepted:,} of {len(users):,} answers were accepted")


def _value(question: Question, row: Mapping[str, str]) -> float:
    value: float = question.mechanism.parse_value(row[_COLUMNS[question.name]])
    return value


def _add_truth(truth: dict[tuple[str, str], dict[int, float]], wave: int, people: Sequence[Mapping[str, str]]) -> None:
    for question in study_file().asked():
        numbers = true_numbers(question.mechanism, [_value(question, row) for row in people])
        for label, number in zip(question.mechanism.categories or [""], numbers, strict=True):
            truth.setdefault((question.name, label), {})[wave] = number
