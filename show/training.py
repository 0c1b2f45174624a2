"""The table of a training: its last epoch, what it cost by local budget, and what that rests on."""

from __future__ import annotations

from rich.table import Table

from croupier.protocol.rounding import round_up
from croupier.show.tables import counted
from croupier.show.text import tier_budget
from croupier.show.views import TrainingView

__all__ = ["training_assumptions", "training_table"]


def training_table(result: TrainingView) -> Table:
    """Returns the last epoch of a training, and what it cost by local budget.

    Raises:
        ValueError: the training has no epoch.
    """
    if not result["history"]:
        raise ValueError("no epoch has been trained; there is nothing to show")
    last, certificate = result["history"][-1], result["certificate"]
    simulated = ", simulated" if result["setting"]["mode"] == "simulation" else ""
    done = (
        f"{counted(last['epoch'], 'epoch')}, {counted(last['steps'], 'step')}: accuracy {100 * last['accuracy']:.2f} %"
    )
    cost = "ε of one record" if result["setting"]["unit"] == "record" else "central ε"
    table = Table(title=f"{result['title']}{simulated}\n{done}")
    table.add_column("statement")
    table.add_column(
        cost if certificate is None else f"{cost} at δ = {round_up(certificate['delta'])}", justify="right"
    )
    table.add_column("grade")
    if certificate is None:
        table.add_row("no noise", "∞", "not private")
        return table
    grade, tiers = certificate["grade"], certificate["tiers"]
    for tier in tiers if len(tiers) <= 8 else [*tiers[:4], *tiers[-4:]]:
        table.add_row(
            f"clients of local ε {tier_budget(tier['local_epsilon'], tier['local_delta'], up_to=False)} per epoch",
            round_up(tier["epsilon"], 4),
            grade,
        )
    table.add_row("if everyone else colludes", round_up(certificate["everyone_else_colludes"], 4), grade)
    for bound in certificate["comparison"]:
        if bound["epsilon"] is not None:
            table.add_row(f"{bound['name']} (no guarantee)", round_up(bound["epsilon"], 4), bound["grade"])
    return table


def training_assumptions(result: TrainingView) -> str:
    """Returns what the epsilon of a training rests on, a line each; "" where there is none."""
    certificate = result["certificate"]
    if certificate is None:
        return ""
    lines = [f"  · {assumption['text']}" for assumption in certificate["assumptions"]]
    return "\n".join([f"At δ {round_up(certificate['delta'])}, assuming that", *lines])
