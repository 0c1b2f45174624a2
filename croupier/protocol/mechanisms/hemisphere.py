"""`hemisphere`: one point of the sphere for the vector of a client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from croupier.protocol.mechanisms.base import Runs
from croupier.protocol.mechanisms.vector import VectorMechanism


@dataclass(frozen=True)
class Hemisphere(VectorMechanism):
    """A vector; a uniform point of the half sphere around it with probability e^v/(1+e^v), else of the other half."""

    kind: ClassVar[str] = "hemisphere"
    runs: ClassVar[tuple[Runs, ...]] = (
        Runs(
            "runs-hemisphere",
            "every honest client reports, in {dimension} dimensions, a uniform point of the half sphere around its "
            "unit vector with probability e^v/(1+e^v) and of the opposite one otherwise, v its own local epsilon",
            "which of two contributions a person made",
            "sends a random direction: with a probability that follows from {whose} budget on the side of {whose} own, "
            "and otherwise on the opposite one",
        ),
    )


MECHANISM = Hemisphere
