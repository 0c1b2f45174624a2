"""The demonstration: a whole deployment on loopback answers questions about a file of participants.

By default three questions on the survey in deploy/examples; with another file, one question on one of its columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from client.published import publication_json
from deploy.local.budget_groups import BudgetGroup
from deploy.local.fleet import spawn_fleet
from deploy.local.population import ParticipantFile, guess_question, read_population
from deploy.local.rounds import RoundOutcome, play_round
from deploy.operator.rounds import Operator, RoundSettings
from protocol.manifest import RoundTerms
from protocol.mechanisms import KaryResponse, OneBit, RandomizedResponse
from protocol.questions import Question

__all__ = ["SURVEY", "SURVEY_QUESTIONS", "DemoQuestion", "ask_about", "run_demo"]

SURVEY = Path(__file__).parents[1] / "examples" / "affairs.csv"


@dataclass(frozen=True)
class DemoQuestion:
    """A question, and the column of the file that holds the participants' values."""

    question: Question
    column: str


SURVEY_QUESTIONS = (
    DemoQuestion(Question("had_affair", RandomizedResponse()), "had_affair"),
    DemoQuestion(Question("rate_marriage", KaryResponse(5, ("1", "2", "3", "4", "5"))), "rate_marriage"),
    DemoQuestion(Question("yrs_married", OneBit(0.0, 25.0)), "yrs_married"),
)


@dataclass(frozen=True)
class _AnsweredQuestion:
    """One answered question beside the truth, which only a demonstration can know."""

    asked: DemoQuestion
    population: ParticipantFile
    outcome: RoundOutcome

    def truth(self, *, as_stated: bool = False) -> tuple[float, ...]:
        """Returns the share, mean, or share of every category of these very participants.

        as_stated: of their values in the file, where a value outside the question's interval is not clamped to it.
        """
        stated = self.population.clamped if as_stated else {}
        values = [stated.get(name, one.value) for name, one in self.population.participants.items()]
        categories = range(len(self.asked.question.mechanism.categories))
        shares = tuple(sum(value == category for value in values) / len(values) for category in categories)
        return shares or (sum(values) / len(values),)

    def notes(self) -> list[str]:
        """Returns what the truth is not about: values that were clamped, and rows that were left out."""
        used, left = len(self.population.participants), self.population.rejected
        notes = []
        if self.population.clamped:
            (whole,) = self.truth(as_stated=True)
            notes.append(
                f"{len(self.population.clamped)} of {used} values ({len(self.population.clamped) / used:.1%}) are "
                f"outside the interval and count as its nearer end; as the file has them their mean is {whole:.4f}"
            )
        if left:
            notes.append(
                f"{len(left)} of {used + len(left)} rows were left out, also of the truth; {next(iter(left.values()))}"
            )
        return notes


def ask_about(
    file: Path | None, column: str | None, low: float | None, high: float | None, limit: int | None
) -> tuple[Path, tuple[DemoQuestion, ...]]:
    """Returns the file to read, and the questions: those about the survey, or one that fits a column of another file.

    Args:
        file: the CSV file; None, with no column either, for the survey.
        column: to ask about.
        low: for a mean, the smallest possible value.
        high: for a mean, the largest possible value.
        limit: how many rows to use, from the first; None for all.

    Raises:
        ValueError: one of file and column is missing, or no question fits the column.
    """
    if file is None and column is None:
        return SURVEY, SURVEY_QUESTIONS
    if file is None or column is None:
        raise ValueError("a file of your own needs both --csv and --value-column")
    return file, (DemoQuestion(guess_question(file, column, low, high, limit), column),)


async def run_demo(
    directory: Path,
    file: Path,
    questions: Sequence[DemoQuestion],
    groups: Sequence[BudgetGroup],
    *,
    limit: int | None,
    delta: float,
    clamp: bool,
    quiet: bool,
) -> dict[str, Any]:
    """Asks the questions one after the other, and returns the JSON document of `croupier demo`.

    Args:
        directory: of a running deployment.
        file: the participants, one a row.
        questions: at least one.
        groups: what the participants' budgets are drawn from.
        limit: how many rows to use, from the first; None for all.
        delta: the central delta to certify at.
        clamp: numbers outside a question's interval count as its nearer end; else their rows are left out.
        quiet: show no progress of the fleets.

    Raises:
        ValueError: the file cannot be used.
        RuntimeError, Refusal: a round did not come to its end.
    """
    grid = tuple(sorted({group.max_local_epsilon for group in groups}))
    extra = ["--budgets", ",".join(f"{group.max_local_epsilon}:{group.share}" for group in groups)]
    extra += ["--limit", str(limit)] if limit else []
    extra += ["--clamp"] if clamp else []
    answers: list[_AnsweredQuestion] = []
    async with Operator(directory) as operator:
        for asked in questions:
            population = read_population(file, asked.column, asked.question, groups, clamp=clamp, limit=limit)
            if not population.participants:
                raise ValueError(f"no row of {file} can be used: {next(iter(population.rejected.values()))}")
            smallest = max(2, min(100, len(population.participants)))
            settings = RoundSettings(asked.question, grid, delta=delta, epsilon_max=max(grid), min_batch_size=smallest)

            async def fleet(terms: RoundTerms, column: str = asked.column) -> dict[str, Any]:
                return await spawn_fleet(directory, terms, file, column, extra, quiet=quiet)

            outcome = await play_round(operator, settings, fleet)
            if not outcome.certificate.granted:
                raise RuntimeError(f"round refused: {'; '.join(outcome.certificate.refusals)}")
            answers.append(_AnsweredQuestion(asked, population, outcome))
    return _demo_json(answers)


def _listed_if_many(numbers: tuple[float, ...]) -> list[float] | float:
    return list(numbers) if len(numbers) > 1 else numbers[0]


def _demo_json(answers: Sequence[_AnsweredQuestion]) -> dict[str, Any]:
    users = sum(answer.outcome.fleet["accepted"] for answer in answers)
    wall_s = sum(answer.outcome.wall_s for answer in answers)
    return {
        "questions": [
            {
                "name": answer.asked.question.name,
                "truth": _listed_if_many(answer.truth()),
                "truth_as_stated": _listed_if_many(answer.truth(as_stated=True)),
                "clamped": len(answer.population.clamped),
                "left_out": len(answer.population.rejected),
                "data_notes": answer.notes(),
                **publication_json(answer.outcome.publication, answer.outcome.certificate),
                "users_per_s": answer.outcome.fleet["accepted"] / answer.outcome.wall_s,
                "stages": {stage: {"wall_s": wall, "cpu_s": cpu} for stage, wall, cpu in answer.outcome.stages()},
            }
            for answer in answers
        ],
        "throughput_users_per_s": users / wall_s,
    }
