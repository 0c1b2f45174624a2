"""The fleet of a running deployment, and the people of a file who answer as one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

from croupier.deploy.local.clients import FLEET
from croupier.deploy.local.population import PopulationFile, read_population
from croupier.deploy.local.users import Enrol, Fleet, FleetReport, Progress
from croupier.operator.operator import Operator
from croupier.protocol.documents import fields_of
from croupier.protocol.names import JsonObject, RoundId
from croupier.runtime.workers import WorkerPool


@asynccontextmanager
async def fleet_of(
    operator: Operator, directory: Path, pool: WorkerPool, enrol: Enrol | None = None
) -> AsyncIterator[Fleet]:
    """Yields a fleet of a running deployment, whose processes have started; it keeps what is sealed in the directory.

    enrol: see `Fleet`; the operator's if not given.
    """
    async with operator.client(directory / FLEET) as client:
        await pool.warm()
        yield Fleet(client.shuffler, client.accountant, client.outbox, pool, enrol or operator.enrol)


@dataclass(frozen=True)
class FleetOutcome:
    """The outcome of every row of a file of participants.

    Attributes:
        round_id: of the round that they submitted to.
        report: the fleet's.
        rejected: the lines of the file that could not be used, each with the reason.
        clamped: how many values were outside the question's interval and count as its nearer end.
        outside: how many were outside and were left out; their rows are in `rejected`.
        known_by_id: participants are known by a column, and not by the file and its line.
    """

    round_id: RoundId
    report: FleetReport
    rejected: dict[str, str]
    clamped: int = 0
    outside: int = 0
    known_by_id: bool = False

    @property
    def all_counted(self) -> bool:
        """Whether the round counts every row of the file, now or since the same file was submitted before.

        A person that has answered before is counted with the earlier answer, and not with the row of this file.
        """
        before = self.report.answered_before if self.known_by_id else 0
        return not self.rejected and not before and self.report.accepted == self.report.codes.total()

    def document(self) -> JsonObject:
        """Returns the JSON document of `croupier submit --csv`."""
        return {
            "round_id": self.round_id,
            **fields_of(self.report),
            "accepted": self.report.accepted,
            "rejected": len(self.rejected),
            "clamped": self.clamped,
            "outside": self.outside,
        }

    def summary(self) -> str:
        """Returns the same in one line."""
        codes = self.report.codes
        rows = codes.total() + self.report.answered_before + len(self.rejected)
        parts = [self.report.outcomes()] if codes else []
        if self.report.answered_before:
            counts = "their first answers count, not these rows" if self.known_by_id else "they are counted once"
            parts.append(f"{self.report.answered_before:,} answered before ({counts})")
        if self.rejected:
            why = f" ({self.outside:,} values outside the interval)" if self.outside else ""
            parts.append(f"{len(self.rejected):,} left out{why}")
        clamped = f"; {self.clamped:,} values clamped to the interval" if self.clamped else ""
        return f"round {self.round_id}: of {rows:,} rows {', '.join(parts)}{clamped}"


async def submit_file(
    directory: Path,
    round_id: RoundId,
    file: PopulationFile,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> FleetOutcome:
    """Plays the participants of a CSV file, enrolling their ephemeral keys with the operator's certificate.

    Args:
        directory: of the deployment.
        round_id: the round; "" for the newest open one.
        file: the participants.
        progress: called with (participants done, participants in all).

    Raises:
        ValueError: the file cannot be used.
        Refusal: hop 1 refuses, or the round cannot be trusted.
        UnreachableError: hop 1 is out of reach.
        grpc.aio.AioRpcError: hop 1 or the accountant stayed out of reach; the same call goes on where this one ended.
    """
    with closing(WorkerPool()) as pool:
        async with Operator(directory) as operator, operator.client(directory / FLEET) as client:
            terms = (await client.round(round_id)).terms
            population = read_population(file, terms.question, terms.budget_grid)
            file.csv.clear()
            users = population.participants
            await pool.warm()
            fleet = Fleet(client.shuffler, client.accountant, client.outbox, pool, operator.enrol)
            report = await fleet.answer(terms, users, count_up_to(len(users), progress))
    return FleetOutcome(
        terms.round_id,
        report,
        population.rejected,
        len(population.clamped),
        len(population.outside),
        file.id_column is not None,
    )


def count_up_to(total: int, progress: Callable[[int, int], None]) -> Progress:
    """Returns what counts more and more users, and calls `progress` with (users done, users in all)."""
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        progress(done, total)

    return count
