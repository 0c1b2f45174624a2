"""The fleet as a process of its own: `play_people` inside it, `spawn_fleet` for whoever starts it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from client.fleet import FleetReport, run_fleet
from client.outbox import Outbox
from client.rounds import fetch_terms
from client.submission import Participant
from deploy.operator.rounds import Operator
from protocol.manifest import RoundTerms
from runtime.transport import public_channel
from runtime.workers import WorkerPool

__all__ = ["fleet_json", "play_people", "spawn_fleet"]


async def play_people(
    directory: Path,
    round_id: str,
    read: Callable[[RoundTerms], Mapping[str, Participant]],
    progress: Callable[[int, int], None],
    workers: int | None = None,
) -> tuple[RoundTerms, FleetReport]:
    """Plays users against hop 1, enrolling their ephemeral keys with the operator's certificate.

    Args:
        read: returns the users once the question is known.
        progress: called with (users done, users in all).
    """
    async with Operator(directory) as operator:
        channel = public_channel(operator.deployment.shufflers[0])
        outbox = Outbox(directory / "fleet" / "outbox.db")
        pool = WorkerPool(workers)
        try:
            terms = await fetch_terms(channel, operator.deployment, round_id)
            users = read(terms)
            await pool.warm()
            done = 0

            def report_progress(more: int) -> None:
                nonlocal done
                done += more
                progress(done, len(users))

            report = await run_fleet(
                channel, terms, users, outbox=outbox, pool=pool, enrol=operator.enrol, progress=report_progress
            )
        finally:
            pool.close()
            outbox.close()
            await channel.close()
    return terms, report


def fleet_json(report: FleetReport) -> dict[str, Any]:
    """Returns what a fleet prints when it is done."""
    return {**dataclasses.asdict(report), "codes": dict(report.codes), "accepted": report.accepted}


async def spawn_fleet(
    directory: Path, terms: RoundTerms, file: Path, column: str, extra: list[str], *, quiet: bool
) -> dict[str, Any]:
    """Runs `croupier submit --csv` as a process, its progress on our standard error, and returns what it printed.

    Raises:
        RuntimeError: the fleet failed; it has said why.
    """
    command = [sys.executable, "-m", "deploy.cli", "submit", "--dir", str(directory), "--round", terms.round_id]
    command += ["--csv", str(file), "--value-column", column, "--json", *extra]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL if quiet else None,
        stdin=asyncio.subprocess.DEVNULL,
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"the fleet for round {terms.round_id!r} ended with exit code {process.returncode}")
    report: dict[str, Any] = json.loads(output)
    return report
