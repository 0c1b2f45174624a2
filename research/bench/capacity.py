"""What a round of very many people needs: measured costs of one user, times their number, beside what one machine has.

Everything is taken as proportional to the number of users, which is what the protocol does but for sorting; the costs
are those of the largest round that was measured, and memory is the growth between the two largest. A service is one
process, whose own work has one core; what its workers do can be on as many machines as there are (docs/cluster.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_ITEMS = {"shuffler-1": 1}
"""How many items of a user a service opens or checks: the joint envelope. All others: one of each lane."""
_COLUMNS = (
    *("service", "machines", "hours of its own process", "workers' cores", "at most", "memory", "disk", "network"),
    "first full",
)


@dataclass(frozen=True)
class Machine:
    """One machine of a deployment, all of them alike."""

    cores: int = 32
    memory_bytes: float = 128e9
    disk_bytes: float = 4e12
    network_bytes_per_s: float = 1.25e9

    def __str__(self) -> str:
        return (
            f"{self.cores} cores, {self.memory_bytes / 1e9:.0f} GB of memory, {self.disk_bytes / 1e12:.0f} TB of disk, "
            f"{8 * self.network_bytes_per_s / 1e9:.0f} Gbit/s"
        )


@dataclass(frozen=True)
class PerUser:
    """What one user more costs a service.

    Attributes:
        own_s: CPU seconds of its own process.
        workers_s: CPU seconds of its workers.
        wire_bytes: sent to it and by it.
        disk_bytes: of its database, which gives nothing back.
        memory_bytes: of its own process.
        items: how many items are opened or checked.
    """

    own_s: float
    workers_s: float
    wire_bytes: float
    disk_bytes: float
    memory_bytes: float
    items: int


@dataclass(frozen=True)
class Feed:
    """What an item costs outside the workers where they are a cluster: CPU seconds of the service and the scheduler."""

    own_s: float
    scheduler_s: float


@dataclass(frozen=True)
class Need:
    """What a service needs for one round of a number of users within a number of hours.

    Attributes:
        own_hours: its own process is busy for so long, with one core.
        worker_cores: are busy all the time.
        most_worker_cores: that its own process and one scheduler can keep busy, if the work is to be done in less time.
        machines: its own, and those of its workers.
        disk_bytes, memory_bytes, wire_bytes: in total.
        shares: the part of each resource that is used in these hours; above 1 the round is not possible in them.
    """

    own_hours: float
    worker_cores: float
    most_worker_cores: float
    machines: int
    disk_bytes: float
    memory_bytes: float
    wire_bytes: float
    shares: Mapping[str, float]

    @property
    def first(self) -> str:
        """What is used up first as rounds grow: the largest share."""
        return max(self.shares, key=lambda name: self.shares[name])


def needs(cost: PerUser, feed: Feed, users: int, hours: float, machine: Machine) -> Need:
    """Returns what a round of `users` users needs of one service, if its work is spread over `hours` hours.

    Raises:
        ValueError: users below 1, or hours that are not > 0.
    """
    if users < 1 or not hours > 0:
        raise ValueError(f"users is {users} and hours is {hours}; they must be at least 1 and > 0")
    seconds = 3600 * hours
    own_s = users * (cost.own_s + cost.items * feed.own_s)
    worker_cores = users * cost.workers_s / seconds
    shares = {
        "its own process": own_s / seconds,
        "the scheduler": users * cost.items * feed.scheduler_s / seconds,
        "network": users * cost.wire_bytes / (seconds * machine.network_bytes_per_s),
        "memory": users * cost.memory_bytes / machine.memory_bytes,
        "disk": users * cost.disk_bytes / machine.disk_bytes,
    }
    return Need(
        own_hours=own_s / 3600,
        worker_cores=worker_cores,
        most_worker_cores=users * cost.workers_s / max(own_s, users * cost.items * feed.scheduler_s),
        machines=1 + math.ceil(worker_cores / machine.cores),
        disk_bytes=users * cost.disk_bytes,
        memory_bytes=users * cost.memory_bytes,
        wire_bytes=users * cost.wire_bytes,
        shares=shares,
    )


def costs_per_user(rows: Sequence[Mapping[str, Any]]) -> dict[str, PerUser]:
    """Returns what a user costs each service, from rows of `measure_throughput` in the order of their size.

    Raises:
        ValueError: fewer than two sizes.
    """
    if len({row["users"] for row in rows}) < 2:
        raise ValueError(f"there are {len(rows)} rows; memory needs at least two sizes")
    before, last = rows[-2:]
    users, sent = last["users"], last["sent_bytes"]
    shufflers = [name for name in last["disk_bytes"] if name.startswith("shuffler-")]
    received = {shufflers[0]: sent["fleet"]} | {
        name: sent[previous] for previous, name in itertools.pairwise(shufflers)
    }
    costs = {}
    for name, disk in last["disk_bytes"].items():
        arrived = received.get(name, sent[shufflers[-1]])  # of the last hop's two lanes each gets one: at most both
        grown = last["peak_memory_bytes"][name] - before["peak_memory_bytes"][name]
        costs[name] = PerUser(
            own_s=last["own_cpu_s"][name] / users,
            workers_s=(last["cpu_s"][name] - last["own_cpu_s"][name]) / users,
            wire_bytes=(sent[name] + arrived) / users,
            disk_bytes=disk / users,
            memory_bytes=max(0.0, grown / (users - before["users"])),
            items=_ITEMS.get(name, 2),
        )
    return costs


def feed_of(scaling: Mapping[str, Any]) -> Feed:
    """Returns the median costs outside the workers, from `measure_scaling`."""
    rows = scaling["rows"]
    middle = len(rows) // 2
    own, scheduler = (
        sorted(row[key] for row in rows)[middle] for key in ("own_cpu_s_per_item", "scheduler_cpu_s_per_item")
    )
    return Feed(own, scheduler)


def capacity_lines(
    costs: Mapping[str, PerUser], feed: Feed, sizes: Sequence[int], hours: float, machine: Machine
) -> list[str]:
    """Returns a Markdown table for each number of users, a row for each service."""
    lines = [f"Each machine: {machine}. Each service spreads its work over {hours:g} hours.", ""]
    for users in sizes:
        needed = {name: needs(cost, feed, users, hours, machine) for name, cost in costs.items()}
        lines += [
            f"**{users:,} reports**: {sum(need.machines for need in needed.values())} machines.",
            "",
            f"| {' | '.join(_COLUMNS)} |",
            "|---" * len(_COLUMNS) + "|",
        ]
        for name, need in needed.items():
            share = need.shares[need.first]
            cells = (
                name,
                str(need.machines),
                f"{need.own_hours:,.1f}",
                f"{need.worker_cores:,.1f}",
                f"{need.most_worker_cores:,.1f}",
                f"{need.memory_bytes / 1e9:,.1f} GB",
                f"{need.disk_bytes / 1e12:,.2f} TB",
                f"{need.wire_bytes / 1e12:,.2f} TB",
                f"{need.first}, {share:.0%}",
            )
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return lines
