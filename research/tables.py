"""The tables of measurements: timed certificates, tightness, experiments and what became of their claims."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import round_down, round_up
from research.bench.tightness import TightnessRow


def certificate_seconds_table(rows: Sequence[JsonObject]) -> Table:
    """Returns processor seconds, share of the target, and peak memory of each timed certificate."""
    table = Table("certificate", "processor seconds", "of the target", "peak memory")
    for row in rows:
        share = f"{row['share_of_target']:.2f} of {row['target_s']:g} s"
        memory = f"{row['peak_memory_bytes'] / 1e6:.0f} MB"
        table.add_row(row["case"], f"{row['processor_s']:.2f}", share, memory)
    return table


def tightness_table(rows: Sequence[TightnessRow]) -> Table:
    """Returns the certificate and the strongest attack of each case."""
    table = Table("randomizer", "users × local ε", "δ", "certified ε", "attack ε ≥", "ratio")
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.4f}"
        numbers = (f"{row.delta:.0e}", round_up(row.certified), round_down(row.attack), ratio)
        table.add_row(row.randomizer, row.tiers, *numbers)
    return table


def experiments_table(figures: Sequence[JsonObject]) -> Table:
    """Returns which experiments there are."""
    table = Table("experiment", "paper", "what it shows")
    for figure in figures:
        table.add_row(figure["name"], figure["paper"], figure["title"])
    return table


def findings_table(figure: JsonObject) -> Table:
    """Returns what became of every claim of an experiment."""
    title = f"{figure['name']} ({figure['paper']}, {figure['title']}): {figure['verdict']}"
    table = Table("claim", "verdict", "what came out", title=title, show_lines=True)
    for finding in figure["findings"]:
        table.add_row(finding["claim"], finding["verdict"], finding["evidence"])
    return table
