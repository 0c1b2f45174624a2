"""A training whose process is killed wherever it is, and started again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from croupier.accountant.rounds.ledger import Ledger
from croupier.analyzer.descent import led_to
from croupier.deploy.directory import read_deployment, store_url
from croupier.operator.ledger_stores import open_store
from croupier.operator.opened_surveys import kept_versions, signed_result_of
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.manifest import parse_terms
from croupier.protocol.publications import read_publication
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.service_directory import load_settings
from croupier.study.journal import read_journal, wave_records
from croupier.study.versions import journal_file
from croupier.training.checkpoint import Checkpoint
from croupier.training.config import StepRule
from tests.support.studies import killed_at_drawn_moments
from tests.training.deployments import take, training

pytestmark = [pytest.mark.slow, pytest.mark.virtual_time]

USERS, KILLS, MOMENTS = 6, 50, 36


def settings(question: Question) -> RoundSettings:
    return RoundSettings(question, (2.0, 4.0), delta=1e-4, epsilon_max=20.0, min_batch_size=USERS)


async def test_a_training_goes_on_wherever_its_process_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty times at drawn moments: every wave is asked once, by its rule, and enters model and ledger once.

    Reproduction: a process that was killed while services signed a round asked them for one with another time.
    """
    async with training(tmp_path, USERS, settings, rule=StepRule(4.0, 0.5), setting={}) as (run, inside):

        async def process() -> None:  # three steps have more moments than it lives for
            await take(run, run.resume().descent.steps + 3)

        where: dict[str, Any] = {"everywhere": True, "around": [(Checkpoint, "save")]}
        killed = await killed_at_drawn_moments(monkeypatch, process, KILLS, MOMENTS, **where)
        assert killed == KILLS
        progress = run.resume()
        assert run.unreleased(progress) == 0
        (survey,) = kept_versions(inside.directory, progress.survey_id).values()
        waves = range(1, progress.wave + 1)
        rounds = [survey.round_id(0, number) for number in waves]
        journal = wave_records(read_journal(journal_file(inside.directory, survey.survey_id)))
        assert {number: record.step for number, record in journal.items()} == dict.fromkeys(waves, "published")
        assert [*progress.answered] == rounds
        assert all(batch.tiers == ((2.0, 3), (4.0, 3)) for batch in progress.answered.values())
        assert [(record.epoch, record.steps) for record in progress.history] == [(number, number) for number in waves]
        with open_store(
            store_url(load_settings(inside.directory / "accountant"), inside.directory / "accountant")
        ) as at:
            assert sorted(round_id for round_id, *_ in Ledger(at).entered()) == sorted(rounds)
        reached = run.model.initial.numpy().astype("<f4").tobytes()
        for number in waves:
            document = signed_result_of(inside.directory, survey, 0, number)
            assert document is not None
            publication, _ = read_publication(document, read_deployment(inside.directory), rounds[number - 1])
            terms = parse_terms(publication.round)
            assert pb.Manifest.FromString(terms.payload).rule_state.parameters == reached
            reached = led_to(terms, publication.vector).parameters
        assert np.allclose(progress.descent.parameters.numpy(), np.frombuffer(reached, dtype="<f4"), atol=1e-5)
