"""How opening scales with the workers of a Dask cluster on this machine, and what a job costs beside the work in it.

Scheduler, workers and the process that hands the work over share the cores of the machine: the curve ends where they
are all busy. What does not end there are the costs outside the workers, a job and an item, from which
`research.bench.capacity` says how many workers one scheduler and one service can keep busy elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from croupier.deploy.local.throughput import SUITE, plain_sizes, processor_s
from croupier.protocol.envelope import Label, generate_key_pair, overhead, seal
from croupier.protocol.names import Digest, JsonObject, RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.cluster import Cluster
from croupier.runtime.lane_opener import ITEMS_AT_ONCE, ITEMS_ON_A_CLUSTER
from croupier.runtime.tasks import LaneWork, open_layer, records_of
from croupier.runtime.workers import WorkerPool
from research.bench.local_cluster import LocalCluster, local_cluster

EMPTY_JOBS = 1000
"""Jobs without work, whose mean time is the cost of handing one over: fewer leave the noise of the start in it."""
_DISTINCT = 5000


def measure_scaling(
    workers: Sequence[int], items: int, report: Callable[[JsonObject], None] = lambda row: None
) -> JsonObject:
    """Opens joint envelopes on clusters of these numbers of workers, and by as many processes of one pool.

    Args:
        workers: numbers of them, each at least 1.
        items: how many envelopes, at least 1000.
        report: called with each row as soon as it is measured.

    Raises:
        ValueError: a number is out of range.
        RuntimeError: a cluster did not start.
    """
    if min(workers) < 1:
        raise ValueError(f"workers is {min(workers)}; it must be at least 1")
    if items < 1000:
        raise ValueError(f"items is {items}; it must be at least 1000")
    work, envelopes = envelopes_of(items)
    rows: list[JsonObject] = []
    for number in workers:
        with (
            tempfile.TemporaryDirectory(prefix="croupier-") as scratch,
            local_cluster(Path(scratch) / "certificates", number) as cluster,
        ):
            opened = asyncio.run(open_on(cluster, work, envelopes))
        own_processes_per_s = asyncio.run(_by_processes(number, work, envelopes))
        rows.append({"workers": number, **opened, "own_processes_per_s": own_processes_per_s})
        report(rows[-1])
    return {"cores": os.cpu_count(), "suite": SUITE, "items": items, "item_bytes": work.arriving_size, "rows": rows}


def envelopes_of(items: int) -> tuple[LaneWork, list[bytes]]:
    """Returns envelopes of the size that hop 1 gets with one hop behind it, and how they are opened."""
    size = plain_sizes(2)[-1]
    pair = generate_key_pair(SUITE)
    label = Label(RoundId("bench"), Digest(bytes(32)), pb.LANE_JOINT, 1, pair.public[:8])
    work = LaneWork(size + overhead(SUITE), size, partial(open_layer, SUITE, pair.private, label, size))
    distinct = [seal(SUITE, pair.public, label, bytes(size)) for _ in range(min(items, _DISTINCT))]
    return work, [distinct[index % len(distinct)] for index in range(items)]  # to open one again costs the same


async def open_on(cluster: LocalCluster, work: LaneWork, envelopes: list[bytes]) -> JsonObject:
    """Returns the rate and the CPU seconds of opening `envelopes` on `cluster`, an envelope, and a job without work."""
    pool = WorkerPool(executor=Cluster.of(cluster.address, cluster.certificates).executor())
    await pool.map_chunks(partial(records_of, work), envelopes[:1000], 100)  # every worker has imported what it needs
    before, scheduler_before, started = time.process_time(), processor_s(cluster.scheduler_pid)[0], time.perf_counter()
    _, workers_s = await pool.map_chunks(partial(records_of, work), envelopes, ITEMS_ON_A_CLUSTER)
    wall_s = time.perf_counter() - started
    own_s = time.process_time() - before
    scheduler_s = processor_s(cluster.scheduler_pid)[0] - scheduler_before
    before, scheduler_before = time.process_time(), processor_s(cluster.scheduler_pid)[0]
    await asyncio.gather(*(pool.run(len, b"") for _ in range(EMPTY_JOBS)))
    empty_own_s = time.process_time() - before
    empty_scheduler_s = processor_s(cluster.scheduler_pid)[0] - scheduler_before
    pool.close()
    return {
        "items_per_s": len(envelopes) / wall_s,
        "workers_cpu_s_per_item": workers_s / len(envelopes),
        "own_cpu_s_per_item": own_s / len(envelopes),
        "scheduler_cpu_s_per_item": scheduler_s / len(envelopes),
        "own_cpu_s_per_job": empty_own_s / EMPTY_JOBS,
        "scheduler_cpu_s_per_job": empty_scheduler_s / EMPTY_JOBS,
    }


async def _by_processes(number: int, work: LaneWork, envelopes: list[bytes]) -> float:
    pool = WorkerPool(number)
    await pool.warm()
    started = time.perf_counter()
    await pool.map_chunks(partial(records_of, work), envelopes, ITEMS_AT_ONCE)
    wall_s = time.perf_counter() - started
    pool.close()
    return len(envelopes) / wall_s


def scaling_lines(document: JsonObject) -> list[str]:
    """Returns what `measure_scaling` has found as a Markdown table."""
    lines = [
        f"{document['items']:,} envelopes of {document['item_bytes']} bytes, {document['cores']} cores, "
        f"{document['suite']}.",
        "",
        "| workers | envelopes a second | with as many cores | by processes of a pool | CPU an envelope: workers "
        "| service | scheduler |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in document["rows"]:
        cpu_s = [row["workers_cpu_s_per_item"], row["own_cpu_s_per_item"], row["scheduler_cpu_s_per_item"]]
        cores = row["items_per_s"] * sum(cpu_s)
        rates = (f"{row['items_per_s']:,.0f}", f"{cores:.2f}", f"{row['own_processes_per_s']:,.0f}")
        lines.append(f"| {row['workers']} | {' | '.join([*rates, *(f'{1e6 * cost:.1f} µs' for cost in cpu_s)])} |")
    last = document["rows"][-1]
    return [
        *lines,
        "",
        f"A job without work costs {1e3 * last['own_cpu_s_per_job']:.1f} ms of CPU in the service's process and "
        f"{1e3 * last['scheduler_cpu_s_per_job']:.1f} ms in the scheduler.",
        "",
    ]
