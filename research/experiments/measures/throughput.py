"""How fast a round is, by the benchmark's own runner."""

from __future__ import annotations

from research.experiments.figure import Point, Row


def measure_round(point: Point) -> Row:
    """Returns "users_per_s" of one round with point["users"], and of the bare cryptography, the "floor", here.

    "cpu_ms" has the CPU milliseconds for each user of all stages together, "bytes" what is sent for each user.
    """
    from croupier.deploy.local.throughput import measure_throughput

    (row,) = measure_throughput([point["users"]], point["hops"])["rows"]
    cpu_s = sum(stage["cpu_s"] for stage in row["stages"].values())
    return {
        "users_per_s": row["users_per_s"],
        "floor": row["users"] / row["floor_s"],
        "cpu_ms": 1000 * cpu_s / row["users"],
        "bytes": row["wire_bytes_per_user"],
    }
