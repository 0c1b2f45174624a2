"""Gaussian noise on a number, or on a vector, where it is not amplified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from croupier.accountant.attacks.additive_noise import AdditiveNoiseAttacks
from croupier.accountant.attacks.event_tests import Attacks, Population, Target
from croupier.accountant.attacks.interval_probabilities import GaussianIntervals
from croupier.accountant.bounds.profile import Curve, NoAmplification, Others, Victim
from croupier.accountant.mechanisms.additive_noise import AdditiveNoise, GaussianNoise
from croupier.accountant.mechanisms.calibrated_gaussian import unit_sigmas
from croupier.accountant.mechanisms.noisy_value import NoisyValue
from croupier.accountant.numerics.binomial import Floats
from croupier.accountant.ranges import check_count
from croupier.protocol.calibration import gaussian_sigma_steps
from croupier.protocol.codes import ProofStep
from croupier.protocol.statements import Statement


@dataclass(frozen=True)
class GaussianMechanism(NoisyValue):
    """A value clipped to [0, 1], plus Gaussian noise calibrated to the local (epsilon, delta); or a vector in R^d.

    Certificate: common blanket with an optimised density.
    Attack: counts in intervals, sums.
    """

    spends_local_delta: ClassVar[bool] = True
    """Yes: Gaussian noise is never epsilon-private."""
    kind: ClassVar[str] = "gaussian"
    no_attack: ClassVar[str | None] = None
    dimension: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.dimension, "dimension", 1)

    @property
    def parameters(self) -> dict[str, Any]:
        """See `Randomizer.parameters`; with the dimension where it is above 1."""
        return {name: value for name, value in super().parameters.items() if name != "dimension" or value > 1}

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
            return NoAmplification(Statement.of(ProofStep.LENGTH_SHOWS_SIGMA, dimension=self.dimension))
        return super().profile(victim, others, delta)

    def attacks(self, population: Population, target: Target) -> Attacks:
        """See `Randomizer.attacks`."""
        budget = np.array([population.local_epsilon]), np.array([population.local_delta])
        (own,) = (1 / np.sqrt(2 * self.rates(*budget))).tolist()
        scales = 1 / np.sqrt(2 * self.rates(population.others_epsilon, population.others_delta))
        # On a lattice only the coordinate along the axis is used: what is read off it is valid in any dimension.
        dimension = 1 if self.lattice is not None else self.dimension
        return AdditiveNoiseAttacks(population, GaussianIntervals(self.lattice), own, scales, target, dimension)

    @classmethod
    def of(cls, mechanism: Any) -> Self:
        """See `Randomizer.of`."""
        return cls(mechanism.lattice)


RANDOMIZER = GaussianMechanism
