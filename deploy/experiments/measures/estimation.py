"""Estimates from simulated reports, made by the analyzer's own estimators."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from protocol.mechanisms import LatticeMechanism, OneBit
from protocol.questions import Question

__all__ = ["reports_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def reports_of(question: Question, values: Floats, budgets: Floats, source: np.random.Generator) -> Ints:
    """Returns one report of each user, drawn from the definitions of the randomizers with a seeded generator.

    Args:
        question: rr, krr, onebit or laplace.
        values: the users' values, float64 (n,).
        budgets: their local epsilons, float64 (n,).
        source: for simulation only; clients take their randomness from the operating system.
    """
    mechanism, n = question.mechanism, len(values)
    if isinstance(mechanism, LatticeMechanism):
        position = (values - mechanism.low) / (mechanism.high - mechanism.low) * mechanism.lattice
        lattice = np.floor(position) + (source.random(n) < position - np.floor(position))
        p = -np.expm1(-budgets / mechanism.lattice)
        return (lattice + source.geometric(p) - source.geometric(p)).astype(np.int64)
    if isinstance(mechanism, OneBit):
        values = np.floor((values - mechanism.low) / (mechanism.high - mechanism.low) + source.random(n))
    k = len(mechanism.categories) or 2
    blanket = source.random(n) < k / (np.exp(budgets) + k - 1)
    return np.where(blanket, source.integers(0, k, n), values).astype(np.int64)
