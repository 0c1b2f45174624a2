"""Tables in the terminal, each made from the JSON document that the same command prints with `--json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from croupier.accountant.plain_words import stated_randomizer
from croupier.accountant.results import delta_too_large, round_down, round_up
from croupier.show.views import FigureView, FindingsView, SpentView, TrainingView

if TYPE_CHECKING:
    from croupier.accountant import Comparison

__all__ = [
    "LARGE_DELTAS",
    "PLANNED",
    "assumptions_line",
    "certificate_seconds_table",
    "certificate_table",
    "comparison_notes",
    "composition_lines",
    "counted",
    "curve_lines",
    "experiments_table",
    "findings_table",
    "privacy_cost_table",
    "privacy_curve_table",
    "spent_rests_on",
    "spent_table",
    "stage_seconds_table",
    "steps_table",
    "throughput_table",
    "tightness_table",
    "training_assumptions",
    "training_table",
    "why_not_smaller",
]

_NO_BOUND = "no amplification: the local budget"
"""The step that says that no bound was less."""
_MOST_TIERS, _MOST_COLUMNS = 20, 4
LARGE_DELTAS = (
    "a δ that is not far below one in the number of people is no protection, whatever ε is: it allows to show "
    "everybody the answer of one of them"
)
"""Of a curve that has such a delta."""


PLANNED = "All rounds were planned before the first result."
"""What the costs of a demonstration's rounds together assume."""


def counted(count: int, thing: str) -> str:
    """Returns "1 epoch", or "2,000 epochs"."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def _epsilon(bound: dict[str, Any]) -> str:
    return "out of range" if bound["epsilon"] is None else round_up(bound["epsilon"], 4)


def privacy_cost_table(result: dict[str, Any], *, verbose: bool = False) -> Table:
    """Returns the local and the central epsilon of each question of a demonstration, with grades.

    verbose: with the published figure of GSPA beside it, and the throughput.
    """
    delta = result["questions"][0]["certificate"]["delta"]
    table = Table(title=f"what it cost one participant: ε at δ = {round_up(delta)}, replacing one answer")
    by_itself = "each round by itself, " if len(result["questions"]) > 1 else ""
    table.caption = f"{by_itself}{assumptions_line(result['questions'][0]['certificate'])}"
    more = ("GSPA Thm 2 says (no guarantee)", "users/s") if verbose else ()
    for heading in ("question", "local ε", "central ε", *more):
        table.add_column(heading, justify="left" if heading == "question" else "right")
    for question in result["questions"]:
        certificate = question["certificate"]
        other = certificate["comparison"][0] if certificate["comparison"] else None
        published = f"{_epsilon(other)} {other['grade']}" if other else ""
        table.add_row(
            question["name"],
            ", ".join(round_up(tier["local_epsilon"]) for tier in certificate["tiers"]),
            f"{round_up(certificate['epsilon'], 4)} {certificate['grade']}",
            *((published, f"{question['users_per_s']:,.0f}") if verbose else ()),
        )
    return table


def composition_lines(result: dict[str, Any]) -> list[str]:
    """Returns what several rounds of a demonstration cost together, and what that rests on."""
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


def _total(cost: dict[str, Any]) -> str:
    at = f"at δ = {round_up(cost['delta'], 3)}"
    return f"no bound {at}" if cost["epsilon"] is None else f"ε {round_up(cost['epsilon'], 4)} {at}, {cost['grade']}"


def stage_seconds_table(result: dict[str, Any]) -> Table:
    """Returns the wall and CPU seconds of every stage of a demonstration, by question, or of many in all."""
    table = Table(title="wall (CPU) seconds per stage", caption="CPU of all processes; seal, tickets and admit overlap")
    table.add_column("stage")
    questions = result["questions"]
    in_all = len(questions) > _MOST_COLUMNS
    for heading in [counted(len(questions), "round")] if in_all else [question["name"] for question in questions]:
        table.add_column(heading, justify="right")
    for stage in questions[0]["stages"]:
        costs = [(question["stages"][stage]["wall_s"], question["stages"][stage]["cpu_s"]) for question in questions]
        shown = [(sum(wall for wall, _ in costs), sum(cpu for _, cpu in costs))] if in_all else costs
        table.add_row(stage, *(f"{wall:.2f} ({cpu:.2f})" for wall, cpu in shown))
    return table


def certificate_table(certificate: dict[str, Any]) -> Table:
    """Returns a certificate: headline, tiers, both trust statements, published figures beside it, and what for."""
    epsilon, delta = round_up(certificate["epsilon"]), round_up(certificate["delta"], 3)
    reached = {tier["epsilon"] for tier in certificate["tiers"]}
    smallest = f"{round_up(min(reached))} to " if len(reached) > 1 else ""
    by_budget = ", by local budget" if smallest else ""
    table = Table(title=f"ε = {smallest}{epsilon}{by_budget}, at δ = {delta}   {certificate['grade']}")
    table.add_column("statement")
    table.add_column("ε", justify="right")
    table.add_column("grade")
    grade = certificate["grade"]
    differ = len({tier["delta"] for tier in certificate["tiers"]}) > 1
    for tier in certificate["tiers"][:_MOST_TIERS]:
        whose = f"of local ε {'up to ' if tier['up_to'] else ''}{round_up(tier['local_epsilon'])}"
        at = f", at δ = {round_up(tier['delta'], 3)}" if differ else ""
        table.add_row(f"{counted(tier['count'], 'user')} {whose}{at}", round_up(tier["epsilon"]), grade)
    if len(certificate["tiers"]) > _MOST_TIERS:
        table.add_row(f"… {len(certificate['tiers']) - _MOST_TIERS:,} more tiers, all in --json", "", "")
    if certificate.get("unknown_budget_epsilon") is not None:
        clients = counted(certificate["unknown_budgets"], "client")
        table.add_row(f"{clients} whose budget did not arrive", round_up(certificate["unknown_budget_epsilon"]), grade)
    table.add_section()
    table.add_row(_trust(certificate), round_up(certificate["epsilon"]), grade)
    alone = certificate["everyone_else_colludes"]
    local_delta = f", at its local δ = {round_up(alone['delta'], 3)}" if alone["delta"] else ""
    # Which budgets a round's people have really used, the accountant says, who may collude, too.
    allowed = " (largest budget allowed)" if "round_id" in certificate else ""
    table.add_row(f"everyone else colludes{allowed}{local_delta}", round_up(alone["epsilon"]), "CERTIFIED")
    lower = certificate.get("lower_bound") or {}
    if lower.get("epsilon") is not None:
        # Where δ was certified at a given ε, the attack's is smaller; a round's document has only ε, at the round's δ.
        of_delta = lower.get("delta", certificate["delta"]) != certificate["delta"] or not certificate["delta"]
        at = f"δ ≥ {round_down(lower['delta'], 3)} at ε = {round_down(lower['epsilon'])}, " if of_delta else ""
        least = "" if of_delta else f"≥ {round_down(lower['epsilon'])}"
        table.add_row(f"attack: {at}{lower['attack']}", least, "LOWER_BOUND")
    table.add_section()
    for bound in certificate["comparison"]:
        guarantee = "" if bound["grade"] == "CERTIFIED" else " (no guarantee)"
        refuted = (", ", ("refuted", "red")) if bound["status"] == "refuted" else ()
        verdict = Text.assemble("" if bound["epsilon"] is None else bound["grade"], *refuted)
        table.add_row(f"{bound['name']}{guarantee}", _epsilon(bound), verdict)
    slack = f"numerical slack in δ {round_up(certificate['numerical_slack'], 2)}"
    table.caption = f"{_randomizer(certificate)}: {certificate['method']}; {slack}"
    return table


def _randomizer(certificate: dict[str, Any]) -> str:
    """Returns what every client runs; in a round's document it stands among the assumptions, which are signed."""
    if "randomizer" in certificate:
        return str(certificate["randomizer"])
    stated = stated_randomizer(certificate["assumptions"])
    if stated is None:
        return "unknown randomizer"
    kind, _, _ = stated.template.partition("(")
    parameters = stated.parameters(certificate["assumptions"])
    return f"{kind}({', '.join(f'{name}={value}' for name, value in parameters.items())})" if parameters else kind


def _trust(certificate: dict[str, Any]) -> str:
    """Returns in a few words what the headline rests on; the assumptions say all of it."""
    lines = certificate["assumptions"]
    if any(line.startswith("RECORD level") for line in lines):
        return "one RECORD of one client, whatever order is known"
    first = any(line.startswith("the first shuffler is honest") for line in lines)
    order = "an honest first shuffler" if first else "one shuffler's order secret"
    genuine = ", a genuine roster" if any(line.startswith("the roster is genuine") for line in lines) else ""
    accountant = ", an honest accountant" if any(line.startswith("the accountant follows") for line in lines) else ""
    dishonest = certificate["dishonest"]
    cheats = f"at most {counted(dishonest, 'dishonest client')}" if dishonest else "no dishonest client"
    return f"{order}{genuine}{accountant}, {cheats}"


def assumptions_line(certificate: dict[str, Any]) -> str:
    """Returns in a line what an epsilon rests on; the assumptions say all of it."""
    return f"assuming: {_trust(certificate)}"


def why_not_smaller(steps: Sequence[str]) -> str:
    """Returns why a certificate is the local budget, by its steps, the last of which are about the largest budget."""
    reasons = [
        reason for step in steps if (reason := step.partition(": ")[2]).startswith(("no amplification", "no other"))
    ]
    if not reasons or reasons[-1] == _NO_BOUND:
        return "This is the local budget: no bound gives less (--explain lists them)."
    return f"This is the local budget: {reasons[-1]}."


def comparison_notes(bounds: Sequence[Comparison]) -> list[Text]:
    """Returns a line on each published bound: what it assumes or lacks, and where it stands."""
    return [Text.assemble(f"{bound.name}: {bound.note}  ", (bound.reference, "dim")) for bound in bounds]


def steps_table(steps: Sequence[str]) -> Table:
    """Returns every step of a certificate, one line each."""
    table = Table(title="how this number came about", show_header=False)
    for step in steps:
        tier, _, text = step.partition(": ")
        table.add_row(tier, text)
    return table


def certificate_seconds_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Returns processor seconds, share of the target, and peak memory of each timed certificate."""
    table = Table("certificate", "processor seconds", "of the target", "peak memory")
    for row in rows:
        share = f"{row['share_of_target']:.2f} of {row['target_s']:g} s"
        memory = f"{row['peak_memory_bytes'] / 1e6:.0f} MB"
        table.add_row(row["case"], f"{row['processor_s']:.2f}", share, memory)
    return table


def privacy_curve_table(points: Sequence[dict[str, Any]]) -> Table:
    """Returns one line per delta: certified epsilon, attack, and their ratio."""
    table = Table("δ", "CERTIFIED ε", "attack ε ≥", "ratio")
    for point in points:
        lower = point["lower_bound"]["epsilon"]
        ratio = f"{point['epsilon'] / lower:.4f}" if lower else ""
        attack = "" if lower is None else round_down(lower)
        table.add_row(round_up(point["delta"]), round_up(point["epsilon"]), attack, ratio)
    return table


def curve_lines(points: Sequence[dict[str, Any]]) -> list[str]:
    """Returns what the epsilons of a curve rest on, and which deltas are no protection."""
    beware = any(delta_too_large(point["delta"], point["num_users"]) for point in points)
    return [
        f"{assumptions_line(points[0])} ('croupier certify --explain' has all assumptions)",
        *([f"Beware: {LARGE_DELTAS}."] if beware else []),
    ]


def throughput_table(rows: Sequence[dict[str, Any]]) -> Table:
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
    several = [row.get("all_ratios_to_floor", ()) for row in rows]  # a file of an earlier version has none
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


def experiments_table(figures: Sequence[FigureView]) -> Table:
    """Returns which experiments there are."""
    table = Table("experiment", "paper", "what it shows")
    for figure in figures:
        table.add_row(figure["name"], figure["paper"], figure["title"])
    return table


def findings_table(figure: FindingsView) -> Table:
    """Returns what became of every claim of an experiment."""
    title = f"{figure['name']} ({figure['paper']}, {figure['title']}): {figure['verdict']}"
    table = Table("claim", "verdict", "what came out", title=title, show_lines=True)
    for one in figure["findings"]:
        table.add_row(one["claim"], one["verdict"], one["found"])
    return table


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
    for one in document["spent"]:
        cost = "no bound" if one["epsilon"] is None else round_up(one["epsilon"], 4)
        if one["enough_delta"] is not None:
            cost += f"; --delta {round_up(one['enough_delta'], 3)} gives one"
        table.add_row(one["tier"], f"{one['rounds']:,}", cost)
    return table


def tightness_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Returns the certificate and the strongest attack of each case."""
    table = Table("randomizer", "users × local ε", "δ", "certified ε", "attack ε ≥", "ratio")
    for row in rows:
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.4f}"
        numbers = (f"{row['delta']:.0e}", round_up(row["certified"]), round_down(row["attack"]), ratio)
        table.add_row(row["randomizer"], row["tiers"], *numbers)
    return table


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
            f"clients of local ε {round_up(tier['local_epsilon'])} per epoch", round_up(tier["epsilon"], 4), grade
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
    lines = [f"  · {line}" for line in certificate["assumptions"]]
    return "\n".join([f"At δ {round_up(certificate['delta'])}, assuming that", *lines])
