"""Training without a network: the same estimators and certificates as a deployed run, vectorised over the users.

A simulation protects no user: the party that runs it holds all data, and the noise comes from torch's generator. The
law of the estimated gradient is that of the deployed run (a test compares them).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from croupier.analyzer.vectors import VectorEstimate, gaussian_mean, hemisphere_mean
from croupier.client.gradients import FlatModel
from croupier.training.datasets import Examples
from croupier.training.descent import Descent

_ENTRIES_AT_ONCE = 2**25


@dataclass
class SimulatedTraining:
    """Where a simulation is: the same state goes on in the same way.

    Attributes:
        descent: the parameters.
        seed: of batches, silos and noise.
        epochs: how many are done.
        generator: where the random numbers come from.
    """

    descent: Descent
    seed: int = 0
    epochs: int = 0
    generator: torch.Generator = field(default_factory=torch.Generator)

    def __post_init__(self) -> None:
        """Starts the generator."""
        self.generator.manual_seed(self.seed)


def hemisphere_reports(
    vectors: torch.Tensor, clipping_norm: float, epsilons: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """Returns a hemisphere report a row, float32 (n, d), for rows of length at most clipping_norm (client.vectors)."""
    device = vectors.device
    lengths = torch.linalg.vector_norm(vectors, dim=1)
    point = torch.randn(vectors.shape, generator=generator, device=device)
    point /= torch.linalg.vector_norm(point, dim=1, keepdim=True)
    draws = torch.rand((3, len(vectors)), generator=generator, device=device)
    forward = torch.where(draws[0] < 0.5 + lengths / (2 * clipping_norm), 1.0, -1.0)
    inner = (point * vectors).sum(dim=1)
    # A zero vector has no side: it is given one by chance.
    side = torch.where(lengths > 0, torch.sign(inner) * forward, torch.where(draws[1] < 0.5, 1.0, -1.0))
    kept = torch.where(draws[2] < torch.sigmoid(epsilons.to(device)), 1.0, -1.0)
    return point * (side * kept)[:, None]


def user_epochs(
    model: FlatModel,
    examples: Examples,
    epsilons: torch.Tensor | None,
    clipping_norm: float,
    at: SimulatedTraining,
    epochs: int,
    *,
    batch_size: int = 0,
    sequential: bool = False,
) -> Iterator[tuple[int, Descent]]:
    """Trains on users with one example each that report a hemisphere vector; yields (epoch, descent) after each.

    Args:
        model: what is trained.
        examples: one a user.
        epsilons: float64 (n,), the users' local budgets per step; None: clipped gradients without noise.
        clipping_norm: longer gradients are scaled down to this length.
        at: where the training is; moved on.
        epochs: how many there are to be.
        batch_size: users per step, each of which answers once an epoch; 0: all of them in one step.
        sequential: one user a step, whose budget the analyzer does not know: it takes the average one.

    Raises:
        ValueError: the number of budgets is not that of users.
    """
    descent, generator, count = at.descent, at.generator, len(examples)
    if epsilons is not None and len(epsilons) != count:
        raise ValueError(f"there are {len(epsilons)} budgets; it must be {count}, one for each user")
    batches = count if sequential else -(-count // (batch_size or count))
    everyone = None if epsilons is None else _tiers(epsilons)
    while at.epochs < epochs:
        for chosen in torch.randperm(count, generator=generator).tensor_split(batches):
            own = None if epsilons is None else epsilons[chosen]
            part = examples.part(chosen)
            tiers = everyone if sequential or own is None else _tiers(own)
            descent.step(*_user_gradient(model, descent.parameters, part, own, tiers, clipping_norm, generator))
        at.epochs += 1
        yield at.epochs, descent


def _user_gradient(
    model: FlatModel,
    parameters: torch.Tensor,
    users: Examples,
    epsilons: torch.Tensor | None,
    tiers: list[tuple[float, int]] | None,
    clipping_norm: float,
    generator: torch.Generator,
) -> tuple[torch.Tensor, float]:
    """Returns the estimate with its standard error.

    tiers: the budgets among which these users' may be, as the analyzer knows them.
    """
    if epsilons is None or tiers is None:
        return model.mean_clipped(parameters, users.features, users.targets, clipping_norm), 0.0
    total = torch.zeros(model.dimension, dtype=torch.float64)
    step = max(1, _ENTRIES_AT_ONCE // model.dimension)
    for start in range(0, len(users), step):
        part = users.part(slice(start, start + step))
        rows = model.clipped(parameters, part.features, part.targets, clipping_norm).cpu()
        reports = hemisphere_reports(rows, clipping_norm, epsilons[start : start + step], generator)
        total += reports.sum(dim=0).double()
    # As many users of each budget as there are among all, in proportion.
    alike = [(epsilon, number * len(users) / sum(every for _, every in tiers)) for epsilon, number in tiers]
    return _step(hemisphere_mean(total.numpy(), alike, clipping_norm))


def _step(estimate: VectorEstimate) -> tuple[torch.Tensor, float]:
    return torch.from_numpy(estimate.mean).float(), estimate.standard_error


def _tiers(epsilons: torch.Tensor) -> list[tuple[float, int]]:
    values, counts = torch.unique(epsilons, return_counts=True)
    return list(zip(values.tolist(), counts.tolist(), strict=True))


def silo_epochs(
    model: FlatModel,
    examples: Examples,
    sigmas: list[float],
    clipping_norm: float,
    at: SimulatedTraining,
    epochs: int,
    *,
    sequential: bool = True,
) -> Iterator[tuple[int, Descent]]:
    """GSPA, Algorithm 3: clients hold equal shares of the records and answer once an epoch, in secret random order.

    A client sees the current parameters and answers with the mean of its clipped gradients plus N(0, sigma_i^2 I); the
    step is taken before the next client is asked. Every example is clipped, where the paper clips their mean.

    Args:
        model: what is trained.
        examples: the records.
        sigmas: one for each client; 0 for no noise.
        clipping_norm: longer gradients are scaled down to this length.
        at: where the training is; moved on. The shares are drawn from its seed.
        epochs: how many there are to be.
        sequential: else all clients answer together, and one step is taken an epoch.
    """
    descent, generator, clients = at.descent, at.generator, len(sigmas)
    shares = shares_of(len(examples), clients, at.seed)
    while at.epochs < epochs:
        for chosen in torch.randperm(clients, generator=generator).tensor_split(clients if sequential else 1):
            total = torch.zeros(model.dimension, dtype=torch.float64)
            for client in chosen.tolist():
                mine = examples.part(shares[client])
                total += model.mean_clipped(descent.parameters, mine.features, mine.targets, clipping_norm).cpu()
                total += sigmas[client] * torch.randn(total.shape, generator=generator, dtype=torch.float64)
            scales = [(sigmas[client], 1) for client in chosen.tolist()]
            descent.step(*_step(gaussian_mean(total.numpy(), scales)))
        at.epochs += 1
        yield at.epochs, descent


def shares_of(count: int, clients: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Returns the examples of each client; no two clients differ by more than one in their number.

    Raises:
        ValueError: more clients than examples.
    """
    if not 1 <= clients <= count:
        raise ValueError(f"clients is {clients}; it must be in 1..{count}, the number of examples")
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tensor_split(clients)
