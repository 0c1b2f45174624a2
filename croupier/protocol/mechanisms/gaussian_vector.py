"""`gaussian_vector`: the mean of the vectors of a client's records, with Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from croupier.protocol.calibration import ROUNDING, unit_sigma
from croupier.protocol.mechanisms.base import Runs
from croupier.protocol.mechanisms.checks import MAX_LOCAL_DELTA, MIN_LOCAL_DELTA, check_count, check_number
from croupier.protocol.mechanisms.vector import VectorMechanism

MAX_RECORDS = 1 << 30
_CLIPPING_RANGE = (1e-20, 1e20)


@dataclass(frozen=True)
class GaussianVector(VectorMechanism):
    """The mean of the vectors of a client's records, each clipped, plus Gaussian noise; one record is protected.

    Attributes:
        vector: its clipping_norm is 1e-20 .. 1e20, so that float32 holds every report.
        records_per_client: the records that every client has at least, public, 1 .. 2^30.
        local_delta: the delta of every local budget, 1e-15 .. 1e-3.
    """

    kind: ClassVar[str] = "gaussian_vector"
    runs: ClassVar[tuple[Runs, ...]] = (
        Runs(
            "runs-record-gaussian",
            "every honest client clips the vector, of {dimension} coordinates, of each of its records, of which it has "
            "at least {records}, and adds Gaussian noise to their mean, its sigma calibrated analytically to its own "
            "local (epsilon, delta) and to what one of its records can move",
            "which of two values ONE RECORD of a person had",
            "cuts what it computes from each of {whose} records to a fixed length, and adds random (Gaussian) noise to "
            "the mean, enough to hide ONE RECORD among {records}, and not all of them",
        ),
    )
    records_per_client: int
    local_delta: float

    def __post_init__(self) -> None:
        check_number("clipping_norm", self.vector.clipping_norm, *_CLIPPING_RANGE)
        check_count("records_per_client", self.records_per_client, 1, MAX_RECORDS)
        check_number("local_delta", self.local_delta, MIN_LOCAL_DELTA, MAX_LOCAL_DELTA)

    @property
    def budget_delta(self) -> float:
        """See `Mechanism.budget_delta`."""
        return self.local_delta

    def sigma(self, epsilon: float) -> float:
        """Returns the scale of the noise on each coordinate of a report made with this local epsilon.

        Replacing one of m records moves a mean of vectors of length at most C by at most 2C/m, and ROUNDING of it more
        in floating point (client.vectors has the argument). m is records_per_client: a client with more adds too much.

        Raises:
            ValueError: epsilon is outside (0, 20].
        """
        if not 0 < epsilon <= 20:
            raise ValueError(f"local budget is ({epsilon}, {self.local_delta}); it must be 0 < epsilon ≤ 20")
        sensitivity = 2 * self.vector.clipping_norm / self.records_per_client * (1 + ROUNDING)
        return sensitivity * unit_sigma(epsilon, self.local_delta)

    def check_budget(self, epsilon: float) -> None:
        """See `Mechanism.check_budget`."""
        self.sigma(epsilon)


MECHANISM = GaussianVector
