"""The table of the ledger: the cost of all rounds, by tier, and what it rests on."""

from __future__ import annotations

from rich.table import Table

from croupier.protocol.rounding import round_up
from croupier.show.views import SpentView

__all__ = ["spent_rests_on", "spent_table"]


def spent_rests_on(*, fixed_terms: bool) -> str:
    """Returns what the costs in the ledger are about, and what they rest on."""
    return (
        "Each ε is for a person who was in all of these rounds, with this budget in each; with several budgets 'any "
        "tier' holds. It rests on what the certificates of these rounds assume"
        + (
            ", and on the terms of all rounds being fixed before the first result."
            if fixed_terms
            else ". As a limit that was set beforehand, it holds however rounds were chosen by earlier results. Where "
            "results decided which rounds there are, only a limit that was set beforehand is a guarantee."
        )
    )


def spent_table(document: SpentView) -> Table:
    """Returns what all rounds together have cost, by tier."""
    table = Table("participants with", "rounds", f"total ε at δ = {round_up(document['delta'])}, CERTIFIED")
    for tier in document["spent"]:
        cost = "no bound" if tier["epsilon"] is None else round_up(tier["epsilon"], 4)
        if tier["enough_delta"] is not None:
            cost += f"; --delta {round_up(tier['enough_delta'], 3)} gives one"
        table.add_row(tier["tier"], f"{tier['rounds']:,}", cost)
    return table
