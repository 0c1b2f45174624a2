"""Studies as JSON documents and in the terminal: the text of a person's consent, and the opening times of waves."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypedDict

from rich.table import Table
from rich.text import Text

from croupier.protocol.certificate_views import GuaranteeView
from croupier.protocol.rounding import round_up
from croupier.protocol.schedules import RESULTS_TEXTS, Results
from croupier.protocol.surveys import Survey, scheduled
from croupier.show.certificate_tables import counted
from croupier.show.text import note_lines, sections_text

_EVERY = {"once": "once", "day": "every day", "week": "every week"}
_MOST_LISTED = 12


class StudyWaveView(TypedDict):
    """A wave of a study by the calendar; times are Unix seconds."""

    number: int
    survey_id: str
    opens_unix_s: int
    closes_unix_s: int


class StudyView(TypedDict):
    """One version of a study."""

    study_id: str
    version: int
    hash: str
    previous_hash: str | None
    change: str
    title: str
    consent: str
    questions: list[str]
    first: str
    every: str
    timezone: str
    open_for_s: int
    total_epsilon: float
    total_delta: float
    permanent: bool
    results: Results
    waves: list[StudyWaveView]


def study_json(survey: Survey) -> StudyView:
    """Returns a version of a survey with a schedule, with its texts in the first language."""
    study = scheduled(survey)
    calendar, texts = study.calendar, survey.wordings[0] if survey.wordings else None
    asked = [terms.question for terms in survey.questions]
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
        "permanent": study.permanent,
        "results": study.results,
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


def study_text(document: StudyView) -> Text:
    """Returns a version of a study for people who are asked to follow it, from `study_json`."""
    waves = document["waves"]
    weekday = f" on {datetime.fromisoformat(document['first']):%A}" if document["every"] == "week" else ""
    often = f"It asks {_EVERY[document['every']]}{weekday} at {document['first'][-5:]} ({document['timezone']}), "
    often += f"{counted(len(waves), 'wave')}, each open for {_duration(document['open_for_s'])}."
    listed = [
        f"wave {wave['number']}: {_utc(wave['opens_unix_s'])} to {_utc(wave['closes_unix_s'])}"
        for wave in (waves if len(waves) <= _MOST_LISTED else [*waves[:3], waves[-1]])
    ]
    again = (
        "A device randomizes an answer once, and sends the same report again while the answer is the same."
        if document["permanent"]
        else "A device randomizes an answer afresh for every wave."
    )
    return sections_text(
        [
            {
                "title": f"{document['study_id']}: {document['title']}",
                "paragraphs": tuple(
                    filter(None, (f"Version {document['version']}, hash {document['hash']}.", document["change"]))
                ),
                "points": (),
            },
            {"title": "What a person agrees to", "paragraphs": (document["consent"],), "points": ()},
            {"title": "The questions of every wave", "paragraphs": (), "points": tuple(document["questions"])},
            {"title": "When it asks", "paragraphs": (often,), "points": tuple(listed)},
            {
                "title": "What it may cost, and who reads the results",
                "paragraphs": (
                    f"All waves together may cost a person at most ε = {round_up(document['total_epsilon'])} at "
                    f"δ = {round_up(document['total_delta'])}; the accountant refuses a wave beyond that.",
                    again,
                    RESULTS_TEXTS[document["results"]],
                ),
                "points": (),
            },
        ]
    )


def _utc(unix_s: int) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%a %Y-%m-%d %H:%M} UTC"


def _duration(seconds: int) -> str:
    for unit, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % unit == 0:
            return counted(seconds // unit, name)
    return counted(seconds, "second")


# ------------------------------------------------------------------------------------------------------------- plans


class PlannedQuestionView(TypedDict):
    """A question in one wave, if everybody uses one budget; errors are half of 95 % intervals, on a range of 1."""

    name: str
    local_epsilon: float
    epsilon: float
    delta: float
    grade: str
    error_participants: float
    error_population: float


class PlannedTotalView(TypedDict):
    """The cost of a number of waves for one person under each trust statement; None without a bound or hop noise."""

    period: str
    waves: int
    shuffle: GuaranteeView | None
    one_honest: GuaranteeView | None
    alone: GuaranteeView | None


class PlannedTierView(TypedDict):
    """A budget for all answers of a wave together, and the results if everybody uses it."""

    budget: float
    questions: list[PlannedQuestionView]
    totals: list[PlannedTotalView]
    waves_borne: int


class StudyPlanView(TypedDict):
    """The plan of a study; "solved" names the missing quantity that was found."""

    people: int
    waves: int
    epsilon_total: float
    delta_total: float
    solved: list[str]
    tiers: list[PlannedTierView]


_TRUST = {
    "shuffle": "one secret order",
    "one_honest": "one honest hop",
    "alone": "none honest",
}


def plan_tables(plan: StudyPlanView) -> list[Table]:
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
            waves.add_row(
                budget,
                question["name"],
                f"{question['local_epsilon']:g}",
                f"± {100 * question['error_participants']:.3g} %",
                f"± {100 * question['error_population']:.3g} %",
                round_up(question["epsilon"], 4),
                question["grade"],
            )
        waves.add_section()
        for trust, said in _TRUST.items():
            guarantees = [total[trust] for total in tier["totals"]]  # type: ignore[literal-required]
            if trust == "one_honest" and not any(guarantees):
                continue
            numbers = [
                "no bound" if guarantee is None else round_up(guarantee["epsilon"], 4) for guarantee in guarantees
            ]
            costs.add_row(
                budget, said, *numbers, next((guarantee["grade"] for guarantee in guarantees if guarantee), "")
            )
        costs.add_section()
    return [waves, costs]


def plan_lines(plan: StudyPlanView) -> list[str]:
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


def _period(total: PlannedTotalView) -> str:
    return {"wave": "a wave", "year": f"a year ({total['waves']:,})", "study": f"the study ({total['waves']:,})"}[
        total["period"]
    ]
