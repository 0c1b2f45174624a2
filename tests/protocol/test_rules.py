"""The rule of a training: its ranges, and the surveys and manifests that it excludes."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from croupier.operator.round_settings import RoundSettings, survey_of
from croupier.protocol.mechanisms.gaussian_vector import GaussianVector
from croupier.protocol.mechanisms.hemisphere import Hemisphere
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.vector_task import SequentialOrder, VectorTask
from croupier.protocol.questions import Question
from croupier.protocol.rules import MOST_WITH_MOMENTUM, Descent, Rule
from croupier.protocol.schedules import Calendar, Period, Schedule
from croupier.protocol.surveys import Survey, scheduled
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.survey_description import survey_json, survey_sections
from tests.support.messages import naming

INITIAL = bytes(range(8))
RULE = Descent(hashlib.sha256(INITIAL).digest(), 0.5)
TASK = VectorTask(2, 1.0, "line", b"")


def survey(rule: Rule | None = RULE, task: VectorTask | None = TASK, every: Period = "result") -> Survey:
    question = Question("line", KaryResponse(2) if task is None else Hemisphere(task))
    schedule = Schedule(
        1, None, "", Calendar(datetime(2026, 1, 5, 8), every, "UTC", 3600), 1, 9, 9.0, 1e-3, False, "public"
    )
    return survey_of([RoundSettings(question, (1.0, 2.0), rule=rule)], "training", None, schedule=schedule)


def test_a_training_of_records_promises_nothing_about_a_person() -> None:
    question = Question("line", GaussianVector(TASK, 10, 1e-6))
    schedule = scheduled(survey())
    of_records = survey_of([RoundSettings(question, (1.0,), rule=RULE)], "training", None, schedule=schedule)
    for stated, whose in ((survey(), "cost a person at most"), (of_records, "cost one RECORD of a person at most")):
        (cost,) = [
            section
            for section in survey_sections(survey_json(stated.questions), 0.0)
            if section.title.startswith("What it may cost")
        ]
        assert whose in cost.paragraphs[0]


def test_a_survey_states_its_training() -> None:
    for rule in (RULE, replace(RULE, momentum=0.5, decaying=True), Descent(RULE.initial_sha256, by_operator=True)):
        assert survey(rule).questions[0].rule == rule
    sequential = replace(TASK, sequential=SequentialOrder(100, 0.5))
    assert survey(task=sequential).questions[0].question.sequential == sequential.sequential


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"initial_sha256": b"short"}, naming("initial_sha256", 5, 32)),
        ({"learning_rate": 0.0}, naming("learning_rate", 0)),
        ({"learning_rate": float("inf")}, naming("learning_rate", "inf")),
        ({"momentum": 1.0}, naming("momentum", 1)),
        ({"by_operator": True}, naming("by_operator", "learning_rate")),
    ],
)
def test_numbers_outside_their_range_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(RULE, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": None}, naming("vector")),
        ({"task": replace(TASK, parameters=INITIAL)}, naming("no parameters")),
        ({"every": "week"}, naming("follow results")),
        ({"rule": None, "every": "week"}, naming("no parameters")),
        (
            {"rule": replace(RULE, momentum=0.5), "task": replace(TASK, dimension=MOST_WITH_MOMENTUM + 1)},
            naming("200,001", "200,000"),
        ),
        ({"task": replace(TASK, sequential=SequentialOrder(100, 0.25))}, naming("learning_rate", "0.5", "0.25")),
    ],
)
def test_surveys_that_the_rule_excludes_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        survey(**changes)


def test_a_wave_asks_at_the_parameters_of_its_state() -> None:
    later = bytes(8)
    with_momentum = replace(RULE, momentum=0.5)
    stated = survey().questions[0].question
    asked = replace(stated, mechanism=Hemisphere(replace(TASK, parameters=later)))
    assert RULE.asked(stated, pb.RuleState(parameters=later, steps=1), 2) == asked
    assert with_momentum.asked(stated, pb.RuleState(parameters=later, velocity=later, steps=1), 2) == asked
    for rule, state, message in (
        (RULE, None, naming("rule_state")),
        (RULE, pb.RuleState(parameters=later), naming("begins")),
        (RULE, pb.RuleState(parameters=INITIAL[4:]), naming(4, 8)),
        (RULE, pb.RuleState(parameters=later, steps=2), naming("2 steps", "wave 2")),
        (RULE, pb.RuleState(parameters=later, velocity=later, steps=1), naming(8, 0)),
        (RULE, pb.RuleState(parameters=later, kept=["a"], steps=1), naming("nothing else")),
        (with_momentum, pb.RuleState(parameters=later, steps=1), naming("velocity", 8)),
    ):
        with pytest.raises(ValueError, match=message):
            rule.asked(stated, state, 2)
