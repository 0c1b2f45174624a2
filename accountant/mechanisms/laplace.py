"""Laplace noise on a number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from croupier.accountant.attacks.additive_noise import AdditiveNoiseAttacks
from croupier.accountant.attacks.event_tests import Attacks, Population, Target
from croupier.accountant.attacks.interval_probabilities import LaplaceIntervals
from croupier.accountant.bounds.exchange_laplace import exchange_laplace_profile
from croupier.accountant.bounds.exchange_lattice import on_lattice
from croupier.accountant.bounds.group_choice import two_group_profile
from croupier.accountant.bounds.least import PointwiseMinimum
from croupier.accountant.bounds.profile import Curve, NoAmplification, Others, Victim
from croupier.accountant.mechanisms.additive_noise import AdditiveNoise, LaplaceNoise
from croupier.accountant.mechanisms.noisy_value import NoisyValue
from croupier.accountant.numerics.binomial import UNIT, Floats
from croupier.protocol.codes import ProofStep
from croupier.protocol.statements import Statement

LEAST_BLANKET = 30.0
"""With a smaller sum of e^(-v/2) the blanket bound is sharper than the exchange bound, or nearly as sharp."""


@dataclass(frozen=True)
class LaplaceMechanism(NoisyValue):
    """A value clipped to [0, 1], plus Laplace noise of scale 1/v; v is the local epsilon.

    Certificate: common blanket with an optimised density, docs/exchange-bound.md, also on a lattice.
    Attack: counts in intervals, sums.
    """

    kind: ClassVar[str] = "laplace"
    no_attack: ClassVar[str | None] = None

    @property
    def noise(self) -> AdditiveNoise:
        """Laplace noise, on the lattice if there is one."""
        return LaplaceNoise(self.lattice)

    def rates(self, local_epsilon: Floats, local_delta: Floats) -> Floats:
        """The local epsilon itself."""
        return local_epsilon

    def exchange_profile(self, victim: Victim, others: Others, delta: float | None) -> Curve:
        """See `Randomizer.exchange_profile`."""
        if float(np.exp(-others.local_epsilon / 2) @ others.count) - others.dishonest < LEAST_BLANKET:
            return NoAmplification(Statement.of(ProofStep.EXCHANGE_NEEDS_BLANKET, least=LEAST_BLANKET))
        if self.lattice is None:
            return _exchange(victim, others, delta)
        return on_lattice(
            lambda fewer: _exchange(victim, fewer, delta), victim.local_epsilon, others, self.lattice, delta
        )

    def attacks(self, population: Population, target: Target) -> Attacks:
        """See `Randomizer.attacks`."""
        own, scales = 1 / population.local_epsilon, 1 / population.others_epsilon
        return AdditiveNoiseAttacks(population, LaplaceIntervals(self.lattice), own, scales, target)

    def least_mass(self, local_epsilon: float) -> float:
        """The least of the densities around 0 and around 1: e^(-v/2).

        On a lattice of an odd number of steps no point lies half way, and it is e^(-v/2)/cosh(v/(2 steps)).
        """
        gap = local_epsilon / (2 * self.lattice) if self.lattice is not None and self.lattice % 2 == 1 else 0.0
        # 1/(e^(v/2) cosh(g)) = 2 e^(-v/2 - g)/(1 + e^(-2 g)), which does not overflow.
        least: float = 2 * math.exp(-local_epsilon / 2 - gap) / (1 + math.exp(-2 * gap))
        return least * (1 - 16 * UNIT)


def _exchange(victim: Victim, others: Others, delta: float | None) -> Curve:
    """The least of the exchange bounds for continuous noise: sections 5 and 6."""
    own = exchange_laplace_profile(victim, others, delta)
    in_groups = two_group_profile(own, victim, others, delta)
    if in_groups is None:
        return own
    return in_groups if own.no_bound is not None else PointwiseMinimum((in_groups, own))


RANDOMIZER = LaplaceMechanism
