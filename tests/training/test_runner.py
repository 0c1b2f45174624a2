"""`run_training`, as a program has it that is not the command line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from croupier.training.config import TrainingConfig
from croupier.training.outcome import TrainingOutcome
from croupier.training.runner import Reports, run_training
from tests.support.messages import naming


def test_a_program_is_told_of_every_epoch_and_given_the_outcome(tmp_path: Path) -> None:
    told: list[tuple[int, str]] = []
    notes: list[str] = []

    def progress(outcome: TrainingOutcome) -> None:
        told.append((outcome.records[-1].epoch, outcome.line()))

    config = TrainingConfig(simulate=True, epochs=2, budgets="2:1,4:1", out=tmp_path)
    outcome = run_training(config, Reports(progress, note=notes.append))
    assert [epoch for epoch, _ in told] == [1, 2]
    assert "CERTIFIED, simulated" in told[-1][1]
    planned, compared = notes
    assert re.search(naming("1297 clients", "d = 640"), planned)
    assert re.search(naming("without noise", "2 epochs"), compared)
    assert outcome.noise_free[-1] > outcome.records[-1].figure
    first, second = outcome.spending
    assert first is not None
    assert second is not None
    assert 0 < first.epsilon < second.epsilon < second.everyone_else_colludes == 8.0
    assert json.loads((tmp_path / "training.json").read_text()) == outcome.document()
    torch.nn.Linear(63, 10).load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))


@pytest.mark.slow
def test_the_same_configuration_gives_the_same_simulation(tmp_path: Path) -> None:
    config = TrainingConfig(simulate=True, epochs=1, unit="record", clients=20, out=tmp_path)
    first = run_training(config)
    assert first.document() == run_training(config).document()
    assert len(first.noise_free) == 1
    assert not run_training(replace(config, baseline=False)).noise_free


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            TrainingConfig(simulate=True, epsilon_limit=0.01),
            r"epsilon_limit.*0\.01",
        ),
        (TrainingConfig(simulate=True, device="abacus"), "device.*'abacus'"),
        (TrainingConfig(unit="record", clients=2000), r"clients.*2000.*1\.\.1297"),
        (TrainingConfig(batch_size=100, budgets="1:1,2:1"), "batch_size is 100; it must be 0 with 2 different budgets"),
    ],
)
def test_what_only_the_data_or_the_machine_can_tell_is_said(config: TrainingConfig, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_training(config)
