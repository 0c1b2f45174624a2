"""The demonstration: a whole deployment on loopback answers questions about a file of participants.

By default three questions on the survey in deploy/examples; with another file, a question on each column that is named.
Every question is a round. With groups it is a round for each group: then a person is in the rounds of one group only,
and what they cost together is the most that the rounds of any group do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from croupier.accountant.numerics.decimals import sum_above
from croupier.accountant.results import Guarantee
from croupier.deploy.local.budget_groups import BudgetGroup
from croupier.deploy.local.columns import Columns
from croupier.deploy.local.fleet import Fleet, FleetOutcome, count_up_to, fleet_of
from croupier.deploy.local.population import (
    Participants,
    PopulationFile,
    Rows,
    guess_question,
    read_groups,
    read_population,
)
from croupier.deploy.local.rounds import RoundOutcome, play_round
from croupier.deploy.local.scales import parse_orders
from croupier.deploy.local.sheets import open_table
from croupier.deploy.local.users import FleetReport
from croupier.deploy.operator.ledger import spent_in
from croupier.deploy.operator.round_settings import RoundSettings, check_settings
from croupier.deploy.operator.rounds import Operator
from croupier.protocol.certificates import refusals_of
from croupier.protocol.codes import Note
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms import IntervalMechanism, KaryResponse, OneBit, RandomizedResponse
from croupier.protocol.names import RoundId
from croupier.protocol.questions import Question
from croupier.protocol.statements import joined, written_json
from croupier.protocol.views import BoundView
from croupier.runtime.workers import WorkerPool
from croupier.show.published import publication_json
from croupier.show.views.demonstration import DemoView, TogetherView
from croupier.show.views.results import ResultView

__all__ = [
    "SURVEY",
    "SURVEY_QUESTIONS",
    "DemoPlan",
    "DemoQuestion",
    "PlannedRound",
    "ask_about",
    "plan_demo",
    "published_at_random",
    "questions_on",
    "run_demo",
    "truth_of",
]

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
class ComparedQuestion:
    """One answered question beside the truth, which only a demonstration can know."""

    asked: DemoQuestion
    group: Rows | None
    population: Participants
    outcome: RoundOutcome

    def truth(self, *, as_stated: bool = False) -> tuple[float, ...]:
        """Returns the share, mean, or share of every category of these very participants.

        as_stated: of their values in the file, where a value outside the question's interval is not clamped to it.
        """
        return truth_of(self.asked.question, self.population, as_stated=as_stated)

    def notes(self) -> list[str]:
        """Returns what the truth is not about: values that were clamped, and rows that were left out."""
        used, left = len(self.population.participants), self.population.rejected
        notes = []
        if self.population.clamped:
            (whole,) = self.truth(as_stated=True)
            clamped = len(self.population.clamped)
            notes.append(
                f"{clamped:,} of {used:,} values ({100 * clamped / used:.1f} %) are outside the interval and count "
                f"as its nearer end; as the file has them their mean is {whole:.4f}"
            )
        if left:
            why = next(iter(left.values()))
            notes.append(f"{len(left):,} of {used + len(left):,} rows were left out, also of the truth; {why}")
        return notes


def truth_of(question: Question, population: Participants, *, as_stated: bool = False) -> tuple[float, ...]:
    """Returns the share, mean, or share of every category of a population.

    as_stated: of the values in the file, where a value outside the question's interval is not clamped to it.
    """
    stated = population.clamped if as_stated else {}
    values = [stated.get(name, participant.value) for name, participant in population.participants.items()]
    categories = range(len(question.mechanism.categories))
    shares = tuple(sum(value == category for value in values) / len(values) for category in categories)
    return shares or (sum(values) / len(values),)


def ask_about(
    path: Path | None,
    columns: Sequence[str],
    low: float | None,
    high: float | None,
    limit: int | None,
    ordered: Sequence[str] = (),
) -> tuple[Columns, tuple[DemoQuestion, ...]]:
    """Returns the file to read, and the questions: those about the survey, or one for each column of another file.

    Args:
        path: the CSV file; None, with no column either, for the survey.
        columns: to ask about, each "COLUMN", "COLUMN:LOW:HIGH" for a mean, or "COLUMN:LOW:HIGH:LEVELS" for the
            distribution of a number, too.
        low: for a mean, the smallest possible value, where there is one column.
        high: for a mean, the largest possible value.
        limit: how many rows to use, from the first; None for all.
        ordered: orders of categories, each such as "never;sometimes;often".

    Raises:
        ValueError: one of file and column is missing, a column is named twice, an order fits no column, or no question
            fits a column.
    """
    if path is None and not columns:
        return open_table(SURVEY, limit), SURVEY_QUESTIONS
    if path is None or not columns:
        raise ValueError("a file of your own needs both --csv and --value-column")
    if len(columns) > 1 and (low is not None or high is not None):
        raise ValueError("--low and --high are for one column; of several write --value-column COLUMN:LOW:HIGH")
    file = open_table(path, limit)
    return file, questions_on(file, columns, low, high, ordered)


def questions_on(
    file: Columns, columns: Sequence[str], low: float | None, high: float | None, ordered: Sequence[str]
) -> tuple[DemoQuestion, ...]:
    """Returns a question for each column of a table; see `ask_about`."""
    orders, asked = parse_orders(ordered), []
    for text in columns:
        column, least, most, levels = text.strip(), low, high, None
        match = re.fullmatch(r"(.+?):([^:]+):([^:]+?)(?::([0-9]+))?", text)
        if match and column not in file.names:
            column, least, most = match[1].strip(), _number(match[2]), _number(match[3])
            levels = int(match[4]) if match[4] else None
        asked.append(DemoQuestion(guess_question(file, column, least, most, orders, levels), column))
    if len({demo_question.column for demo_question in asked}) < len(asked):
        raise ValueError("a column is named twice; each is asked about once")
    for order in orders:
        if order not in {demo_question.question.mechanism.categories for demo_question in asked}:
            raise ValueError(f"ordered is {';'.join(order)!r}; no column that is asked about has only these values")
    return tuple(asked)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a number; a mean is COLUMN:LOW:HIGH") from error


@dataclass(frozen=True)
class PlannedRound:
    """A round to be: its terms, and who takes part."""

    asked: DemoQuestion
    group: Rows | None
    population: Participants
    settings: RoundSettings

    @property
    def name(self) -> str:
        """The column that is asked about, and the group that is asked."""
        return _name(self.asked, self.group)


Watch = Callable[[PlannedRound], AbstractContextManager[Callable[[int, int], None]]]


@contextmanager
def unwatched(_: PlannedRound) -> Iterator[Callable[[int, int], None]]:
    yield lambda done, total: None


@dataclass(frozen=True)
class DemoPlan:
    """What a demonstration asks whom, all of it checked.

    Attributes:
        rounds: one after the other.
        delta: the central delta to certify at.
    """

    rounds: tuple[PlannedRound, ...]
    delta: float


def plan_demo(
    file: Columns,
    questions: Sequence[DemoQuestion],
    groups: Sequence[BudgetGroup],
    *,
    group_by: str | None = None,
    delta: float,
    clamp: bool,
    hop_noise: float | None = None,
) -> DemoPlan:
    """Returns the rounds of a demonstration, before anything is started for them.

    Args:
        file: the participants, one a row.
        questions: at least one.
        groups: what the participants' budgets are drawn from.
        group_by: a column: every question is asked in a round for each of its values.
        delta: the central delta to certify at.
        clamp: numbers outside a question's interval count as its nearer end; else their rows are left out.
        hop_noise: the epsilon that the fakes of one honest hop guarantee in every round; None: hops add none.

    Raises:
        ValueError: the file, a budget or the delta cannot be used.
    """
    grid = tuple(sorted({group.max_local_epsilon for group in groups}))
    among: Sequence[Rows | None] = read_groups(file, group_by) if group_by else [None]
    rounds = []
    for group in among:
        for asked in questions:
            rows = PopulationFile(file, asked.column, groups, clamp=clamp, where=group)
            population = read_population(rows, asked.question, grid)
            _check_enough(file.name, asked, group, population)
            smallest = max(2, min(100, len(population.participants)))
            settings = RoundSettings(
                asked.question,
                grid,
                delta=delta,
                epsilon_max=max(grid),
                min_batch_size=smallest,
                hop_noise=hop_noise,
            )
            check_settings(settings)
            rounds.append(PlannedRound(asked, group, population, settings))
    file.clear()
    return DemoPlan(tuple(rounds), delta)


async def run_demo(directory: Path, plan: DemoPlan, watch: Watch = unwatched) -> DemoView:
    """Asks the questions one after the other, and returns the JSON document of `croupier demo`.

    Args:
        directory: of a running deployment.
        plan: what to ask whom.
        watch: entered with each round while its participants submit; what it yields is called with (participants done,
            participants in all).

    Raises:
        RuntimeError, Refusal: a round did not come to its end.
    """
    answers: list[ComparedQuestion] = []
    with closing(WorkerPool()) as pool:
        async with Operator(directory) as operator, fleet_of(operator, directory, pool) as fleet:
            await pool.warm()
            for planned in plan.rounds:
                outcome = await play_round(operator, planned.settings, partial(submit_planned, fleet, planned, watch))
                if not outcome.certificate.granted:
                    raise RuntimeError(f"round refused: {joined(refusals_of(outcome.certificate))}")
                answers.append(ComparedQuestion(planned.asked, planned.group, planned.population, outcome))
    return _demo_json(answers, _together(directory, answers, plan.delta))


async def submit_planned(fleet: Fleet, planned: PlannedRound, watch: Watch, terms: RoundTerms) -> FleetReport:
    population = planned.population
    users = population.participants
    with watch(planned) as progress:
        report = await fleet.answer(terms, users, count_up_to(len(users), progress))
    if report.accepted < report.codes.total():
        summary = FleetOutcome(terms.round_id, report, population.rejected, len(population.clamped)).summary()
        raise RuntimeError(f"a service did not accept every answer: {summary}")
    return report


def _check_enough(file: str, asked: DemoQuestion, group: Rows | None, population: Participants) -> None:
    """Raises ValueError where a round could not be: it needs two people."""
    usable, of_group = len(population.participants), f" with {group}" if group else ""
    if usable < 2:
        why = f": {next(iter(population.rejected.values()))}" if population.rejected else ""
        raise ValueError(f"{usable} rows of {file}{of_group} can be used for {asked.column!r}; 2 are needed{why}")


def _together(directory: Path, answers: Sequence[ComparedQuestion], delta: float) -> TogetherView:
    """Returns what all rounds that one person may be in cost together, and what all rounds do, as the ledger has it.

    Without groups a person may be in every round. With groups in those of one: of all groups the one counts that costs
    most. In every round each person is taken to be in the tier that costs most there.
    """
    of_group: dict[Rows | None, list[RoundId]] = {}
    for answer in answers:
        of_group.setdefault(answer.group, []).append(RoundId(answer.outcome.publication.round_id))
    ledger = [round_id for round_ids in of_group.values() for round_id in round_ids]
    mine = len(ledger) // len(of_group)
    fixed = partial(spent_in, directory, fixed_terms=True)  # all questions are asked before the first result
    total, ledger_total = (sum_above([delta] * rounds) for rounds in (mine, len(ledger)))  # as the ledger adds them
    return {
        "group_by": answers[0].group.column if answers[0].group else None,
        "rounds": mine,
        "person": _cost([fixed(round_ids, total) for round_ids in of_group.values()], total),
        "ledger_rounds": len(ledger),
        "ledger": _cost([fixed(ledger, ledger_total)], ledger_total),
    }


def _cost(guarantees: Sequence[Guarantee | None], delta: float) -> BoundView:
    """Returns the largest of several guarantees; its epsilon is None where one of them proves nothing."""
    proved = [guarantee for guarantee in guarantees if guarantee is not None]
    if len(proved) < len(guarantees):
        return {"epsilon": None, "delta": delta, "grade": None, "method": [], "assumptions": []}
    worst = max(proved, key=lambda guarantee: guarantee.epsilon)
    return {
        "epsilon": worst.epsilon,
        "delta": delta,
        "grade": str(worst.grade),
        "method": written_json(worst.method),
        "assumptions": written_json(worst.assumptions),
    }


def _name(asked: DemoQuestion, group: Rows | None) -> str:
    return f"{asked.column}, {group}" if group else asked.column


def _listed_if_many(numbers: tuple[float, ...]) -> list[float] | float:
    return list(numbers) if len(numbers) > 1 else numbers[0]


def published_at_random(outcome: RoundOutcome) -> ResultView:
    """Returns a published result without the note on budgets that depend on values: here they are drawn at random."""
    document = publication_json(outcome.publication, outcome.certificate)
    document["notes"] = [note for note in document["notes"] if note["code"] != Note.DEPENDENT_BUDGETS]
    return document


def _demo_json(answers: Sequence[ComparedQuestion], together: TogetherView) -> DemoView:
    users = sum(answer.outcome.fleet.accepted for answer in answers)
    wall_s = sum(answer.outcome.wall_s for answer in answers)
    return {
        "questions": [
            {
                "column": answer.asked.column,
                "name": _name(answer.asked, answer.group),
                "quantity": "mean" if isinstance(answer.asked.question.mechanism, IntervalMechanism) else "share",
                "group": answer.group.value if answer.group else None,
                "truth": _listed_if_many(answer.truth()),
                "truth_as_stated": _listed_if_many(answer.truth(as_stated=True)),
                "clamped": len(answer.population.clamped),
                "left_out": len(answer.population.rejected),
                "data_notes": answer.notes(),
                **published_at_random(answer.outcome),
                "users_per_s": answer.outcome.fleet.accepted / answer.outcome.wall_s,
                "stages": {stage: {"wall_s": wall, "cpu_s": cpu} for stage, wall, cpu in answer.outcome.stages()},
            }
            for answer in answers
        ],
        "throughput_users_per_s": users / wall_s,
        "together": together,
    }
