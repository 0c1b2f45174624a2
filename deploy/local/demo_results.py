"""What a demonstration has learned, beside the truth, and what it cost its participants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from croupier.accountant.guarantees import Guarantee
from croupier.accountant.numerics.decimals import sum_above
from croupier.deploy.local.demo_plan import PlannedRound
from croupier.deploy.local.population import Participants, Rows
from croupier.deploy.local.whole_round import RoundOutcome
from croupier.operator.ledger import spent_in
from croupier.protocol.codes import Note
from croupier.protocol.mechanisms.interval import IntervalMechanism
from croupier.protocol.names import JsonObject, RoundId
from croupier.protocol.questions import Question
from croupier.show.published import publication_json


@dataclass(frozen=True)
class ComparedQuestion:
    """One answered question beside the truth, which only a demonstration can know."""

    planned: PlannedRound
    outcome: RoundOutcome

    def truth(self) -> tuple[float, ...]:
        """Returns the share, mean, or share of every category of these very participants."""
        return truth_of(self.planned.asked.question, self.planned.population)

    def notes(self) -> list[str]:
        """Returns `data_notes`."""
        return data_notes(self.planned.asked.question, self.planned.population)


def data_notes(question: Question, population: Participants) -> list[str]:
    """Returns which values the numbers are not about, or not as the file has them: outside the range, or unusable."""
    used, rejected, mechanism = len(population.participants), population.rejected, question.mechanism
    rows, notes = used + len(rejected), []
    if isinstance(mechanism, IntervalMechanism):
        scale = f"outside the range from {mechanism.low:g} to {mechanism.high:g}"
        if clamped := len(population.clamped):
            (answered,) = truth_of(question, population, as_answered=True)
            notes.append(
                f"{clamped:,} of {used:,} values ({100 * clamped / used:.1f} %) are {scale} and count as its nearer "
                f"end: what is estimated is the mean of the values so clamped, {answered:.4f}, and not the truth"
            )
        if outside := len(population.outside):
            notes.append(
                f"{outside:,} of {rows:,} values ({100 * outside / rows:.1f} %) are {scale} and were left out, also of "
                "the truth; clamp them if they are numbers, and not a code such as 99 for no answer"
            )
    others = [reason for line, reason in rejected.items() if line not in population.outside]
    if others:
        notes.append(f"{len(others):,} of {rows:,} rows were left out, also of the truth; {others[0]}")
    return notes


def truth_of(question: Question, population: Participants, *, as_answered: bool = False) -> tuple[float, ...]:
    """Returns the share, mean, or share of every category of a population, by the values in the file.

    as_answered: by the values that were answered: a value outside the question's interval is clamped to it.
    """
    stated = {} if as_answered else population.clamped
    values = [stated.get(name, participant.value) for name, participant in population.participants.items()]
    categories = range(len(question.mechanism.categories))
    shares = tuple(sum(value == category for value in values) / len(values) for category in categories)
    return shares or (sum(values) / len(values),)


def _quantity(question: Question) -> str:
    return "mean" if isinstance(question.mechanism, IntervalMechanism) else "share"


def _listed_if_many(numbers: tuple[float, ...]) -> list[float] | float:
    return list(numbers) if len(numbers) > 1 else numbers[0]


def published_at_random(outcome: RoundOutcome) -> JsonObject:
    """Returns a published result without the note on budgets that depend on values: here they are drawn at random."""
    document = publication_json(outcome.publication, outcome.certificate)
    document["notes"] = [note for note in document["notes"] if note["code"] != Note.DEPENDENT_BUDGETS]
    return document


def demo_json(directory: Path, answers: Sequence[ComparedQuestion], delta: float) -> JsonObject:
    """Returns the JSON document of `croupier demo`: results with the truth, their use of resources, and the total cost.

    "clamped" counts the values outside the range that count as its nearer end, "outside" those that were left out;
    "left_out" counts all rows that were.

    Args:
        directory: of the deployment, which has the ledger.
        answers: of all rounds.
        delta: the central delta that each round was certified at.
    """
    users = sum(answer.outcome.fleet.accepted for answer in answers)
    wall_s = sum(answer.outcome.wall_s for answer in answers)
    return {
        "questions": [
            {
                "column": answer.planned.asked.column,
                "name": answer.planned.name,
                "quantity": _quantity(answer.planned.asked.question),
                "group": answer.planned.group.value if answer.planned.group else None,
                "truth": _listed_if_many(answer.truth()),
                "clamped": len(answer.planned.population.clamped),
                "outside": len(answer.planned.population.outside),
                "left_out": len(answer.planned.population.rejected),
                "data_notes": answer.notes(),
                **published_at_random(answer.outcome),
                "users_per_s": answer.outcome.fleet.accepted / answer.outcome.wall_s,
                "stages": {stage: {"wall_s": wall, "cpu_s": cpu} for stage, wall, cpu in answer.outcome.stages()},
            }
            for answer in answers
        ],
        "throughput_users_per_s": users / wall_s,
        "together": _together(directory, answers, delta),
    }


def _together(directory: Path, answers: Sequence[ComparedQuestion], delta: float) -> JsonObject:
    """Returns what all rounds that one person may be in cost together, and what all rounds do, as the ledger has it.

    Without groups a person may be in every round. With groups in those of one: of all groups the one counts that costs
    most. In every round each person is taken to be in the tier that costs most there.
    """
    of_group: dict[Rows | None, list[RoundId]] = {}
    for answer in answers:
        of_group.setdefault(answer.planned.group, []).append(RoundId(answer.outcome.publication.round_id))
    ledger = [round_id for round_ids in of_group.values() for round_id in round_ids]
    mine = len(ledger) // len(of_group)
    fixed = partial(spent_in, directory, fixed_terms=True)  # all questions are asked before the first result
    total, ledger_total = (sum_above([delta] * rounds) for rounds in (mine, len(ledger)))  # as the ledger adds them
    return {
        "group_by": answers[0].planned.group.column if answers[0].planned.group else None,
        "rounds": mine,
        "person": _cost([fixed(round_ids, total) for round_ids in of_group.values()], total),
        "ledger_rounds": len(ledger),
        "ledger": _cost([fixed(ledger, ledger_total)], ledger_total),
    }


def _cost(guarantees: Sequence[Guarantee | None], delta: float) -> JsonObject:
    """Returns the largest of several guarantees; its epsilon is None where one of them proves nothing."""
    proved = [guarantee for guarantee in guarantees if guarantee is not None]
    if len(proved) < len(guarantees):
        return {"epsilon": None, "delta": delta, "grade": None, "method": [], "assumptions": [], "notes": []}
    return {**max(proved, key=lambda guarantee: guarantee.epsilon).to_json(), "delta": delta}
