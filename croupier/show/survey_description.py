"""Surveys as JSON documents and in the terminal: the text for a person before answering all questions of one."""

from __future__ import annotations

import time
from collections.abc import Sequence

from croupier.accountant.basic_composition import WorstCases, all_together
from croupier.accountant.guarantees import Guarantee
from croupier.accountant.guessing import right_at_most
from croupier.protocol.documents import document_of
from croupier.protocol.manifest import RoundTerms, one_survey
from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import percent, round_up
from croupier.protocol.surveys import Survey
from croupier.show.blocks import Section
from croupier.show.documents import terms_json
from croupier.show.round_text import deadline, proposed_sections, values_of
from croupier.show.study_description import study_json, study_sections

LEFT_OUT_TEXTS = {
    "missing": "A question that a person left out was not sent: the number of people at each question shows how many "
    "did that.",
    "random": "For a question that a person left out, their device sent an answer that it had drawn uniformly: nobody "
    "sees how many did that, and every result is about these answers, too.",
}
"""The meaning of a left-out question for the results."""


def survey_json(rounds: Sequence[tuple[RoundTerms, str]]) -> JsonObject:
    """Returns a survey: its texts, the budgets of all answers together, and the terms of every round.

    Args:
        rounds: all rounds of the survey in order, each with its state at hop 1.

    Raises:
        ValueError: they are not all rounds of one survey.
    """
    survey = one_survey([terms for terms, _ in rounds])
    questions: list[JsonObject] = [{**terms_json(terms), "state": state} for terms, state in rounds]
    budgets: list[JsonObject] = []
    for choice in zip(*(terms.budget_grid for terms, _ in rounds), strict=True):
        cases = all_together(
            [WorstCases.of(terms, epsilon) for (terms, _), epsilon in zip(rounds, choice, strict=True)]
        )
        alone = cases.no_honest_hop
        budgets.append(
            {
                "epsilon": alone.epsilon,
                "of_each": list(choice),
                "alone_right_at_most": right_at_most(alone.epsilon, alone.delta),
            }
        )
    return {
        "survey_id": survey.survey_id,
        "hash": survey.hash.hex(),
        "wordings": document_of(survey.wordings),
        "left_out": survey.left_out,
        "budgets": budgets,
        "one_honest_hop": _one_honest_hop(cases.one_honest_hop),
        "questions": questions,
    }


def _one_honest_hop(hop: Guarantee | None) -> JsonObject | None:
    """Returns the guarantee of all answers with the largest budgets if one hop is honest; None without hop noise."""
    if hop is None:
        return None
    return {"epsilon": hop.epsilon, "delta": hop.delta, "right_at_most": right_at_most(hop.epsilon, hop.delta)}


def survey_sections(document: JsonObject, now: float) -> list[Section]:
    """Returns the text for a person before answering a survey, from `survey_json`."""
    questions = document["questions"]
    first = document["wordings"][0] if document["wordings"] else {"title": "", "introduction": "", "consent": ""}
    named = [
        question["wordings"][0]["question"] if question["wordings"] else question["question"] for question in questions
    ]
    budgets = [
        f"ε {round_up(budget['epsilon'])} for all answers together, {' + '.join(f'{e:g}' for e in budget['of_each'])}: "
        f"whatever the servers do, someone who wants to tell two sets of answers apart is right at most "
        f"{percent(budget['alone_right_at_most'])} of the time"
        for budget in document["budgets"]
    ]
    honest = document["one_honest_hop"]
    promise = () if honest is None else (_one_honest_section(honest, len(questions[0]["shufflers"])),)
    states = sorted({question["state"] for question in questions})
    return [
        _section(document["survey_id"], first["title"], first["introduction"], f"State at hop 1: {', '.join(states)}."),
        _section("What a person agrees to", first["consent"]),
        _section(
            "The questions",
            points=[f"{text} ({values_of(question)})" for text, question in zip(named, questions, strict=True)],
        ),
        _section("The budgets, one of which a person chooses", points=budgets),
        *promise,
        _section(
            "When it is read",
            f"{deadline(questions[0]['close_deadline_unix_s'], now)}. 'croupier survey show ROUND' has the terms of "
            "each round.",
            LEFT_OUT_TEXTS[document["left_out"]],
        ),
    ]


def _one_honest_section(honest: JsonObject, hops: int) -> Section:
    return _section(
        "If one server is honest",
        f"Each of the {hops:,} servers that shuffle adds made-up answers to every question. If at least one of these "
        "servers is honest, someone who wants to tell two sets of answers apart is right at most "
        f"{percent(honest['right_at_most'])} of the time, whatever all other servers and people do (the hop noise of "
        f"all questions adds up to ε = {round_up(honest['epsilon'])} at δ = {round_up(honest['delta'])}). If none is, "
        "the person's own noise remains: the budgets above.",
    )


def survey_texts(survey: Survey, chain: Sequence[str]) -> list[Section]:
    """Returns the texts and terms of a survey, all that its services sign, before it is open.

    chain: the names of the services.
    """
    now = time.time()
    sections = study_sections(study_json(survey)) if survey.schedule else []
    for wording in survey.wordings:
        sections.append(_section(f"{wording.title} ({wording.language})", wording.introduction))
        sections.append(_section("What a person agrees to", wording.consent))
    return sections + [each for terms in survey.questions for each in proposed_sections(terms_json(terms, chain), now)]


def _section(title: str, *paragraphs: str, points: Sequence[str] = ()) -> Section:
    return Section(title, [*filter(None, paragraphs)], points)
