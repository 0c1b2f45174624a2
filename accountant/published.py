"""Published bounds, implemented for comparison: each with its grade, its reference and its validity range.

None of them opens a gate. Outside its validity range a bound raises `OutOfRangeError`, which names the range; it never
returns a number there. Certified answers are left to `certify`.
"""

from __future__ import annotations

import math

import numpy as np

from accountant.budgets import Budgets
from accountant.gaussian import gaussian_epsilon
from accountant.results import Comparison, Grade, Status

GSPA = "Chen, Cao, Ge: A Generalized Shuffle Framework for Privacy Amplification, AAAI 2024, Theorem 2"


class OutOfRangeError(ValueError):
    """The published bound says nothing at these parameters; the message names its validity range."""


def gspa_mu(budgets: Budgets) -> float:
    """mu = sqrt(2 / (sum p_i - max p_i)) with p_i = (1 - delta_i)/(1 + e^epsilon_i).

    Raises OutOfRangeError for a single user.
    """
    decay = np.exp(-budgets.local_epsilon)
    p = (1 - budgets.local_delta) * decay / (1 + decay)
    rest = float(p @ budgets.count) - float(p.max())
    if budgets.num_users < 2 or not rest > 0:
        raise OutOfRangeError(f"{budgets.num_users} users; valid: at least two users, one of them with a finite budget")
    return math.sqrt(2 / rest)


def gspa_asymptotic(budgets: Budgets, delta: float) -> float:
    """GSPA Theorem 2: epsilon at delta of mu-GDP. ASYMPTOTIC: the constant of its C/sqrt(n) term is never given."""
    if not 0 < delta < 1:
        raise OutOfRangeError(f"delta is {delta!r}; valid: 0 < delta < 1")
    return gaussian_epsilon(gspa_mu(budgets), delta)


def compare(budgets: Budgets, delta: float, attack: float | None = None) -> tuple[Comparison, ...]:
    """Every published bound at this delta. `attack` is the best known lower bound on epsilon, if there is one."""
    note = "asymptotic: the error at the actual n is not bounded by its theorem"
    try:
        epsilon = gspa_asymptotic(budgets, delta)
    except OutOfRangeError as error:
        return (Comparison("GSPA Thm 2", None, Grade.ASYMPTOTIC, Status.OUT_OF_RANGE, GSPA, str(error)),)
    status = Status.NOT_CHECKED if attack is None else Status.REFUTED if epsilon < attack else Status.VALID
    return (Comparison("GSPA Thm 2", epsilon, Grade.ASYMPTOTIC, status, GSPA, note),)
