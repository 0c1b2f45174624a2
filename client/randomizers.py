"""Local randomizers: one user's value in, one report out, at exactly the local budget that was chosen.

Probabilities are exact up to one part in 2^64, always rounded towards more privacy: a threshold (`client.thresholds`)
is compared with a 64-bit draw of the operating system's generator. Laplace noise is OpenDP's exact discrete sampler on
an integer lattice (no floating-point noise: Mironov 2012). Proofs of the guarantees: Warner 1965 for `rr`, Kairouz,
Bonawitz, Ramage 2016 for `krr`, Feldman, Nelson, Nguyen, Talwar 2022 for `pgr`, Ghosh, Roughgarden, Sundararajan 2012
for the discrete Laplace. `RANDOMIZERS` has one for each kind of mechanism. Those for vectors import `client.vectors`,
which needs numpy, where a round asks for one.
"""

from __future__ import annotations

import itertools
import math
import secrets
from abc import ABC, abstractmethod
from fractions import Fraction
from functools import lru_cache
from typing import Any, Generic, Literal, TypeVar

from croupier.client.thresholds import blanket_threshold, check_local_epsilon, flip_threshold
from croupier.protocol.mechanisms import (
    Gaussian,
    GaussianVector,
    Hemisphere,
    IntervalMechanism,
    KaryResponse,
    Laplace,
    LatticeMechanism,
    Levels,
    MultipleChoice,
    OneBit,
    ProjectiveResponse,
    RandomizedResponse,
    ScalarMechanism,
    VectorMechanism,
)
from croupier.protocol.questions import Question
from croupier.protocol.randomness import RandomSource

M = TypeVar("M")
Scalar = TypeVar("Scalar", bound=ScalarMechanism)
Interval = TypeVar("Interval", bound=IntervalMechanism)
Lattice = TypeVar("Lattice", bound=LatticeMechanism)


def _randomize_bit(bit: int, epsilon: float, source: RandomSource) -> int:
    return bit ^ (source.bits64() < flip_threshold(epsilon))


def _randomize_category(category: int, k: int, epsilon: float, source: RandomSource) -> int:
    if source.bits64() < blanket_threshold(epsilon, k):
        return source.below(k)
    return category


def _round_stochastically(position: Fraction, source: RandomSource) -> int:
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
        """See `randomize`; epsilon is checked already."""

    @abstractmethod
    def any_value(self, mechanism: M) -> Any:
        """Returns a value that does not depend on any person: a random one, or the zero vector."""

    def load(self) -> None:
        """Loads libraries that take long to load, before the first answer is due."""


class _Scalar(LocalRandomizer[Scalar]):
    def randomize(self, mechanism: Scalar, value: float, epsilon: float, source: RandomSource) -> int:
        mechanism.check_value(value)
        return self.report(mechanism, value, epsilon, source)

    @abstractmethod
    def report(self, mechanism: Scalar, value: float, epsilon: float, source: RandomSource) -> int: ...


class _Bit(_Scalar[RandomizedResponse]):
    def report(self, mechanism: RandomizedResponse, value: float, epsilon: float, source: RandomSource) -> int:
        return _randomize_bit(int(value), epsilon, source)

    def any_value(self, mechanism: RandomizedResponse) -> int:
        return secrets.randbelow(2)


class _Category(_Scalar[KaryResponse]):
    def report(self, mechanism: KaryResponse, value: float, epsilon: float, source: RandomSource) -> int:
        return _randomize_category(int(value), mechanism.k, epsilon, source)

    def any_value(self, mechanism: KaryResponse) -> int:
        return secrets.randbelow(mechanism.k)


class _Projective(_Scalar[ProjectiveResponse]):
    def report(self, mechanism: ProjectiveResponse, value: float, epsilon: float, source: RandomSource) -> int:
        space = mechanism.space
        if source.bits64() < blanket_threshold(epsilon, space.num_points, space.block):
            return source.below(space.num_points)
        return space.on_hyperplane(int(value), 1 + source.below(space.q ** (space.t - 1) - 1))

    def any_value(self, mechanism: ProjectiveResponse) -> int:
        return secrets.randbelow(mechanism.k)


class _Choices(_Scalar[MultipleChoice]):
    def report(self, mechanism: MultipleChoice, value: float, epsilon: float, source: RandomSource) -> int:
        option = source.below(mechanism.k)
        return 2 * option + _randomize_bit(int(value) >> option & 1, epsilon, source)

    def any_value(self, mechanism: MultipleChoice) -> int:
        return secrets.randbelow(1 << mechanism.k)


class _Number(_Scalar[Interval]):
    def any_value(self, mechanism: Interval) -> float:
        return mechanism.low + (mechanism.high - mechanism.low) * secrets.randbelow(2**53) / 2**53

    def position(self, mechanism: Interval, value: float) -> Fraction:
        """Returns where a value lies in its interval, 0 .. 1, exactly."""
        low, high = Fraction(mechanism.low), Fraction(mechanism.high)
        return (Fraction(value) - low) / (high - low)


class _OneBit(_Number[OneBit]):
    def report(self, mechanism: OneBit, value: float, epsilon: float, source: RandomSource) -> int:
        return _randomize_bit(_round_stochastically(self.position(mechanism, value), source), epsilon, source)


class _Levels(_Number[Levels]):
    def report(self, mechanism: Levels, value: float, epsilon: float, source: RandomSource) -> int:
        position = self.position(mechanism, value) * (mechanism.k - 1)
        return _randomize_category(_round_stochastically(position, source), mechanism.k, epsilon, source)


class _Lattice(_Number[Lattice]):
    """Noise that OpenDP takes from the operating system itself, on a lattice position."""

    def report(self, mechanism: Lattice, value: float, epsilon: float, source: RandomSource) -> int:
        position = self.position(mechanism, value) * mechanism.lattice
        return int(self.noise(mechanism, epsilon)(_round_stochastically(position, source)))

    @abstractmethod
    def noise(self, mechanism: Lattice, epsilon: float) -> Any:
        """Returns what adds noise to an integer."""


class _Laplace(_Lattice[Laplace]):
    def noise(self, mechanism: Laplace, epsilon: float) -> Any:
        return discrete_noise("laplace", math.nextafter(mechanism.lattice / epsilon, math.inf))


class _Gaussian(_Lattice[Gaussian]):
    def noise(self, mechanism: Gaussian, epsilon: float) -> Any:
        return discrete_noise("gaussian", mechanism.sigma_steps(epsilon))


class _Hemisphere(LocalRandomizer[Hemisphere]):
    def randomize(self, mechanism: Hemisphere, value: Any, epsilon: float, source: RandomSource) -> Any:
        from croupier.client.vectors import hemisphere

        task = mechanism.vector
        if len(value) != task.dimension:
            raise ValueError(f"the gradient has {len(value)} entries; this round takes {task.dimension}")
        return hemisphere(value, task.clipping_norm, epsilon, source)

    def any_value(self, mechanism: Hemisphere) -> Any:
        return _zero(mechanism)


class _GaussianVector(LocalRandomizer[GaussianVector]):
    def randomize(self, mechanism: GaussianVector, value: Any, epsilon: float, source: RandomSource) -> Any:
        from croupier.client.vectors import gaussian_mean_of_records

        return gaussian_mean_of_records(mechanism, value, epsilon)

    def any_value(self, mechanism: GaussianVector) -> Any:
        return itertools.repeat(_zero(mechanism), mechanism.records_per_client)

    def load(self) -> None:
        from croupier.client.vectors import load_noise

        load_noise()


def _zero(mechanism: VectorMechanism) -> Any:
    from croupier.client.vectors import zero

    return zero(mechanism.vector.dimension)


RANDOMIZERS: dict[str, LocalRandomizer[Any]] = {
    "rr": _Bit(),
    "krr": _Category(),
    "pgr": _Projective(),
    "choices": _Choices(),
    "onebit": _OneBit(),
    "levels": _Levels(),
    "laplace": _Laplace(),
    "gaussian": _Gaussian(),
    "hemisphere": _Hemisphere(),
    "gaussian_vector": _GaussianVector(),
}
"""How a client answers, for every kind of mechanism."""


def randomize(question: Question, value: Any, epsilon: float, source: RandomSource) -> Any:
    """Returns one report that is locally differentially private in the value.

    Args:
        question: what is asked, with the mechanism.
        value: as `Mechanism.parse_value` returns it; for hemisphere, float64 (d,); for gaussian_vector, one vector
            (d,) for each of the client's records.
        epsilon: the local budget, 0 < epsilon ≤ 20; its delta is the mechanism's `budget_delta`.
        source: draws for everything but Laplace and Gaussian noise, which OpenDP takes from the operating system.

    Returns:
        What `Mechanism.encode_report` encodes: an integer (rr, onebit: a bit; krr: a category; pgr: a point; choices:
        twice an option plus its bit; levels: a level; laplace, gaussian: a lattice position, which may lie outside
        0 .. lattice), or float32 (d,).

    Raises:
        ValueError: value or epsilon out of range.
    """
    check_local_epsilon(epsilon)
    return RANDOMIZERS[question.mechanism.kind].randomize(question.mechanism, value, epsilon, source)
