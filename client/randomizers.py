"""One user's value in, one report out: with the local randomizer of the question's mechanism (`client.mechanisms`)."""

from __future__ import annotations

from typing import Any

from croupier.client.mechanisms.base import LocalRandomizer
from croupier.client.thresholds import check_local_epsilon
from croupier.protocol.kinds import of_every_kind
from croupier.protocol.questions import Question
from croupier.protocol.randomness import RandomSource

RANDOMIZERS: dict[str, LocalRandomizer[Any]] = of_every_kind("croupier.client.mechanisms", "RANDOMIZER")
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
        What `Mechanism.encode_report` encodes: an integer in the mechanism's `report_range`, or float32 (d,).

    Raises:
        ValueError: value or epsilon out of range.
    """
    check_local_epsilon(epsilon)
    return RANDOMIZERS[question.mechanism.kind].randomize(question.mechanism, value, epsilon, source)
