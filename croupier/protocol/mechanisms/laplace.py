"""`laplace`: a number with discrete Laplace noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from croupier.protocol.mechanisms.base import Runs
from croupier.protocol.mechanisms.checks import check_count
from croupier.protocol.mechanisms.interval import LatticeMechanism, runs_noise

_MAX_LATTICE = 1 << 31
_RUNS = "every honest client adds Laplace noise of scale 1/(its own local epsilon) to a value in [0, 1]"


@dataclass(frozen=True)
class Laplace(LatticeMechanism):
    """A number in [low, high] on a lattice, plus discrete Laplace noise.

    Attributes:
        lattice: the number of steps between low and high, 1 .. 2^31.
    """

    kind: ClassVar[str] = "laplace"
    runs: ClassVar[tuple[Runs, ...]] = (
        runs_noise("runs-laplace", _RUNS, "Laplace"),
        runs_noise("runs-laplace-lattice", f"{_RUNS}, both on multiples of 1/{{lattice:d}}", "Laplace"),
    )
    lattice: int = field(default=1_000_000, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("lattice", self.lattice, 1, _MAX_LATTICE)

    def noise_steps(self, epsilon: float) -> float:
        """See `LatticeMechanism.noise_steps`: eight scales, with a probability of e^-8."""
        return 8 * self.lattice / epsilon


MECHANISM = Laplace
