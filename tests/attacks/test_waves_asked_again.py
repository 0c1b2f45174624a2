"""Asking a wave of a survey more often than announced, and changing what its first version has promised."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from croupier.operator.ledger import backup_ledger, restore_ledger
from croupier.operator.round_settings import manifest_of
from croupier.operator.survey_plans import survey_from
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.surveys import Survey, scheduled
from tests.attacks.cheaters import said_to_signing
from tests.support.messages import naming
from tests.support.rounds import Table, table
from tests.support.studies import study_file
from tests.support.surveys import survey_file

pytestmark = pytest.mark.virtual_time
FIRST = {"first": "2030-01-01T08:00:00", "waves": 2}
ONE = [{"name": "ill", "question": "Were you ill?"}]
TWO = [*ONE, {"name": "well", "question": "Were you well?"}]
ALL = ("shuffler-1", "accountant", "analyzer")


def survey(at: Table, collector: bytes = b"", before: Survey | None = None, **changes: object) -> Survey:
    terms: dict[str, object] = {"calendar": FIRST, "min_batch_size": 2, "questions": ONE, "permanent": True}
    file = study_file(**terms | changes)  # type: ignore[arg-type]
    if before is None:
        return survey_from(file, at.deployment, collector_public_key=collector)
    return survey_from(file, at.deployment, collector_public_key=collector, before=before, change="More.", first_wave=2)


async def open_wave(at: Table, asked: Survey, number: int = 1) -> list[RoundTerms]:
    wave = scheduled(asked).wave(number)
    return [
        await at.operator.open_signed(await at.operator.sign_round(asked, place, wave))
        for place in range(len(asked.questions))
    ]


async def withdraw(at: Table, asked: Survey) -> None:
    for round_id in asked.round_ids(1):
        assert set((await at.operator.withdraw(round_id)).values()) == {"DISPOSED"}


async def refusals(
    at: Table, asked: Survey, number: int = 1, known: RoundTerms | None = None
) -> dict[str, Code | None]:
    """What each service by itself says to signing the last question of a wave.

    known: a round of this name for which services have made keys already.
    """
    place, wave = len(asked.questions) - 1, scheduled(asked).wave(number)
    chain, round_id = at.deployment.chain, asked.round_id(place, number)
    keys = {
        name: known.keys_of(name) if known else await at.operator.prepare(name, round_id, asked.message.hpke_suite)
        for name in chain
    }
    payload = manifest_of(asked, place, wave, keys, chain)
    return {name: await said_to_signing(at.operator, name, payload, asked.payload) for name in chain}


@pytest.mark.parametrize("permanent", [True, False])
async def test_no_service_signs_a_wave_a_second_time(tmp_path: Path, permanent: bool) -> None:
    """Reproduction: ten rounds of a series of two waves were signed and granted, each as if it were one of two."""
    async with table(tmp_path, 1) as at:
        asked = survey(at, permanent=permanent)
        (first,) = await open_wave(at, asked)
        with pytest.raises(Refusal, match=naming("'wellbeing-w1-1'")):  # the name of the round is used
            await at.operator.sign_round(asked, 0, first.wave)
        other, longer = survey(at, permanent=permanent, title="Other"), survey(at, permanent=permanent, questions=TWO)
        conflict = dict.fromkeys(ALL, Code.CONFLICT)
        assert await refusals(at, other, known=first) == conflict
        assert await refusals(at, longer) == conflict  # of a question that the wave does not have
        for name in ALL:  # it is in their stores
            await at.inside.restart(name)
        assert await refusals(at, other, known=first) == conflict
        assert await refusals(at, longer) == conflict
        await open_wave(at, asked, 2)


async def test_a_survey_that_is_asked_once_is_asked_once(tmp_path: Path) -> None:
    """Its name stands for it, whatever else is asked under it: with a schedule, or with another question."""
    async with table(tmp_path, 1) as at:
        once = survey_from(survey_file("wellbeing", min_batch_size=2), at.deployment)
        await at.operator.open_signed(await at.operator.sign_round(once))
        assert await refusals(at, survey(at)) == dict.fromkeys(ALL, Code.CONFLICT)


async def test_a_withdrawn_wave_that_was_open_is_not_asked_again(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        three = [*TWO, {"name": "so", "question": "Were you so so?"}]
        asked, corrected = (survey(at, questions=TWO, title=title) for title in ("First", "Second"))
        await at.operator.sign_round(asked, 0, scheduled(asked).wave(1))
        assert set((await at.operator.withdraw(asked.round_id(0, 1))).values()) == {"DISPOSED"}
        # Nothing of it was open: the operator may correct the survey. The name of the withdrawn round is used.
        wave = scheduled(corrected).wave(1)
        terms = await at.operator.open_signed(await at.operator.sign_round(corrected, 1, wave))
        assert set((await at.operator.withdraw(terms.round_id)).values()) == {"DISPOSED"}
        assert await refusals(at, survey(at, questions=three)) == dict.fromkeys(ALL, Code.CONFLICT)


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
        first = survey(at)
        await open_wave(at, first)
        collector = bytes(range(32)) if "results" in changes else b""
        # The operator's own check is taken away.
        monkeypatch.setattr(Survey, "check_promises_of", lambda *_: None)
        later = survey(at, collector, first, **changes)
        monkeypatch.undo()
        assert await refusals(at, later, 2) == dict.fromkeys(ALL, Code.BAD_MANIFEST)
        with pytest.raises(ValueError, match=naming(field, "must stay")):
            survey(at, collector, first, **changes)


async def test_no_service_signs_a_wave_whose_results_another_key_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with table(tmp_path, 1) as at:
        first = survey(at, bytes(range(32)), results="operator")
        await open_wave(at, first)
        monkeypatch.setattr(Survey, "check_promises_of", lambda *_: None)
        other = survey(at, bytes(range(1, 33)), first, results="operator")
        monkeypatch.undo()
        assert scheduled(other).previous_hash == first.hash
        assert await refusals(at, other, 2) == dict.fromkeys(ALL, Code.BAD_MANIFEST)


async def test_a_restored_ledger_knows_the_waves_and_the_promises(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        asked = survey(at)
        await open_wave(at, asked)
        directory, backup = at.inside.directory, tmp_path / "ledger.json"
        assert await asyncio.to_thread(backup_ledger, directory, backup) == 0
        await at.inside.stop("accountant")
        for file in (directory / "accountant").glob("rounds.db*"):
            file.unlink()
        for _ in range(2):
            assert restore_ledger(directory, backup) == 0
        await at.inside.start("accountant")
        assert (await refusals(at, survey(at, questions=TWO)))["accountant"] is Code.CONFLICT
