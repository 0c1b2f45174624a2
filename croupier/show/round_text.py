"""Rounds in the terminal: the operator's list, and the text for a person before answering.

Each text is made from the JSON document that the same command prints with `--json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from croupier.accountant.guessing import right_at_most
from croupier.protocol.mechanisms import form_of
from croupier.protocol.mechanisms.base import Form
from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import percent, round_up
from croupier.show.blocks import Section
from croupier.show.forecasts import budgets_line, ledger_line
from croupier.show.language import device_step
from croupier.show.text import counted

_MOST_BUDGETS = 20
_MOST_LABELS = 12
_BAR = 30
_SOME_SILENT = "not every service answers, and the others have no round"
_NO_ROUND = "no round yet; 'croupier survey open' opens one"


def deadline(unix_s: int | None, now: float) -> str:
    """Returns the time at which a round closes, and the time until then."""
    if unix_s is None:
        return "open until the operator closes it"
    at = f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M} UTC"
    return f"closes {at}, in {duration(unix_s - now)}" if unix_s > now else f"deadline was {at}"


def duration(seconds: float) -> str:
    """Returns a duration in two units, rounded up to full minutes, or in seconds below two minutes."""
    if seconds < 120:
        return f"{max(0, round(seconds))} s"
    minutes = -int(-seconds // 60)
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def services_text(services: Sequence[JsonObject]) -> str:
    """Returns a line for every service: its health, its problem, and the number of revoked keys."""
    width = max(len(service["service"]) for service in services)
    lines = []
    for service in services:
        problem = service.get("problem", "")
        if service["health"] == "NOT_SERVING" and not problem:
            problem = "'croupier doctor' says why"
        if service["health"] == "UNREACHABLE":
            said = [f"out of reach: {problem}" if problem else "out of reach"]
        else:
            said = [service["health"], *([problem] if problem else [])]
        if service.get("num_revoked"):
            said.append(f"revoked keys: {service['num_revoked']:,}")
        lines.append("  ".join([f"{service['service']:{width}}", *said]))
    return "\n".join(lines)


def rounds_sections(seen: JsonObject, now: float, *, most: int, services: bool) -> list[Section]:
    """Returns rounds one below the other, each with its id as a title.

    Args:
        seen: "rounds", as `round_json` gives them, newest first, and "services" (`services_json`).
        now: Unix seconds.
        most: the largest number to show.
        services: show the state of the round at each service.
    """
    rounds = seen["rounds"]
    if not rounds:
        silent = [bool(service.get("problem")) for service in seen["services"]]
        if any(silent):
            return [Section("", ["no service answers" if all(silent) else _SOME_SILENT])]
        return [Section("", [_NO_ROUND])]
    sections = [Section(view["round_id"], _round_lines(view, now, services)) for view in rounds[:most]]
    if len(rounds) > most:
        sections.append(Section("", [f"{counted(len(rounds) - most, 'older round')} in 'croupier status'"]))
    return sections


def _round_lines(view: JsonObject, now: float, services: bool) -> list[str]:
    terms, stage = view["terms"], view["stage"]
    lines = [stage if terms is None else f"{stage} · {terms['question']}: {values_of(terms)} ({terms['randomizer']})"]
    if terms is None and not view["problems"] and stage != "PREPARED":
        lines[0] += " · what was kept of it is deleted"
    if terms is not None:
        count, least = view["num_reports"], terms["min_batch_size"]
        bar = ""
        if stage == "OPEN" and count is not None:
            done = min(_BAR, _BAR * count // least)
            bar = f"{'━' * done}{'─' * (_BAR - done)} "
        reports = "unknown how many reports" if count is None else counted(count, "report")
        lines.append(f"{bar}{reports}, {least:,} needed")
        if stage == "OPEN":
            lines.append(deadline(terms["close_deadline_unix_s"], now))
    if stage == "REFUSED":
        lines.append("'croupier survey results' says why")
    if services:
        lines.append(" · ".join(f"{name}\N{NO-BREAK SPACE}{state}" for name, state in view["states"].items()))
        if view["kept_until_unix_s"] is not None:
            lines.append(f"kept until {datetime.fromtimestamp(view['kept_until_unix_s'], UTC).date().isoformat()}")
    return [*lines, *(f"{name}: {problem}" for name, problem in view["problems"].items())]


_VALUES = {
    Form.YES_OR_NO: "1 ({yes}) or 0 ({no})",
    Form.ONE_CHOICE: "one of {labels}",
    Form.SEVERAL_CHOICES: "all that apply of {labels}",
    Form.NUMBER: "a number from {low:g} to {high:g}",
    Form.VECTOR: "{dimension} numbers, computed from the person's data for the model {model}",
}


def describe_device_step(terms: JsonObject, whose: str) -> str:
    """Returns the device's step on an answer before it is sent; whose: "your", or "the person's"."""
    kind = terms["randomizer"]
    described = device_step(kind, whose, records=terms["parameters"].get("records_per_client", 0))
    return described or f"randomizes {whose} answer ({kind}) with {whose} budget"


def values_of(terms: JsonObject) -> str:
    """Returns the values that an answer may have."""
    parameters, form = terms["parameters"], form_of(terms["randomizer"])
    captions = [wording["choices"] for wording in terms["wordings"] if wording["choices"]]
    no, yes = captions[0] if form is Form.YES_OR_NO and captions else ("no", "yes")
    labels = parameters.get("labels") or [*map(str, range(parameters.get("k", 0)))]
    shown = ", ".join(labels[:_MOST_LABELS]) + (f", … ({len(labels)} in all)" if len(labels) > _MOST_LABELS else "")
    values = f"a value for {terms['randomizer']}" if form is None else _VALUES[form]
    return values.format(**parameters | {"labels": shown, "no": no, "yes": yes})


def _wording_lines(terms: JsonObject, wording: JsonObject) -> list[str]:
    """Returns the wording of a question in one language: heading, question, help text, and the captions."""
    choices = wording["choices"]
    values = terms["parameters"].get("labels") or map(str, range(len(choices)))
    pairs = zip(choices, values, strict=True) if choices else ()
    captions = [caption if caption == value else f"{caption} ({value})" for caption, value in pairs]
    more = f"; … ({len(captions)} in all)" if len(captions) > _MOST_LABELS else ""
    named = {"low": wording["low"], "high": wording["high"]}
    ends = [f"{terms['parameters'][end]:g}: {caption}" for end, caption in named.items() if caption]
    number = [*([f"in {wording['unit']}"] if wording["unit"] else []), *ends]
    lines = [
        f"[{wording['language']}] {wording['title'] or wording['question']}",
        wording["question"] if wording["title"] else "",
        wording["help_text"],
        f"Answers: {'; '.join(captions[:_MOST_LABELS])}{more}" if captions else "",
        f"A number {'; '.join(number)}" if number else "",
    ]
    return [line for line in lines if line]


def terms_sections(terms: JsonObject, now: float) -> list[Section]:
    """Returns the text for a person before answering: sections of a title, paragraphs and points.

    Args:
        terms: as `read_round` gives them: terms whose signatures are verified, with "state" and "refusals".
        now: Unix seconds.
    """
    signers, opened = [*terms["shufflers"], terms["accountant"], terms["analyzer"]], terms["state"] == "OPEN"
    return [
        _section(
            terms["round_id"],
            f"It takes {'' if opened else 'no more '}answers ({terms['state']} at {signers[0]}). All below is signed "
            f"by {_and(signers)}, with the keys that the deployment file pins.",
            *(
                f"The accountant has refused this round, so nothing is published: {why['text']}."
                for why in terms.get("refusals", ())
            ),
        ),
        _section(
            f"The question: {terms['question']}",
            *(line for wording in terms["wordings"] for line in _wording_lines(terms, wording)),
            f"The answer is {values_of(terms)}.",
            f"Your device {describe_device_step(terms, 'your')}. Nothing else about your answer leaves it.",
        ),
        _budgets_section(terms),
        _section("When it is read", points=_conditions(terms, now)),
        _section("Who may see what", points=_views_of_roles(terms)),
    ]


def answering_sections(terms: JsonObject, now: float, directory: str = "", gateway: str = "") -> list[Section]:
    """Returns `terms_sections`, and instructions for answering.

    directory: of the deployment, if the command line needs it.
    gateway: of the terms, and of the answer.
    """
    sections, opened = terms_sections(terms, now), terms["state"] == "OPEN"
    if opened and "model" in terms["parameters"]:
        sections.append(_section("To answer", "A program computes the answer from your data; 'croupier train' is one."))
    elif opened:
        lines = ["croupier submit --value-file FILE --epsilon BUDGET", f"  --round {terms['round_id']}"]
        lines += [f"  --dir {directory}"] if directory else []
        lines += [f"  --gateway {gateway}"] if gateway else []
        sections.append(Section("To answer", commands=[" \\\n".join(lines)]))
    return sections


def proposed_sections(terms: JsonObject, now: float) -> list[Section]:
    """Returns the text for an organisation before it approves a round; arguments as for `terms_sections`."""
    return terms_sections(terms | {"state": "PROPOSED", "refusals": []}, now)[1:]


def _section(title: str, *paragraphs: str, points: Sequence[str] = ()) -> Section:
    return Section(title, paragraphs, points)


def _and(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def right_at_most_line(budget: JsonObject) -> str:
    """Returns the largest probability of a right guess of one answer, by a budget of `terms_json`.

    With hop noise it gives the probability if one server is honest, and the one if none is.
    """
    released, alone = percent(budget["released_right_at_most"]), percent(budget["alone_right_at_most"])
    if budget["one_honest_right_at_most"] is not None:
        return (
            f"right at most {percent(budget['one_honest_right_at_most'])} if one shuffler is honest, {alone} if none is"
        )
    return f"right at most {released}, " + (
        "even if all others collude" if alone == released else f"{alone} if all others collude"
    )


def _budgets_section(terms: JsonObject) -> Section:
    budgets = terms["budgets"]
    points = []
    delta = f", δ {round_up(budgets[0]['delta'])}" if budgets[0]["delta"] else ""  # the same for all
    points += [
        f"local ε {round_up(budget['epsilon'])}{delta}: {right_at_most_line(budget)}"
        for budget in budgets[:_MOST_BUDGETS]
    ]
    if len(budgets) > _MOST_BUDGETS:
        points.append(f"{len(budgets) - _MOST_BUDGETS:,} more, all in --json")
    unit = "ONE RECORD of yours" if "records_per_client" in terms["parameters"] else "your answer"
    if terms["hop_noise"] is None:
        promised = (
            "If the round is released, they are not right more often than this; what that rests on is the last line of "
            "'Who may see what'. The certificate then says how much less it is for those who took part:"
        )
    else:
        promised = "They are not right more often than this, whatever all other servers and people do:"
    return _section(
        "Your budget",
        "You say how much you are ready to spend, and the largest of these budgets up to that is used. Smaller is more "
        f"noise. Suppose someone wants to tell which of two values {unit} had, both equally likely beforehand; "
        f"guessing is right 50 % of the time. {promised}",
        points=points,
    )


def _approvals(by_service: Mapping[str, Sequence[str]]) -> dict[tuple[str, ...], list[str]]:
    """Returns the services that have the same organisations on record, by these."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for service, organisations in by_service.items():
        alike.setdefault(tuple(organisations), []).append(service)
    return alike


def _conditions(terms: JsonObject, now: float) -> list[str]:
    """Returns until when people can answer, and the conditions for reading anything."""
    least, limits = terms["min_batch_size"], sorted({budget["epsilon_max"] for budget in terms["budgets"]})
    most = f" (and at most {terms['max_batch_size']:,})" if terms["max_batch_size"] else ""
    points = [f"Nothing is read before at least {least:,} people{most} have answered."]
    if terms["state"] == "OPEN":
        closing = deadline(terms["close_deadline_unix_s"], now)
        short = "stays open" if terms["short_batch"] == "hold" else "is deleted"
        points.append(
            f"{closing[0].upper()}{closing[1:]}. With fewer people by then, the round {short}. It also stays open "
            "while some choice of budgets would have it refused; nobody knows which budgets were chosen."
        )
    above = (
        " or ".join(map(round_up, limits)) if len(limits) < 4 else f"{round_up(limits[0])} to {round_up(limits[-1])}"
    )
    above = above if len(limits) == 1 else f"the limit of a budget, {above}"
    count = f"{terms['dishonest']:,}" if terms["dishonest"] else "none"
    points.append(
        f"Nothing is read, ever, if the accountant certifies an ε above {above}, at δ = {round_up(terms['delta'])}. Of "
        f"the other people it takes {count} to be dishonest."
    )
    if (noise := terms["hop_noise"]) is not None:
        others = (
            f"one of {len(terms['shufflers']):,} shufflers is" if len(terms["shufflers"]) > 1 else "the shuffler is"
        )
        points.append(
            f"Every shuffler adds about {noise['fakes']:,} made-up reports. If {others} honest, nobody can tell your "
            f"answer with more than {percent(noise['right_at_most'])} certainty (ε = {round_up(noise['epsilon'])} at "
            f"δ = {round_up(noise['delta'])}), whatever all other servers and people do. If none is, your own noise is "
            "left."
        )
    limit = terms["privacy_limit"]
    if limit is None:
        points.append("There is no limit to what all rounds of this deployment together may cost a person.")
    else:
        points.append(
            "Over all rounds of this deployment a person who joins each of them once loses at most "
            f"ε = {round_up(limit['total_epsilon'])} at δ = {round_up(limit['total_delta'])}; the accountant keeps the "
            "account, and refuses what is more."
            + (" This assumes that all rounds were planned before the first result." if limit["fixed_terms"] else "")
        )
    for names, services in _approvals(terms.get("approved_by", {})).items():
        points.append(
            f"Approved by {_and(names)}, as {_and(services)} {'has' if len(services) < 2 else 'have'} on record."
        )
    if ledger := terms.get("ledger"):
        points += filter(None, [ledger_line(ledger), budgets_line(ledger["budgets"])])
    if terms["parameters"].get("sequential"):
        points.append("People are asked one after the other. If that is cut short, only your own noise may be left.")
    return points


def _views_of_roles(terms: JsonObject) -> list[str]:
    first, *others = terms["shufflers"]
    order = "; it alone knows in which order people are asked" if terms["parameters"].get("sequential") else ""
    counts, exact = "how many people used each budget", ""
    if (privacy := terms["budget_privacy"]) is not None:
        sure = percent(right_at_most(privacy["epsilon"], privacy["delta"]))
        counts += (
            f" (noised: up to {privacy['most_uncounted']:,} people of each are left out; who guesses between two "
            f"budgets is right about yours at most {sure} of the time)"
        )
    elif len(terms["budgets"]) > 1:
        exact = " These counts are exact: someone who knows the budgets of all others can compute your budget."
    result = (
        "but the result only those who have the collector's key" if terms["sealed_to_collector"] else "and the result"
    )
    secret = "at least one shuffler keeps" if others and not order else f"{first} keeps"
    dishonest = terms["dishonest"]
    cheats = f"at most {dishonest:,} of the other people are dishonest" if dishonest else "nobody else is dishonest"
    points = [f"{first} sees that you take part, but neither your answer nor your budget{order}."]
    if others:
        points.append(f"{_and(others)} {'see' if len(others) > 1 else 'sees'} sealed messages, but not whose they are.")
    return [
        *points,
        "The accountant sees that you take part, and which budgets were used, but not by whom. It sees no answer.",
        "The analyzer sees the noisy answers once the accountant has certified them, but not whose they are.",
        f"Everybody sees the certificate, with {counts}, {result}.{exact}",
        f"This, the percentages of a released round and what rounds may cost together hold if {secret} secret in which "
        f"order it passes messages on, the accountant follows the rules, and {cheats}. Otherwise your own noise is "
        "left.",
    ]
