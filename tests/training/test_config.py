"""What a training can be told to do, and what it refuses before anything is loaded."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from croupier.training.config import StepRule, TrainingConfig


@pytest.mark.parametrize(
    ("unit", "order", "expected"),
    [
        ("user", "batch", StepRule(8.0, averaging=0.3)),
        ("user", "sequential", StepRule(0.01)),
        ("record", "batch", StepRule(2.0, averaging=0.3)),
        ("record", "sequential", StepRule(0.05)),
    ],
)
def test_steps_have_a_default_for_each_unit_and_order(unit: str, order: str, expected: StepRule) -> None:
    assert TrainingConfig(unit=unit, order=order).step_rule == expected
    chosen = TrainingConfig(unit=unit, order=order, simulate=True, learning_rate=3.0, momentum=0.5, averaging=0.7)
    assert chosen.step_rule == StepRule(3.0, 0.5, averaging=0.7)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"budgets": "0:1"}, "epsilon.*0.*> 0"),
        ({"budgets": "1:nan"}, "share.*nan.*> 0"),
        ({"budgets": "1:2:3"}, "budgets.*'1:2:3'"),
        ({"budgets": "30:1"}, "epsilon.*30.*0 < epsilon <= 20"),
        ({"dataset": "cifar"}, "dataset is 'cifar'; it must be digits or mnist"),
        ({"features": "raw"}, "features is 'raw'; it must be pixels, dct, scattering or pca"),
        ({"model": "forest"}, "model.*'forest'"),
        ({"epochs": 0}, "epochs.*0.*1"),
        ({"order": "random"}, "order is 'random'; it must be batch or sequential"),
        ({"order": "sequential", "batch_size": 5}, "batch_size is 5; it must be 0 in order sequential"),
        ({"order": "sequential", "averaging": 0.5}, "averaging 0.5; they must be 0 and 1 in order sequential"),
        ({"order": "sequential", "momentum": 0.5}, "momentum is 0.5 and averaging 1; they must be 0 and 1"),
        ({"period_s": 0}, r"period_s.*0.*0\.001\.\.600 seconds"),
        ({"unit": "planet"}, "unit.*'planet'"),
        ({"clients": 1}, "clients.*1.*2"),
        ({"watch": "luck"}, "watch is 'luck'; it must be validation or test"),
        ({"batch_size": -1}, "batch_size.*-1.*1.*0"),
        ({"clipping_norm": 0}, r"clipping_norm.*0.*1e-20\.\.1e20"),
        ({"delta": 2}, r"delta.*2.*1e-12\.\.0\.1"),
        ({"delta": float("nan")}, r"delta.*1e-12\.\.0\.1"),
        ({"epsilon_limit": -1}, "epsilon_limit.*-1.*> 0.*0"),
        ({"learning_rate": -1}, "learning_rate is -1; it must be 0 < learning_rate <= 1e6"),
        ({"averaging": 0}, "averaging is 0; it must be 0 < averaging <= 1"),
        ({"seed": -1}, r"seed.*-1.*0\.\.2\^63.*1"),
        ({"private": False}, "private"),
        ({"simulate": True, "directory": Path("clinic")}, "dir"),
    ],
)
def test_a_training_that_cannot_be_is_refused_at_construction(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**fields)


def test_a_checked_configuration_stays_as_it_is() -> None:
    config = TrainingConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.delta = 2.0  # type: ignore[misc]
    with pytest.raises(ValueError, match="delta is 2"):
        dataclasses.replace(config, delta=2.0)


def test_a_configuration_is_made_without_torch() -> None:
    program = "import sys; from croupier.training.config import TrainingConfig as T; T(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
