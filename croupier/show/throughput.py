"""The table of `croupier bench`: the costs of a round, by the number of users."""

from __future__ import annotations

from collections.abc import Sequence

from croupier.protocol.names import JsonObject
from croupier.show.blocks import Table


def throughput_table(rows: Sequence[JsonObject]) -> Table:
    """Returns the costs of a round, one column per number of users."""
    sizes = (f"{row['users']:,}" for row in rows)
    table = Table("users", *sizes, title="wall seconds (CPU seconds of all processes); seal and admit overlap")
    for stage in rows[0]["stages"]:
        costs = [row["stages"][stage] for row in rows]
        table.row(stage, *(f"{cost['wall_s']:.2f} ({cost['cpu_s']:.2f})" for cost in costs))
    table.end_group()
    table.row("close to publication", *(f"{row['close_s']:.2f}" for row in rows))
    table.row("end to end", *(f"{row['wall_s']:.2f}" for row in rows))
    table.row("floor: bare cryptography", *(f"{row['floor_s']:.2f}" for row in rows))
    table.row("floor / end to end", *(f"{row['ratio_to_floor']:.2f}" for row in rows))
    several = [row["all_ratios_to_floor"] for row in rows]
    if any(len(ratios) > 1 for ratios in several):
        spread = (f"{len(ratios)}: {ratios[0]:.2f} to {ratios[-1]:.2f}" if ratios else "" for ratios in several)
        table.row("rounds, and theirs", *spread)
    table.row("users per second", *(f"{row['users_per_s']:,.0f}" for row in rows))
    table.row("bytes on the wire per user", *(f"{row['wire_bytes_per_user']:.0f}" for row in rows))
    table.row("bytes on disk per user", *(f"{row['disk_bytes_per_user']:.0f}" for row in rows))
    for process in rows[0]["cpu_s"]:
        table.row(f"CPU per user, {process}", *(f"{1e3 * row['cpu_s'][process] / row['users']:.3f} ms" for row in rows))
    table.end_group()
    for process in rows[0]["peak_memory_bytes"]:
        peaks = [row["peak_memory_bytes"][process] / 1e6 for row in rows]
        table.row(f"peak memory, {process}", *(f"{peak:.0f} MB" for peak in peaks))
    return table
