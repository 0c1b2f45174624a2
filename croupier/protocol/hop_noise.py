"""Hop noise: the fake reports that every hop adds to a batch before it permutes the batch (docs/hop-noise.md).

The manifest states an epsilon and a delta, `HopNoise`. `RoundFakes` is what every role asks: which law the numbers of
fakes have, how many there are at most, what they guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from croupier.protocol.codes import Assumption
from croupier.protocol.fake_law import FakeLaw, StatedNoise, law_of
from croupier.protocol.mechanisms import KINDS_WITH_FAKES
from croupier.protocol.mechanisms.base import Mechanism
from croupier.protocol.statements import Statement
from croupier.protocol.v1 import messages_pb2 as pb

MAX_MEAN_FAKES = 1_000_000
"""Fakes of one hop in a round, on average: they take about 800 CPU seconds, and 400 MB (docs/benchmarks.md)."""


@dataclass(frozen=True)
class HopNoise(StatedNoise):
    """The law of the fakes of every hop, by a guarantee that those of one honest hop give to every client.

    It is that of reports which are the value. With local noise certificates prove a smaller epsilon, at any delta.
    """

    name: ClassVar[str] = "hop noise"

    @classmethod
    def chosen(cls, epsilon: float | None, delta: float | None, default_delta: float) -> Self | None:
        """Returns the hop noise that a person chooses; None without an epsilon.

        Raises:
            ValueError: it is out of range, or a delta is given without an epsilon.
        """
        if epsilon is not None:
            return cls(epsilon, default_delta if delta is None else delta)
        if delta is not None:
            raise ValueError(f"hop_noise_delta is {delta:g} without hop_noise; give both")
        return None

    def law(self, num_values: int) -> FakeLaw:
        """Returns the law of one hop's fakes for reports with `num_values` possible values, at least 2."""
        return law_of(self.epsilon, self.delta, num_values)

    def assumption(self, hops: int) -> Statement[Assumption]:
        """Returns what the guarantee of the fakes rests on, beside the client's own device."""
        return Statement.of(Assumption.ONE_HONEST_HOP, hops=hops, epsilon=self.epsilon, delta=self.delta)


@dataclass(frozen=True)
class RoundFakes:
    """The fake reports of all hops of a round.

    Attributes:
        noise: what those of one honest hop guarantee.
        hops: how many hops there are; each adds fakes of its own.
        law: of the fakes of each hop.
    """

    accepted_local_epsilon: ClassVar[float] = 8.0
    """The largest local budget that a client accepts unless the person's own limit allows more.

    The local budget is all that protects a report if no hop is honest: at 8, a report is another value once in 3,000
    times.
    """

    noise: HopNoise
    hops: int
    law: FakeLaw

    @classmethod
    def of(cls, survey: pb.Survey, mechanism: Mechanism) -> Self | None:
        """Returns the fakes of a survey's rounds with this mechanism; None where hops add none.

        Raises:
            ValueError: hops cannot add such fakes to the reports of the mechanism.
        """
        if not survey.HasField("hop_noise"):
            return None
        noise = HopNoise(survey.hop_noise.epsilon, survey.hop_noise.delta)
        num_values = mechanism.num_report_values
        if num_values is None:
            raise ValueError(
                f"hop_noise is set for {mechanism.kind}; it must be for {', '.join(KINDS_WITH_FAKES)}: hops can add "
                "fake reports only where a report has one of finitely many values"
            )
        law = noise.law(num_values)
        if law.mean_total > MAX_MEAN_FAKES:
            raise ValueError(
                f"hop_noise takes {law.mean_total:,} fake reports of every hop; there must be at most "
                f"{MAX_MEAN_FAKES:,}: choose a larger epsilon or delta, or fewer categories"
            )
        return cls(noise, survey.num_hops, law)

    @property
    def most(self) -> int:
        """The largest number of fakes of all hops together."""
        return self.hops * self.law.most
