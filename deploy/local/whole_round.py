"""One whole round as the operator runs it: open, let a fleet answer, close, wait for the result, read the costs.

The demonstration, the benchmark and the experiments share it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

from croupier.client.submission import Participant
from croupier.deploy.local.users import Fleet, FleetReport, Progress
from croupier.operator.opened_surveys import keep_survey, signed_result_of
from croupier.operator.operator import Operator
from croupier.operator.round_settings import RoundSettings, fresh_name, survey_of
from croupier.protocol.documents import document_of
from croupier.protocol.manifest import RoundTerms, state_name
from croupier.protocol.names import JsonObject
from croupier.protocol.publications import read_publication
from croupier.protocol.schedules import Schedule
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.study.journal import StudyJournal
from croupier.study.runs import StudyRun
from croupier.study.versions import journal_file


@dataclass(frozen=True)
class RoundOutcome:
    """A finished round.

    Attributes:
        publication: the result, verified.
        certificate: of the result, verified.
        fleet: what the fleet reported.
        services: the state of every service that answered (`rpc.StatusResponse`).
        wall_s: from the fleet's start to the verified publication.
        close_s: of these, from the close to the verified publication.
    """

    publication: pb.Publication
    certificate: pb.Certificate
    fleet: FleetReport
    services: list[JsonObject]
    wall_s: float
    close_s: float

    def stages(self) -> list[tuple[str, float, float]]:
        """Returns (stage, wall seconds, CPU seconds) of a round; seal, tickets and admit overlap, and opening with all.

        The wall seconds of tickets are those of all calls together, of which several are under way at once.
        """
        rows = [("seal", self.fleet.seal_wall_s, self.fleet.seal_cpu_s)]
        for service in self.services:
            costs = {cost["stage"]: cost for cost in service["rounds"][0]["costs"]}
            opening_s = costs["open"]["cpu_s"] if "open" in costs else 0.0  # while messages arrive
            if "tickets" in costs:
                rows.append(("tickets", self.fleet.ticket_wall_s, costs["tickets"]["cpu_s"]))
            if "admit" in costs:
                rows.append(("admit", self.fleet.submit_wall_s, costs["admit"]["cpu_s"]))
            if "mix" in costs:
                both = [costs["mix"], costs.get("deliver", {"wall_s": 0.0, "cpu_s": 0.0})]
                name = service["service"].replace("shuffler-", "mix, hop ")
                rows.append((name, sum(c["wall_s"] for c in both), opening_s + sum(c["cpu_s"] for c in both)))
            sinks = [stage for stage in ("certify", "analyze") if stage in costs]
            rows += [(stage, costs[stage]["wall_s"], opening_s + costs[stage]["cpu_s"]) for stage in sinks]
        return rows

    def wire_bytes(self) -> int:
        """Returns the bytes that were sent for this round, from the clients on."""
        sent: int = sum(service["rounds"][0]["bytes_sent"] for service in self.services)
        return sent + self.fleet.bytes_sent


async def play_round(
    operator: Operator,
    directory: Path,
    fleet: Fleet,
    asked: RoundSettings | RoundTerms,
    users: Mapping[str, Participant],
    progress: Progress = lambda _: None,
) -> RoundOutcome:
    """Plays one round.

    Args:
        operator: of a running deployment.
        directory: of the same deployment.
        fleet: answers for the users.
        asked: the terms of an open round, or the settings of one that is opened here, as the only wave of a survey.
        users: the values and budgets of everybody, by name.
        progress: called with the number of users whose fate is known since the last call.

    Raises:
        RuntimeError: a service did not accept every answer, or the answers are too few.
        Refusal: a service refused, or the round stopped in a service.
    """
    reports: list[tuple[FleetReport, float, float]] = []

    async def answer(rounds: Sequence[RoundTerms]) -> None:
        (terms,), started = rounds, time.perf_counter()
        report = await fleet.answer(terms, users, progress)
        if report.accepted < report.codes.total():
            raise RuntimeError(
                f"a service did not accept every answer: of {report.codes.total():,} {report.outcomes()}"
            )
        reports.append((report, started, time.perf_counter()))

    patience_s = max(600.0, len(users) / 50)
    if isinstance(asked, RoundTerms):
        round_id = asked.round_id
        await answer([asked])
        closed = await operator.close_round(round_id)
        if closed.state != pb.ROUND_STATE_CLOSED:
            raise RuntimeError(
                f"the round is {state_name(closed.state)} with {closed.num_clients:,} clients; it must have at least "
                f"{asked.shared.min_batch_size:,}"
            )
        publication, certificate = await operator.result(round_id, patience_s)
    else:
        schedule = Schedule.from_now("once", 1, asked.epsilon_max, asked.delta)
        survey = survey_of([asked], fresh_name(asked.question.name), operator.deployment, schedule=schedule)
        keep_survey(directory, survey)
        with StudyJournal.running(journal_file(directory, survey.survey_id)) as journal:
            run = StudyRun(directory, survey.survey_id, journal, operator=operator)
            await run.play(1, answer, patience_s=patience_s)
        round_id, document = survey.round_id(0, 1), signed_result_of(directory, survey, 0, 1)
        if document is None:
            raise RuntimeError(f"round {round_id!r} has no result: it was withdrawn")
        publication, certificate = read_publication(document, operator.deployment, round_id)
    published = time.perf_counter()
    ((report, started, answered),) = reports
    services = [
        document_of(status)
        for status in await operator.status(round_id)
        if not isinstance(status, grpc.aio.AioRpcError)
    ]
    return RoundOutcome(publication, certificate, report, services, published - started, published - answered)
