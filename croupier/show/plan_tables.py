"""The plan of a survey's waves in the terminal: errors and costs, by budget."""

from __future__ import annotations

from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import round_up
from croupier.show.blocks import Table
from croupier.show.text import counted, note_lines

_TRUST = {
    "shuffle": "one secret order",
    "one_honest": "one honest hop",
    "alone": "none honest",
}


def plan_tables(plan: JsonObject) -> list[Table]:
    """Returns two tables: every question in one wave, and the cost of waves for one person."""
    waves = Table(
        "budget",
        "question",
        "local ε",
        "error, participants",
        "error, population",
        "ε of a wave",
        "grade",
        title=f"One wave, {plan['people']:,} people",
        caption="Everybody uses the same budget. Errors: half of a 95 % interval, in per cent of the answers' "
        "range; population: noise and sampling.",
    )
    costs = Table(
        "budget",
        "if",
        *(f"ε of {_period(total)}" for total in plan["tiers"][0]["totals"]),
        "grade",
        title=f"What waves cost one person, at δ = {round_up(plan['delta_total'])}",
        caption="One secret order: one hop keeps its order secret, and the accountant is honest. One honest hop: "
        "whatever everybody else does. None honest: the person's own noise. Composed by a privacy filter, which holds "
        "however later waves are chosen: the limit of the study is fixed before the first one.",
    )
    for tier in plan["tiers"]:
        budget = f"{tier['budget']:g}"
        for question in tier["questions"]:
            waves.row(
                budget,
                question["name"],
                f"{question['local_epsilon']:g}",
                f"± {100 * question['margins']['participants']:.3g} %",
                f"± {100 * question['margins']['population']:.3g} %",
                round_up(question["certificate"]["epsilon"], 4),
                question["certificate"]["grade"],
            )
        waves.end_group()
        for trust, said in _TRUST.items():
            guarantees = [total[trust] for total in tier["totals"]]
            if trust == "one_honest" and not any(guarantees):
                continue
            numbers = [
                "no bound" if guarantee is None else round_up(guarantee["epsilon"], 4) for guarantee in guarantees
            ]
            costs.row(budget, said, *numbers, next((guarantee["grade"] for guarantee in guarantees if guarantee), ""))
        costs.end_group()
    return [waves, costs]


def plan_lines(plan: JsonObject) -> list[str]:
    """Returns the result, and the number of waves that the limit allows, in sentences."""
    lines = []
    (tier, *_) = plan["tiers"]
    if "budget" in plan["solved"]:
        lines.append(f"Found: budgets = [{tier['budget']:g}] (ε of all answers of a wave together).")
    if "waves" in plan["solved"]:
        lines.append(f"Found: {counted(plan['waves'], 'wave')}.")
    for tier in plan["tiers"]:
        enough = tier["waves_borne"] >= plan["waves"]
        borne = f"all {plan['waves']:,} waves" if enough else f"only {tier['waves_borne']:,} of {plan['waves']:,} waves"
        lines.append(
            f"With the budget {tier['budget']:g} the limit ε = {round_up(plan['epsilon_total'])} bears {borne}"
            + ("." if enough else ": the accountant refuses the next one.")
        )
    totals = [total for tier in plan["tiers"] for total in tier["totals"]]
    stated = [each for total in totals for each in (total["shuffle"], total["one_honest"], total["alone"])]
    lines += dict.fromkeys(line for guarantee in stated if guarantee for line in note_lines(guarantee["notes"]))
    return lines


def _period(total: JsonObject) -> str:
    return {"wave": "a wave", "year": f"a year ({total['waves']:,})", "study": f"the study ({total['waves']:,})"}[
        total["period"]
    ]
