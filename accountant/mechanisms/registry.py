"""The accountant's description of every kind of mechanism that a question may have."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from accountant.mechanisms.base import Randomizer
from accountant.mechanisms.binary import BinaryRandomizedResponse, OneBitMean
from accountant.mechanisms.gaussian import GaussianMechanism
from accountant.mechanisms.hemisphere import HemisphereMechanism
from accountant.mechanisms.kary import KaryRandomizedResponse
from accountant.mechanisms.laplace import LaplaceMechanism
from accountant.mechanisms.record_gaussian import RecordGaussian
from protocol.mechanisms import Mechanism

__all__ = ["RANDOMIZERS", "randomizer_from_name", "randomizer_of"]

RANDOMIZERS: dict[str, type[Randomizer]] = {
    "rr": BinaryRandomizedResponse,
    "krr": KaryRandomizedResponse,
    "onebit": OneBitMean,
    "laplace": LaplaceMechanism,
    "gaussian": GaussianMechanism,
    "hemisphere": HemisphereMechanism,
    "gaussian_vector": RecordGaussian,
}


def randomizer_of(mechanism: Mechanism) -> Randomizer:
    """Returns the accountant's description of what the clients of a round run."""
    return RANDOMIZERS[mechanism.kind].of(mechanism)


def randomizer_from_name(name: str, **parameters: Any) -> Randomizer:
    """Returns the randomizer of a kind: `rr`, `onebit`, `krr` (k=...), `laplace`, `gaussian`, `hemisphere` and so on.

    Raises:
        ValueError: an unknown kind or parameter, one that is missing, or one out of range.
    """
    if name not in RANDOMIZERS:
        raise ValueError(f"randomizer is {name!r}; it must be one of {', '.join(sorted(RANDOMIZERS))}")
    known = [one.name for one in fields(RANDOMIZERS[name])]
    for parameter, value in parameters.items():
        if parameter not in known:
            raise ValueError(f"{parameter} is {value!r}, but {name} has no {parameter}")
    for one in fields(RANDOMIZERS[name]):
        if one.name not in parameters and one.default is MISSING:
            raise ValueError(f"{one.name} is missing; {name} needs it")
    return RANDOMIZERS[name](**parameters)
