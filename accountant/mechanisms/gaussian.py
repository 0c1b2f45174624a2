"""Gaussian noise on a number, or on a vector, where it is not amplified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from croupier.accountant.bounds.profile import Curve, NoAmplification, Others, Victim
from croupier.accountant.mechanisms.additive_noise import AdditiveNoise, GaussianNoise
from croupier.accountant.mechanisms.calibrated_gaussian import unit_sigmas
from croupier.accountant.mechanisms.noisy_value import NoisyValue
from croupier.accountant.numerics.binomial import Floats
from croupier.accountant.ranges import check_count
from croupier.protocol.calibration import gaussian_sigma_steps
from croupier.protocol.codes import Assumption, Step
from croupier.protocol.statements import Statement, state


@dataclass(frozen=True)
class GaussianMechanism(NoisyValue):
    """A value clipped to [0, 1], plus Gaussian noise calibrated to the local (epsilon, delta); or a vector in R^d."""

    spends_local_delta: ClassVar[bool] = True
    """Yes: Gaussian noise is never epsilon-private."""
    kind: ClassVar[str] = "gaussian"
    dimension: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.dimension, "dimension", 1)

    @property
    def name(self) -> str:
        """See `Randomizer.name`; with the dimension where it is above 1."""
        return "gaussian" if self.dimension == 1 else f"gaussian(d={self.dimension})"

    @property
    def statement(self) -> Statement[Assumption]:
        """See `Randomizer.statement`; with the lattice and the dimension, if there are such."""
        if self.dimension == 1:
            if self.lattice is None:
                return state(Assumption.RUNS_GAUSSIAN)
            return state(Assumption.RUNS_GAUSSIAN_LATTICE, lattice=self.lattice)
        if self.lattice is None:
            return state(Assumption.RUNS_GAUSSIAN_SPACE, dimension=self.dimension)
        return state(Assumption.RUNS_GAUSSIAN_SPACE_LATTICE, dimension=self.dimension, lattice=self.lattice)

    @property
    def noise(self) -> AdditiveNoise:
        """Gaussian noise, on the lattice if there is one."""
        return GaussianNoise(self.lattice)

    def rates(self, local_epsilon: Floats, local_delta: Floats) -> Floats:
        """1/(2 sigma^2): analytic calibration on the line, the deployment's own exact one on a lattice."""
        if self.lattice is None:
            return 1 / (2 * unit_sigmas(local_epsilon, local_delta) ** 2)
        budgets = zip(local_epsilon.tolist(), local_delta.tolist(), strict=True)
        sigmas = [gaussian_sigma_steps(epsilon, delta, self.lattice) / self.lattice for epsilon, delta in budgets]
        return 1 / (2 * np.array(sigmas) ** 2)

    def profile(self, victim: Victim, others: Others, delta: float | None) -> Curve:
        """See `NoisyValue.profile`; in more than one dimension a report is never amplified."""
        if self.dimension > 1:
            return NoAmplification(state(Step.LENGTH_SHOWS_SIGMA, dimension=self.dimension))
        return super().profile(victim, others, delta)

    @classmethod
    def of(cls, mechanism: Any) -> Self:
        """See `Randomizer.of`."""
        return cls(mechanism.lattice)
