"""Studies as JSON documents and in the terminal: the text of a person's consent, and the opening times of waves."""

from __future__ import annotations

from datetime import datetime

from croupier.protocol.mechanisms.gaussian_vector import GaussianVector
from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import round_up
from croupier.protocol.schedules import RESULTS_TEXTS
from croupier.protocol.surveys import Survey, scheduled
from croupier.show.blocks import Section, Table
from croupier.show.text import counted, note_lines, utc

_EVERY = {"once": "once", "day": "every day", "week": "every week"}
_MOST_LISTED = 12


def study_json(survey: Survey) -> JsonObject:
    """Returns a version of a survey with a schedule, with its texts in the first language."""
    study = scheduled(survey)
    calendar, texts = study.calendar, survey.wordings[0] if survey.wordings else None
    asked = [terms.question for terms in survey.questions]
    of_records = any(isinstance(question.mechanism, GaussianVector) for question in asked)
    return {
        "study_id": survey.survey_id,
        "version": study.version,
        "hash": survey.hash.hex(),
        "previous_hash": None if study.previous_hash is None else study.previous_hash.hex(),
        "change": study.change,
        "title": texts.title if texts else survey.survey_id,
        "consent": texts.consent if texts else "",
        "questions": [each.wordings[0].question if each.wordings else each.name for each in asked],
        "first": calendar.first.strftime("%Y-%m-%dT%H:%M"),
        "every": calendar.every,
        "timezone": calendar.timezone,
        "open_for_s": calendar.open_for_s,
        "total_epsilon": study.total_epsilon,
        "total_delta": study.total_delta,
        "protects": "one RECORD of a person" if of_records else "a person",
        "permanent": study.permanent,
        "results": study.results,
        "last_wave": study.last_wave,
        "waves": [
            {
                "number": wave.number,
                "survey_id": survey.wave_name(wave.number),
                "opens_unix_s": wave.opens_unix_s,
                "closes_unix_s": wave.closes_unix_s,
            }
            for wave in study.waves()
        ],
    }


def study_sections(document: JsonObject) -> list[Section]:
    """Returns a version of a study for people who are asked to follow it, from `study_json`."""
    waves = document["waves"]
    weekday = f" on {datetime.fromisoformat(document['first']):%A}" if document["every"] == "week" else ""
    open_for = f"each open for {_duration(document['open_for_s'])}"
    if document["every"] == "result":
        often = f"It asks in at most {document['last_wave']} waves, {open_for}. The first opens on "
        often += f"{document['first'][:10]} at {document['first'][-5:]} ({document['timezone']}), each other one once "
        often += "the wave before has its result, which decides on its question by the rule that is stated."
    else:
        often = f"It asks {_EVERY[document['every']]}{weekday} at {document['first'][-5:]} ({document['timezone']}), "
        often += f"{counted(len(waves), 'wave')}, {open_for}."
    listed = [
        f"wave {wave['number']}: {utc(wave['opens_unix_s'])} to {utc(wave['closes_unix_s'])}"
        for wave in (waves if len(waves) <= _MOST_LISTED else [*waves[:3], waves[-1]])
    ]
    again = (
        "A device randomizes an answer once, and sends the same report again while the answer is the same."
        if document["permanent"]
        else "A device randomizes an answer afresh for every wave."
    )
    cost = (
        f"All waves together may cost {document['protects']} at most ε = {round_up(document['total_epsilon'])} at "
        f"δ = {round_up(document['total_delta'])}; the accountant refuses a wave beyond that."
    )
    results = RESULTS_TEXTS[document["results"]]
    version = [f"Version {document['version']}, hash {document['hash']}.", document["change"]]
    return [
        Section(f"{document['study_id']}: {document['title']}", [*filter(None, version)]),
        Section("What a person agrees to", [document["consent"]]),
        Section("The questions of every wave", points=document["questions"]),
        Section("When it asks", [often], listed),
        Section("What it may cost, and who reads the results", [cost, again, results]),
    ]


def _duration(seconds: int) -> str:
    for unit, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % unit == 0:
            return counted(seconds // unit, name)
    return counted(seconds, "second")


# ------------------------------------------------------------------------------------------------------------- plans


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
