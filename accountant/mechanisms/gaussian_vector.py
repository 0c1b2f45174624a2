"""Gaussian noise on the mean of a client's records, of which one is protected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from croupier.accountant.bounds.profile import Curve, NoAmplification, Others, Victim
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.numerics.binomial import Floats
from croupier.accountant.numerics.gaussian import gaussian_epsilon
from croupier.accountant.ranges import check_count
from croupier.protocol.calibration import unit_delta, unit_sigma
from croupier.protocol.codes import Assumption, ProofStep
from croupier.protocol.statements import Statement


@dataclass(frozen=True)
class RecordGaussian(Randomizer):
    """The mean of at least `records` vectors of a client, each clipped, plus N(0, sigma^2 I) for one of the records.

    Certificate: the local budget of one record (docs/bounds.md, section 4.1), never amplified.

    Never amplified: the length of a report tells its sigma (docs/bounds.md, section 4.1). The local guarantee is
    that of a Gaussian mechanism of mu = 1/sigma for sensitivity 1, in every dimension.
    """

    spends_local_delta: ClassVar[bool] = True
    """Yes: Gaussian noise is never epsilon-private."""
    unit: ClassVar[str] = "record"
    """One record of a client: a client with many records is not protected as a whole."""
    kind: ClassVar[str] = "gaussian_vector"
    no_attack: ClassVar[str | None] = "its certificate is the local guarantee, which no shuffle has to keep"
    dimension: int
    records: int

    def __post_init__(self) -> None:
        check_count(self.dimension, "dimension", 1)
        check_count(self.records, "records", 1)

    @property
    def local_assumptions(self) -> tuple[Statement[Assumption], ...]:
        """See `Randomizer.local_assumptions`."""
        return (
            Statement.of(Assumption.RECORD_LEVEL),
            Statement.of(Assumption.PERSON_UNPROTECTED),
            self.statement,
            Statement.of(Assumption.RECORDS_PUBLIC),
            Statement.of(Assumption.TIERS_VISIBLE),
            Statement.of(Assumption.BUDGETS_PUBLIC),
        )

    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """One coordinate of the mean, in units of the clipping norm: 1, and sigma^2."""
        sigmas = [
            2 * unit_sigma(epsilon, delta) / self.records
            for epsilon, delta in zip(local_epsilon.tolist(), local_delta.tolist(), strict=True)
        ]
        return np.ones(local_epsilon.shape), np.square(sigmas)

    def local_profile(self, local_epsilon: float, local_delta: float, points: int) -> tuple[tuple[float, float], ...]:
        """Points (epsilon, delta) of the local guarantee, rounded up, from 0 to where delta is about 10^-15."""
        sigma = unit_sigma(local_epsilon, local_delta)
        grid = np.linspace(0.0, gaussian_epsilon(1 / sigma, 1e-15), points).tolist()
        deltas = np.minimum.accumulate([unit_delta(sigma, epsilon) for epsilon in grid]).tolist()
        return tuple(zip(grid, deltas, strict=True))

    def profile(self, victim: Victim, others: Others, delta: float | None) -> Curve:
        """Never a profile: the reason why the local budget is not amplified."""
        return NoAmplification(Statement.of(ProofStep.LENGTH_SHOWS_RECORD_SIGMA, dimension=self.dimension))

    @classmethod
    def of(cls, mechanism: Any) -> Self:
        """See `Randomizer.of`."""
        return cls(mechanism.vector.dimension, mechanism.records_per_client)


RANDOMIZER = RecordGaussian
