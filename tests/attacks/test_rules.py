"""Asking another question than the one to which the rule of a survey has led."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from croupier.analyzer.descent import led_to
from croupier.client.round_checks import fetch_signed_result
from croupier.client.submission import Participant
from croupier.operator.opened_surveys import keep_survey, open_rounds
from croupier.operator.round_settings import RoundSettings, manifest_of, survey_of
from croupier.operator.survey_plans import survey_from
from croupier.protocol.deployment import OPERATOR
from croupier.protocol.errors import Code
from croupier.protocol.identity import Identity, Kind, canonical
from croupier.protocol.manifest import RoundTerms, parse_terms
from croupier.protocol.mechanisms.hemisphere import Hemisphere
from croupier.protocol.mechanisms.vector_task import VectorTask
from croupier.protocol.questions import Question
from croupier.protocol.rules import Descent
from croupier.protocol.schedules import Calendar, Schedule
from croupier.protocol.surveys import Survey, scheduled
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.service_directory import load_secrets
from tests.attacks.cheaters import said_to_signing
from tests.support.rounds import Table, table
from tests.support.studies import open_wave, study_file

QUESTION = {"name": "drink", "question": "What do you drink?", "alphabet": "tecupa", "longest": 2}
CALENDAR = {"first": "2023-11-15T08:00:00", "every": "result", "on": None, "waves": 1, "timezone": "UTC"}
ALL = ("shuffler-1", "accountant", "analyzer")


async def after_first_wave(at: Table, name: str) -> tuple[Survey, pb.Signed]:
    """Returns a survey and the signed result of its first wave, which has led to a second one."""
    budgets = {"budgets": [7], "min_batch_size": 20, "epsilon_max": 7, "epsilon_total": 21}
    survey = survey_from(study_file(name, calendar=CALENDAR, questions=[QUESTION], **budgets), at.deployment)
    (terms,) = await open_wave(at, survey, 1)
    await at.submit(terms, [Participant(terms.question.mechanism.parse_value("tea"), 7.0)] * 20)
    await at.finish(terms)
    async with at.operator.client_channel(at.deployment.analyzer.name) as channel:
        return survey, await fetch_signed_result(channel, terms.round_id, 0.0)


async def said(
    at: Table, survey: Survey, state: pb.RuleState | None, before: pb.Signed | None, number: int = 2
) -> set[Code | None]:
    """What the services say to a further wave at this state of the rule, with this result of an earlier one."""
    wave = scheduled(survey).wave(number, 1_700_100_000)
    round_id, chain = survey.round_id(0, number), at.deployment.chain
    keys = {name: await at.operator.prepare(name, round_id, survey.message.hpke_suite) for name in chain}
    payload = manifest_of(survey, 0, wave, keys, chain, state)
    return {await said_to_signing(at.operator, name, payload, survey.payload, before) for name in chain}


def forged(at: Table, publication: pb.Publication) -> pb.Signed:
    """A result that the operator has signed."""
    operator = Identity(OPERATOR, load_secrets(at.inside.directory / OPERATOR).identity_key)
    return operator.signed(Kind.PUBLICATION, canonical(publication))


@pytest.mark.virtual_time
async def test_no_service_signs_a_question_that_the_rule_has_not_led_to(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        asked, before = await after_first_wave(at, "drinks")
        _, of_another = await after_first_wave(at, "others")
        publication = pb.Publication.FromString(before.payload)
        kept = [*publication.rule_state.kept]
        assert "t" in kept
        for chosen in (["c"], [*kept, "c"], kept[1:] or ["e"], ["tea"], ["x"], []):
            assert await said(at, asked, pb.RuleState(kept=chosen), before) == {Code.BAD_MANIFEST}
        assert await said(at, asked, None, before) == {Code.BAD_MANIFEST}
        reached = pb.RuleState(kept=kept)
        assert await said(at, asked, reached, None) == {Code.BAD_SIGNATURE}
        # The result of another survey, and one that the operator has signed.
        assert await said(at, asked, reached, of_another) == {Code.BAD_BATCH}
        publication.rule_state.kept[:] = ["c"]
        assert await said(at, asked, pb.RuleState(kept=["c"]), forged(at, publication)) == {Code.BAD_SIGNATURE}
        assert await said(at, asked, reached, before) == {None}


DIMENSION = 3


def floats(*numbers: float) -> bytes:
    return np.array(numbers, dtype="<f4").tobytes()


INITIAL = floats(0.5, -1.0, 2.0)


def training(at: Table, name: str, rule: Descent) -> Survey:
    question = Question(name, Hemisphere(VectorTask(DIMENSION, 1.0, "line", b"")))
    asked = RoundSettings(question, (2.0, 4.0), epsilon_max=20.0, min_batch_size=20, rule=rule)
    calendar = Calendar(datetime(2023, 11, 15, 8), "result", "UTC", 3600)
    schedule = Schedule(1, None, "", calendar, 1, 9, 200.0, 1e-3, False, "public")
    return survey_of([asked], name, at.deployment, schedule=schedule)


async def wave_of(at: Table, survey: Survey, number: int, state: pb.RuleState) -> RoundTerms:
    keep_survey(at.inside.directory, survey)
    wave = scheduled(survey).wave(number, 1_700_100_000)
    (terms,) = await open_rounds(at.operator, at.inside.directory, survey, wave, state=state)
    return terms


async def result_of(at: Table, terms: RoundTerms) -> pb.Signed:
    await at.submit(terms, [Participant(np.array([1.0, 0.0, 0.0]), 4.0)] * 20)
    await at.finish(terms)
    async with at.operator.client_channel(at.deployment.analyzer.name) as channel:
        return await fetch_signed_result(channel, terms.round_id, 0.0)


@pytest.mark.virtual_time
async def test_no_service_signs_parameters_that_the_rule_has_not_led_to(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        rule = Descent(hashlib.sha256(INITIAL).digest(), 0.25, 0.5)
        survey = training(at, "line", rule)
        begin = pb.RuleState(parameters=INITIAL)
        elsewhere = floats(0.0, 0.0, 9.0)
        for other in (elsewhere, b"", INITIAL[4:]):
            assert await said(at, survey, pb.RuleState(parameters=other), None, 1) == {Code.BAD_MANIFEST}
        assert await said(at, survey, None, None, 1) == {Code.BAD_MANIFEST}
        first = await wave_of(at, survey, 1, begin)
        assert first.question == replace(
            survey.questions[0].question, mechanism=Hemisphere(VectorTask(DIMENSION, 1.0, "line", INITIAL))
        )
        # While the first wave may have a result, the second cannot be asked at the same parameters.
        assert await said(at, survey, begin, None) == {Code.WRONG_STATE}
        before = await result_of(at, first)
        publication = pb.Publication.FromString(before.payload)
        reached = led_to(parse_terms(publication.round), publication.vector)
        assert reached.parameters != INITIAL
        for state in (
            pb.RuleState(steps=1, parameters=elsewhere, velocity=reached.velocity),
            pb.RuleState(steps=1, parameters=reached.parameters, velocity=elsewhere),
        ):
            assert await said(at, survey, state, before) == {Code.BAD_MANIFEST}
            publication.rule_state.CopyFrom(rule.published(state))
            assert await said(at, survey, state, forged(at, publication)) == {Code.BAD_SIGNATURE}
        assert await said(at, survey, begin, before) == {Code.WRONG_STATE}
        assert await said(at, survey, reached, None) == {Code.BAD_SIGNATURE}
        # A wave that may still have a result is not passed over: it must have ended at every service.
        assert await said(at, survey, reached, before) == {None}
        assert await said(at, survey, reached, before, 3) == {Code.WRONG_STATE}
        await at.operator.withdraw(survey.round_id(0, 2))
        assert await said(at, survey, reached, before, 3) == {None}


@pytest.mark.virtual_time
async def test_parameters_that_an_operator_decides_on_follow_a_result(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        survey = training(at, "line", Descent(hashlib.sha256(INITIAL).digest(), by_operator=True))
        chosen = pb.RuleState(parameters=floats(1.0, 2.0, 3.0), steps=1)
        unasked = pb.RuleState(parameters=chosen.parameters)
        assert await said(at, survey, unasked, None, 1) == {Code.BAD_MANIFEST}
        first = await wave_of(at, survey, 1, pb.RuleState(parameters=INITIAL))
        assert await said(at, survey, chosen, None) == {Code.BAD_SIGNATURE}
        before = await result_of(at, first)
        assert await said(at, survey, unasked, before) == {Code.BAD_MANIFEST}
        assert await said(at, survey, chosen, before) == {None}
