"""Models to train: the built-in ones, or a Python file that defines `model(inputs, outputs)` and may define `loss`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

from croupier.client.gradients import FlatModel, Loss
from croupier.training.config import MODELS, check_choice, check_model

_HIDDEN = 128


def squared_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns half of the mean squared error of outputs (m, 1) for targets (m,), the loss where targets are numbers."""
    return ((outputs.squeeze(1) - targets) ** 2).mean() / 2


def load_model(name: str, inputs: int, classes: int, seed: int = 0, device: str = "cpu") -> FlatModel:
    """Returns a model with its initial parameters.

    Args:
        name: "softmax" (softmax regression, from zero), "linear" (a number, from zero), "relu" (one hidden layer of
            128), or a path that ends in .py.
        inputs: the number of features.
        classes: the number of outputs; 0: one output, a number, with the loss `squared_error`.
        seed: for the initial parameters, which are public.
        device: where gradients are computed.

    Raises:
        ValueError: an unknown name, or a file without a function `model`.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module, loss = _module(name, inputs, classes)
    return FlatModel(module, loss, device)


def new_module(name: str, inputs: int, classes: int, seed: int = 0) -> torch.nn.Module:
    """Returns the module of a built-in model; see `load_model`."""
    check_choice("model", name, MODELS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _module(name, inputs, classes)[0]


def _module(name: str, inputs: int, classes: int) -> tuple[torch.nn.Module, Loss]:
    loss: Loss = torch.nn.functional.cross_entropy if classes else squared_error
    outputs = classes or 1
    if name in ("softmax", "linear"):
        linear = torch.nn.Linear(inputs, outputs)
        torch.nn.init.zeros_(linear.weight)
        torch.nn.init.zeros_(linear.bias)
        return linear, loss
    if name == "relu":
        layers = (torch.nn.Linear(inputs, _HIDDEN), torch.nn.ReLU(), torch.nn.Linear(_HIDDEN, outputs))
        return torch.nn.Sequential(*layers), loss
    check_model(name)
    path = Path(name)
    spec = importlib.util.spec_from_file_location("croupier_model", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ValueError(f"{name} does not exist; a model file defines model(inputs, outputs)")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, "model", None)):
        raise ValueError(f"{name} does not define model(inputs, outputs)")
    made = module.model(inputs, outputs)
    if not isinstance(made, torch.nn.Module):
        raise ValueError(
            f"model(inputs, outputs) in {name} returns {type(made).__name__}; it must be a torch.nn.Module"
        )
    return made, getattr(module, "loss", loss)
