"""The probabilities of randomised response, as integers that a 64-bit draw is compared with.

Each is computed with 60 decimal digits and rounded towards more privacy.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal, localcontext
from functools import lru_cache

MAX_LOCAL_EPSILON = 20.0
"""The largest local budget that a client accepts: at ε = 20 randomised response flips one bit in 5 * 10^8."""
_DIGITS = 60  # the threshold has 20; the others absorb the rounding of exp and of the quotient


def check_local_epsilon(epsilon: float) -> None:
    """Raises ValueError unless 0 < epsilon ≤ 20."""
    if not 0 < epsilon <= MAX_LOCAL_EPSILON:
        raise ValueError(f"local epsilon is {epsilon}; it must be in (0, {MAX_LOCAL_EPSILON:g}]")


@lru_cache(maxsize=8192)
def blanket_threshold(epsilon: float, k: int, kept: int = 1) -> int:
    """Returns ceil(γ·2^64) for γ = k/(s e^ε + k − s), the probability with which a report is uniform on its k values.

    Otherwise it is uniform on s of them, which are e^ε times as likely: the `kept` ones.

    Rounding up makes the report depend less on the value: the realised local epsilon is at most `epsilon`.

    Raises:
        ValueError: epsilon outside (0, 20], k below 2, or `kept` outside 1 .. k - 1.
    """
    check_local_epsilon(epsilon)
    if k < 2:
        raise ValueError(f"k is {k}; it must be at least 2")
    if not 1 <= kept < k:
        raise ValueError(f"kept is {kept}; it must be in 1..{k - 1}")
    with localcontext() as context:
        context.prec = _DIGITS
        gamma = k / (kept * Decimal(epsilon).exp() + (k - kept))
        return int((gamma * 2**64).to_integral_value(ROUND_CEILING))


def flip_threshold(epsilon: float) -> int:
    """Returns ceil(q·2^64) for q = 1/(1 + e^ε), the probability with which `rr` reports the other bit.

    Raises:
        ValueError: epsilon outside (0, 20].
    """
    return -(-blanket_threshold(epsilon, 2) // 2)
