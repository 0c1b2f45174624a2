"""`laplace`: a number with discrete Laplace noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from croupier.protocol.mechanisms.checks import check_count
from croupier.protocol.mechanisms.interval import LatticeMechanism

_MAX_LATTICE = 1 << 31


@dataclass(frozen=True)
class Laplace(LatticeMechanism):
    """Discrete Laplace noise on a lattice.

    Attributes:
        lattice: the number of steps between low and high, 1 .. 2^31.
    """

    kind: ClassVar[str] = "laplace"
    lattice: int = field(default=1_000_000, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("lattice", self.lattice, 1, _MAX_LATTICE)

    def noise_steps(self, epsilon: float) -> float:
        """See `LatticeMechanism.noise_steps`: eight scales, with a probability of e^-8."""
        return 8 * self.lattice / epsilon
