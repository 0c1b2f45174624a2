"""What is trained on what: a model, the clients' examples, and those on which it is measured.

From the names in a `TrainingConfig`, or from a module and the data sets of a program.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from croupier.client.gradients import FlatModel, Loss
from croupier.protocol.names import JsonObject
from croupier.training.config import TrainingConfig, TrainingSettings
from croupier.training.datasets import Dataset, Examples, load_dataset, with_features
from croupier.training.descent import Descent, OptimizerFactory, ScheduleFactory, TorchDescent
from croupier.training.models import load_model, squared_error
from croupier.training.table_files import load_table

_READ_AT_ONCE = 1024


@dataclass(frozen=True)
class Subject:
    """A model and its examples.

    Attributes:
        title: what tells the training from others, without its budgets.
        name: of the question in a deployment, at most 64 characters.
        model: with its initial parameters.
        train: the clients' examples.
        watched: the examples that the model is measured on; they belong to no user.
        features: what prepared the examples; see `Conditions`.
        own_code: whether the model is code of the caller.
        setting: what may not change between two runs of one training, as JSON.
        optimizer: makes torch's optimizer; None: the steps of the settings' `StepRule`.
        schedule: makes its schedule.
    """

    title: str
    name: str
    model: FlatModel
    train: Examples
    watched: Examples
    features: str
    own_code: bool
    setting: JsonObject
    optimizer: OptimizerFactory | None = None
    schedule: ScheduleFactory | None = None

    def descent(self, settings: TrainingSettings) -> Descent:
        """Returns the descent at its start.

        Raises:
            ValueError: settings that an optimizer has itself, or an optimizer that cannot be used.
        """
        rule = settings.step_rule
        if self.optimizer is None:
            if self.schedule is not None:
                raise ValueError("the schedule must come with the optimizer whose steps it changes")
            return Descent(self.model.initial, rule)
        if settings.learning_rate is not None or settings.momentum:
            raise ValueError(
                f"learning_rate is {settings.learning_rate} and momentum {settings.momentum:g}; they must not be given "
                "beside an optimizer, which has its own"
            )
        if settings.sequential and not settings.simulate:
            raise ValueError("an optimizer must not be given in order sequential: the analyzer takes plain steps")
        return TorchDescent(self.model, rule.averaging, self.optimizer, self.schedule)


def subject_of_config(config: TrainingConfig, note: Callable[[str], None]) -> Subject:
    """Returns the model and the examples that a configuration names.

    Raises:
        ValueError: data, model or device cannot be used.
    """
    device = _device(config.device)
    raw = _dataset(config, note)
    dataset = raw if config.own_data else with_features(raw, config.feature_name)
    name = config.model_or_default
    model = load_model(name, dataset.train.features.shape[1], dataset.classes, config.seed, device)
    own_model = name.endswith(".py")
    setting: JsonObject = {
        "dataset": config.data_name,
        "examples_sha256": _digest(raw.train),
        "features": config.feature_name,
        "model": name,
        "model_sha256": hashlib.sha256(Path(name).read_bytes()).hexdigest() if own_model else None,
        "watched": config.watch,
    }
    if config.target_range is not None:
        setting["target_range"] = [*config.target_range]
    return Subject(
        f"{config.data_name}, {config.model_name}",
        f"{config.feature_name}-{config.model_name}"[:64],  # as long as a question's name may be
        model,
        dataset.train,
        dataset.test if config.watch == "test" else dataset.validation,
        config.feature_name,
        own_model,
        setting,
    )


def _dataset(config: TrainingConfig, note: Callable[[str], None]) -> Dataset:
    if config.data is None or not config.own_data:
        return load_dataset(config.dataset, config.data)
    dataset = load_table(config.data, config.target, config.columns or (), config.feature_name, note)
    held = f"{len(dataset.validation)} to validate, {len(dataset.test)} to test"
    classes = f"classes {', '.join(dataset.labels[:20])}" if dataset.labels else f"targets {config.target}"
    note(f"{config.data}: {len(dataset.train)} examples to train, {held}; {classes}")
    return dataset


def subject_of_module(
    module: torch.nn.Module,
    loss: Loss | None,
    train: torch.utils.data.Dataset[Any],
    watched: torch.utils.data.Dataset[Any],
    settings: TrainingSettings,
    features: str,
) -> Subject:
    """Returns a module of the caller and its examples.

    Args:
        module: with its initial parameters; outputs (m, classes), or (m, 1) for numbers, for features (m, ...).
        loss: see `Loss`; None: the cross-entropy, or `squared_error` where targets are numbers.
        train: the clients' examples, (features, class number) or (features, number) each.
        watched: those on which the model is measured.
        settings: for the device.
        features: see `Conditions`.

    Raises:
        ValueError: the module, the data or the device cannot be used.
    """
    kind = type(module).__name__
    examples, held = _examples_of(train, "the training data"), _examples_of(watched, "the data to watch")
    if loss is None:
        loss = torch.nn.functional.cross_entropy if examples.has_classes else squared_error
    model = FlatModel(module, loss, _device(settings.device))
    try:
        # Not with a user's example: a module may keep what it sees in its buffers, and these are published.
        outputs = model.outputs(model.initial, held.features[:1]).shape
    except RuntimeError as error:
        shape = tuple(held.features.shape[1:])
        raise ValueError(f"features have the shape {shape}; the module must take (m, ...) of it: {error}") from error
    if examples.has_classes != held.has_classes:
        raise ValueError(
            f"targets are {examples.targets.dtype} in the training data and {held.targets.dtype} in the data to watch; "
            "both must be class numbers, or both numbers"
        )
    if len(outputs) != 2 or (outputs[1] < 2 if examples.has_classes else outputs[1] != 1):
        must = "(1, classes)" if examples.has_classes else "(1, 1): the targets are numbers"
        raise ValueError(f"the module returns the shape {tuple(outputs)} for one example; it must be {must}")
    for part, name in ((examples, "the training data"), (held, "the data to watch")):
        if part.features.shape[1:] != examples.features.shape[1:]:
            raise ValueError(
                f"{name} has features of shape {tuple(part.features.shape[1:])}; it must be "
                f"{tuple(examples.features.shape[1:])}, as in the training data"
            )
        if not part.has_classes:
            continue
        bad = torch.nonzero((part.targets < 0) | (part.targets >= outputs[1]))
        if len(bad):
            raise ValueError(
                f"{name}: the target of example {int(bad[0])} is {int(part.targets[bad[0]])}; it must be in "
                f"0..{outputs[1] - 1}, a class of the module"
            )
    return Subject(
        kind,
        re.sub("[^a-z0-9]+", "-", kind.lower())[:64].strip("-") or "module",
        model,
        examples,
        held,
        features,
        True,
        {
            "dataset": "given",
            "examples_sha256": _digest(examples),
            "features": features,
            "model": kind,
            "model_sha256": _state_digest(module),
            "watched": "given",
        },
    )


def _examples_of(dataset: torch.utils.data.Dataset[Any], name: str) -> Examples:
    """Returns all examples of a torch Dataset in memory.

    Raises:
        ValueError: it has no length or no examples, or an example is not a pair of finite features and a target.
    """
    if isinstance(dataset, Examples):
        examples = dataset
    else:
        if not isinstance(dataset, Sized) or isinstance(dataset, torch.utils.data.IterableDataset):
            raise ValueError(f"{name} is {type(dataset).__name__}; it must be a torch Dataset with a length")
        if not len(dataset):
            raise ValueError(f"{name} has no examples; there must be at least one")
        try:
            batches = [*torch.utils.data.DataLoader(dataset, batch_size=_READ_AT_ONCE)]
            features, targets = (torch.cat([batch[part] for batch in batches]) for part in (0, 1))
        except (TypeError, IndexError, KeyError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"{name}: an example cannot be read; it must be a pair, features and a target: {error}"
            ) from error
        if targets.dtype.is_complex or targets.ndim != 1:
            raise ValueError(
                f"{name}: targets are {targets.dtype} of shape {tuple(targets.shape[1:])}; each must be a class "
                "number, or a number"
            )
        examples = Examples(features.float(), targets.float() if targets.dtype.is_floating_point else targets.long())
    bad = torch.nonzero(~torch.isfinite(examples.features.reshape(len(examples), -1)).all(dim=1))
    if len(bad):
        raise ValueError(
            f"{name}: a feature of example {int(bad[0])} is not finite; every feature must be a finite number"
        )
    bad = torch.nonzero(~torch.isfinite(examples.targets))
    if len(bad):
        raise ValueError(f"{name}: the target of example {int(bad[0])} is not finite; it must be a finite number")
    return examples


def _digest(examples: Examples) -> str:
    digest = hashlib.sha256()
    for part in (examples.features, examples.targets):
        digest.update(part.contiguous().numpy().data)
    return digest.hexdigest()


def _state_digest(module: torch.nn.Module) -> str:
    digest = hashlib.sha256(str(module).encode())
    for name, part in module.state_dict().items():
        digest.update(name.encode())
        digest.update(part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _device(device: str) -> str:
    """Returns the name of the device to use; auto is the GPU where there is one.

    Raises:
        ValueError: the device cannot be used.
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device is {device!r}; it must be a device of this machine: {error}") from error
    return device
