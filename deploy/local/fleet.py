"""A population that submits to a running deployment: `submit_file` in this process, `spawn_fleet` in one of its own."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from croupier.client.outbox import Outbox
from croupier.client.rounds import fetch_terms
from croupier.deploy.local.budget_groups import BudgetGroup
from croupier.deploy.local.population import Rows, read_population
from croupier.deploy.local.users import FleetReport, run_fleet
from croupier.deploy.operator.rounds import Operator
from croupier.protocol.manifest import RoundTerms
from croupier.runtime.workers import WorkerPool

__all__ = ["FleetOutcome", "fleet_json", "spawn_fleet", "submit_file"]


@dataclass(frozen=True)
class FleetOutcome:
    """What became of every row of a file of participants.

    Attributes:
        round_id: of the round that they submitted to.
        report: the fleet's.
        rejected: the lines of the file that could not be used, each with the reason.
        clamped: how many values were outside the question's interval and count as its nearer end.
        known_by_id: participants are known by a column, and not by the file and its line.
    """

    round_id: str
    report: FleetReport
    rejected: dict[str, str]
    clamped: int = 0
    known_by_id: bool = False

    @property
    def all_counted(self) -> bool:
        """Whether the round counts every row of the file, now or since the same file was submitted before.

        A person that has answered before is counted with the earlier answer, and not with the row of this file.
        """
        before = self.report.answered_before if self.known_by_id else 0
        return not self.rejected and not before and self.report.accepted == self.report.codes.total()

    def document(self) -> dict[str, Any]:
        """Returns the JSON document of `croupier submit --csv`."""
        left = {"rejected": len(self.rejected), "clamped": self.clamped}
        return {"round_id": self.round_id, **fleet_json(self.report), **left}

    def summary(self) -> str:
        """Returns the same in one line."""
        codes = self.report.codes
        rows = codes.total() + self.report.answered_before + len(self.rejected)
        parts = [f"{count:,} {code.removeprefix('SUBMISSION_CODE_')}" for code, count in codes.items()]
        if self.report.answered_before:
            counts = "their first answers count, not these rows" if self.known_by_id else "they are counted once"
            parts.append(f"{self.report.answered_before:,} answered before ({counts})")
        if self.rejected:
            parts.append(f"{len(self.rejected):,} left out")
        clamped = f"; {self.clamped:,} values clamped to the interval" if self.clamped else ""
        return f"round {self.round_id}: of {rows:,} rows {', '.join(parts)}{clamped}"


async def submit_file(
    directory: Path,
    round_id: str,
    file: Path,
    column: str,
    groups: Sequence[BudgetGroup],
    *,
    epsilon_column: str | None = None,
    id_column: str | None = None,
    clamp: bool = False,
    limit: int | None = None,
    where: Rows | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> FleetOutcome:
    """Plays the participants of a CSV file, enrolling their ephemeral keys with the operator's certificate.

    Args:
        directory: of the deployment.
        round_id: the round; "" for the newest open one.
        file: the CSV file.
        column: where the values stand.
        groups: what the participants' budgets are drawn from, if no column states them.
        epsilon_column: where the participants' budgets stand.
        id_column: which column names the participants.
        clamp: a number outside the question's interval counts as the nearer end, instead of being left out.
        limit: how many rows to use, from the first; None for all.
        where: which of these; None for all.
        progress: called with (participants done, participants in all).

    Raises:
        ValueError: the file cannot be used.
        Refusal: hop 1 refuses, or the round cannot be trusted.
    """
    async with Operator(directory) as operator:
        channel = operator.client_channel()
        accountant = operator.client_channel(operator.deployment.accountant.name)
        outbox = Outbox(directory / "fleet" / "outbox.db")
        pool = WorkerPool()
        try:
            terms = await fetch_terms(channel, operator.deployment, round_id)
            population = read_population(
                file,
                column,
                terms.question,
                groups,
                epsilon_column=epsilon_column,
                id_column=id_column,
                grid=terms.budget_grid,
                clamp=clamp,
                limit=limit,
                where=where,
            )
            users = population.participants
            await pool.warm()
            done = 0

            def report_progress(more: int) -> None:
                nonlocal done
                done += more
                progress(done, len(users))

            report = await run_fleet(
                channel,
                accountant,
                terms,
                users,
                outbox=outbox,
                pool=pool,
                enrol=operator.enrol,
                progress=report_progress,
            )
        finally:
            pool.close()
            outbox.close()
            await channel.close()
            await accountant.close()
    return FleetOutcome(terms.round_id, report, population.rejected, len(population.clamped), id_column is not None)


def fleet_json(report: FleetReport) -> dict[str, Any]:
    """Returns what a fleet did, as JSON."""
    return {**dataclasses.asdict(report), "codes": dict(report.codes), "accepted": report.accepted}


async def spawn_fleet(
    directory: Path, terms: RoundTerms, file: Path, column: str, extra: list[str], *, quiet: bool
) -> dict[str, Any]:
    """Runs `croupier submit --csv` as a process, its progress on our standard error, and returns what it printed.

    Raises:
        RuntimeError: the fleet failed; it has said why.
    """
    command = [
        sys.executable,
        "-m",
        "croupier.deploy.cli",
        "submit",
        "--dir",
        str(directory),
        "--round",
        terms.round_id,
    ]
    command += ["--csv", str(file), "--value-column", column, "--json", *extra]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL if quiet else None,
        stdin=asyncio.subprocess.DEVNULL,
    )
    output, _ = await process.communicate()
    report: dict[str, Any] = json.loads(output) if output else {}
    if not report or report["accepted"] != sum(report["codes"].values()):  # rows that were left out are named by it
        raise RuntimeError(f"the fleet for round {terms.round_id!r} ended with exit code {process.returncode}")
    return report
