"""Local randomizers: one user's value in, one report out, at exactly the local budget that was chosen.

Probabilities are exact up to one part in 2^64, always rounded towards more privacy: an integer threshold, computed with
60 decimal digits, is compared with a 64-bit draw of the operating system's generator. Laplace noise is OpenDP's exact
discrete sampler on an integer lattice (no floating-point noise: Mironov 2012). Proofs of the guarantees: Warner 1965
for `rr`, Kairouz, Bonawitz, Ramage 2016 for `krr`, Ghosh, Roughgarden, Sundararajan 2012 for the discrete Laplace.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any

from protocol.calibration import gaussian_sigma_steps
from protocol.questions import Question
from protocol.randomness import RandomSource

__all__ = ["blanket_threshold", "flip_threshold", "randomize"]

MAX_LOCAL_EPSILON = 20.0
_DIGITS = 60


def _check_epsilon(epsilon: float) -> None:
    if not 0 < epsilon <= MAX_LOCAL_EPSILON:
        raise ValueError(f"local epsilon is {epsilon}; allowed is 0 < epsilon ≤ {MAX_LOCAL_EPSILON}")


@lru_cache(maxsize=8192)
def blanket_threshold(epsilon: float, k: int) -> int:
    """Returns ceil(γ·2^64) for γ = k/(e^ε + k − 1), the probability with which a report is uniform on the k letters.

    Rounding up makes the report depend less on the value: the realised local epsilon is at most `epsilon`.

    Raises:
        ValueError: epsilon outside (0, 20], or k below 2.
    """
    _check_epsilon(epsilon)
    if k < 2:
        raise ValueError(f"k is {k}; allowed is k ≥ 2")
    with localcontext() as context:
        context.prec = _DIGITS
        gamma = k / (Decimal(epsilon).exp() + (k - 1))
        return int((gamma * 2**64).to_integral_value(ROUND_CEILING))


def flip_threshold(epsilon: float) -> int:
    """Returns ceil(q·2^64) for q = 1/(1 + e^ε), the probability with which `rr` reports the other bit.

    Raises:
        ValueError: epsilon outside (0, 20].
    """
    return -(-blanket_threshold(epsilon, 2) // 2)


def _randomize_bit(bit: int, epsilon: float, source: RandomSource) -> int:
    return bit ^ (source.bits64() < flip_threshold(epsilon))


def _randomize_letter(letter: int, k: int, epsilon: float, source: RandomSource) -> int:
    if source.bits64() < blanket_threshold(epsilon, k):
        return source.below(k)
    return letter


def _round_stochastically(position: Fraction, source: RandomSource) -> int:
    """Returns one of the two integers next to `position`, with mean `position` up to 2^-64."""
    below = math.floor(position)
    return below + (source.bits64() < (position - below) * 2**64)


@lru_cache(maxsize=256)
def _discrete_laplace(scale: float) -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp.m.make_laplace(dp.atom_domain(T="i64"), dp.absolute_distance(T="i64"), scale=scale)


@lru_cache(maxsize=256)
def _discrete_gaussian(sigma: float) -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp.m.make_gaussian(dp.atom_domain(T="i64"), dp.absolute_distance(T="i64"), scale=sigma)


def _position(value: float, question: Question) -> Fraction:
    """Returns where a value lies in its interval, 0 .. 1, exactly."""
    low, high = question.interval
    return (Fraction(value) - Fraction(low)) / (Fraction(high) - Fraction(low))


def randomize(question: Question, value: float, epsilon: float, source: RandomSource) -> int:
    """Returns one report that is ε-locally differentially private in the value.

    Args:
        value: a bit, the number of a letter, or a number in [low, high], as `Question.parse_value` returns it.
        epsilon: the local budget, 0 < epsilon ≤ 20.
        source: draws for everything but Laplace noise, which OpenDP takes from the operating system itself.

    Returns:
        rr, onebit: a bit. krr: a letter. laplace, gaussian: a lattice position, which may lie outside 0 .. lattice.

    Raises:
        ValueError: value or epsilon out of range.
    """
    _check_epsilon(epsilon)
    if question.randomizer in ("rr", "krr"):
        k = question.k or 2
        if value not in range(k):
            raise ValueError(f"value is {value}; allowed are 0..{k - 1}")
        letter = int(value)
        return (
            _randomize_bit(letter, epsilon, source)
            if question.randomizer == "rr"
            else _randomize_letter(letter, k, epsilon, source)
        )
    low, high = question.interval
    if not low <= value <= high:
        raise ValueError(f"value is {value}; allowed are numbers in [{low:g}, {high:g}]")
    position = _position(value, question)
    if question.randomizer == "onebit":
        return _randomize_bit(_round_stochastically(position, source), epsilon, source)
    steps = question.lattice or 1
    if question.randomizer == "gaussian":
        sigma = gaussian_sigma_steps(epsilon, question.local_delta or 0.0, steps)
        return int(_discrete_gaussian(sigma)(_round_stochastically(position * steps, source)))
    scale = math.nextafter(steps / epsilon, math.inf)
    return int(_discrete_laplace(scale)(_round_stochastically(position * steps, source)))
