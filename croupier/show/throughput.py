"""The table of `croupier bench`: the costs of a round, by the number of users."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from croupier.show.views.throughput import ThroughputRowView


def throughput_table(rows: Sequence[ThroughputRowView]) -> Table:
    """Returns the costs of a round, one column per number of users."""
    table = Table(title="wall seconds (CPU seconds of all processes); seal and admit overlap")
    table.add_column("users")
    for row in rows:
        table.add_column(f"{row['users']:,}", justify="right")
    for stage in rows[0]["stages"]:
        costs = [row["stages"][stage] for row in rows]
        table.add_row(stage, *(f"{cost['wall_s']:.2f} ({cost['cpu_s']:.2f})" for cost in costs))
    table.add_section()
    table.add_row("close to publication", *(f"{row['close_s']:.2f}" for row in rows))
    table.add_row("end to end", *(f"{row['wall_s']:.2f}" for row in rows))
    table.add_row("floor: bare cryptography", *(f"{row['floor_s']:.2f}" for row in rows))
    table.add_row("floor / end to end", *(f"{row['ratio_to_floor']:.2f}" for row in rows))
    several = [row["all_ratios_to_floor"] for row in rows]
    if any(len(ratios) > 1 for ratios in several):
        spread = (f"{len(ratios)}: {ratios[0]:.2f} to {ratios[-1]:.2f}" if ratios else "" for ratios in several)
        table.add_row("rounds, and theirs", *spread)
    table.add_row("users per second", *(f"{row['users_per_s']:,.0f}" for row in rows))
    table.add_row("bytes on the wire per user", *(f"{row['wire_bytes_per_user']:.0f}" for row in rows))
    table.add_row("bytes on disk per user", *(f"{row['disk_bytes_per_user']:.0f}" for row in rows))
    for process in rows[0]["cpu_s"]:
        table.add_row(
            f"CPU per user, {process}", *(f"{1e3 * row['cpu_s'][process] / row['users']:.3f} ms" for row in rows)
        )
    table.add_section()
    for process in rows[0]["peak_memory_bytes"]:
        peaks = [row["peak_memory_bytes"][process] / 1e6 for row in rows]
        table.add_row(f"peak memory, {process}", *(f"{peak:.0f} MB" for peak in peaks))
    return table
