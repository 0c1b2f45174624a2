"""A simulation: what a round about a table of people would estimate and certify, computed here without any server.

The people's values are randomized with the clients' own randomizers, estimated as the analyzer does and certified as
the accountant does. Nobody is protected by it: the person who runs it has the table.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from croupier.accountant.budgets import Budgets
from croupier.accountant.certification import certify
from croupier.accountant.mechanisms.registry import randomizer_of
from croupier.accountant.ranges import DEFAULT_DELTA
from croupier.analyzer.estimators import estimate
from croupier.client.randomizers import randomize
from croupier.deploy.local.budget_groups import GSPA_BUDGETS, parse_budget_groups
from croupier.deploy.local.demo import published_at_random
from croupier.deploy.local.demo_plan import PlannedRound, plan_demo, questions_on
from croupier.deploy.local.sheets import Frame, open_table
from croupier.protocol.names import JsonObject
from croupier.protocol.questions import choose_budget
from croupier.protocol.randomness import RandomSource, SystemRandom
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.question import question_json
from croupier.show.report import ReportRound, report_of
from croupier.show.statistics import statistic


@dataclass(frozen=True)
class SimulatedQuestion:
    """The answer to a question, beside the truth.

    Attributes:
        name: the column, and the group that was asked.
        group: the people who were asked; "" for all.
        truth: the number, or one for each category, of these people, by their values in the table.
        left_out: why rows were left out, by their line.
        clamped: how many values outside the range count as its nearer end.
        outside: how many values outside the range were left out; their rows are in `left_out`.
        result: a document as `croupier survey results --json` prints it; `croupier.explain` takes it.
    """

    name: str
    group: str
    truth: tuple[float, ...]
    left_out: dict[str, str] = field(repr=False)
    clamped: int
    outside: int
    result: JsonObject = field(repr=False)


@dataclass(frozen=True)
class Simulation:
    """The outcome of a simulation.

    Attributes:
        questions: one for each column and group.
        assumed: a line on what was assumed in order to read the table; "" if nothing had to be.
    """

    questions: tuple[SimulatedQuestion, ...]
    assumed: str

    def rows(self) -> list[JsonObject]:
        """One dictionary for each number: what `pandas.DataFrame` and `polars.DataFrame` take.

        low and high are the ends of its 95 % interval for these people; clamped and outside: as in `SimulatedQuestion`.
        """
        return [
            {
                "question": question.name,
                "label": number.label,
                "truth": truth,
                "estimate": number.shown,
                "low": number.participants[0],
                "high": number.participants[1],
                "epsilon": question.result["certificate"]["epsilon"],
                "delta": question.result["certificate"]["delta"],
                "grade": question.result["certificate"]["grade"],
                "clamped": question.clamped,
                "outside": question.outside,
            }
            for question in self.questions
            for number, truth in zip(statistic(question.result).numbers, question.truth, strict=True)
        ]

    def report(self, title: str = "A simulation") -> str:
        """Returns the simulation as an HTML page; see `croupier report`."""
        said = ["This is a simulation: real people have not been asked, and its author had all values."]
        rounds = [ReportRound(question.result, question.group) for question in self.questions]
        return report_of(
            title, rounds, introduction=[*said, *([self.assumed] if self.assumed else [])], fixed_terms=True
        )


def simulate(
    data: Any,
    columns: str | Sequence[str],
    *,
    ordered: str | Sequence[str] = (),
    budgets: str = GSPA_BUDGETS,
    group_by: str | None = None,
    delta: float = DEFAULT_DELTA,
    clamp: bool = False,
    source: RandomSource | None = None,
) -> Simulation:
    """Asks about columns of a table, and returns what would be learned and what it would cost.

    Args:
        data: a data frame of pandas or polars, one person a row; or the path of a CSV or Excel file.
        columns: what to ask about: a column of 0 and 1, of categories, or "COLUMN:LOW:HIGH" for a mean.
        ordered: orders of categories, such as "never;sometimes;often".
        budgets: groups epsilon:share that the people's local budgets are drawn from.
        group_by: a column: everything is asked of the people of each of its values separately.
        delta: of the certificates.
        clamp: values outside a range count as its nearer end; else their rows are left out, as a value such as 99 may
            mean that there is no answer. Either is counted in the outcome.
        source: of randomness, but for Laplace and Gaussian noise; None for the operating system's.

    Raises:
        ValueError: the table, a column, a budget or the delta cannot be used.
    """
    table = open_table(Path(data)) if isinstance(data, str | os.PathLike) else Frame(data)
    texts, orders = ([names] if isinstance(names, str) else [*names] for names in (columns, ordered))
    if not texts:
        raise ValueError(f"columns is {columns!r}; it must name at least one")
    questions = questions_on(table, texts, None, None, orders)
    plan = plan_demo(table, questions, parse_budget_groups(budgets), group_by=group_by, delta=delta, clamp=clamp)
    randomness = source or SystemRandom()
    return Simulation(tuple(_asked(planned, delta, randomness) for planned in plan), table.assumed)


def _asked(planned: PlannedRound, delta: float, source: RandomSource) -> SimulatedQuestion:
    question, people = planned.asked.question, planned.population.participants
    spent = [choose_budget(person.max_local_epsilon, planned.settings.budget_grid) for person in people.values()]
    values = zip(people.values(), spent, strict=True)
    reports = [randomize(question, person.value, epsilon, source) for person, epsilon in values]
    tiers = sorted(Counter(spent).items())
    local_delta = question.mechanism.budget_delta
    certificate = certify(
        Budgets.from_tiers([(epsilon, count, local_delta) for epsilon, count in tiers]),
        randomizer_of(question.mechanism),
        delta=delta,
    ).to_message()
    round_id = "simulated-" + "".join(letter if letter.isalnum() else "-" for letter in planned.name)
    certificate.round_id, certificate.granted = round_id, True
    publication = pb.Publication(round_id=round_id, num_reports=len(reports))
    estimate(question, reports, tiers).publish(publication)
    result = published_at_random(publication, certificate)
    result["asked"] = question_json(question)
    result["data_notes"] = planned.data_notes()
    return SimulatedQuestion(
        planned.name,
        planned.group.value if planned.group else "",
        planned.truth(),
        planned.population.rejected,
        len(planned.population.clamped),
        len(planned.population.outside),
        result,
    )
