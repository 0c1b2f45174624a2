"""Models to train: the built-in ones, or a Python file that defines `model(inputs, classes)` and may define `loss`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

from croupier.client.gradients import FlatModel, Loss
from croupier.training.config import MODELS, check_choice, check_model

__all__ = ["load_model", "new_module"]

_HIDDEN = 128


def load_model(name: str, inputs: int, classes: int, seed: int = 0, device: str = "cpu") -> FlatModel:
    """Returns a model with its initial parameters.

    Args:
        name: "softmax" (softmax regression, from zero), "relu" (one hidden layer of 128), or a path that ends in .py.
        inputs: the number of features.
        classes: the number of outputs.
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
    """Returns the module of a built-in model, "softmax" or "relu"; see `load_model`."""
    check_choice("model", name, MODELS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _module(name, inputs, classes)[0]


def _module(name: str, inputs: int, classes: int) -> tuple[torch.nn.Module, Loss]:
    loss: Loss = torch.nn.functional.cross_entropy
    if name == "softmax":
        linear = torch.nn.Linear(inputs, classes)
        torch.nn.init.zeros_(linear.weight)
        torch.nn.init.zeros_(linear.bias)
        return linear, loss
    if name == "relu":
        layers = (torch.nn.Linear(inputs, _HIDDEN), torch.nn.ReLU(), torch.nn.Linear(_HIDDEN, classes))
        return torch.nn.Sequential(*layers), loss
    check_model(name)
    path = Path(name)
    spec = importlib.util.spec_from_file_location("croupier_model", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ValueError(f"{name} does not exist; a model file defines model(inputs, classes)")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, "model", None)):
        raise ValueError(f"{name} does not define model(inputs, classes)")
    made = module.model(inputs, classes)
    if not isinstance(made, torch.nn.Module):
        raise ValueError(
            f"model(inputs, classes) in {name} returns {type(made).__name__}; it must be a torch.nn.Module"
        )
    return made, getattr(module, "loss", loss)
