"""The ledger in words: the cost of all rounds, by tier, with its assumptions; and the rest of its limit."""

from __future__ import annotations

from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import round_down, round_up
from croupier.show.blocks import Block, Sentence, Table
from croupier.show.forecasts import budgets_line, ledger_line
from croupier.show.text import counted

MOST_FORECAST = 1000
"""No more further rounds are counted: by then the plans have changed."""


def left_lines(left: JsonObject) -> list[str]:
    """Returns the rest of the ledger's limit, and the number of rounds for which it is enough, in sentences."""
    lines = [ledger_line(left["ledger"])]
    for outlook in left["more_rounds"]:
        more = counted(outlook["rounds"], "more round")
        at_least = "at least " if outlook["rounds"] == MOST_FORECAST else ""
        lines.append(
            f"That is enough for {at_least}{more} like {outlook['like']}, whose worst ε was "
            f"{round_up(outlook['epsilon'], 4)}."
        )
    if not left["more_rounds"]:
        lines.append("No round has cost anything yet; 'croupier survey check one' says what one would cost.")
    if told := budgets_line(left["ledger"]["budgets"]):
        lines.append(told)
    return lines


def _rests_on(*, fixed_terms: bool) -> str:
    """Returns the meaning and the assumptions of the costs in the ledger."""
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


def noise_line(hop: str, noise: JsonObject) -> str:
    """Returns the total of a hop's own ledger, and the rest of its noise_limit."""
    rounds = counted(noise["rounds"], "round")
    spent = f"{hop}'s own ledger: ε {round_up(noise['epsilon'])} at δ {round_up(noise['delta'])} spent in {rounds}"
    if noise["most_epsilon"] is None or noise["most_delta"] is None:
        return f"{spent}; no noise_limit, so it signs every round"
    limit = f"ε {round_down(noise['most_epsilon'])} at δ {round_down(noise['most_delta'])}"
    return f"{spent}; its noise_limit is {limit}, and it signs no round beyond it"


def spent_blocks(document: JsonObject, *, fixed_terms: bool) -> list[Block]:
    """Returns the total cost of all rounds, by tier, and its assumptions."""
    table = Table("participants with", "rounds", f"total ε at δ = {round_up(document['delta'])}")
    for tier in document["spent"]:
        total = tier["guarantee"]
        cost = "no bound" if total is None else f"{round_up(total['epsilon'], 4)} {total['grade']}"
        if tier["enough_delta"] is not None:
            cost += f"; δ = {round_up(tier['enough_delta'], 3)} gives one"
        table.row(tier["tier"], f"{tier['rounds']:,}", cost)
    blocks: list[Block] = [table] if table.rows else [Sentence("No round has cost anything yet.")]
    blocks.append(Sentence(_rests_on(fixed_terms=fixed_terms)))
    return [*blocks, Sentence(told)] if (told := budgets_line(document["budgets"])) else blocks
