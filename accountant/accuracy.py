"""The accuracy of an answer: margins of error, the people or budgets for a given margin, and ways to halve the error.

A margin is half of a 95 % interval, at the least favourable values, in the normal approximation; the range is 1. The
analyzer's intervals are a little longer, because they allow for sums being whole numbers. Margins promise nothing about
privacy; the certificate that every plan carries does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from croupier.accountant.budgets import AnyBudgets, Budgets, as_budgets
from croupier.accountant.certificate import Certificate
from croupier.accountant.certification import certify
from croupier.accountant.hop_fakes import NO_FAKES, Fakes
from croupier.accountant.mechanism_choice import best_answer, purpose_of
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.registry import as_randomizer
from croupier.accountant.numerics.roots import root_between
from croupier.accountant.planner import LEAST_LOCAL_EPSILON, MOST_LOCAL_EPSILON, MOST_USERS, resized
from croupier.accountant.ranges import DEFAULT_DELTA, Linkage, check_count, is_number, outside
from croupier.accountant.release import SettledConditions
from croupier.protocol.rounding import round_down, round_up

_Certified = Callable[[Budgets], float]
_Z = NormalDist().inv_cdf(0.975)
_WHOLE_REPORTS = 0.5 + (_Z**2 - 1) / 6
"""What the analyzer's intervals add to both sides, in reports: sums are whole numbers, and may be skewed."""
_STEPS = 12
"""Halvings of the range of the logarithm of the factor on budgets: to 0.3 %, below what a person would notice."""
_SAFE = 0.999
"""The factor on budgets if the last step of a search is above its target."""


@dataclass(frozen=True)
class Margins:
    """Half of the 95 % intervals of a share or mean on a range of 1, at the least favourable values.

    Attributes:
        participants: for the true value among the people who take part: the noise alone.
        population: for a population of which they are a random sample: noise and sampling.
    """

    participants: float
    population: float


@dataclass(frozen=True)
class Halving:
    """Two ways to halve the error.

    Attributes:
        num_users: this many people, with budgets in the same proportions: both margins are halved, or become smaller.
        budgets: the same people with budgets multiplied by one factor: the participants' margin is halved. None if the
            largest budget would exceed what a client accepts, or the noise of hops alone is larger.
    """

    num_users: int
    budgets: Budgets | None


@dataclass(frozen=True)
class ErrorPlan:
    """People and budgets for a margin of error, certified.

    Attributes:
        error: the requested margin for the population, on a range of 1.
        budgets: of the people of one group.
        margins: to expect.
        certificate: for these budgets.
    """

    error: float
    budgets: Budgets
    margins: Margins
    certificate: Certificate

    def __str__(self) -> str:
        """The answer in one line."""
        low, high = (round_down(float(self.budgets.local_epsilon[end]), 4) for end in (0, -1))
        spread = low if low == high else f"{low} to {high}"
        return (
            f"{self.budgets.num_users:,} people with local ε {spread}: 95 % intervals of ± "
            f"{self.margins.population:.3g} of the range for the population, ± {self.margins.participants:.3g} for the "
            "people who take part"
        )


def margins(budgets: AnyBudgets, randomizer: Randomizer | str) -> Margins:
    """Returns the margins of error to expect of a share or mean.

    Raises:
        ValueError: the randomizer is for vectors, or a table.
    """
    counted = as_budgets(budgets)
    signal, own, whole = _signal_and_variances(as_randomizer(randomizer), counted)
    return Margins(_Z * math.sqrt(own) / signal, _Z * math.sqrt(whole) / signal)


def _signal_and_variances(randomizer: Randomizer, budgets: Budgets) -> tuple[float, float, float]:
    """Returns the derivative of the sum of reports by a share or mean, and two variances of the sum.

    The first variance is for given values, the second also over the values of a population; both are maxima over all
    values.
    """
    count, epsilon = budgets.count.astype(np.float64), budgets.local_epsilon
    gain, _ = randomizer.signal(epsilon, budgets.local_delta)
    found = randomizer.variances(epsilon, budgets.local_delta, count)
    if found is None:
        raise ValueError(
            f"randomizer is {randomizer.name}; it must be one for a share or a number, which gives margins"
        )
    return float(gain @ count), *found


def halving(budgets: AnyBudgets, randomizer: Randomizer | str, fakes: Fakes = NO_FAKES) -> Halving:
    """Returns what would halve the error of a share or mean, or of each coordinate of a mean of vectors.

    With n people the variance of a sum of reports is n A + V, where hops add V for any n, and the sum changes by n
    times the signal. So n must grow by the factor m with m^2 (A + V) = 4 (m A + V): 4 without hop noise, 2 if all noise
    is hop noise. The largest A gives the largest m.

    Args:
        budgets: of all users.
        randomizer: what they run.
        fakes: those that hops add, whose noise stays as it is.

    Raises:
        ValueError: the randomizer is a table, which has no estimator.
    """
    counted, family = as_budgets(budgets), as_randomizer(randomizer)

    def error(users: Budgets) -> float:
        signal, own, _ = _noise(family, users)
        return math.sqrt(own + fakes.variance) / signal

    _, own, whole = _noise(family, counted)
    total = max(own, whole) + fakes.variance
    times = 2 * (max(own, whole) + math.sqrt(max(own, whole) ** 2 + fakes.variance * total)) / total
    most = min(MOST_LOCAL_EPSILON, fakes.accepted_local_epsilon)
    factor = _factor_for(counted, error, error(counted) / 2, most)
    needed = math.ceil(counted.num_users * times * (1 - 1e-12))
    return Halving(needed, None if factor is None else _times(counted, factor))


def people_for_margin(
    budgets: AnyBudgets, randomizer: Randomizer | str, margin: float, variance_of_fakes: float = 0.0
) -> int:
    """Returns the number of people, with budgets in the same proportions, for 95 % intervals with this margin.

    The intervals are the analyzer's, for the people who take part, at the least favourable values; the number is never
    too small. With n people the sum of reports has the variance n A + V, where hops add V, and changes by n s: n s
    margin must be at least the addition for whole reports and skewness, and z sqrt(n A + V).

    Args:
        budgets: their proportions.
        randomizer: of a share or mean.
        margin: half of the interval, on a range of 1, 0 < margin < 1.
        variance_of_fakes: the variance that hop noise adds to a count of reports.

    Raises:
        ValueError: the randomizer is for vectors, or a table; or the margin is out of range.
    """
    if not (is_number(margin) and 0 < margin < 1):
        raise outside("margin", margin, "above 0 and below 1 of the range")
    counted = as_budgets(budgets)
    signal, own, _ = _signal_and_variances(as_randomizer(randomizer), counted)
    step, variance = signal / counted.num_users * margin, own / counted.num_users
    linear = 2 * _WHOLE_REPORTS * step + _Z**2 * variance
    rest = _WHOLE_REPORTS**2 - _Z**2 * variance_of_fakes
    return math.ceil((linear + math.sqrt(linear**2 - 4 * step**2 * rest)) / (2 * step**2))


def _noise(randomizer: Randomizer, budgets: Budgets) -> tuple[float, float, float]:
    """Returns `_signal_and_variances`, also for vectors, where both variances are for given values."""
    try:
        return _signal_and_variances(randomizer, budgets)
    except ValueError:
        gain, variance = randomizer.signal(budgets.local_epsilon, budgets.local_delta)
        noise = float(variance @ budgets.count)
        return float(gain @ budgets.count), noise, noise


def plan_for_error(
    randomizer: Randomizer | str,
    error: float,
    *,
    delta: float = DEFAULT_DELTA,
    epsilon: float | None = None,
    num_users: int | None = None,
    budgets: AnyBudgets | None = None,
    rounds: int = 1,
    dishonest: int = 0,
    linkage: Linkage = "separate",
) -> ErrorPlan:
    """Returns the number of people, or the budgets, for a margin of error.

    * epsilon: the fewest people, and their local budgets, whose certificate is at most epsilon.
    * num_users: the smallest local budgets; with `budgets` in their proportions.
    * budgets alone: the fewest people with exactly these budgets, in these proportions.

    Args:
        randomizer: as for `certify`, of a share or mean; or "mean" or "categories(k=5)", whose mechanism is chosen.
        error: half of the 95 % interval for the population, on a range of 1: 0.05 is five points of a share.
        delta: of the certificate.
        epsilon: the largest epsilon of the certificate.
        num_users: the number of people.
        budgets: their budgets, or only the proportions.
        rounds: the number of such answers that one person may give; epsilon and delta are of all together.
        dishonest: the number of other people who may collude with the observer; the margin assumes that nobody lies.
        linkage: as for `certify`.

    Returns:
        The people and budgets with their certificate. The search ends within 0.3 % of the best budgets.

    Raises:
        ValueError: too much or too little is given, or no answer exists; the message says what is possible.
    """
    if not (is_number(error) and 0 < error < 0.5):
        raise outside("error", error, "above 0 and below 0.5 of the range")
    if epsilon is not None and not (is_number(epsilon) and epsilon > 0):
        raise outside("epsilon", epsilon, "a finite number > 0")
    if epsilon is not None and num_users is not None:
        raise ValueError(
            f"error is {error:g} with num_users and epsilon both given; leave one of them out, and it is answered"
        )
    if num_users is not None:
        check_count(num_users, "num_users", 2)
    if epsilon is None and num_users is None and budgets is None:
        raise ValueError(
            f"error is {error:g}, and neither epsilon, num_users nor budgets is given; give one of them, such as "
            "epsilon 0.5"
        )
    shape = Budgets.from_tiers([(1.0, num_users or 1000)]) if budgets is None else as_budgets(budgets)

    def certified(users: Budgets, family: Randomizer, *, attack: bool) -> Certificate:
        return certify(
            users, family, delta=delta, rounds=rounds, dishonest=dishonest, linkage=linkage, attack=attack, seconds=5.0
        )

    def planned(family: Randomizer) -> ErrorPlan:
        def needed(users: Budgets) -> float:
            return certified(users, family, attack=False).epsilon

        if num_users is not None:
            users = _budgets_for(resized(shape, num_users), family, error)
        elif epsilon is None:
            users = _people_for(shape, family, error)
        else:
            users = _cheapest(shape, family, error, epsilon, needed)
        return ErrorPlan(error, users, margins(users, family), certified(users, family, attack=purpose is None))

    purpose = purpose_of(randomizer)
    if purpose is None:
        return planned(as_randomizer(randomizer))
    best = best_answer(
        planned, purpose, SettledConditions(), lambda answer: (answer.budgets.num_users, answer.certificate.epsilon)
    )
    family = as_randomizer(best.certificate.randomizer)
    return replace(best, certificate=certified(best.budgets, family, attack=True))


def _times(budgets: Budgets, factor: float) -> Budgets:
    return Budgets(budgets.local_epsilon * factor, budgets.local_delta, budgets.count)


def _factor_for(
    budgets: Budgets, error: Callable[[Budgets], float], target: float, largest: float = MOST_LOCAL_EPSILON
) -> float | None:
    """Returns the smallest factor on all budgets with at most this error; None if a budget would exceed the largest."""

    def margin(logarithm: float) -> float:
        return error(_times(budgets, math.exp(logarithm)))

    most = math.log(largest / float(budgets.local_epsilon[-1]))
    least = math.log(LEAST_LOCAL_EPSILON / float(budgets.local_epsilon[0]))
    if least >= most or margin(most) > target:
        return None
    return math.exp(min(most, root_between(lambda place: target - margin(place), least, most) + 1e-7))


def _budgets_for(budgets: Budgets, family: Randomizer, error: float) -> Budgets:
    """Returns budgets in these proportions with this margin; raises ValueError if none has it."""
    factor = _factor_for(budgets, lambda candidate: margins(candidate, family).population, error)
    if factor is None:
        largest = _times(budgets, MOST_LOCAL_EPSILON / float(budgets.local_epsilon[-1]))
        best, needed = margins(largest, family).population, _people_for(largest, family, error).num_users
        raise ValueError(
            f"error is {error:g}; {budgets.num_users:,} people reach at best {round_up(best, 3)}, with a local budget "
            f"of {MOST_LOCAL_EPSILON:g}: it takes a larger error, or at least {needed:,} people"
        )
    return _times(budgets, factor)


def _people_for(budgets: Budgets, family: Randomizer, error: float) -> Budgets:
    """Returns the fewest people with these budgets, in these proportions, with this margin."""
    at_present = margins(budgets, family).population
    needed = max(2, budgets.num_tiers, math.ceil(budgets.num_users * (at_present / error) ** 2 * (1 - 1e-12)))
    while needed <= MOST_USERS:
        users = resized(budgets, needed)
        if margins(users, family).population <= error:
            return users
        needed += max(1, needed // 2000)  # the proportions are rounded to whole people
    raise ValueError(
        f"error is {error:g}; with these budgets it takes more than {MOST_USERS:,} people: allow larger ones"
    )


def _cheapest(shape: Budgets, family: Randomizer, error: float, epsilon: float, certified: _Certified) -> Budgets:
    """Returns the fewest people with this margin whose certificate is at most epsilon, by a search for the factor.

    With larger budgets fewer people reach the margin, and their certificate has a larger epsilon.
    """

    def people(factor: float) -> Budgets | None:
        try:
            return _people_for(_times(shape, factor), family, error)
        except ValueError:  # more than there may be
            return None

    def excess(logarithm: float) -> float:
        users = people(math.exp(logarithm))
        return -1.0 if users is None else certified(users) - epsilon

    most = math.log(MOST_LOCAL_EPSILON / float(shape.local_epsilon[-1]))
    least = math.log(LEAST_LOCAL_EPSILON / float(shape.local_epsilon[0]))
    factor = math.exp(root_between(excess, least, most, _STEPS))
    while (users := people(factor)) is not None:
        if certified(users) <= epsilon:
            return users
        factor *= _SAFE
    raise ValueError(
        f"error is {error:g} and epsilon is {epsilon:g}; no {MOST_USERS:,} people reach both: allow a larger one"
    )
