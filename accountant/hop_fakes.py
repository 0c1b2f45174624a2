"""The hop noise of a round as the accountant sees it: whose fakes they are, what they guarantee, what they can hide.

The law of the fakes is in `protocol.hop_noise`, the curve in `bounds.hop_noise`; what a group of victims is certified
from it is left to `answers`. Statement and proof: docs/hop-noise.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

from croupier.accountant.bounds.hop_noise import HopNoiseProfile
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.ranges import Linkage, check_count, is_number, outside
from croupier.protocol.codes import Assumption, Step
from croupier.protocol.hop_noise import FakeLaw, HopNoise
from croupier.protocol.mechanisms import KINDS_WITH_FAKES
from croupier.protocol.statements import Statement, state

AnyHopNoise = HopNoise | tuple[float, float] | None
"""Hop noise, or its epsilon and delta; None for a round without it."""
LEAST_VARIATION = 1e-300
"""Smaller total variations, which are those of local budgets below 1e-299, are taken for this one."""


@dataclass(frozen=True)
class HopFakes:
    """The fakes that every hop of a chain adds to the reports of a randomizer.

    Attributes:
        noise: the epsilon and delta that the manifest states.
        hops: how many hops there are; each adds fakes of its own.
        randomizer: what clients run, with reports of finitely many values.
    """

    noise: HopNoise
    hops: int
    randomizer: Randomizer

    @classmethod
    def of(
        cls, noise: AnyHopNoise, hops: int, randomizer: Randomizer, linkage: Linkage, *, adaptive_order: bool
    ) -> Self | None:
        """Returns the fakes of a round; None without hop noise.

        Raises:
            ValueError: hop noise or hops outside their ranges, or a round to which hops cannot add fakes.
        """
        check_count(hops, "hops", 1)
        if noise is None:
            return None
        if not isinstance(noise, HopNoise):
            if not (isinstance(noise, tuple) and len(noise) == 2 and all(map(is_number, noise))):
                raise outside("hop_noise", noise, "a pair (epsilon, delta), such as (0.1, 1e-6)")
            noise = HopNoise(*noise)
        if randomizer.num_report_values is None:
            raise ValueError(
                f"hop_noise is given for {randomizer.name}; it must be for {', '.join(KINDS_WITH_FAKES)} or a "
                "table: hops can add fakes only where a report has one of finitely many values"
            )
        if linkage != "separate":
            raise ValueError(f"hop_noise is given with linkage {linkage!r}; it must be 'separate': fakes have no tier")
        if adaptive_order:
            raise ValueError(
                "adaptive_order is true with hop_noise; it must be false: hops cannot add fakes to answers in turns"
            )
        return cls(noise, hops, randomizer)

    @cached_property
    def law(self) -> FakeLaw:
        """The law of the fakes of one hop."""
        return self.noise.law(self.randomizer.num_report_values or 0)

    @property
    def most(self) -> int:
        """The largest number of fakes of all hops: as many lost reports of clients they can hide."""
        return self.hops * self.law.most

    @property
    def variance(self) -> float:
        """The variance that the fakes add to what reports are read for, once their stated number is subtracted."""
        return self.hops * self.law.variance * self.randomizer.fakes_weight

    @property
    def assumption(self) -> Statement[Assumption]:
        """What the guarantee of the fakes rests on, beside the client's own device."""
        return state(Assumption.ONE_HONEST_HOP, hops=self.hops, epsilon=self.noise.epsilon, delta=self.noise.delta)

    @property
    def hides_losses(self) -> Statement[Step]:
        """The step that says how many further clients the bounds of the shuffle count as dishonest."""
        return state(Step.FAKES_HIDE_LOSSES, hops=self.hops, fakes=self.most)

    def curve(self, local_epsilon: float) -> HopNoiseProfile:
        """Returns what the fakes of one honest hop guarantee to a client with a local budget up to this one."""
        return HopNoiseProfile(self.law, self.variation(local_epsilon))

    def variation(self, local_epsilon: float) -> float:
        """Returns the total variation between the reports of any two values, at least; in (0, 1]."""
        return max(self.randomizer.total_variation(local_epsilon), LEAST_VARIATION)
