"""The accountant's description of every kind of mechanism that a question may have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accountant.mechanisms.randomizers import (
    BinaryRandomizedResponse,
    GaussianMechanism,
    HemisphereMechanism,
    KaryRandomizedResponse,
    LaplaceMechanism,
    OneBitMean,
    Randomizer,
    RecordGaussian,
)
from protocol.mechanisms import Mechanism

__all__ = ["RANDOMIZERS", "randomizer_of"]

RANDOMIZERS: dict[str, Callable[[Any], Randomizer]] = {
    "rr": lambda _: BinaryRandomizedResponse(),
    "krr": lambda mechanism: KaryRandomizedResponse(mechanism.k),
    "onebit": lambda _: OneBitMean(),
    "laplace": lambda mechanism: LaplaceMechanism(mechanism.lattice),
    "gaussian": lambda mechanism: GaussianMechanism(mechanism.lattice),
    "hemisphere": lambda mechanism: HemisphereMechanism(mechanism.vector.dimension),
    "gaussian_vector": lambda mechanism: RecordGaussian(mechanism.vector.dimension, mechanism.records_per_client),
}


def randomizer_of(mechanism: Mechanism) -> Randomizer:
    """Returns the accountant's description of what the clients of a round run."""
    return RANDOMIZERS[mechanism.kind](mechanism)
