"""The accountant's view of the hop noise of a round: its hops, the guarantee of their fakes, and their number.

The law of the fakes is in `protocol.fake_law`, the curve in `bounds.hop_noise`; what a group of victims is certified
from it is left to `answers`. Statement and proof: docs/hop-noise.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from flint import ctx

from croupier.accountant.bounds.hop_noise import HopNoiseProfile
from croupier.accountant.guarantees import LowerBound
from croupier.accountant.hop_kernel import precision_for
from croupier.accountant.hop_noise_choice import HopGuarantee
from croupier.accountant.mechanisms.base import Randomizer
from croupier.protocol.codes import ProofStep
from croupier.protocol.fake_law import MIN_EPSILON, FakeLaw
from croupier.protocol.hop_noise import HopNoise, RoundFakes
from croupier.protocol.statements import Statement

AnyHopNoise = HopNoise | HopGuarantee | tuple[float, float] | None
"""Hop noise, or its epsilon and delta, or what it should guarantee; None for a round without it."""


@dataclass(frozen=True)
class NoFakes:
    """A chain of hops without hop noise."""

    most: ClassVar[int] = 0
    variance: ClassVar[float] = 0.0
    accepted_local_epsilon: ClassVar[float] = math.inf

    def __bool__(self) -> Literal[False]:
        return False


NO_FAKES = NoFakes()


@dataclass(frozen=True)
class HopFakes:
    """The fakes that every hop of a chain adds to the reports of a randomizer.

    Attributes:
        noise: the epsilon and delta in the manifest.
        hops: the number of hops; each adds its own fakes.
        randomizer: of the clients, with reports of finitely many values.
    """

    accepted_local_epsilon: ClassVar[float] = RoundFakes.accepted_local_epsilon

    noise: HopNoise
    hops: int
    randomizer: Randomizer

    @cached_property
    def law(self) -> FakeLaw:
        """The law of the fakes of one hop."""
        return self.noise.law(self.randomizer.num_report_values or 0)

    @property
    def most(self) -> int:
        """The largest number of fakes of all hops, which can hide as many lost reports of clients."""
        return self.hops * self.law.most

    @property
    def variance(self) -> float:
        """The variance that the fakes add to an estimated count, after their expected number is subtracted."""
        return self.hops * self.law.variance * self.randomizer.fakes_weight

    @property
    def hides_losses(self) -> Statement[ProofStep]:
        """The step with the number of further clients whom the bounds of the shuffle count as dishonest."""
        return Statement.of(ProofStep.FAKES_HIDE_LOSSES, hops=self.hops, fakes=self.most)

    @property
    def halved(self) -> HopNoise | None:
        """Hop noise of half the epsilon, which doubles its part of the error; None where that is too small."""
        half = self.noise.epsilon / 2
        return HopNoise(half, self.noise.delta) if half >= MIN_EPSILON else None

    def curve(self, local_epsilon: float) -> HopNoiseProfile:
        """Returns the guarantee of one honest hop's fakes for a client with a local budget up to this one."""
        precision = precision_for(local_epsilon)
        with ctx.workprec(precision):
            return HopNoiseProfile(self.law, self.randomizer.report_pairs(local_epsilon), precision)

    def attack(self, local_epsilon: float, delta: float | None, epsilon: float | None) -> LowerBound | None:
        """Returns an attack on a client with this local budget; None where none is known on its randomizer."""
        from croupier.accountant.attacks.hop_noise import attack_on_hop_noise

        pairs = self.randomizer.report_pairs(local_epsilon)
        if not pairs:
            return None
        reports = [tuple((n, float(first), float(second)) for n, first, second in pair) for pair in pairs]
        attacks = [attack_on_hop_noise(self.law, pair, delta=delta, epsilon=epsilon) for pair in reports]
        return max(attacks, key=lambda attack: (attack.epsilon, attack.delta))


Fakes = HopFakes | NoFakes
