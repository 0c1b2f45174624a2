"""`gaussian`: a number with discrete Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from croupier.protocol.calibration import gaussian_sigma_steps
from croupier.protocol.mechanisms.base import Runs
from croupier.protocol.mechanisms.checks import MAX_LOCAL_DELTA, MIN_LOCAL_DELTA, check_count, check_number
from croupier.protocol.mechanisms.interval import LatticeMechanism, runs_noise

_MAX_LATTICE = 1000
_NUMBER = "every honest client adds Gaussian noise to a value in [0, 1]"
_VECTOR = (
    "every honest client adds Gaussian noise to a vector of {dimension} coordinates, of which no two values are "
    "further apart than 1"
)
_ON_LINE = "its sigma calibrated analytically to its own local (epsilon, delta)"
_ON_LATTICE = "both on multiples of 1/{lattice:d}, its sigma calibrated to its own local (epsilon, delta)"
_VECTORS = "which of two vectors a person gave, however far apart they are"


@dataclass(frozen=True)
class Gaussian(LatticeMechanism):
    """A number in [low, high] on a lattice, plus discrete Gaussian noise.

    Attributes:
        local_delta: the delta of every local budget, 1e-15 .. 1e-3; clients keep to 1e-5 unless told otherwise.
        lattice: the number of steps between low and high, 1 .. 1000.
    """

    kind: ClassVar[str] = "gaussian"
    runs: ClassVar[tuple[Runs, ...]] = (
        runs_noise("runs-gaussian", f"{_NUMBER}, {_ON_LINE}", "Gaussian"),
        runs_noise("runs-gaussian-lattice", f"{_NUMBER}, {_ON_LATTICE}", "Gaussian"),
        runs_noise("runs-gaussian-space", f"{_VECTOR}, {_ON_LINE}", "Gaussian", "vector", _VECTORS),
        runs_noise("runs-gaussian-space-lattice", f"{_VECTOR}, {_ON_LATTICE}", "Gaussian", "vector", _VECTORS),
    )
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


MECHANISM = Gaussian
