"""Asking another question than the one to which the rule of a survey has led."""

from __future__ import annotations

from pathlib import Path

import grpc.aio
import pytest

from croupier.client.round_checks import fetch_signed_result
from croupier.client.submission import Participant
from croupier.operator.round_settings import manifest_of
from croupier.operator.survey_plans import survey_from
from croupier.protocol.deployment import OPERATOR
from croupier.protocol.errors import Code, refusal_of
from croupier.protocol.identity import Identity, Kind, canonical
from croupier.protocol.surveys import Survey, scheduled
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.service_directory import load_secrets
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


async def said(at: Table, survey: Survey, kept: list[str] | None, before: pb.Signed | None) -> set[Code | None]:
    """What the services say to a second wave that asks about these beginnings, with this result of the first one."""
    wave = scheduled(survey).wave(2, 1_700_100_000)
    round_id, chain = survey.round_id(0, 2), at.deployment.chain
    keys = {name: await at.operator.prepare(name, round_id, survey.suite) for name in chain}
    state = None if kept is None else pb.RuleState(kept=kept)
    codes: set[Code | None] = set()
    for name in chain:
        request = rpc.SignRequest(
            manifest=manifest_of(survey, 0, wave, keys, chain, state), survey=survey.payload, before=before
        )
        try:
            await stubs.RoundControlStub(at.operator.channel_to(name)).Sign(request)
            codes.add(None)
        except grpc.aio.AioRpcError as error:
            refusal = refusal_of(error)
            assert refusal is not None
            codes.add(refusal.code)
    return codes


@pytest.mark.virtual_time
async def test_no_service_signs_a_question_that_the_rule_has_not_led_to(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        asked, before = await after_first_wave(at, "drinks")
        _, of_another = await after_first_wave(at, "others")
        publication = pb.Publication.FromString(before.payload)
        kept = [*publication.rule_state.kept]
        assert "t" in kept
        for chosen in (["c"], [*kept, "c"], kept[1:] or ["e"], ["tea"], ["x"], []):
            assert await said(at, asked, chosen, before) == {Code.BAD_MANIFEST}
        assert await said(at, asked, None, before) == {Code.BAD_MANIFEST}
        assert await said(at, asked, kept, None) == {Code.BAD_SIGNATURE}
        # The result of another survey, and one that the operator has signed.
        assert await said(at, asked, kept, of_another) == {Code.BAD_BATCH}
        publication.rule_state.kept[:] = ["c"]
        operator = Identity(OPERATOR, load_secrets(at.inside.directory / OPERATOR).identity_key)
        forged = operator.signed(Kind.PUBLICATION, canonical(publication))
        assert await said(at, asked, ["c"], forged) == {Code.BAD_SIGNATURE}
        assert await said(at, asked, kept, before) == {None}
