"""`croupier.training`, as a program uses it: its own module, data set, optimizer and schedule."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset

import croupier.training as public
from croupier.protocol.codes import Assumption
from croupier.show.training import training_remark
from croupier.training.config import StepRule, TrainingConfig, TrainingSettings
from croupier.training.datasets import Examples
from croupier.training.descent import Descent
from croupier.training.models import new_module
from croupier.training.outcome import NoiseComparison, TrainingOutcome
from croupier.training.runner import Reports, run_training, train
from croupier.training.subject import subject_of_module
from tests.support.messages import naming

SHAPE = (1, 4, 4)


def examples(count: int, seed: int) -> TensorDataset:
    """Two classes of small pictures: bright above, or bright below."""
    source = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, 2, (count,), generator=source)
    pictures = 0.3 * torch.randn((count, *SHAPE), generator=source)
    pictures[:, :, :2] += (1.0 - 2.0 * targets)[:, None, None, None]
    return TensorDataset(pictures, targets)


def network(seed: int = 0) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    layers = (torch.nn.Conv2d(1, 2, 2, stride=2), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(8, 2))
    return torch.nn.Sequential(*layers)


TRAIN, HELD_OUT = examples(300, 1), examples(100, 2)


def settings(out: Path, **fields: Any) -> TrainingSettings:
    usual: dict[str, Any] = {"simulate": True, "epochs": 8, "budgets": "4:1", "baseline": False, "out": out}
    return TrainingSettings(**usual | fields)


ADAM = partial(torch.optim.Adam, lr=0.1)


@pytest.mark.slow
def test_any_module_learns_with_an_optimizer_and_a_schedule_of_torch(tmp_path: Path) -> None:
    module = network()
    before = {name: part.clone() for name, part in module.state_dict().items()}
    schedule = partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.8)
    outcome = train(
        module, TRAIN, HELD_OUT, settings(tmp_path, averaging=1.0), optimizer=ADAM, schedule=schedule, features="raw"
    )
    assert all(torch.equal(part, before[name]) for name, part in module.state_dict().items())
    module.load_state_dict(outcome.state_dict)
    right = (module(HELD_OUT.tensors[0]).argmax(dim=1) == HELD_OUT.tensors[1]).float().mean()
    assert float(right) == pytest.approx(outcome.records[-1].accuracy)
    assert outcome.records[-1].figure > 0.85
    spent = outcome.spending[-1]
    assert spent is not None
    assert 0 < spent.epsilon < 8 * 4
    assert spent.grade == "CERTIFIED"
    assert str(outcome.setting["optimizer"]).startswith("Adam [{")
    assert str(outcome.setting["optimizer"]).endswith(", ExponentialLR")
    assert Assumption.MODEL_FILE_BLIND in {assumption.code for assumption in spent.assumptions}
    kept = torch.load(tmp_path / "model.pt", weights_only=True)
    assert all(torch.equal(kept[name], part) for name, part in outcome.state_dict.items())


@pytest.mark.slow
def test_the_optimizer_takes_the_steps_that_torch_would(tmp_path: Path) -> None:
    """Reference: torch's own loop on the same mean of clipped gradients, without noise."""
    schedule = partial(torch.optim.lr_scheduler.StepLR, step_size=2, gamma=0.5)
    optimizer = partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)
    how = settings(tmp_path, private=False, epochs=5, averaging=1.0)
    outcome = train(network(), TRAIN, HELD_OUT, how, optimizer=optimizer, schedule=schedule)
    module = network()
    stepper = optimizer(module.parameters())
    decay = schedule(stepper)
    for _ in range(5):
        total = [torch.zeros_like(part) for part in module.parameters()]
        for picture, target in zip(*TRAIN.tensors, strict=True):
            loss = torch.nn.functional.cross_entropy(module(picture[None]), target[None])
            parts = torch.autograd.grad(loss, [*module.parameters()])
            length = math.sqrt(sum(float(part.square().sum()) for part in parts))
            for whole, part in zip(total, parts, strict=True):
                whole += part * min(1.0, 1.0 / length) / len(TRAIN)
        for part, whole in zip(module.parameters(), total, strict=True):
            part.grad = whole
        stepper.step()
        decay.step()
    for name, part in module.state_dict().items():
        assert torch.allclose(outcome.state_dict[name], part, atol=1e-5)
    assert outcome.noise is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [{}, {"optimizer": ADAM, "schedule": partial(torch.optim.lr_scheduler.StepLR, step_size=3)}],
    ids=["plain steps", "Adam"],
)
def test_a_simulation_that_was_stopped_goes_on_as_if_it_had_not(tmp_path: Path, make: dict[str, Any]) -> None:
    whole = train(network(), TRAIN, HELD_OUT, settings(tmp_path / "whole"), **make)

    def stop(outcome: TrainingOutcome) -> None:
        if len(outcome.records) == 3:
            raise KeyboardInterrupt

    parts = settings(tmp_path / "parts")
    with pytest.raises(KeyboardInterrupt):
        train(network(), TRAIN, HELD_OUT, parts, reports=Reports(stop), **make)
    told: list[int] = []
    going_on = Reports(lambda outcome: told.append(outcome.records[-1].epoch))
    resumed = train(network(), TRAIN, HELD_OUT, replace(parts, resume=True), reports=going_on, **make)
    assert told == [*range(1, 9)]
    assert resumed.document() == whole.document()
    for name, part in whole.state_dict.items():
        assert torch.equal(resumed.state_dict[name], part)
    for other, message in (({"budgets": "2:1"}, "budgets is '2:1', but"), ({"seed": 5}, "seed is 5, but")):
        with pytest.raises(ValueError, match=message):
            train(network(), TRAIN, HELD_OUT, replace(parts, resume=True, **other), **make)
    if make:
        with pytest.raises(ValueError, match="optimizer is None, but"):
            train(network(), TRAIN, HELD_OUT, replace(parts, resume=True))


def test_signal_and_noise_are_told_apart_from_what_is_published() -> None:
    """A gradient of length 3 in 20,000 dimensions, with noise of length 5 in each of 30 steps."""
    dimension, steps, source = 20_000, 30, torch.Generator().manual_seed(4)
    gradient = torch.zeros(dimension)
    gradient[0] = 3.0
    descent = Descent(torch.zeros(dimension), StepRule(1.0))
    error = 5.0 / math.sqrt(dimension)
    for _ in range(steps):
        descent.step(gradient + error * torch.randn(dimension, generator=source), error)
    noise = NoiseComparison.of(
        descent.squares, descent.noise, steps, dimension, epochs=10, users=1000, clipping_norm=2.0
    )
    assert noise.noise == pytest.approx(5 / math.sqrt(30))
    assert noise.signal == pytest.approx(3.0, rel=0.02)
    assert noise.measured
    ratio = noise.noise / noise.signal
    assert (noise.epochs, noise.users) == (math.ceil(10 * ratio**2), math.ceil(1000 * ratio**2))
    assert noise.clipping_norm == pytest.approx(2.0 / ratio)
    assert noise.parameters == int(dimension / ratio**2)
    nothing = NoiseComparison.of(24.99, 25.0, 1, dimension, epochs=1, users=10, clipping_norm=1.0)
    assert not nothing.measured
    assert nothing.signal < 0.2 * nothing.noise


def test_a_training_that_noise_decides_says_what_to_change(tmp_path: Path) -> None:
    outcome = train(network(), TRAIN, HELD_OUT, settings(tmp_path / "noise", budgets="0.1:1", epochs=1))
    lines = training_remark(outcome.document()).splitlines()
    assert lines[0].startswith("Averaged over")
    assert "fewer features" in lines[2]
    assert "more epochs: " in lines[4]
    assert "CERTIFIED" in lines[4]
    learned = train(network(), TRAIN, HELD_OUT, settings(tmp_path / "signal", budgets="8:1", epochs=2))
    assert training_remark(learned.document()) == ""
    assert learned.noise is not None
    assert learned.noise.noise < learned.noise.signal


def test_what_cannot_be_trained_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            yield from zip(*TRAIN.tensors, strict=True)

    pictures, targets = TRAIN.tensors
    broken = pictures.clone()
    broken[7, 0, 0, 0] = math.nan
    mixing = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 2))
    cases: tuple[tuple[torch.nn.Module, Any, dict[str, Any], dict[str, Any], tuple[str, ...]], ...] = (
        (mixing, TRAIN, {}, {}, ("layer '1'",)),
        (torch.nn.Flatten(), TRAIN, {}, {}, ("no parameters",)),
        (network()[:1], TRAIN, {}, {}, ("(1, 2, 2, 2)",)),
        (network(), Stream(), {}, {}, ("Stream", "torch Dataset")),
        (network(), TensorDataset(broken, targets), {}, {}, ("example 7", "finite")),
        (network(), TensorDataset(pictures, targets + 1), {}, {}, ("0..1",)),
        (network(), TensorDataset(pictures, targets.float()), {}, {}, ("class numbers", "numbers")),
        (network(), TensorDataset(pictures), {}, {}, ("an example", "a pair")),
        (network(), TensorDataset(pictures[:0], targets[:0]), {}, {}, ("no examples",)),
        (network(), TensorDataset(pictures[..., :3], targets), {}, {}, ("features", "(1, 4, 3)")),
        (network(), TRAIN, {"budgets": [1.0, 2.0]}, {}, ("budgets", "2", "300")),
    )
    for module, data, fields, make, named in cases:
        with pytest.raises(ValueError, match=naming(*named)):
            train(module, data, HELD_OUT, settings(tmp_path, **fields), **make)


@pytest.mark.slow
def test_an_optimizer_that_needs_more_than_a_gradient_is_refused(tmp_path: Path) -> None:
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
    sequential = {"simulate": False, "order": "sequential"}
    cases: tuple[tuple[dict[str, Any], dict[str, Any], tuple[str, ...]], ...] = (
        ({"learning_rate": 1.0}, {"optimizer": ADAM}, ("learning_rate", "optimizer")),
        ({}, {"optimizer": torch.optim.LBFGS}, ("LBFGS",)),
        ({}, {"optimizer": ADAM, "schedule": plateau}, ("ReduceLROnPlateau",)),
        ({}, {"schedule": plateau}, ("schedule", "optimizer")),
        (sequential, {"optimizer": ADAM}, ("optimizer", "sequential")),
    )
    for fields, make, named in cases:
        with pytest.raises(ValueError, match=naming(*named)):
            train(network(), TRAIN, HELD_OUT, settings(tmp_path, **fields), **make)


def test_frozen_parameters_stay_as_they_are(tmp_path: Path) -> None:
    module = network()
    module[0].requires_grad_(False)
    before = {name: part.clone() for name, part in module.state_dict().items()}
    outcome = train(module, TRAIN, HELD_OUT, settings(tmp_path, epochs=1))
    assert outcome.setting["dimension"] == 18
    same = [torch.equal(outcome.state_dict[name], part) for name, part in before.items()]
    assert same == [True, True, False, False]


def test_features_that_the_caller_fitted_are_not_certified(tmp_path: Path) -> None:
    outcome = train(network(), TRAIN, HELD_OUT, settings(tmp_path, epochs=1), features="fitted by the caller")
    spent = outcome.spending[-1]
    assert spent is not None
    assert spent.grade == "HEURISTIC"


@pytest.mark.slow
def test_the_public_names_are_loaded_when_they_are_used() -> None:
    program = (
        "import sys, croupier.training as t; t.TrainingSettings(); before = 'torch' in sys.modules; t.train; "
        "print(before, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False True\n"
    assert public.train is train
    assert [name for name in public.__all__ if not hasattr(public, name)] == []
    assert new_module("softmax", 2, 2)(torch.zeros(1, 2)).shape == (1, 2)


def test_a_file_of_ones_own_is_trained_on(tmp_path: Path) -> None:
    pictures, targets = TRAIN.tensors
    np.savez(tmp_path / "mine.npz", X=pictures.numpy(), y=targets.numpy())
    noted: list[str] = []
    config = TrainingConfig(
        data=tmp_path / "mine.npz", simulate=True, epochs=2, baseline=False, budgets="4:1", out=tmp_path / "out"
    )
    outcome = run_training(config, Reports(note=noted.append))
    assert noted[0].endswith("210 examples to train, 45 to validate, 45 to test; classes 0, 1")
    assert outcome.title == "mine, softmax, budgets 4:1"
    assert (outcome.setting["dimension"], outcome.setting["features"]) == (34, "columns")
    refused: tuple[tuple[dict[str, Any], tuple[str, ...]], ...] = (
        ({"dataset": "digits", "data": tmp_path}, ("data", ".npz")),
        ({"target": "y"}, ("target", "'y'", "--data")),
        ({"data": tmp_path / "mine.npz", "features": "dct"}, ("features", "'dct'", "columns", "standardized")),
        ({"resume": True}, ("resume", "True", "False")),
    )
    for fields, named in refused:
        with pytest.raises(ValueError, match=naming(*named)):
            TrainingConfig(**fields)


class RemembersWhatItSees(torch.nn.Module):
    """Keeps the mean of its inputs in a buffer, which torch refuses per example and allows for a plain batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        cast(torch.Tensor, self.seen).add_(inputs.detach().mean(dim=0))
        return cast(torch.Tensor, self.linear(inputs))


def test_no_example_of_a_user_gets_into_a_modules_buffers() -> None:
    module = RemembersWhatItSees()
    users = Examples(torch.full((4, 2), 7.0), torch.zeros(4, dtype=torch.long))
    watched = Examples(torch.full((4, 2), 2.0), torch.zeros(4, dtype=torch.long))
    loss = torch.nn.functional.cross_entropy
    subject = subject_of_module(module, loss, users, watched, TrainingSettings(simulate=True, device="cpu"), "given")
    assert cast(torch.Tensor, module.seen).tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="in-place"):
        subject.model.clipped(subject.model.initial, users.features, users.targets, 1.0)


def numbers(count: int, seed: int) -> TensorDataset:
    """Targets that are a linear function of two features."""
    source = torch.Generator().manual_seed(seed)
    features = 2 * torch.rand((count, 2), generator=source) - 1
    return TensorDataset(features, features @ torch.tensor([0.5, -0.3]))


@pytest.mark.slow
@pytest.mark.parametrize("module", [torch.nn.Linear(2, 1), torch.nn.Sequential(torch.nn.Linear(2, 1))])
def test_a_number_is_learned_with_the_least_squared_error(tmp_path: Path, module: torch.nn.Module) -> None:
    held = numbers(200, 2)
    fixed = settings(tmp_path, epochs=30, budgets="8:1", averaging=1.0, baseline=True)
    outcome = train(module, numbers(2000, 1), held, fixed)
    assert (outcome.records[-1].accuracy, outcome.setting["learning_rate"]) == (None, 0.3)
    spread = float(held.tensors[1].std())
    assert outcome.records[-1].error == outcome.records[-1].figure < 0.6 * spread
    assert outcome.noise_free[-1] < 0.2 * spread
    document = outcome.document()
    assert document["noise_free_error"] == outcome.noise_free
    assert (document["noise_free_accuracy"], document["history"][-1]["accuracy"]) == ([], None)
    module.load_state_dict(outcome.state_dict)
    with torch.no_grad():
        misses = module(held.tensors[0]).squeeze(1) - held.tensors[1]
    assert float((misses**2).mean().sqrt()) == pytest.approx(outcome.records[-1].figure, rel=1e-5)


@pytest.mark.parametrize(
    ("outputs", "watched", "named"),
    [
        (2, numbers(20, 2), ("(1, 2)", "(1, 1)", "numbers")),
        (1, TensorDataset(torch.zeros(20, 2), torch.zeros(20, dtype=torch.int64)), ("torch.float32", "torch.int64")),
        (1, TensorDataset(torch.zeros(20, 2), torch.full((20,), math.nan)), ("the data to watch", "0", "finite")),
    ],
)
def test_numbers_that_cannot_be_targets_are_refused(
    tmp_path: Path, outputs: int, watched: TensorDataset, named: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match=naming(*named)):
        train(torch.nn.Linear(2, outputs), numbers(50, 1), watched, settings(tmp_path))
