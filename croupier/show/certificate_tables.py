"""Certificates as blocks: for a terminal, the console and notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from croupier.accountant.guessing import right_at_most
from croupier.protocol.certificates import alone_in, proved_epsilon
from croupier.protocol.codes import Assumption
from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import percent, round_down, round_up
from croupier.protocol.statements import joined
from croupier.show.blocks import Block, Folded, Points, Sentence, Table
from croupier.show.text import counted, note_lines, tier_budget

if TYPE_CHECKING:
    from croupier.accountant import Certificate, Comparison

_MOST_TIERS = 20


def epsilon_of(bound: JsonObject) -> str:
    """Returns the epsilon of a published bound, rounded up; "out of range" if the bound gives none."""
    return "out of range" if bound["epsilon"] is None else round_up(bound["epsilon"], 4)


def certificate_table(certificate: JsonObject | JsonObject) -> Table:
    """Returns a certificate: headline, tiers, both trust statements, published figures beside it, and the subject."""
    epsilon, delta = round_up(proved_epsilon(certificate)), round_up(certificate["delta"], 3)
    reached = {tier["epsilon"] for tier in certificate["tiers"]}
    smallest = f"{round_up(min(reached))} to " if len(reached) > 1 else ""
    by_budget = ", by local budget" if smallest else ""
    title = f"ε = {smallest}{epsilon}{by_budget}, at δ = {delta}   {certificate['grade']}"
    table = Table("statement", "ε", "right at most", "grade", title=title)
    grade, noised = certificate["grade"], "at least " if certificate["budget_privacy"] else ""
    differ = len({tier["delta"] for tier in certificate["tiers"]}) > 1
    for tier in certificate["tiers"][:_MOST_TIERS]:
        whose = f"of local ε {tier_budget(tier['local_epsilon'], tier['local_delta'], up_to=tier['up_to'])}"
        at = f", at δ = {round_up(tier['delta'], 3)}" if differ else ""
        users = f"{noised}{counted(tier['count'], 'user')}"
        table.row(f"{users} {whose}{at}", *_proved(tier), grade)
    if len(certificate["tiers"]) > _MOST_TIERS:
        table.row(f"… {len(certificate['tiers']) - _MOST_TIERS:,} more tiers, all in --json", "", "", "")
    if "round_id" in certificate and certificate["unknown_budget_epsilon"] is not None:
        clients = counted(certificate["unknown_budgets"], "client")
        unknown = {"epsilon": certificate["unknown_budget_epsilon"], "delta": certificate["delta"]}
        table.row(f"{clients} whose budget did not arrive", *_proved(unknown), grade)
    table.end_group()
    table.row(_trust(certificate), *_proved(certificate), grade)
    hop = certificate["one_honest_hop"]
    if hop is not None and (hop["epsilon"], hop["delta"]) != (certificate["epsilon"], certificate["delta"]):
        at = "" if hop["delta"] == certificate["delta"] else f", at δ = {round_up(hop['delta'], 3)}"
        table.row(f"one hop is honest, everyone else colludes{at}", *_proved(hop), grade)
    alone = alone_in(certificate)
    local_delta = f", at its local δ = {round_up(alone['delta'], 3)}" if alone["delta"] else ""
    # The budgets of a round are the accountant's statement, who may collude, too.
    allowed = " (largest budget allowed)" if "round_id" in certificate else ""
    table.row(f"everyone else colludes{allowed}{local_delta}", *_proved(alone), "CERTIFIED")
    reached, lost = certificate["lower_bound_epsilon"], certificate["lower_bound_delta"]
    if reached is not None and lost is not None:
        # Where δ was certified at a given ε, the attack's is smaller.
        of_delta = lost != certificate["delta"] or not certificate["delta"]
        at = f"δ ≥ {round_down(lost, 3)} at ε = {round_down(reached)}, " if of_delta else ""
        least = "" if of_delta else f"≥ {round_down(reached)}"
        table.row(f"attack: {at}{certificate['lower_bound_attack']}", least, "", "LOWER_BOUND")
    table.end_group()
    for bound in certificate["comparison"]:
        guarantee = "" if bound["grade"] == "CERTIFIED" else " (no guarantee)"
        verdict = ["" if bound["epsilon"] is None else bound["grade"], *["refuted"] * (bound["status"] == "refuted")]
        table.row(f"{bound['name']}{guarantee}", epsilon_of(bound), "", ", ".join(filter(None, verdict)))
    method = "; ".join(statement["text"] for statement in certificate["method"])
    slack = f"numerical slack in δ {round_up(certificate['numerical_slack'], 2)}"
    table.caption = f"{certificate['randomizer']}: {method}; {slack}"
    return table


def _proved(guarantee: Mapping[str, Any]) -> tuple[str, str]:
    """Returns an epsilon, and how often a guess between two equally likely answers is right at most."""
    return round_up(guarantee["epsilon"]), percent(right_at_most(guarantee["epsilon"], guarantee["delta"]))


def certificate_blocks(certificate: JsonObject | JsonObject) -> list[Block]:
    """Returns a certificate with its notes and all of its assumptions."""
    return [
        certificate_table(certificate),
        *map(Sentence, note_lines(certificate["notes"])),
        Folded("This holds if", [Points([assumption["text"] for assumption in certificate["assumptions"]])]),
    ]


def _trust(certificate: JsonObject | JsonObject) -> str:
    """Returns the basis of the headline in a few words; the assumptions are complete."""
    codes = {assumption["code"] for assumption in certificate["assumptions"]}
    if Assumption.RECORD_LEVEL in codes:
        return "one RECORD of one client, whatever order is known"
    together = ", all waves together" if Assumption.SAME_REPORT in codes else ""
    if Assumption.UNIFORM_ORDER not in codes and Assumption.ONE_HONEST_HOP in codes:
        return f"one honest hop, whatever everyone else does{together}"
    if together:
        return f"nothing of anybody else{together}"
    first = Assumption.HONEST_FIRST_SHUFFLER in codes
    order = "an honest first shuffler" if first else "one shuffler's order secret"
    genuine = ", a genuine roster" if Assumption.GENUINE_ROSTER in codes else ""
    accountant = ", an honest accountant" if Assumption.HONEST_ACCOUNTANT in codes else ""
    dishonest = certificate["dishonest"]
    cheats = f"at most {counted(dishonest, 'dishonest client')}" if dishonest else "no dishonest client"
    if Assumption.ONE_HONEST_HOP in codes:
        order += " and its fake reports"
    return f"{order}{genuine}{accountant}, {cheats}"


def assumptions_line(certificate: JsonObject | JsonObject) -> str:
    """Returns the basis of an epsilon in a line; the assumptions are complete."""
    return f"assuming: {_trust(certificate)}"


def comparison_notes(bounds: Sequence[Comparison]) -> list[str]:
    """Returns a line on each published bound: its assumptions or gaps, and its publication."""
    return [f"{bound.name}: {joined(bound.notes)}  {bound.reference}" for bound in bounds]


def steps_table(certificate: Certificate) -> Table:
    """Returns every step of a certificate, one line each, by tier."""
    table = Table("tier", "step", title="how this number came about")
    for tier in certificate.tiers:
        for step in tier.steps:
            table.row(round_up(tier.local_epsilon), str(step))
    return table
