"""`hemisphere`: one point of the sphere for the vector of a client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from croupier.protocol.mechanisms.vector import VectorMechanism


@dataclass(frozen=True)
class Hemisphere(VectorMechanism):
    """A vector; a uniform point of the half sphere around it with probability e^v/(1+e^v), else of the other half."""

    kind: ClassVar[str] = "hemisphere"
