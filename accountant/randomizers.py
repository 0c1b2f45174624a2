"""The local randomizers as the accountant sees them: their blanket and the divergence that it leaves.

A randomizer states γ(ε_i), the weight of the common blanket ω in the report of a user with local budget ε_i, and
δ(m), the hockey-stick divergence between the victim's two values when m other reports are draws of ω (the theorem
and its proof: docs/accounting.md, section 2). Everything else follows in `accountant.certify`. A randomizer
without a stated blanket is certified at its local budget.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accountant.binomial import BETA_ERROR, fair_tail, fair_tails, rounding, window

__all__ = [
    "BinaryRandomizedResponse",
    "KaryRandomizedResponse",
    "LaplaceMechanism",
    "OneBitMean",
    "Randomizer",
]

Floats = npt.NDArray[np.float64]
# More than exp, addition and division together can be off by.
_DOWN = 1 - 8 * np.finfo(np.float64).eps


class Randomizer(abc.ABC):
    """A pure ε-locally private randomizer."""

    name: str
    local_only: str = ""
    # How finely M is bucketed; each bucket costs one evaluation of `delta_given`.
    buckets_per_sigma: int = 10

    @abc.abstractmethod
    def gamma(self, local_epsilon: Floats) -> Floats:
        """Returns the blanket weight of users with these budgets, in [0, 1]; never above the true one."""

    @abc.abstractmethod
    def delta_given(self, m: npt.NDArray[np.int64], local_epsilon: float, epsilon: float) -> tuple[Floats, Floats]:
        """Returns δ(m) for every m and a bound on its numerical error.

        Args:
            m: numbers of ω-messages beside the victim's, shape (b,), each ≥ 0.
            local_epsilon: the victim's budget.
            epsilon: central, 0 ≤ epsilon < local_epsilon.
        """


@dataclass(frozen=True)
class BinaryRandomizedResponse(Randomizer):
    """A bit, kept with probability e^ε/(1+e^ε). Closed form: docs/accounting.md, section 2.1."""

    name = "rr"
    buckets_per_sigma = 200

    def gamma(self, local_epsilon: Floats) -> Floats:
        return 2.0 / (1.0 + np.exp(local_epsilon)) * _DOWN

    def delta_given(self, m: npt.NDArray[np.int64], local_epsilon: float, epsilon: float) -> tuple[Floats, Floats]:
        keep = 1.0 / (1.0 + np.exp(-local_epsilon))
        flip = 1.0 / (1.0 + np.exp(local_epsilon))
        ratio = np.exp(epsilon)
        trials = m.astype(np.float64)
        threshold = (trials + 1) * (ratio * keep - flip) / ((keep - flip) * (1 + ratio))
        ones = np.floor(threshold) + 1
        with_victim, without = fair_tail(ones - 1, trials), fair_tail(ones, trials)
        gain = keep * with_victim + flip * without
        loss = ratio * (flip * with_victim + keep * without)
        return np.maximum(gain - loss, 0.0), (gain + loss) * BETA_ERROR


@dataclass(frozen=True)
class OneBitMean(BinaryRandomizedResponse):
    """A number in an interval, stochastically rounded to a bit, then binary randomized response."""

    name = "onebit"


@dataclass(frozen=True)
class KaryRandomizedResponse(Randomizer):
    """One of k letters, kept with probability e^ε/(e^ε+k−1). Closed form: docs/accounting.md, section 2.2."""

    k: int
    name = "krr"

    def __post_init__(self) -> None:
        if not 2 <= self.k <= 1 << 20:
            raise ValueError(f"k is {self.k}; allowed are 2..{1 << 20}")

    def gamma(self, local_epsilon: Floats) -> Floats:
        return self.k / (np.expm1(local_epsilon) + self.k) * _DOWN

    def delta_given(self, m: npt.NDArray[np.int64], local_epsilon: float, epsilon: float) -> tuple[Floats, Floats]:
        values, errors = np.empty(len(m)), np.empty(len(m))
        for index, count in enumerate(m):
            values[index], errors[index] = self._delta_one(int(count) + 1, local_epsilon, epsilon)
        return values, errors

    def _delta_one(self, messages: int, local_epsilon: float, epsilon: float) -> tuple[float, float]:
        """Sums over c, how many of N messages are one of the victim's two letters; what is left out counts as 1."""
        gain = np.expm1(local_epsilon)
        excess, ratio = np.expm1(epsilon), np.exp(epsilon)
        c, mass, lost = window(messages, 2.0 / self.k)
        first = np.floor((messages * excess / gain + ratio * c) / (1 + ratio)) + 1
        above, above_without_one, error = fair_tails(c, first)
        minus = (messages * excess + gain * ratio * c) * above
        plus = gain * (1 + ratio) * 0.5 * c * above_without_one
        scale = self.k / ((gain + self.k) * messages)
        value = float(scale * np.dot(mass, np.maximum(plus - minus, 0.0)))
        # What an error of the tails does to plus − minus; δ(m) ≤ 1, so the mass outside adds at most itself.
        sensitivity = messages * excess + gain * (1 + 2 * ratio) * c
        return value, lost + value * float(rounding(messages)) + float(scale * np.dot(mass, sensitivity * error))


@dataclass(frozen=True)
class LaplaceMechanism(Randomizer):
    """Laplace noise on an interval, continuous or discrete on `lattice` steps; no blanket is stated for it yet."""

    lattice: int | None = None
    name = "laplace"
    local_only = "no amplification is claimed for laplace: the certificate is the local budget"

    def gamma(self, local_epsilon: Floats) -> Floats:
        return np.zeros_like(local_epsilon)

    def delta_given(self, m: npt.NDArray[np.int64], local_epsilon: float, epsilon: float) -> tuple[Floats, Floats]:
        return np.ones(len(m)), np.zeros(len(m))
