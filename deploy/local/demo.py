"""The demonstration: a whole deployment on loopback answers questions about a file of participants.

By default three questions on the survey in deploy/examples; with another file, a question on each column that is named.
Every question is a round. With groups it is a round for each group: then a person is in the rounds of one group only,
and what they cost together is the most that the rounds of any group do.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from croupier.deploy.local.demo_plan import DemoPlan, PlannedRound
from croupier.deploy.local.demo_results import ComparedQuestion, demo_json
from croupier.deploy.local.fleet import count_up_to
from croupier.deploy.local.whole_round import Play, players
from croupier.operator.operator import Operator
from croupier.protocol.certificates import refusals_of
from croupier.protocol.names import JsonObject
from croupier.protocol.statements import joined
from croupier.runtime.workers import WorkerPool

DemoProgress = Callable[[str, int, int], None]


async def run_demo(
    directory: Path, plan: DemoPlan, progress: DemoProgress = lambda name, done, total: None
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
        async with Operator(directory) as operator, players(operator, directory, pool) as play:
            answers = [await ask_planned(play, planned, progress) for planned in plan.rounds]
    return demo_json(directory, answers, plan.delta)


async def ask_planned(play: Play, planned: PlannedRound, progress: DemoProgress) -> ComparedQuestion:
    """Plays a round with the participants that were planned; raises RuntimeError where it is refused."""
    users = planned.population.participants
    outcome = await play(planned.settings, users, count_up_to(len(users), partial(progress, planned.name)))
    if not outcome.certificate.granted:
        raise RuntimeError(f"round refused: {joined(refusals_of(outcome.certificate))}")
    return ComparedQuestion(planned, outcome)
