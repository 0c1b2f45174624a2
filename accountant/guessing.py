"""The meaning of (epsilon, delta) in other words: the probability that a guess is right."""

from __future__ import annotations

import math

from croupier.accountant.ranges import check_delta, check_epsilon


def right_at_most(epsilon: float, delta: float = 0.0) -> float:
    """Returns the largest probability of guessing which of two equally likely values a person had.

    Args:
        epsilon: a finite number >= 0.
        delta: 0 <= delta <= 1; for every event A, P(A) <= e^epsilon Q(A) + delta and Q(A) <= e^epsilon P(A) + delta, P
            and Q the laws of what is observed under the two values.

    Returns:
        (e^epsilon + delta)/(e^epsilon + 1), in [1/2, 1], rounded up: no observer, whatever it computes, is right more
        often. Guessing reaches 1/2.

    Write E for e^epsilon, and let the observer say "the first value" on A. It is right with probability
    1/2 (P(A) + 1 - Q(A)). From P(A) <= E Q(A) + delta, and from 1 - Q(A) <= E (1 - P(A)) + delta for the complement of
    A, one gets by adding (E + 1) (P(A) - Q(A)) <= E - 1 + 2 delta. So it is right with probability at most
    1/2 + 1/2 (E - 1 + 2 delta)/(E + 1) = (E + delta)/(E + 1). One that draws lots is a mixture of such. The bound is
    attained by showing the value with probability delta and randomised response with epsilon otherwise.

    Raises ValueError for an epsilon or delta outside its range.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    decay = math.exp(-epsilon)
    return min(1.0, (1 + delta * decay) / (1 + decay) * (1 + 2e-15))  # more than the rounding of ten operations
