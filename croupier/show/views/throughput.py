"""The work of fleets of simulated clients, and benchmarks of rounds."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from croupier.protocol.names import RoundId
from croupier.show.views.overview import CostView


class FleetView(TypedDict):
    """The work of a fleet of simulated clients; the fields of `deploy.local.users.FleetReport`."""

    codes: dict[str, int]
    answered_before: int
    wall_s: float
    seal_wall_s: float
    seal_cpu_s: float
    ticket_wall_s: float
    submit_wall_s: float
    bytes_sent: int
    accepted: int


class FleetOutcomeView(FleetView):
    """The work of a fleet for the rows of a CSV file."""

    round_id: RoundId
    rejected: int
    clamped: int
    outside: int


class ThroughputRowView(TypedDict):
    """The costs of a benchmark's round. Those by name are by process, the stages by stage."""

    users: int
    wall_s: float
    close_s: float
    users_per_s: float
    floor_s: float
    ratio_to_floor: float
    floor_cpu_s_per_user: dict[str, float]
    stages: dict[str, CostView]
    cpu_s: dict[str, float]
    own_cpu_s: dict[str, float]
    disk_bytes_per_user: float
    disk_bytes: dict[str, int]
    wire_bytes_per_user: float
    sent_bytes: dict[str, int]
    peak_memory_bytes: dict[str, int]
    epsilon: float
    grade: str
    all_ratios_to_floor: NotRequired[list[float]]
    all_users_per_s: NotRequired[list[float]]


class ConditionsView(TypedDict):
    """The common conditions of a benchmark's rows."""

    hops: int
    cores: int | None
    suite: str


class ThroughputView(ConditionsView):
    """A benchmark of rounds."""

    rows: list[ThroughputRowView]
