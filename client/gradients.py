"""Gradients of a model on a client's own examples, clipped one by one: torch, flat vectors, any module and loss.

Clipping each example before averaging bounds the influence of one record (2 C / m of the average of m), which clipping
the average does not. `client.vectors` randomizes the result. Only this room of the client needs torch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.func import functional_call, grad, vmap

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(outputs of the model (1, ...), targets (1, ...)) -> a scalar, e.g. torch.nn.functional.cross_entropy."""
EXAMPLES_AT_ONCE = 2**25
"""Entries of the matrix of per-example gradients that is held in memory."""


class FlatModel:
    """A module as a function of one flat vector of parameters.

    Args:
        module: its parameters' values are not used, except for `initial`; those that need no gradient are unchanged.
            Layers that mix the examples of a batch (batch norm) have no gradient per example; a module with such a
            layer is refused.
        loss: see `Loss`.
        device: for the computation.

    Raises:
        ValueError: the module has no parameters, or buffers that change in training.
    """

    def __init__(self, module: torch.nn.Module, loss: Loss, device: str = "cpu") -> None:
        mixing = [
            name for name, part in module.named_modules() if isinstance(part, torch.nn.modules.batchnorm._BatchNorm)
        ]
        if mixing:
            raise ValueError(f"layer {mixing[0]!r} mixes the examples of a batch; no layer may do so")
        self._module = module.to(device)
        self._loss = loss
        self._device = device
        self._trained = {name: part for name, part in self._module.named_parameters() if part.requires_grad}
        self._shapes = {name: part.shape for name, part in self._trained.items()}
        self.dimension = sum(shape.numel() for shape in self._shapes.values())
        if not self.dimension:
            raise ValueError("the module has no parameters; there is nothing to train")
        frozen = {name: part.detach() for name, part in self._module.named_parameters() if not part.requires_grad}
        self._buffers = dict(self._module.named_buffers()) | frozen
        self._gradients = vmap(grad(self._one_loss), in_dims=(None, 0, 0), randomness="different")

    @property
    def initial(self) -> torch.Tensor:
        """The module's own parameters, float32 (d,)."""
        return torch.cat([part.detach().reshape(-1).float() for part in self._trained.values()])

    def parts(self, parameters: torch.Tensor) -> list[torch.Tensor]:
        """Returns views of a vector (d,) in the shapes of the module's parameters."""
        return [*self._unflatten(parameters).values()]

    def state_dict(self, parameters: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns the argument of the module's `load_state_dict` for these parameters (d,)."""
        trained = self._unflatten(parameters.detach().cpu())
        kept: dict[str, torch.Tensor] = self._module.state_dict()
        # A tensor that two layers share has several names; only the first is among the parameters.
        names = {id(part): name for name, part in self._trained.items()}
        own = {
            name: names[id(part)]
            for name, part in self._module.named_parameters(remove_duplicate=False)
            if id(part) in names
        }
        return {
            name: (trained[own[name]] if name in own else value.detach().cpu()).clone() for name, value in kept.items()
        }

    def _unflatten(self, parameters: torch.Tensor) -> dict[str, torch.Tensor]:
        parts = torch.split(parameters, [shape.numel() for shape in self._shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)}

    def _one_loss(self, parameters: torch.Tensor, features: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        outputs = self.outputs(parameters, features.unsqueeze(0))
        return self._loss(outputs, target.unsqueeze(0))

    def outputs(self, parameters: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """Returns the model's outputs for features (m, ...)."""
        state = self._unflatten(self._checked(parameters)) | self._buffers
        outputs: torch.Tensor = functional_call(self._module, state, (features.to(self._device),))
        return outputs

    def _checked(self, parameters: torch.Tensor) -> torch.Tensor:
        if parameters.shape != (self.dimension,):
            raise ValueError(
                f"the parameters have the shape {tuple(parameters.shape)}; this model takes ({self.dimension},)"
            )
        if bad := int((~torch.isfinite(parameters)).sum()):
            raise ValueError(f"{bad} of the {self.dimension} parameters are not finite numbers; take smaller steps")
        return parameters.to(self._device)

    def per_example(self, parameters: torch.Tensor, features: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Returns the gradient of every example's loss, float32 (m, d); zeros if it is not finite.

        An example whose gradient has an infinite or undefined entry contributes the zero vector, without any sign of
        it: no error, no count, no smaller divisor. So the row of an example is a function of that example and of the
        public parameters alone, and after clipping it is at most clipping_norm long, for every possible example.
        Replacing an example therefore changes one row, by at most 2 clipping_norm, which is the only assumption of the
        randomizers' proofs. An error would be an event that depends on the data, and that no certificate covers.

        Raises:
            ValueError: no examples, features and targets of different numbers, or parameters of another dimension or
                with an entry that is not finite; parameters are public, so this error says nothing of the examples.
        """
        if len(features) != len(targets) or not len(features):
            raise ValueError(
                f"{len(features)} examples with {len(targets)} targets; there must be at least 1, and as many targets"
            )
        rows: torch.Tensor = self._gradients(
            self._checked(parameters), features.to(self._device), targets.to(self._device)
        )
        # A row with an entry that is not finite has no finite sum; the sum of finite entries may overflow, and then the
        # row is as long as no clipped one: it becomes zero, too, which is as good for the bound.
        finite = torch.isfinite(rows.sum(dim=1))
        if not bool(finite.all()):
            rows = torch.where(finite[:, None], rows, 0.0)
        return rows

    def clipped(
        self, parameters: torch.Tensor, features: torch.Tensor, targets: torch.Tensor, clipping_norm: float
    ) -> torch.Tensor:
        """Returns `per_example`, every row scaled down to length clipping_norm if it is longer. float32 (m, d)."""
        rows = self.per_example(parameters, features, targets)
        return rows * _shares(rows, clipping_norm)[:, None]

    def mean_clipped(
        self, parameters: torch.Tensor, features: torch.Tensor, targets: torch.Tensor, clipping_norm: float
    ) -> torch.Tensor:
        """Returns the average of the clipped gradients of m examples, float32 (d,), in bounded memory.

        Replacing one example changes it by at most 2 clipping_norm / m.
        """
        step = max(1, EXAMPLES_AT_ONCE // self.dimension)
        total = torch.zeros(self.dimension, device=self._device)
        for start in range(0, max(1, len(features)), step):
            part = slice(start, start + step)
            rows = self.per_example(parameters, features[part], targets[part])
            total += _shares(rows, clipping_norm) @ rows
        return total / len(features)


def _shares(rows: torch.Tensor, clipping_norm: float) -> torch.Tensor:
    """Returns the factors, at most 1, that scale each row to a length of at most clipping_norm."""
    lengths = torch.linalg.vector_norm(rows, dim=1)
    shares: torch.Tensor = clipping_norm / lengths.clamp(min=clipping_norm)
    return shares
