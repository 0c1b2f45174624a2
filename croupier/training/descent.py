"""What happens to the parameters: a step along an estimated gradient, averaging, and how good the model is.

The step of a `StepRule` is written out: torch.optim has the same one, and takes seconds to import. An optimizer of
torch, with a schedule of its learning rate, takes the steps of a `TorchDescent`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NotRequired, TypedDict

import torch

from croupier.client.gradients import FlatModel
from croupier.training.config import StepRule
from croupier.training.datasets import Examples
from croupier.training.models import squared_error

OptimizerFactory = Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
"""Makes the optimizer of the parameters, such as functools.partial(torch.optim.Adam, lr=0.01)."""
ScheduleFactory = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]
"""Makes the schedule of an optimizer, such as functools.partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.9)."""


class DescentState(TypedDict):
    """What a checkpoint keeps of a descent."""

    parameters: torch.Tensor
    average: torch.Tensor
    steps: int
    velocity: torch.Tensor
    squares: float
    noise: float
    optimizer: NotRequired[dict[str, Any]]
    schedule: NotRequired[dict[str, Any]]


class Descent:
    """The parameters of a model while it is trained. `parameters` are what clients see, `average` is what is kept.

    Attributes:
        parameters: of the model, float32 (d,).
        average: exponential average of them.
        steps: how many were taken.
        squares: the sum of the squares of the lengths of the estimated gradients; 0 for steps taken elsewhere.
        noise: the expected sum of the squares of the lengths of their noise.
    """

    def __init__(self, initial: torch.Tensor, rule: StepRule) -> None:
        """Starts at the initial parameters."""
        self.parameters = initial.clone()
        self.average = initial.clone()
        self.steps = 0
        self.squares = 0.0
        self.noise = 0.0
        self._rule = rule
        self._velocity = torch.zeros_like(self.parameters)

    def state(self) -> DescentState:
        """Returns what `restore` needs in order to go on."""
        return {
            "parameters": self.parameters.detach().clone(),
            "average": self.average,
            "steps": self.steps,
            "velocity": self._velocity,
            "squares": self.squares,
            "noise": self.noise,
        }

    def restore(self, state: DescentState) -> None:
        """Goes on from a state of a descent with the same rule."""
        self.parameters.data.copy_(state["parameters"])
        self.average, self.steps = state["average"], state["steps"]
        self._velocity = state["velocity"]
        self.squares, self.noise = state["squares"], state["noise"]

    def step(self, gradient: torch.Tensor, standard_error: float = 0.0) -> None:
        """Takes one step.

        Args:
            gradient: estimated, (d,).
            standard_error: of each of its coordinates, from the randomizers.

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
        self.squares += float(gradient.double().square().sum())
        self.noise += len(gradient) * standard_error**2
        self._move(gradient.to(self.parameters))
        # The weight of early steps: else the average would stay near the start for long.
        weight = max(self._rule.averaging, 1 / self.steps)
        self.average = (1 - weight) * self.average + weight * self.parameters.detach()

    def _move(self, gradient: torch.Tensor) -> None:
        """Moves the parameters."""
        size = self._rule.learning_rate / (self.steps**0.5 if self._rule.decaying else 1.0)
        self._velocity = self._rule.momentum * self._velocity + gradient
        self.parameters -= size * self._velocity

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


class TorchDescent(Descent):
    """A descent whose steps an optimizer of torch takes; its schedule, where there is one, moves on after each step."""

    def __init__(
        self, model: FlatModel, averaging: float, optimizer: OptimizerFactory, schedule: ScheduleFactory | None = None
    ) -> None:
        """Starts at the model's initial parameters.

        Args:
            model: whose parameters the optimizer gets, each as a tensor of its own shape.
            averaging: see `StepRule`.
            optimizer: makes the optimizer.
            schedule: makes its schedule.

        Raises:
            ValueError: the optimizer asks for the loss at other parameters, or the schedule for a loss; both would need
                answers of the clients that were not planned.
        """
        super().__init__(model.initial, StepRule(1.0, averaging=averaging))
        self._parts = [torch.nn.Parameter(part.clone()) for part in model.parts(self.parameters)]
        self._optimizer = optimizer(self._parts)
        if isinstance(self._optimizer, torch.optim.LBFGS):
            raise ValueError("the optimizer is LBFGS; it must take one step for one gradient")
        self._schedule = None if schedule is None else schedule(self._optimizer)
        if isinstance(self._schedule, torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise ValueError("the schedule is ReduceLROnPlateau; it must depend on nothing but the number of the step")

    @property
    def about(self) -> str:
        """What tells the optimizer and its schedule from others."""
        groups = [
            {name: value for name, value in sorted(group.items()) if name != "params"}
            for group in self._optimizer.param_groups
        ]
        schedule = "" if self._schedule is None else f", {type(self._schedule).__name__}"
        return f"{type(self._optimizer).__name__} {groups}{schedule}"

    def state(self) -> DescentState:
        """See `Descent`."""
        state = super().state()
        state["optimizer"] = self._optimizer.state_dict()
        if self._schedule is not None:
            state["schedule"] = self._schedule.state_dict()
        return state

    def restore(self, state: DescentState) -> None:
        """See `Descent`."""
        super().restore(state)
        with torch.no_grad():
            for part, value in zip(self._parts, self._split(self.parameters), strict=True):
                part.copy_(value)
        self._optimizer.load_state_dict(state["optimizer"])
        if self._schedule is not None:
            self._schedule.load_state_dict(state["schedule"])

    def _split(self, vector: torch.Tensor) -> list[torch.Tensor]:
        pieces = torch.split(vector, [part.numel() for part in self._parts])
        return [piece.view(part.shape) for piece, part in zip(pieces, self._parts, strict=True)]

    def _move(self, gradient: torch.Tensor) -> None:
        for part, value in zip(self._parts, self._split(gradient), strict=True):
            part.grad = value.clone()
        self._optimizer.step()
        if self._schedule is not None:
            self._schedule.step()
        self.parameters = torch.cat([part.detach().reshape(-1) for part in self._parts])

    def go_on_from(self, parameters: torch.Tensor, steps: int) -> None:
        """Raises ValueError: the steps of an optimizer are taken here."""
        raise ValueError("the analyzer of a deployment takes plain steps in order sequential; give no optimizer")


class Quality(NamedTuple):
    """How good a model is on some examples.

    Attributes:
        loss: the mean cross-entropy, or `squared_error` where targets are numbers.
        accuracy: the share of right answers; None where targets are numbers.
        error: the root of the mean squared error, in the unit of the data; None where targets are classes.
    """

    loss: float
    accuracy: float | None
    error: float | None = None


def evaluate(model: FlatModel, parameters: torch.Tensor, examples: Examples) -> Quality:
    """Returns how good the model is on the examples."""
    with torch.no_grad():
        outputs = model.outputs(parameters, examples.features).cpu()
    if not examples.has_classes:
        loss = float(squared_error(outputs, examples.targets))
        return Quality(loss, None, math.sqrt(2 * loss) * examples.unit)
    cross_entropy = torch.nn.functional.cross_entropy(outputs, examples.targets)
    return Quality(float(cross_entropy), float((outputs.argmax(dim=1) == examples.targets).float().mean()))
