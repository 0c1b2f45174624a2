"""The demonstration: a whole deployment on loopback answers questions about a file of participants.

By default three questions on the survey in deploy/examples; with another file, a question on each column that is named.
The questions are one survey. With groups each group has a survey of its own: then a person is in the rounds of one
group only, and what they cost together is the most that the rounds of any group do.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path

from croupier.accountant.guarantees import Guarantee
from croupier.accountant.numerics.decimals import sum_above
from croupier.deploy.local.demo_plan import PlannedRound
from croupier.deploy.local.fleet import count_up_to, fleet_of
from croupier.deploy.local.population import Rows
from croupier.deploy.local.users import Fleet
from croupier.deploy.local.whole_round import RoundOutcome, play_round
from croupier.operator.ledger import spent_in
from croupier.operator.opened_surveys import keep_survey, open_rounds
from croupier.operator.operator import Operator
from croupier.operator.round_settings import survey_of
from croupier.protocol.certificates import refusals_of
from croupier.protocol.codes import Note
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.interval import IntervalMechanism
from croupier.protocol.names import JsonObject, RoundId
from croupier.protocol.statements import joined
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.workers import WorkerPool
from croupier.show.published import publication_json

DemoProgress = Callable[[str, int, int], None]


async def run_demo(
    directory: Path, plan: Sequence[PlannedRound], progress: DemoProgress = lambda name, done, total: None
) -> JsonObject:
    """Asks the questions one after the other, and returns the JSON document of `croupier demo`.

    Args:
        directory: of a running deployment.
        plan: what to ask whom.
        progress: called with the name of a round, its participants that are done, and all of them.

    Raises:
        RuntimeError, Refusal: a round did not come to its end.
    """
    with closing(WorkerPool()) as pool:
        async with Operator(directory) as operator, fleet_of(operator, directory, pool) as fleet:
            opened = await open_planned(operator, directory, plan)
            answers = [
                (planned, await ask_planned(operator, directory, fleet, planned, terms, progress))
                for planned, terms in zip(plan, opened, strict=True)
            ]
    return demo_json(directory, answers)


async def open_planned(operator: Operator, directory: Path, plan: Sequence[PlannedRound]) -> list[RoundTerms]:
    """Opens a survey for each group, and returns the rounds of all in the order of the plan."""
    opened: list[RoundTerms] = []
    for _, rounds in groupby(plan, key=lambda planned: planned.group):
        asked = [planned.settings for planned in rounds]
        least = min(settings.min_batch_size for settings in asked)
        shared = [replace(settings, min_batch_size=least) for settings in asked]
        survey = survey_of(shared, f"demo-{secrets.token_hex(6)}", operator.deployment)
        keep_survey(directory, survey)
        opened += await open_rounds(operator, directory, survey)
    return opened


async def ask_planned(
    operator: Operator, directory: Path, fleet: Fleet, planned: PlannedRound, terms: RoundTerms, progress: DemoProgress
) -> RoundOutcome:
    """Plays an open round with the participants that were planned; raises RuntimeError where it is refused."""
    users = planned.population.participants
    counted = count_up_to(len(users), partial(progress, planned.name))
    outcome = await play_round(operator, directory, fleet, terms, users, counted)
    if not outcome.certificate.granted:
        raise RuntimeError(f"round refused: {joined(refusals_of(outcome.certificate))}")
    return outcome


def published_at_random(publication: pb.Publication, certificate: pb.Certificate) -> JsonObject:
    """Returns a published result without the note on budgets that depend on values: here they are drawn at random."""
    document = publication_json(publication, certificate)
    document["notes"] = [note for note in document["notes"] if note["code"] != Note.DEPENDENT_BUDGETS]
    return document


def demo_json(directory: Path, answers: Sequence[tuple[PlannedRound, RoundOutcome]]) -> JsonObject:
    """Returns the JSON document of `croupier demo`: results with the truth, their use of resources, and the total cost.

    "clamped" counts the values outside the range that count as its nearer end, "outside" those that were left out;
    "left_out" counts all rows that were.

    Args:
        directory: of the deployment, which has the ledger.
        answers: of all rounds.
    """
    users = sum(outcome.fleet.accepted for _, outcome in answers)
    wall_s = sum(outcome.wall_s for _, outcome in answers)
    return {
        "questions": [_question_json(planned, outcome) for planned, outcome in answers],
        "throughput_users_per_s": users / wall_s,
        "together": _together(directory, answers),
    }


def _question_json(planned: PlannedRound, outcome: RoundOutcome) -> JsonObject:
    truth, population = planned.truth(), planned.population
    return {
        "column": planned.asked.column,
        "name": planned.name,
        "quantity": "mean" if isinstance(planned.asked.question.mechanism, IntervalMechanism) else "share",
        "group": planned.group.value if planned.group else None,
        "truth": list(truth) if len(truth) > 1 else truth[0],
        "clamped": len(population.clamped),
        "outside": len(population.outside),
        "left_out": len(population.rejected),
        "data_notes": planned.data_notes(),
        **published_at_random(outcome.publication, outcome.certificate),
        "users_per_s": outcome.fleet.accepted / outcome.wall_s,
        "stages": {stage: {"wall_s": wall, "cpu_s": cpu} for stage, wall, cpu in outcome.stages()},
    }


def _together(directory: Path, answers: Sequence[tuple[PlannedRound, RoundOutcome]]) -> JsonObject:
    """Returns what all rounds that one person may be in cost together, and what all rounds do, as the ledger has it.

    Without groups a person may be in every round. With groups in those of one: of all groups the one counts that costs
    most. In every round each person is taken to be in the tier that costs most there.
    """
    of_group: dict[Rows | None, list[RoundId]] = {}
    for planned, outcome in answers:
        of_group.setdefault(planned.group, []).append(RoundId(outcome.publication.round_id))
    ledger = [round_id for round_ids in of_group.values() for round_id in round_ids]
    mine = len(ledger) // len(of_group)
    fixed = partial(spent_in, directory, fixed_terms=True)  # all questions are asked before the first result
    first, _ = answers[0]
    delta = first.settings.delta
    total, ledger_total = (sum_above([delta] * rounds) for rounds in (mine, len(ledger)))  # as the ledger adds them
    return {
        "group_by": first.group.column if first.group else None,
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
