"""The tables of a demonstration: what was learned beside the truth, the cost of its rounds, and the time of stages."""

from __future__ import annotations

from croupier.protocol.certificates import proved_epsilon
from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import round_up
from croupier.show.blocks import Block, Table
from croupier.show.certificate_tables import assumptions_line, epsilon_of
from croupier.show.halving import halving_lines
from croupier.show.results import result_blocks
from croupier.show.statistics import Statistic, statistic
from croupier.show.text import counted

PLANNED = "All rounds were planned before the first result."
"""The assumption of the total cost of a demonstration's rounds."""
_MOST_COLUMNS = 4


def answers_blocks(result: JsonObject) -> list[Block]:
    """Returns the results of a demonstration beside the truth; the groups of a column are shown together."""
    columns: dict[str, list[Statistic]] = {}
    for question in result["questions"]:
        columns.setdefault(question["column"], []).append(statistic(question, group=question["group"] or ""))
    return [block for asked in columns.values() for block in result_blocks(asked, halving_lines)]


def privacy_cost_table(result: JsonObject, *, verbose: bool = False) -> Table:
    """Returns the local and the central epsilon of each question of a demonstration, with grades.

    verbose: with the published figure of GSPA beside it, and the throughput.
    """
    delta = result["questions"][0]["certificate"]["delta"]
    table = Table(title=f"what it cost one participant: ε at δ = {round_up(delta)}, replacing one answer")
    by_itself = "each round by itself, " if len(result["questions"]) > 1 else ""
    table.caption = f"{by_itself}{assumptions_line(result['questions'][0]['certificate'])}"
    more = ("GSPA Thm 2 says (no guarantee)", "users/s") if verbose else ()
    table.columns += ["question", "local ε", "central ε", *more]
    for question in result["questions"]:
        certificate = question["certificate"]
        other = certificate["comparison"][0] if certificate["comparison"] else None
        published = f"{epsilon_of(other)} {other['grade']}" if other else ""
        table.row(
            question["name"],
            ", ".join(round_up(tier["local_epsilon"]) for tier in certificate["tiers"]),
            f"{round_up(proved_epsilon(certificate), 4)} {certificate['grade']}",
            *((published, f"{question['users_per_s']:,.0f}") if verbose else ()),
        )
    return table


def composition_lines(result: JsonObject) -> list[str]:
    """Returns the total cost of several rounds of a demonstration, with its assumptions."""
    together = result["together"]
    rounds, everything, grouped = together["rounds"], together["ledger_rounds"], together["group_by"]
    if everything == 1:
        return []
    if grouped is None:
        return [
            f"One person in all {rounds:,} rounds, in each with the budget that costs most: "
            f"{_total(together['person'])}. {PLANNED}"
        ]
    return [
        f"One person in the {counted(rounds, 'round')} of a group, the group and the budgets that cost most: "
        f"{_total(together['person'])}. {PLANNED}",
        f"It protects a person's answers, not their {grouped}: who is in which group is public (hop 1 sees which "
        "clients take part in which round, every certificate counts them). It holds for people who are in one group.",
        f"The ledger knows no groups. For one person in all {everything:,} rounds it has {_total(together['ledger'])}.",
    ]


def _total(cost: JsonObject) -> str:
    at = f"at δ = {round_up(cost['delta'], 3)}"
    return f"no bound {at}" if cost["epsilon"] is None else f"ε {round_up(cost['epsilon'], 4)} {at}, {cost['grade']}"


def stage_seconds_table(result: JsonObject) -> Table:
    """Returns the wall and CPU seconds of every stage of a demonstration, by question, or of many in all."""
    table = Table(title="wall (CPU) seconds per stage", caption="CPU of all processes; seal, tickets and admit overlap")
    questions = result["questions"]
    in_all = len(questions) > _MOST_COLUMNS
    names = [counted(len(questions), "round")] if in_all else [question["name"] for question in questions]
    table.columns += ["stage", *names]
    for stage in questions[0]["stages"]:
        costs = [(question["stages"][stage]["wall_s"], question["stages"][stage]["cpu_s"]) for question in questions]
        shown = [(sum(wall for wall, _ in costs), sum(cpu for _, cpu in costs))] if in_all else costs
        table.row(stage, *(f"{wall:.2f} ({cpu:.2f})" for wall, cpu in shown))
    return table
