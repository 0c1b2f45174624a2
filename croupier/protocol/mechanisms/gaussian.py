"""`gaussian`: a number with discrete Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from croupier.protocol.calibration import gaussian_sigma_steps
from croupier.protocol.mechanisms.checks import MAX_LOCAL_DELTA, MIN_LOCAL_DELTA, check_count, check_number
from croupier.protocol.mechanisms.interval import LatticeMechanism

_MAX_LATTICE = 1000


@dataclass(frozen=True)
class Gaussian(LatticeMechanism):
    """Discrete Gaussian noise on a lattice.

    Attributes:
        local_delta: the delta of every local budget, 1e-15 .. 1e-3.
        lattice: the number of steps between low and high, 1 .. 1000.
    """

    kind: ClassVar[str] = "gaussian"
    local_delta: float
    lattice: int = field(default=100, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("local_delta", self.local_delta, MIN_LOCAL_DELTA, MAX_LOCAL_DELTA)
        check_count("lattice", self.lattice, 1, _MAX_LATTICE)

    @property
    def budget_delta(self) -> float:
        """See `Mechanism.budget_delta`."""
        return self.local_delta

    def noise_steps(self, epsilon: float) -> float:
        """See `LatticeMechanism.noise_steps`: four and a half standard deviations."""
        return 4.5 * self.sigma_steps(epsilon)

    def sigma_steps(self, epsilon: float) -> float:
        """Returns the scale of the noise in lattice steps; raises ValueError as `gaussian_sigma_steps` does."""
        return gaussian_sigma_steps(epsilon, self.local_delta, self.lattice)
