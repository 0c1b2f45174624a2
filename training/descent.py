"""What happens to the parameters: a step along an estimated gradient, averaging, and how good the model is.

The step is written out: torch.optim has the same one, and takes seconds to import.
"""

from __future__ import annotations

from typing import TypedDict

import torch

from croupier.client.gradients import FlatModel
from croupier.training.config import StepRule
from croupier.training.datasets import Examples

__all__ = ["Descent", "DescentState", "evaluate"]


class DescentState(TypedDict):
    """What a checkpoint keeps of a descent."""

    parameters: torch.Tensor
    average: torch.Tensor
    steps: int
    velocity: torch.Tensor


class Descent:
    """The parameters of a model while it is trained. `parameters` are what clients see, `average` is what is kept."""

    def __init__(self, initial: torch.Tensor, rule: StepRule) -> None:
        """Starts at the initial parameters."""
        self.parameters = initial.clone()
        self.average = initial.clone()
        self.steps = 0
        self._rule = rule
        self._velocity = torch.zeros_like(self.parameters)

    def state(self) -> DescentState:
        """Returns what `restore` needs in order to go on."""
        return {
            "parameters": self.parameters.detach().clone(),
            "average": self.average,
            "steps": self.steps,
            "velocity": self._velocity,
        }

    def restore(self, state: DescentState) -> None:
        """Goes on from a state of a descent with the same rule."""
        self.parameters.data.copy_(state["parameters"])
        self.average, self.steps = state["average"], state["steps"]
        self._velocity = state["velocity"]

    def step(self, gradient: torch.Tensor) -> None:
        """Takes one step.

        Raises:
            ValueError: the gradient has another dimension, or an entry that is not finite.
        """
        if gradient.shape != self.parameters.shape:
            raise ValueError(
                f"the gradient has the shape {tuple(gradient.shape)}; it must be {tuple(self.parameters.shape)}"
            )
        if not bool(torch.isfinite(gradient).all()):
            raise ValueError("the estimated gradient must have finite entries; the step is not taken")
        self.steps += 1
        size = self._rule.learning_rate / (self.steps**0.5 if self._rule.decaying else 1.0)
        self._velocity = self._rule.momentum * self._velocity + gradient.to(self.parameters)
        self.parameters -= size * self._velocity
        # The weight of early steps: else the average would stay near the start for long.
        weight = max(self._rule.averaging, 1 / self.steps)
        self.average = (1 - weight) * self.average + weight * self.parameters.detach()

    def go_on_from(self, parameters: torch.Tensor, steps: int) -> None:
        """Takes over the parameters after that many steps, taken elsewhere by the same rule.

        Raises:
            ValueError: the rule has momentum or an average, which are not known for those steps.
        """
        if self._rule.momentum or self._rule.averaging != 1 or self._rule.decaying:
            raise ValueError("steps that are taken elsewhere have no momentum, no average and a constant learning rate")
        self.parameters.data.copy_(parameters)
        self.average = self.parameters.detach().clone()
        self.steps += steps


def evaluate(model: FlatModel, parameters: torch.Tensor, examples: Examples) -> tuple[float, float]:
    """Returns (mean cross-entropy, share of right answers)."""
    with torch.no_grad():
        outputs = model.outputs(parameters, examples.features).cpu()
    loss = torch.nn.functional.cross_entropy(outputs, examples.targets)
    return float(loss), float((outputs.argmax(dim=1) == examples.targets).float().mean())
