"""What local randomizers share: one user's value in, one report out, at exactly the local budget that was chosen.

Probabilities are exact up to one part in 2^64, always rounded towards more privacy: a threshold (`client.thresholds`)
is compared with a 64-bit draw of the operating system's generator. Integer noise is OpenDP's exact discrete sampler (no
floating-point noise: Mironov 2012).
"""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from fractions import Fraction
from functools import lru_cache
from typing import Any, Generic, Literal, TypeVar

from croupier.client.thresholds import blanket_threshold, flip_threshold
from croupier.protocol.mechanisms.base import ScalarMechanism
from croupier.protocol.mechanisms.interval import IntervalMechanism, LatticeMechanism
from croupier.protocol.mechanisms.vector import VectorMechanism
from croupier.protocol.randomness import RandomSource

M = TypeVar("M")
Scalar = TypeVar("Scalar", bound=ScalarMechanism)
Interval = TypeVar("Interval", bound=IntervalMechanism)
Lattice = TypeVar("Lattice", bound=LatticeMechanism)


def randomize_bit(bit: int, epsilon: float, source: RandomSource) -> int:
    """Returns the bit, or the other one with probability 1/(1+e^epsilon)."""
    return bit ^ (source.bits64() < flip_threshold(epsilon))


def randomize_category(category: int, k: int, epsilon: float, source: RandomSource) -> int:
    """Returns the category, or each other one of k with probability 1/(e^epsilon+k-1)."""
    if source.bits64() < blanket_threshold(epsilon, k):
        return source.below(k)
    return category


def round_stochastically(position: Fraction, source: RandomSource) -> int:
    """Returns one of the two integers next to `position`, with mean `position` up to 2^-64."""
    below = math.floor(position)
    return below + (source.bits64() < (position - below) * 2**64)


@lru_cache(maxsize=256)
def discrete_noise(kind: Literal["laplace", "gaussian"], scale: float) -> Any:
    """Returns OpenDP's measurement that adds integer noise of `scale` to a 64-bit integer."""
    from opendp import domains, measurements, metrics, mod  # not its prelude, which loads scikit-learn if it is there

    mod.enable_features("contrib")
    make = measurements.make_laplace if kind == "laplace" else measurements.make_gaussian
    return make(domains.atom_domain(T="i64"), metrics.absolute_distance(T="i64"), scale=scale)


class LocalRandomizer(ABC, Generic[M]):
    """How a client answers questions about one kind of mechanism."""

    @abstractmethod
    def randomize(self, mechanism: M, value: Any, epsilon: float, source: RandomSource) -> Any:
        """See `client.randomizers.randomize`; epsilon is checked already."""

    @abstractmethod
    def any_value(self, mechanism: M) -> Any:
        """Returns a value that does not depend on any person: a random one, or the zero vector."""

    def load(self) -> None:
        """Loads libraries that take long to load, before the first answer is due."""


class ScalarRandomizer(LocalRandomizer[Scalar]):
    """A randomizer whose report is one integer."""

    def randomize(self, mechanism: Scalar, value: float, epsilon: float, source: RandomSource) -> int:
        """See `LocalRandomizer.randomize`."""
        mechanism.check_value(value)
        return self.report(mechanism, value, epsilon, source)

    @abstractmethod
    def report(self, mechanism: Scalar, value: float, epsilon: float, source: RandomSource) -> int:
        """Returns the report of a value that is in the domain."""


class NumberRandomizer(ScalarRandomizer[Interval]):
    """A randomizer of a number in an interval."""

    def any_value(self, mechanism: Interval) -> float:
        """See `LocalRandomizer.any_value`."""
        return mechanism.low + (mechanism.high - mechanism.low) * secrets.randbelow(2**53) / 2**53

    def position(self, mechanism: Interval, value: float) -> Fraction:
        """Returns where a value lies in its interval, 0 .. 1, exactly."""
        low, high = Fraction(mechanism.low), Fraction(mechanism.high)
        return (Fraction(value) - low) / (high - low)


class LatticeRandomizer(NumberRandomizer[Lattice]):
    """Noise that OpenDP takes from the operating system itself, on a lattice position."""

    def report(self, mechanism: Lattice, value: float, epsilon: float, source: RandomSource) -> int:
        """See `ScalarRandomizer.report`."""
        position = self.position(mechanism, value) * mechanism.lattice
        return int(self.noise(mechanism, epsilon)(round_stochastically(position, source)))

    @abstractmethod
    def noise(self, mechanism: Lattice, epsilon: float) -> Any:
        """Returns what adds noise to an integer."""


def zero(mechanism: VectorMechanism) -> Any:
    """Returns the zero vector of a task; numpy is loaded where a round asks for vectors, and not before."""
    from croupier.client.vectors import zero as zero_vector

    return zero_vector(mechanism.vector.dimension)
