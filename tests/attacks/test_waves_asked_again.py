"""Asking a wave of a study more often than announced, and changing what its first wave has promised."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import grpc.aio
import pytest

from croupier.client.outbox import Outbox
from croupier.client.submission import Participant
from croupier.operator.ledger import backup_ledger, restore_ledger
from croupier.operator.round_settings import RoundSettings, check_settings, terms_of
from croupier.operator.survey_plans import OfStudy, plan_survey
from croupier.protocol.codes import RefusalReason
from croupier.protocol.errors import Code, Refusal, refusal_of
from croupier.protocol.manifest import RoundTerms, canonical
from croupier.protocol.names import RoundId
from croupier.protocol.studies import StudyPromises
from croupier.protocol.surveys import SurveyRound, stated_terms_hash
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.rows.studies import StudyRows
from croupier.study.versions import StudyVersion, describe_study
from tests.support.messages import naming
from tests.support.rounds import Table, table
from tests.support.statements import codes, parameters
from tests.support.studies import study_file

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]
FIRST = {"first": "2030-01-01T08:00:00", "waves": 2}
ONE = [{"name": "ill", "question": "Were you ill?"}]
ALL = ("shuffler-1", "accountant", "analyzer")


def study(at: Table, **changes: object) -> StudyVersion:
    terms: dict[str, object] = {"calendar": FIRST, "min_batch_size": 2, "questions": ONE, "permanent": True}
    return describe_study(study_file(**terms | changes), at.deployment)  # type: ignore[arg-type]


def wave(at: Table, version: StudyVersion, number: int = 1, again: str = "") -> Mapping[RoundId, RoundSettings]:
    """The rounds of a wave, or of the same wave under other names, with another description."""
    of_study: OfStudy = version.of_study(number)
    survey, settings = plan_survey(version.file.survey(of_study.wave), at.deployment, of_study)
    if not again:
        return settings
    others = {RoundId(f"{survey.survey_id}-{again}-{name.rpartition('-')[2]}"): how for name, how in settings.items()}
    rounds = []
    for name, how in others.items():
        terms = check_settings(replace(how, survey=None), at.deployment, name)
        rounds.append(SurveyRound(name, stated_terms_hash(terms.manifest)))
    other = replace(survey, rounds=tuple(rounds))
    assert other.hash != survey.hash
    return {name: replace(how, survey=other) for name, how in others.items()}


async def open_wave(at: Table, settings: Mapping[RoundId, RoundSettings]) -> list[RoundTerms]:
    return [await at.operator.open_signed(await at.operator.sign_round(how, name)) for name, how in settings.items()]


async def refusals(at: Table, settings: Mapping[RoundId, RoundSettings]) -> dict[str, Refusal | None]:
    """What each service by itself says to signing the first round."""
    (round_id, how), *_ = settings.items()
    keys = {name: await at.operator.prepare(name, round_id, how.hpke_suite) for name in at.deployment.chain}
    manifest = terms_of(how, round_id, at.deployment)
    manifest.hops.extend(keys[name] for name in at.deployment.chain[:-2])
    manifest.accountant.CopyFrom(keys["accountant"])
    manifest.analyzer.CopyFrom(keys["analyzer"])
    answers: dict[str, Refusal | None] = {}
    for name in at.deployment.chain:
        control = stubs.RoundControlStub(at.operator.channel_to(name))
        try:
            await control.Sign(rpc.SignRequest(manifest=canonical(manifest)))
            answers[name] = None
        except grpc.aio.AioRpcError as error:
            answers[name] = refusal_of(error)
    return answers


def code_of(answers: Mapping[str, Refusal | None]) -> dict[str, Code | None]:
    return {name: refusal.code if refusal else None for name, refusal in answers.items()}


@pytest.mark.parametrize("permanent", [True, False])
async def test_no_service_signs_a_wave_a_second_time(tmp_path: Path, permanent: bool) -> None:
    """Reproduction: ten rounds of a series of two waves were signed and granted, each as if it were one of two."""
    async with table(tmp_path, 1) as at:
        version = study(at, permanent=permanent)
        await open_wave(at, wave(at, version))
        answers = await refusals(at, wave(at, version, again="b"))
        assert code_of(answers) == dict.fromkeys(ALL, Code.CONFLICT)
        for name in ALL:  # it is in their stores
            await at.inside.stop(name)
            await at.inside.start(name)
        answers = await refusals(at, wave(at, version, again="c"))
        assert code_of(answers) == dict.fromkeys(ALL, Code.CONFLICT)
        await open_wave(at, wave(at, version, 2))


async def test_a_withdrawn_wave_that_was_open_is_not_asked_again(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        version = study(at)
        first = wave(at, version)
        for name, how in first.items():
            await at.operator.sign_round(how, name)
        for round_id in first:
            assert set((await at.operator.withdraw(round_id)).values()) == {"DISPOSED"}
        # Nothing of it was open: the operator may correct the description.
        corrected = wave(at, version, again="corrected")
        await open_wave(at, corrected)
        for round_id in corrected:
            assert set((await at.operator.withdraw(round_id)).values()) == {"DISPOSED"}
        assert code_of(await refusals(at, wave(at, version, again="b"))) == dict.fromkeys(ALL, Code.CONFLICT)


async def test_the_accountant_signs_no_more_rounds_than_waves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself: what services know of the survey of a wave is taken away."""
    async with table(tmp_path, 1) as at:
        version = study(at)
        await open_wave(at, wave(at, version))
        await open_wave(at, wave(at, version, 2))
        monkeypatch.setattr(StudyRows, "check_wave", lambda *_: None)
        answers = await refusals(at, wave(at, version, again="b"))
        assert code_of(answers) == dict.fromkeys(ALL, None) | {"accountant": Code.BAD_MANIFEST}
        assert re.search(naming("'wellbeing-w1-b-1'", 3, 2), str(answers["accountant"]))


async def test_the_accountant_grants_no_more_rounds_than_waves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself: three rounds of two waves have been signed."""
    monkeypatch.setattr(StudyRows, "check_wave", lambda *_: None)
    monkeypatch.setattr("croupier.accountant.service.service.check_series", lambda *_: None)
    async with table(tmp_path, 1) as at:
        version = study(at)
        granted = []
        for number, again in ((1, ""), (2, ""), (1, "b")):
            (terms,) = await open_wave(at, wave(at, version, number, again))
            at.outbox = Outbox(tmp_path / f"{terms.round_id}.db")  # the client's count is taken away, too
            await at.submit(terms, [Participant(1, 1.0)] * 5)
            _, certificate = await at.finish(terms)
            granted.append(certificate.granted)
        assert granted == [True, True, False]
        assert codes(certificate.refusals) == [RefusalReason.SERIES_USED_UP]
        assert parameters(certificate.refusals, RefusalReason.SERIES_USED_UP) == {"waves": 2}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"epsilon_total": 60}, "total_epsilon"),
        ({"delta_total": 2e-3}, "total_delta"),
        ({"permanent": False}, "permanent"),
        ({"results": "operator"}, "results"),
    ],
)
async def test_no_service_signs_a_version_that_breaks_a_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], field: str
) -> None:
    """Reproduction: waves of a version with a limit of 60 were granted after one was refused at 1.5."""
    async with table(tmp_path, 1) as at:
        first = study(at)
        await open_wave(at, wave(at, first))
        collector = bytes(range(32)) if "results" in changes else b""
        same = {"calendar": FIRST, "min_batch_size": 2, "questions": ONE, "permanent": True}
        file = study_file(**{**same, **changes})  # type: ignore[arg-type]
        # The operator's own check is taken away.
        monkeypatch.setattr(StudyPromises, "check_kept", lambda *_: None)
        later = describe_study(file, at.deployment, collector, first.study, "More.", 2)
        monkeypatch.undo()
        answers = await refusals(at, wave(at, later, 2))
        assert code_of(answers) == dict.fromkeys(ALL, Code.BAD_MANIFEST)
        assert all(refusal and field in str(refusal) for refusal in answers.values())


async def test_no_service_signs_a_wave_whose_results_another_key_reads(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        sealed = study_file(calendar=FIRST, min_batch_size=2, questions=ONE, results="operator")
        first = describe_study(sealed, at.deployment, bytes(range(32)))
        await open_wave(at, wave(at, first))
        other = describe_study(sealed, at.deployment, bytes(range(1, 33)), first.study, "Another key.", 2)
        assert other.study.previous_hash == first.study.hash
        answers = await refusals(at, wave(at, other, 2))
        assert code_of(answers) == dict.fromkeys(ALL, Code.BAD_MANIFEST)
        assert all(refusal and "collector_public_key" in str(refusal) for refusal in answers.values())


async def test_a_restored_ledger_knows_the_waves_and_the_promises(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        version = study(at)
        await open_wave(at, wave(at, version))
        directory, backup = at.inside.directory, tmp_path / "ledger.json"
        assert await asyncio.to_thread(backup_ledger, directory, backup) == 0
        await at.inside.stop("accountant")
        for file in (directory / "accountant").glob("rounds.db*"):
            file.unlink()
        for _ in range(2):
            assert restore_ledger(directory, backup) == 0
        await at.inside.start("accountant")
        answers = await refusals(at, wave(at, version, again="b"))
        assert code_of(answers)["accountant"] is Code.CONFLICT
