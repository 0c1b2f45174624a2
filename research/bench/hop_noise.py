"""Rounds with and without hop noise in turn: what the fake reports of the hops cost in messages, CPU time and seconds.

All services are processes of their own on this machine. Both rounds of a pair have the same people, who answer with the
same local budget; only the fakes differ.
"""

from __future__ import annotations

import asyncio
import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc.aio

from croupier.client.submission import Participant
from croupier.deploy.local.fleet import fleet_of
from croupier.deploy.local.processes import temporary_deployment
from croupier.deploy.local.throughput import processor_s
from croupier.deploy.local.users import Fleet
from croupier.deploy.local.whole_round import play_round
from croupier.operator.operator import Operator
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.mechanisms.base import Mechanism
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.names import JsonObject
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.workers import WorkerPool

_BUDGET = 2.0
"""The local ε of everybody, which every certificate is at most: no round is refused."""


def measure_hop_noise(
    sizes: Sequence[tuple[int, int]],
    epsilon: float,
    hops: int,
    times: int,
    report: Callable[[JsonObject], None] = lambda row: None,
) -> list[JsonObject]:
    """Returns what rounds with and without hop noise have taken, a row for each size.

    "fakes" is the number of fake reports of all hops in a round; "close_s" is the time from the close to the result.

    Args:
        sizes: pairs of the number of different reports, at least 2, and the number of people, at least 2.
        epsilon: of the hop noise.
        hops: the number of shufflers.
        times: how many rounds of each kind; a row has the medians.
        report: called with each row as soon as it is measured.

    Raises:
        ValueError: `times` or a size is out of range, or the hop noise takes too many fakes.
        RuntimeError: a round did not come to its end.
    """
    if times < 1:
        raise ValueError(f"times is {times}; it must be at least 1")
    with temporary_deployment(hops) as local:
        return asyncio.run(_measure(local.directory, sizes, epsilon, times, report))


async def _measure(
    directory: Path,
    sizes: Sequence[tuple[int, int]],
    epsilon: float,
    times: int,
    report: Callable[[JsonObject], None],
) -> list[JsonObject]:
    pool, rows = WorkerPool(), []
    async with Operator(directory) as operator, fleet_of(operator, directory, pool) as fleet:
        for values, people in sizes:
            rows.append(await _row(operator, directory, fleet, values, people, epsilon, times))
            report(rows[-1])
    pool.close()
    return rows


async def _row(
    operator: Operator, directory: Path, fleet: Fleet, values: int, people: int, epsilon: float, times: int
) -> JsonObject:
    mechanism: Mechanism = RandomizedResponse() if values == 2 else KaryResponse(values)
    plain: list[JsonObject] = []
    noisy: list[JsonObject] = []
    fakes = 0
    for _ in range(times):
        for hop_noise, costs in ((None, plain), (epsilon, noisy)):
            settings = RoundSettings(
                Question("bench", mechanism), (_BUDGET,), epsilon_max=_BUDGET, min_batch_size=2, hop_noise=hop_noise
            )
            users = {str(number): Participant(number % values, _BUDGET) for number in range(people)}
            before = await _cpu_s(operator)
            outcome = await play_round(operator, directory, fleet, settings, users)
            if outcome.publication.num_reports != people:
                raise RuntimeError(f"{outcome.publication.num_reports:,} of {people:,} reports were counted")
            cpu_s = await _cpu_s(operator) - before
            costs.append({"wall_s": outcome.wall_s, "close_s": outcome.close_s, "cpu_s": cpu_s})
            stated = [
                pb.Commitment.FromString(commitment.payload).num_fakes for commitment in outcome.certificate.commitments
            ]
            fakes = sum(stated)
    return {
        "values": values,
        "people": people,
        "fakes": fakes,
        "epsilon": epsilon,
        "plain": _medians(plain),
        "noisy": _medians(noisy),
    }


def _medians(rows: Sequence[JsonObject]) -> JsonObject:
    return {
        "wall_s": statistics.median(row["wall_s"] for row in rows),
        "close_s": statistics.median(row["close_s"] for row in rows),
        "cpu_s": statistics.median(row["cpu_s"] for row in rows),
    }


async def _cpu_s(operator: Operator) -> float:
    """Returns the CPU seconds of all services, of this process and of all workers so far."""
    pids = [status.pid for status in await operator.status() if not isinstance(status, grpc.aio.AioRpcError)]
    return sum(sum(processor_s(pid)) for pid in pids) + sum(processor_s(os.getpid(), without=pids))


def hop_noise_lines(rows: Sequence[JsonObject]) -> list[str]:
    """Returns a table in Markdown."""
    lines = [
        "| different reports | people | ε of hop noise | fake reports | seconds without, with | ratio "
        "| from close to result | CPU seconds without, with | ratio |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        plain, noisy = row["plain"], row["noisy"]
        cells = (
            f"{row['values']:,}",
            f"{row['people']:,}",
            f"{row['epsilon']:g}",
            f"{row['fakes']:,}",
            f"{plain['wall_s']:.2f}, {noisy['wall_s']:.2f}",
            f"{noisy['wall_s'] / plain['wall_s']:.2f}",
            f"{plain['close_s']:.2f}, {noisy['close_s']:.2f}",
            f"{plain['cpu_s']:.1f}, {noisy['cpu_s']:.1f}",
            f"{noisy['cpu_s'] / plain['cpu_s']:.2f}" if plain["cpu_s"] else "",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines
