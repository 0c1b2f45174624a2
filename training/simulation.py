"""Training without a network: the same estimators and certificates as a deployed run, vectorised over the users.

A simulation protects no user: the party that runs it holds all data, and the noise comes from torch's generator. The
law of the estimated gradient is that of the deployed run (a test compares them).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from croupier.analyzer.vectors import gaussian_mean, hemisphere_mean
from croupier.client.gradients import FlatModel
from croupier.training.config import StepRule
from croupier.training.datasets import Dataset, Examples
from croupier.training.descent import Descent

__all__ = ["hemisphere_reports", "shares_of", "silo_epochs", "user_epochs"]

_ENTRIES_AT_ONCE = 2**25


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
    dataset: Dataset,
    epsilons: torch.Tensor | None,
    clipping_norm: float,
    rule: StepRule,
    epochs: int,
    *,
    batch_size: int = 0,
    sequential: bool = False,
    seed: int = 0,
) -> Iterator[tuple[int, Descent]]:
    """Trains on users with one example each that report a hemisphere vector; yields (epoch, descent) after each.

    Args:
        model: with its initial parameters.
        dataset: one training example a user.
        epsilons: float64 (n,), the users' local budgets per step; None: clipped gradients without noise.
        clipping_norm: longer gradients are scaled down to this length.
        rule: how a step is taken.
        epochs: how many.
        batch_size: users per step, each of which answers once an epoch; 0: all of them in one step.
        sequential: one user a step, whose budget the analyzer does not know: it takes the average one.
        seed: of batches and noise.

    Raises:
        ValueError: the number of budgets is not that of users.
    """
    generator = torch.Generator().manual_seed(seed)
    descent, count = Descent(model.initial, rule), len(dataset.train)
    if epsilons is not None and len(epsilons) != count:
        raise ValueError(f"there are {len(epsilons)} budgets; it must be {count}, one for each user")
    batches = count if sequential else -(-count // (batch_size or count))
    everyone = None if epsilons is None else _tiers(epsilons)
    for epoch in range(1, epochs + 1):
        for chosen in torch.randperm(count, generator=generator).tensor_split(batches):
            own = None if epsilons is None else epsilons[chosen]
            part = dataset.train.part(chosen)
            tiers = everyone if sequential or own is None else _tiers(own)
            descent.step(_user_gradient(model, descent.parameters, part, own, tiers, clipping_norm, generator))
        yield epoch, descent


def _user_gradient(
    model: FlatModel,
    parameters: torch.Tensor,
    users: Examples,
    epsilons: torch.Tensor | None,
    tiers: list[tuple[float, int]] | None,
    clipping_norm: float,
    generator: torch.Generator,
) -> torch.Tensor:
    """Returns the estimate; tiers: the budgets among which these users' may be, as the analyzer knows them."""
    if epsilons is None or tiers is None:
        return model.mean_clipped(parameters, users.features, users.targets, clipping_norm)
    total = torch.zeros(model.dimension, dtype=torch.float64)
    step = max(1, _ENTRIES_AT_ONCE // model.dimension)
    for start in range(0, len(users), step):
        part = users.part(slice(start, start + step))
        rows = model.clipped(parameters, part.features, part.targets, clipping_norm).cpu()
        reports = hemisphere_reports(rows, clipping_norm, epsilons[start : start + step], generator)
        total += reports.sum(dim=0).double()
    total *= sum(number for _, number in tiers) / len(users)
    return torch.from_numpy(hemisphere_mean(total.numpy(), tiers, clipping_norm).mean).float()


def _tiers(epsilons: torch.Tensor) -> list[tuple[float, int]]:
    values, counts = torch.unique(epsilons, return_counts=True)
    return list(zip(values.tolist(), counts.tolist(), strict=True))


def silo_epochs(
    model: FlatModel,
    dataset: Dataset,
    sigmas: list[float],
    clipping_norm: float,
    rule: StepRule,
    epochs: int,
    *,
    sequential: bool = True,
    seed: int = 0,
) -> Iterator[tuple[int, Descent]]:
    """GSPA, Algorithm 3: clients hold equal shares of the records and answer once an epoch, in secret random order.

    A client sees the current parameters and answers with the mean of its clipped gradients plus N(0, sigma_i^2 I); the
    step is taken before the next client is asked. Every example is clipped, where the paper clips their mean.

    Args:
        model: with its initial parameters.
        dataset: its training examples are the records.
        sigmas: one for each client; 0 for no noise.
        clipping_norm: longer gradients are scaled down to this length.
        rule: how a step is taken.
        epochs: how many.
        sequential: else all clients answer together, and one step is taken an epoch.
        seed: of the shares, the order and the noise.
    """
    generator = torch.Generator().manual_seed(seed)
    descent, clients = Descent(model.initial, rule), len(sigmas)
    shares = shares_of(len(dataset.train), clients, seed)
    for epoch in range(1, epochs + 1):
        for chosen in torch.randperm(clients, generator=generator).tensor_split(clients if sequential else 1):
            total = torch.zeros(model.dimension, dtype=torch.float64)
            for client in chosen.tolist():
                mine = dataset.train.part(shares[client])
                total += model.mean_clipped(descent.parameters, mine.features, mine.targets, clipping_norm).cpu()
                total += sigmas[client] * torch.randn(total.shape, generator=generator, dtype=torch.float64)
            found = gaussian_mean(total.numpy(), [(sigmas[client], 1) for client in chosen.tolist()])
            descent.step(torch.from_numpy(found.mean).float())
        yield epoch, descent


def shares_of(count: int, clients: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Returns the examples of each client; no two clients differ by more than one in their number.

    Raises:
        ValueError: more clients than examples.
    """
    if not 1 <= clients <= count:
        raise ValueError(f"clients is {clients}; it must be in 1..{count}, the number of examples")
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tensor_split(clients)
