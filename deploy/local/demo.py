"""`croupier demo`: a whole deployment on loopback, real questions about real people, one table and one plot.

By default three questions on the survey in deploy/examples; with a file of one's own, one question on one column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.local.fleet import spawn_fleet
from deploy.local.people import WishGroup, read_people
from deploy.local.rounds import RoundOutcome, play_round
from deploy.operator.documents import publication_json
from deploy.operator.rounds import Operator, RoundSettings
from protocol.manifest import RoundTerms
from protocol.mechanisms import KaryResponse, OneBit, RandomizedResponse
from protocol.questions import Question

__all__ = ["SURVEY", "SURVEY_QUESTIONS", "DemoQuestion", "demo_json", "run_demo"]

SURVEY = Path(__file__).parents[1] / "examples" / "affairs.csv"
DEMO_DELTA = 1e-6


@dataclass(frozen=True)
class DemoQuestion:
    """A question and the column that holds people's values."""

    question: Question
    column: str


SURVEY_QUESTIONS = (
    DemoQuestion(Question("had_affair", RandomizedResponse()), "had_affair"),
    DemoQuestion(Question("rate_marriage", KaryResponse(5, ("1", "2", "3", "4", "5"))), "rate_marriage"),
    DemoQuestion(Question("yrs_married", OneBit(0.0, 25.0)), "yrs_married"),
)


@dataclass(frozen=True)
class Answer:
    """One answered question beside the truth, which only a demonstration can know."""

    asked: DemoQuestion
    truth: tuple[float, ...]
    outcome: RoundOutcome


def true_answer(question: Question, values: Sequence[float]) -> tuple[float, ...]:
    """Returns the share, mean, or share of every letter of these very users."""
    letters = range(len(question.mechanism.letters))
    shares = tuple(sum(value == letter for value in values) / len(values) for letter in letters)
    return shares or (sum(values) / len(values),)


async def run_demo(
    directory: Path,
    file: Path,
    questions: Sequence[DemoQuestion],
    wishes: Sequence[WishGroup],
    *,
    limit: int | None,
    delta: float,
    quiet: bool,
) -> list[Answer]:
    """Asks the questions one after the other on a running deployment, with a fleet process for each.

    Raises:
        ValueError: the file cannot be used. RuntimeError, Refusal: a round did not come to its end.
    """
    grid = tuple(sorted({group.epsilon for group in wishes}))
    extra = ["--budgets", ",".join(f"{group.epsilon}:{group.share}" for group in wishes)]
    extra += ["--limit", str(limit)] if limit else []
    answers: list[Answer] = []
    async with Operator(directory) as operator:
        for asked in questions:
            people = read_people(file, asked.column, asked.question, wishes, limit=limit)
            if not people.users:
                raise ValueError(f"no row of {file} can be used: {next(iter(people.rejected.values()))}")
            values = [participant.value for participant in people.users.values()]
            smallest = max(2, min(100, len(values)))
            settings = RoundSettings(asked.question, grid, delta=delta, epsilon_max=max(grid), min_batch_size=smallest)

            async def fleet(terms: RoundTerms, column: str = asked.column) -> dict[str, Any]:
                return await spawn_fleet(directory, terms, file, column, extra, quiet=quiet)

            outcome = await play_round(operator, settings, fleet)
            if not outcome.certificate.granted:
                raise RuntimeError(f"round refused: {'; '.join(outcome.certificate.refusals)}")
            answers.append(Answer(asked, true_answer(asked.question, values), outcome))
    return answers


def demo_json(answers: Sequence[Answer]) -> dict[str, Any]:
    """Returns the object that `croupier demo --json` prints."""
    users = sum(answer.outcome.fleet["accepted"] for answer in answers)
    wall_s = sum(answer.outcome.wall_s for answer in answers)
    return {
        "questions": [
            {
                "name": answer.asked.question.name,
                "truth": list(answer.truth) if len(answer.truth) > 1 else answer.truth[0],
                **publication_json(answer.outcome.publication, answer.outcome.certificate),
                "users_per_s": answer.outcome.fleet["accepted"] / answer.outcome.wall_s,
                "stages": {stage: {"wall_s": wall, "cpu_s": cpu} for stage, wall, cpu in answer.outcome.stages()},
            }
            for answer in answers
        ],
        "throughput_users_per_s": users / wall_s,
    }
