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
        ({"budgets": "0:1"}, "the epsilon of a group is 0; it must be a finite number > 0"),
        ({"budgets": "1:nan"}, "the share of a group is nan; it must be a finite number > 0"),
        ({"budgets": "1:2:3"}, "budgets has the part '1:2:3'; it must be epsilon:share"),
        ({"budgets": "30:1"}, "an epsilon in budgets is 30; it must be 0 < epsilon <= 20"),
        ({"dataset": "cifar"}, "dataset is 'cifar'; it must be digits or mnist"),
        ({"features": "raw"}, "features is 'raw'; it must be pixels, dct, scattering or pca"),
        ({"model": "forest"}, "model is 'forest'; it must be softmax, relu or a Python file"),
        ({"epochs": 0}, "epochs is 0; it must be at least 1"),
        ({"order": "random"}, "order is 'random'; it must be batch or sequential"),
        ({"order": "sequential", "batch_size": 5}, "batch_size is 5; it must be 0 in order sequential"),
        ({"order": "sequential", "averaging": 0.5}, "averaging 0.5; they must be 0 and 1 in order sequential"),
        ({"order": "sequential", "momentum": 0.5}, "momentum is 0.5 and averaging 1; they must be 0 and 1"),
        ({"period_s": 0}, "period_s is 0; it must be in 0.001..600 seconds"),
        ({"unit": "planet"}, "unit is 'planet'; it must be user or record"),
        ({"clients": 1}, "clients is 1; it must be at least 2"),
        ({"watch": "luck"}, "watch is 'luck'; it must be validation or test"),
        ({"batch_size": -1}, "batch_size is -1; it must be at least 1, or 0 for all clients"),
        ({"clipping_norm": 0}, "clipping_norm is 0; it must be in 1e-20..1e20"),
        ({"delta": 2}, "delta is 2; it must be in 1e-12..0.1"),
        ({"delta": float("nan")}, "delta is nan; it must be in 1e-12..0.1"),
        ({"epsilon_limit": -1}, "epsilon_limit is -1; it must be a finite number > 0, or 0 for no limit"),
        ({"learning_rate": -1}, "learning_rate is -1; it must be 0 < learning_rate <= 1e6"),
        ({"averaging": 0}, "averaging is 0; it must be 0 < averaging <= 1"),
        ({"seed": -1}, "seed is -1; it must be in 0..2^63 - 1"),
        ({"private": False}, "private is False; it must be True in a deployment"),
        ({"simulate": True, "directory": Path("clinic")}, "dir is clinic; it must not be given for a simulation"),
    ],
)
def test_a_training_that_cannot_be_is_refused_at_construction(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        TrainingConfig(**fields)
    assert message in str(caught.value)


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
