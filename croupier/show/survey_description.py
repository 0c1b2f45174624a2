"""Surveys as JSON documents, and their texts for a person before answering and for organisations before they sign."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

from croupier.accountant.basic_composition import WorstCases, all_together
from croupier.accountant.guarantees import Guarantee
from croupier.accountant.guessing import right_at_most
from croupier.protocol.documents import document_of
from croupier.protocol.mechanisms.gaussian_vector import GaussianVector
from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import percent, round_up
from croupier.protocol.schedules import RESULTS_TEXTS
from croupier.protocol.surveys import QuestionTerms, Survey
from croupier.show.blocks import Section
from croupier.show.documents import terms_json
from croupier.show.round_text import deadline, proposed_sections, values_of
from croupier.show.text import counted, utc

LEFT_OUT_TEXTS = {
    "missing": "A question that a person left out was not sent: the number of people at each question shows how many "
    "did that.",
    "random": "For a question that a person left out, their device sent an answer that it had drawn uniformly: nobody "
    "sees how many did that, and every result is about these answers, too.",
}
"""The meaning of a left-out question for the results."""
_EVERY = {"once": "once", "day": "every day", "week": "every week"}
_MOST_LISTED = 12


def survey_json(
    questions: Sequence[QuestionTerms], chain: Sequence[str] = (), states: Sequence[str] = ()
) -> JsonObject:
    """Returns a survey: its texts, its schedule, the budgets of all answers together, and the terms of every question.

    Args:
        questions: all of one survey in order; of an open one, the terms of its rounds.
        chain: see `terms_json`.
        states: of its rounds at hop 1; none of a survey that is not open.
    """
    survey = questions[0].survey
    asked = [terms_json(terms, chain) for terms in questions]
    for terms, state in zip(asked, states, strict=False):
        terms["state"] = state
    budgets: list[JsonObject] = []
    for choice in zip(*(terms.budget_grid for terms in questions), strict=True):
        cases = all_together([WorstCases.of(terms, epsilon) for terms, epsilon in zip(questions, choice, strict=True)])
        alone = cases.no_honest_hop
        budgets.append(
            {
                "epsilon": alone.epsilon,
                "of_each": list(choice),
                "alone_right_at_most": right_at_most(alone.epsilon, alone.delta),
            }
        )
    of_records = any(isinstance(terms.question.mechanism, GaussianVector) for terms in questions)
    return {
        "survey_id": survey.survey_id,
        "hash": survey.hash.hex(),
        "wordings": document_of(survey.wordings),
        "protects": "one RECORD of a person" if of_records else "a person",
        "left_out": survey.left_out,
        "schedule": _schedule_json(survey),
        "budgets": budgets,
        "one_honest_hop": _one_honest_hop(cases.one_honest_hop),
        "questions": asked,
    }


def _one_honest_hop(hop: Guarantee | None) -> JsonObject | None:
    """Returns the guarantee of all answers with the largest budgets if one hop is honest; None without hop noise."""
    if hop is None:
        return None
    return {"epsilon": hop.epsilon, "delta": hop.delta, "right_at_most": right_at_most(hop.epsilon, hop.delta)}


def _schedule_json(survey: Survey) -> JsonObject | None:
    """Returns the schedule of a version of a survey with its waves; None for a survey that is asked once."""
    schedule = survey.schedule
    if schedule is None:
        return None
    calendar = schedule.calendar
    return {
        "version": schedule.version,
        "previous_hash": None if schedule.previous_hash is None else schedule.previous_hash.hex(),
        "change": schedule.change,
        "first": calendar.first.strftime("%Y-%m-%dT%H:%M"),
        "every": calendar.every,
        "timezone": calendar.timezone,
        "open_for_s": calendar.open_for_s,
        "total_epsilon": schedule.total_epsilon,
        "total_delta": schedule.total_delta,
        "permanent": schedule.permanent,
        "results": schedule.results,
        "last_wave": schedule.last_wave,
        "waves": [
            {
                "number": wave.number,
                "survey_id": survey.wave_name(wave.number),
                "opens_unix_s": wave.opens_unix_s,
                "closes_unix_s": wave.closes_unix_s,
            }
            for wave in schedule.waves()
        ],
    }


def survey_sections(document: JsonObject, now: float) -> list[Section]:
    """Returns the text for a person before answering a survey, from `survey_json`; now: Unix seconds."""
    questions, schedule, honest = document["questions"], document["schedule"], document["one_honest_hop"]
    stated = [f"Version {schedule['version']}, hash {document['hash']}.", schedule["change"]] if schedule else []
    if states := sorted({question["state"] for question in questions if "state" in question}):
        stated.append(f"State at hop 1: {', '.join(states)}.")
    sections = [_section(document["survey_id"], *stated)]
    for wording in document["wordings"]:
        sections.append(_section(f"{wording['title']} ({wording['language']})", wording["introduction"]))
        sections.append(_section("What a person agrees to", wording["consent"]))
    named = [each["wordings"][0]["question"] if each["wordings"] else each["question"] for each in questions]
    asked = [f"{text} ({values_of(question)})" for text, question in zip(named, questions, strict=True)]
    sections.append(_section("The questions of every wave" if schedule else "The questions", points=asked))
    sections += _schedule_sections(schedule, document["protects"]) if schedule else []
    # Whatever is protected: all answers of a person, or one record that the answers of a wave were computed from.
    told = "two sets of answers" if document["protects"] == "a person" else "two values of one RECORD"
    of_wave = " to a wave" if schedule else ""
    budgets = [
        f"ε {round_up(budget['epsilon'])} for all answers{of_wave} together, "
        f"{' + '.join(f'{e:g}' for e in budget['of_each'])}: whatever the servers do, someone who wants to tell {told} "
        f"apart is right at most {percent(budget['alone_right_at_most'])} of the time"
        for budget in document["budgets"]
    ]
    sections.append(_section("The budgets, one of which a person chooses", points=budgets))
    if honest is not None:
        sections.append(_one_honest_section(honest, len(questions[0]["shufflers"]), told, of_wave))
    terms = "'croupier survey show ROUND' has the terms of each round."
    until = "" if schedule else f"{deadline(questions[0]['close_deadline_unix_s'], now)}. {terms}"
    title = "If a question is left out" if schedule else "When it is read"
    return [*sections, _section(title, until, LEFT_OUT_TEXTS[document["left_out"]])]


def _schedule_sections(schedule: JsonObject, protects: str) -> list[Section]:
    waves, at = schedule["waves"], f"at {schedule['first'][-5:]} ({schedule['timezone']})"
    open_for = f"each open for {_duration(schedule['open_for_s'])}"
    if schedule["every"] == "result":
        often = f"It asks in at most {schedule['last_wave']} waves, {open_for}. The first opens on "
        often += f"{schedule['first'][:10]} {at}, each other one once the wave before has its result, which decides on "
        often += "its question by the rule that is stated."
    else:
        weekday = f" on {datetime.fromisoformat(schedule['first']):%A}" if schedule["every"] == "week" else ""
        often = f"It asks {_EVERY[schedule['every']]}{weekday} {at}, {counted(len(waves), 'wave')}, {open_for}."
    listed = [
        f"wave {wave['number']}: {utc(wave['opens_unix_s'])} to {utc(wave['closes_unix_s'])}"
        for wave in (waves if len(waves) <= _MOST_LISTED else [*waves[:3], waves[-1]])
    ]
    again = (
        "A device randomizes an answer once, and sends the same report again while the answer is the same."
        if schedule["permanent"]
        else "A device randomizes an answer afresh for every wave."
    )
    cost = (
        f"All waves together may cost {protects} at most ε = {round_up(schedule['total_epsilon'])} at "
        f"δ = {round_up(schedule['total_delta'])}; the accountant refuses a wave beyond that."
    )
    return [
        _section("When it asks", often, points=listed),
        _section("What it may cost, and who reads the results", cost, again, RESULTS_TEXTS[schedule["results"]]),
    ]


def _duration(seconds: int) -> str:
    for unit, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % unit == 0:
            return counted(seconds // unit, name)
    return counted(seconds, "second")


def _one_honest_section(honest: JsonObject, hops: int, told: str, of_wave: str) -> Section:
    return _section(
        "If one server is honest",
        f"Each of the {hops:,} servers that shuffle adds made-up answers to every question. If at least one of these "
        f"servers is honest, someone who wants to tell {told} apart is right at most "
        f"{percent(honest['right_at_most'])} of the time, whatever all other servers and people do (the hop noise of "
        f"all answers{of_wave} adds up to ε = {round_up(honest['epsilon'])} at δ = {round_up(honest['delta'])}). If "
        "none is, the person's own noise remains: the budgets above.",
    )


def survey_texts(survey: Survey, chain: Sequence[str] = ()) -> list[Section]:
    """Returns the texts and terms of a survey, all that its services sign; chain: see `terms_json`."""
    now, document = time.time(), survey_json(survey.questions, chain)
    terms = [section for question in document["questions"] for section in proposed_sections(question, now)]
    return [*survey_sections(document, now), *terms]


def _section(title: str, *paragraphs: str, points: Sequence[str] = ()) -> Section:
    return Section(title, [*filter(None, paragraphs)], points)
