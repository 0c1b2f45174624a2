"""Forecasts of rounds, and the rest of the ledger's limit, for people and scripts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from croupier.protocol.codes import RefusalReason
from croupier.protocol.documents import document_of
from croupier.protocol.names import JsonObject, RoundId
from croupier.protocol.rounding import round_down, round_up
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.show.blocks import Table
from croupier.show.text import counted

_ASSUMED = (
    "At most this is certified if every message arrives; a forecast promises nothing, the certificate does. Error: the "
    "standard error of a share, or of a mean on a range of 1, from the noise alone."
)
_ASSUMED_OF_SURVEY = (
    "At most this is certified if every message arrives; a forecast promises nothing, the certificate does. Error: the "
    "standard error of a share, in points of 100, or of a mean, in its unit; from the noise alone."
)
_EXACT_COUNTS = (
    "A certificate of this survey counts exactly how many people used each budget (budget privacy 0): the first "
    "shuffler can read one person's budget from it, by losing the messages of others, and everybody can see that a "
    "rare budget was used. Budget privacy 1 hides that, and leaves out about 27 people of every budget."
)
_NOISY = 0.25
"""With this standard error a 95 % interval of a share covers about all that is possible."""
_IN_SHORT = {
    str(RefusalReason.EPSILON_ABOVE_LIMIT): "ε above the limit",
    str(RefusalReason.BUDGET_ABOVE_LIMIT): "ε above the limit",
    str(RefusalReason.LEDGER_EXCEEDED): "the ledger",
    str(RefusalReason.LEDGER_UNBOUNDED): "the ledger",
    str(RefusalReason.ROUNDS_SHOWN): "no round left",
}


def forecast_json(forecast: rpc.ForecastResponse) -> JsonObject:
    """Returns a forecast as the accountant gives it.

    In an outcome "budgets" is empty for any mixture, and "epsilon" None without a bound.
    """
    document: JsonObject = document_of(forecast)
    for outcome in document["outcomes"] + document["without_stragglers"]:
        outcome["granted"] = not outcome["refusals"]
    document["always_granted"] = all(outcome["granted"] for outcome in document["outcomes"])
    return document | {"ledger": ledger_json(forecast.ledger) if forecast.HasField("ledger") else None}


def survey_forecast_json(
    people: int,
    questions: Mapping[str, rpc.ForecastResponse],
    together: tuple[float | None, float],
    refusal: str,
    scales: Mapping[str, tuple[float, str]],
    exact_counts: bool = False,
) -> JsonObject:
    """Returns the forecast of a survey; see `operator.survey_plans.SurveyForecast`.

    "epsilon" is the sum of the largest certified epsilons of the questions, at the "delta" of all together; None
    without a bound. "remaining_epsilon" is the rest of the limit after all questions; None without a limit or a bound.
    "ledger" is its state before. "range" is the length of the range of a number in its "unit"; None of shares.

    together: the (epsilon, delta) of all questions.
    scales: by question, the length of the range of a number and its unit; not of shares.
    """
    views = [forecast_json(question) for question in questions.values()]
    left = [outcome["remaining_epsilon"] for view in views for outcome in view["outcomes"]]
    return {
        "people": people,
        "granted": not refusal,
        "refusal": refusal,
        "epsilon": together[0],
        "delta": together[1],
        "remaining_epsilon": None if None in left else min(epsilon for epsilon in left if epsilon is not None),
        "ledger": views[0]["ledger"],
        "exact_counts": exact_counts,
        "questions": [
            {
                "name": name,
                "range": scales[name][0] if name in scales else None,
                "unit": scales[name][1] if name in scales else "",
                "forecast": view,
            }
            for name, view in zip(questions, views, strict=True)
        ],
    }


def survey_forecast_table(forecasts: Sequence[JsonObject]) -> Table:
    """Returns a row for every number of people and question."""
    table = Table(
        "people", "question", "certified ε ≤", "error", "granted", title="Forecast", caption=_ASSUMED_OF_SURVEY
    )
    for forecast in forecasts:
        for question in forecast["questions"]:
            outcomes = question["forecast"]["outcomes"]
            worst = max(outcomes, key=lambda outcome: (not outcome["granted"], outcome["epsilon"] or math.inf))
            errors = [outcome["standard_error"] for outcome in outcomes if outcome["standard_error"] is not None]
            spread = _spread(question, min(errors), max(errors)) if errors else "unknown"
            table.row(f"{forecast['people']:,}", question["name"], _worst(outcomes), spread, _granted(worst))
        table.end_group()
    return table


def _spread(question: JsonObject, least: float, most: float) -> str:
    """Returns the smallest and largest error of a question, in its unit."""
    if question["range"] is None:
        return f"{100 * least:.2g} to {100 * most:.2g} points"
    return f"{question['range'] * least:.2g} to {question['range'] * most:.2g} {question['unit']}".strip()


def survey_forecast_lines(forecasts: Sequence[JsonObject]) -> list[str]:
    """Returns the forecast of all questions of a survey together, a sentence for each number of people."""
    lines = []
    for forecast in forecasts:
        total = (
            "no bound is certified"
            if forecast["epsilon"] is None
            else f"at most ε = {round_up(forecast['epsilon'], 4)}"
        )
        line = (
            f"With {forecast['people']:,} people, all questions together: {total} at δ = {round_up(forecast['delta'])}"
        )
        if forecast["ledger"] is not None:
            before = round_down(forecast["ledger"]["remaining_epsilon"], 4)
            after = "unknown" if forecast["remaining_epsilon"] is None else round_down(forecast["remaining_epsilon"], 4)
            line += f"; of the ledger's ε = {before} that remains now, {after} would remain" * forecast["granted"]
        lines.append(f"{line}.")
    errors = [
        e for forecast in forecasts[-1]["questions"] for e in [_least_error(forecast["forecast"])] if e is not None
    ]
    if forecasts[-1]["exact_counts"]:
        lines.append(_EXACT_COUNTS)
    if errors and max(errors) > _NOISY:
        lines.append(
            f"With {forecasts[-1]['people']:,} people the noise hides the answers to some question, whatever budgets "
            "they choose: 'croupier plan --error 0.05 --epsilon 0.5' says how many people a margin of 5 points takes."
        )
    return lines


def _least_error(forecast: JsonObject) -> float | None:
    errors = [outcome["standard_error"] for outcome in forecast["outcomes"] if outcome["standard_error"] is not None]
    return min(errors, default=None)


def ledger_json(state: rpc.LedgerState) -> JsonObject:
    """Returns the rest of the deployment's limit in the ledger; "spent_epsilon" is None if there is no bound.

    In a forecast, the rest is after "pending_rounds": rounds that are open or being certified.
    """
    spent = state.spent_epsilon if state.HasField("spent_epsilon") else None
    committed = state.committed_epsilon if state.HasField("committed_epsilon") else None
    gone = committed if state.num_pending else spent
    most = state.limit.max_rounds
    return {
        "total_epsilon": state.limit.total_epsilon,
        "total_delta": state.limit.total_delta,
        "spent_epsilon": spent,
        "remaining_epsilon": max(0.0, state.limit.total_epsilon - gone) if gone is not None else 0.0,
        "rounds": state.num_rounds,
        "pending_rounds": state.num_pending,
        "remaining_rounds": max(0, most - state.num_shown - state.num_pending) if most else None,
        "budgets": {
            "epsilon": state.budget_epsilon,
            "delta": state.budget_delta,
            "rounds": state.num_noised,
            "exact": state.num_exact,
        },
    }


def ledger_line(ledger: JsonObject) -> str:
    """Returns one sentence on the rest of the limit over all rounds."""
    left, most = round_down(ledger["remaining_epsilon"], 4), round_up(ledger["total_epsilon"])
    rounds = ledger["remaining_rounds"]
    more = "" if rounds is None else f"; at most {counted(rounds, 'more round')} may have a certificate"
    pending = ledger["pending_rounds"]
    under_way = f" and {counted(pending, 'round')} under way" if pending else ""
    return (
        f"A person may lose at most ε = {most} at δ = {round_up(ledger['total_delta'])} over all rounds; after "
        f"{counted(ledger['rounds'], 'round')}{under_way} ε = {left} remains{more}."
    )


def budgets_line(told: JsonObject) -> str:
    """Returns one sentence on the information on one person's budget in certificates; "" for none."""
    if not told["rounds"] and not told["exact"]:
        return ""
    parts = []
    if told["rounds"]:
        parts.append(
            f"the noised counts of {counted(told['rounds'], 'round')} are together ε = {round_up(told['epsilon'])} at "
            f"δ = {round_up(told['delta'])}"
        )
    if told["exact"]:
        rounds = counted(told["exact"], "round")
        parts.append(f"{rounds} with exact counts {'has' if told['exact'] == 1 else 'have'} no bound")
    return f"What certificates tell of one person's budget: {'; '.join(parts)}."


def _budgets_of(outcome: JsonObject) -> str:
    """Returns who uses which budget, in words."""
    counts = outcome["budgets"]
    if not counts:
        return "any mixture"
    if len(counts) == 1:
        return f"everyone {round_down(counts[0]['local_epsilon'])}"
    few, many = sorted(counts, key=lambda group: group["count"])
    who = counted(few["count"], "person")
    return f"{who} {round_down(few['local_epsilon'])}, the others {round_down(many['local_epsilon'])}"


def _granted(outcome: JsonObject) -> str:
    """Returns yes, or the reasons for a refusal; the sentences are in --json."""
    why = dict.fromkeys(_IN_SHORT.get(refusal["code"], refusal["text"]) for refusal in outcome["refusals"])
    return f"no: {', '.join(why)}" if why else "yes"


def forecast_table(forecasts: Sequence[JsonObject]) -> Table:
    """Returns a row for every number of people and choice of budgets."""
    table = Table("people", "local ε", "certified ε ≤", "error", "granted", title="Forecast", caption=_ASSUMED)
    with_ledger = any(forecast["ledger"] is not None for forecast in forecasts)
    if with_ledger:
        table.columns.append("ε left over all rounds")
    for forecast in forecasts:
        for outcome in sorted(forecast["outcomes"], key=lambda outcome: outcome["epsilon"] or math.inf):
            error, left = outcome["standard_error"], outcome["remaining_epsilon"]
            most = "" if outcome["budgets"] else "≤ "  # of any mixture, that of the noisiest
            row = [
                f"{forecast['num_reports']:,}",
                _budgets_of(outcome),
                "none" if outcome["epsilon"] is None else round_up(outcome["epsilon"], 4),
                "unknown" if error is None else f"{most}{error:.3g}",
                _granted(outcome),
            ]
            table.row(*row, *(["unknown" if left is None else round_down(left, 4)] if with_ledger else []))
    return table


def closing_lines(forecast: JsonObject, round_id: RoundId) -> list[str]:
    """Returns the consequences of closing a round now: the cost of stragglers, and the operator's options at a risk."""
    reports, stragglers = forecast["num_reports"], forecast["num_tickets"] - forecast["num_reports"]
    lines = []
    if stragglers:
        who = "1 person has tickets and has sent no report." if stragglers == 1 else ""
        who = who or f"{stragglers:,} people have tickets and have sent no report."
        cost = f"With them, at most ε = {_worst(forecast['outcomes'])} is certified"
        without = f"without them it would be {_worst(forecast['without_stragglers'])}"
        lines.append(f"{who} Each counts as dishonest, and as a person of any budget. {cost}; {without}.")
    if forecast["always_granted"]:
        lines.append(f"Whatever budgets the {reports:,} people have used, the round is granted if no message is lost.")
        return lines
    worst = next(outcome for outcome in forecast["outcomes"] if not outcome["granted"])
    why = "; ".join(refusal["text"] for refusal in worst["refusals"])
    lines += [
        f"At risk: with {reports:,} reports, for some choice of budgets the round is refused "
        f"({_budgets_of(worst)}: {why}).",
        "Nobody knows yet which budgets were used, and no report can be left out for its budget: reports and budgets "
        "are shuffled apart.",
        f"Wait for more people{', or for those who have tickets' if stragglers else ''}; or decide otherwise:",
        f"  croupier survey close {round_id} --at-risk",
        "    has it certified as it is; if the accountant refuses it then, every answer is destroyed",
        f"  croupier survey close {round_id} --withdraw",
        "    destroys every answer now",
    ]
    return lines


def _worst(outcomes: Sequence[JsonObject]) -> str:
    reached = [outcome["epsilon"] for outcome in outcomes]
    return "unbounded" if None in reached else round_up(max(epsilon for epsilon in reached if epsilon is not None), 4)
