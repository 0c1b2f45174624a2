"""The planner: which local budgets to ask of how many users, so that a target is met.

Given a number of users (or the shape of their budgets) and a target (epsilon, delta, rounds): the largest local
budgets. Given budgets and a target: how many users. Given both: the accuracy to expect. Every answer is certified
forward before it is returned, so that the search decides only how good it is, never whether it is true.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from accountant.budgets import AnyBudgets, Budgets, as_budgets
from accountant.certification import certify
from accountant.mechanisms.base import Randomizer
from accountant.mechanisms.registry import as_randomizer
from accountant.ranges import DEFAULT_DELTA, check_count, is_number, outside
from accountant.results import Certificate, round_down, round_up

__all__ = ["Goal", "Plan", "plan", "resized", "standard_error"]

MOST_TIERS = 8
"""With more budgets of noise the answer is the blanket bound's, and only its certificate the least of all bounds."""
MOST_STEPS = 5
"""Certificates by the slower bounds, on the way from the blanket's answer to theirs."""
FLAT_STEPS = 8
"""More of them where the blanket's answer has epsilon 0, from which no line leads to the target."""
TOLERANCE = 1e-3
"""Relative width of the bracket around the answer."""
LEAST_LOCAL_EPSILON = 1e-4
MOST_LOCAL_EPSILON = 20.0
"""Local budgets are looked for between these; a client's randomizer accepts no larger ones."""
MOST_USERS = 10**9
"""More are not looked for. Already for so many, a blanket bound takes seconds."""


Reached = Callable[[Budgets], float]
"""The epsilon that budgets are certified at the target's delta; infinite where they are only at a larger one."""


class Goal(StrEnum):
    """What was asked for."""

    LOCAL_BUDGETS = "local budgets"
    NUM_USERS = "number of users"
    ACCURACY = "accuracy"


@dataclass(frozen=True)
class Plan:
    """The answer: these budgets, certified; and the standard error of what is estimated from them.

    standard_error is that of a mean on a range of 1, of a share, or of one coordinate of a mean of unit vectors, from
    the randomizers' noise alone, at the least favourable values. None where it is not known for the randomizer.
    """

    goal: Goal
    budgets: Budgets
    certificate: Certificate
    standard_error: float | None
    target_epsilon: float | None

    def __str__(self) -> str:
        """The answer in one line: "number of users: 3,534 users with local ε 0.5 to 2; …"."""
        low, high = (round_down(float(self.budgets.local_epsilon[end]), 4) for end in (0, -1))
        spread = low if low == high else f"{low} to {high}"
        error = "unknown" if self.standard_error is None else f"{self.standard_error:.3g} of the range"
        users = f"{self.budgets.num_users:,} users with local ε {spread}"
        capped = f" ({MOST_LOCAL_EPSILON:g} is the most that a client accepts)" if self.capped else ""
        return f"{self.goal}: {users}{capped}; standard error from the noise {error}"

    @property
    def capped(self) -> bool:
        """The target would allow larger local budgets, and no client accepts them."""
        largest = float(self.budgets.local_epsilon[-1])
        return self.goal is Goal.LOCAL_BUDGETS and largest >= MOST_LOCAL_EPSILON * (1 - 1e-9)


def plan(
    randomizer: Randomizer | str,
    *,
    delta: float = DEFAULT_DELTA,
    epsilon: float | None = None,
    num_users: int | None = None,
    budgets: AnyBudgets | None = None,
    rounds: int = 1,
    dishonest: int = 0,
    linkage: str = "separate",
    bounds: str = "all",
    adaptive_order: bool = False,
) -> Plan:
    """Answers what is left open, for a total target (epsilon, delta) over all rounds.

    * num_users and epsilon: the largest local budget that all of num_users can have, up to 20, the most that a client
      accepts.
    * num_users, budgets and epsilon: the shape of budgets, for num_users people: the largest factor on the budgets,
      which leaves none above 20.
    * budgets and epsilon: the least number of users of these proportions.
    * budgets (with or without num_users) and no epsilon: the certificate, and the accuracy to expect.

    Args:
        randomizer: as for `certify`.
        delta: of the target, over all rounds, in (0, 1).
        epsilon: of the target, over all rounds, > 0.
        num_users: how many there are.
        budgets: theirs, or only the proportions of them.
        rounds: how many releases one client may take part in.
        dishonest: how many of the other clients may collude with the observer.
        linkage: as for `certify`.
        bounds: as for `certify`.
        adaptive_order: as for `certify`.

    Returns:
        The answer and its certificate. Direction of error: the certificate of the answer holds (forward check); the
        answer itself may be up to 0.1 % from the best, and further with more than eight different budgets of noise.

    Raises:
        ValueError: nothing is left to answer, or no answer exists (the message names the nearest setting).
    """
    randomizer = as_randomizer(randomizer)
    shape = None if budgets is None else as_budgets(budgets)
    most_tiers = math.inf if randomizer.clones_are_fair_bits else MOST_TIERS
    if num_users is not None:
        check_count(num_users, "num_users", 1)

    def forward(candidate: Budgets, bounds: str = bounds, attack: bool = False) -> Certificate:
        return certify(
            candidate,
            randomizer,
            delta=delta,
            dishonest=dishonest,
            linkage=linkage,
            rounds=rounds,
            attack=attack,
            bounds=bounds,
            adaptive_order=adaptive_order,
        )

    def reached(candidate: Budgets, bounds: str = bounds) -> float:
        certificate = forward(candidate, bounds)
        return certificate.epsilon if certificate.delta <= delta else math.inf

    def quick(candidate: Budgets) -> float:
        return reached(candidate, "blanket")

    def answer(goal: Goal, found: Budgets) -> Plan:
        return _answer(goal, found, randomizer, forward(found, attack=True), epsilon, delta)

    if epsilon is None:
        if shape is None:
            raise ValueError("neither epsilon nor budgets is given; give a target, or budgets whose accuracy to tell")
        return answer(Goal.ACCURACY, shape if num_users is None else resized(shape, num_users))
    if not (is_number(epsilon) and epsilon > 0):
        raise outside("epsilon", epsilon, "a finite number > 0")
    if num_users is None:
        if shape is None:
            raise ValueError("neither num_users nor budgets is given; one of them is needed")
        found = _fewest_users(shape, quick, epsilon, dishonest)
        if shape.num_tiers <= most_tiers:
            found = _fewer_users(shape, found.num_users, reached, epsilon, max(shape.num_tiers, dishonest, 1))
        return answer(Goal.NUM_USERS, found)
    even = Budgets.from_tiers([(1.0, num_users)]) if shape is None else resized(shape, num_users)
    found = _largest_budgets(even, quick, epsilon, rounds)
    if even.num_tiers <= most_tiers:
        found = _larger_budgets(found, reached, epsilon)
    return answer(Goal.LOCAL_BUDGETS, found)


def standard_error(budgets: Budgets, randomizer: Randomizer) -> float:
    """Returns that of an estimated mean (range 1) or share, from the randomizers' noise alone.

    Raises:
        ValueError: the randomizer is a table, which does not say how it is read.
    """
    gain, variance = randomizer.signal(budgets.local_epsilon, budgets.local_delta)
    return math.sqrt(float(variance @ budgets.count)) / float(gain @ budgets.count)


def _answer(
    goal: Goal,
    budgets: Budgets,
    randomizer: Randomizer,
    certificate: Certificate,
    target: float | None,
    delta: float,
) -> Plan:
    if target is not None and (certificate.epsilon > target or certificate.delta > delta):
        raise ValueError(
            f"the plan reaches epsilon {certificate.epsilon!r} at delta {certificate.delta!r}; it must be at most "
            f"{target!r} at {delta!r}"
        )
    try:
        error = standard_error(budgets, randomizer)
    except ValueError:
        error = None
    return Plan(goal, budgets, certificate, error, target)


def resized(budgets: Budgets, num_users: int) -> Budgets:
    """The same proportions for num_users people: every share is rounded, the largest tiers take what is left over.

    Where there are people enough, every budget has one at least: without its rare budgets a shape is another one.
    """
    spare = num_users - budgets.num_tiers
    exact = budgets.count * (num_users / budgets.num_users)
    if spare >= 0:
        exact = np.maximum(exact, 1.0)
        above = exact - 1.0
        exact = 1.0 + above * (spare / above.sum() if above.any() else 0.0)
    count = np.floor(exact).astype(np.int64)
    missing = num_users - int(count.sum())
    count[np.argsort(-(exact - count), kind="stable")[:missing]] += 1
    used = count > 0
    return Budgets(budgets.local_epsilon[used], budgets.local_delta[used], count[used])


def _scaled(budgets: Budgets, factor: float) -> Budgets:
    return Budgets(budgets.local_epsilon * factor, budgets.local_delta, budgets.count)


def _larger_budgets(enough: Budgets, reached: Reached, epsilon: float) -> Budgets:
    """From budgets that are enough by the blanket bound to nearly the largest that are enough by all bounds."""
    most = MOST_LOCAL_EPSILON / float(enough.local_epsilon[-1])

    return _scaled(enough, _furthest(lambda factor: reached(_scaled(enough, factor)), epsilon, most, 1.0))


def _fewer_users(shape: Budgets, enough: int, reached: Reached, epsilon: float, least: int) -> Budgets:
    """From a number of users that is enough by the blanket bound to nearly the least that is enough by all bounds."""

    def users(factor: float) -> int:
        return max(least, math.ceil(enough / factor))

    factor = _furthest(lambda factor: reached(resized(shape, users(factor))), epsilon, enough / least, 0.5)
    return resized(shape, users(factor))


def _furthest(reached: Callable[[float], float], target: float, most: float, slope: float) -> float:
    """About the largest factor in [1, most] with reached(factor) <= target, given that 1 is one of them, or nearly.

    slope: d ln reached / d ln factor, about. Every step but the first is along the line through the two nearest, and
    after one too far the next keeps four times the distance: else all steps may end a little beyond the target. From
    where 0 is reached, which a large delta allows, there is no line: the factor grows, and then is halved in between.
    """
    low, low_reached = 1.0, reached(1.0)
    if low_reached > target:  # by the roundings of another search, in which both bounds are the same
        low /= 1 + TOLERANCE
        low_reached = reached(low)
    high, high_reached = math.inf, math.inf
    last, last_reached = low, 0.0
    margin, growth, flat, steps = TOLERANCE / 2, 1.2, FLAT_STEPS, MOST_STEPS
    while steps > 0:
        if low_reached <= 0 and flat > 0:
            flat -= 1
            point = min(low * growth, most) if high == math.inf else math.sqrt(low * high)
            growth **= 2
        elif low_reached <= 0:
            break
        else:
            steps -= 1
            if high_reached < math.inf:
                slope = max(math.log(high_reached / low_reached) / math.log(high / low), 1e-3)
            elif 0 < last_reached < low_reached:
                slope = max(math.log(low_reached / last_reached) / math.log(low / last), slope / 4)
            point = min(low * (target / low_reached) ** (1 / slope) * (1 - margin), most)
            if high < math.inf == high_reached:
                point = min(point, math.sqrt(low * high))
        if point <= low * (1 + TOLERANCE) or point >= high:
            break
        at_point = reached(point)
        if at_point <= target:
            last, last_reached = low, low_reached
            low, low_reached, margin = point, at_point, TOLERANCE / 2
        else:
            high, high_reached, margin = point, at_point, 4 * margin
    return low


def _largest_budgets(shape: Budgets, reached: Reached, epsilon: float, rounds: int) -> Budgets:
    least, most = float(shape.local_epsilon[0]), float(shape.local_epsilon[-1])
    high = MOST_LOCAL_EPSILON / most
    low = min(LEAST_LOCAL_EPSILON / least, high)
    if reached(_scaled(shape, high)) <= epsilon:
        return _scaled(shape, high)
    # The local budget itself is a guarantee: a factor that makes the largest one epsilon is always enough.
    certain = epsilon / most / (1 + 1e-9)
    low = max(low, min(certain / rounds, high))
    if (least_reached := reached(_scaled(shape, low))) > epsilon:
        raise ValueError(
            f"epsilon is {epsilon!r}; reached at local budgets up to {round_down(low * most, 3)} is "
            f"{_shown(least_reached)}: it takes a larger epsilon or delta"
        )
    while high > low * (1 + TOLERANCE):
        middle = math.sqrt(low * high)
        if reached(_scaled(shape, middle)) <= epsilon:
            low = middle
        else:
            high = middle
    return _scaled(shape, low)


def _shown(epsilon: float) -> str:
    return round_up(epsilon, 4) if epsilon < math.inf else "none at this delta, for their own is larger"


def _fewest_users(shape: Budgets, reached: Reached, epsilon: float, dishonest: int) -> Budgets:
    low = max(1, shape.num_tiers, dishonest)
    high = max(low, 2)
    while (found := reached(resized(shape, high))) > epsilon:
        if high >= MOST_USERS:
            raise ValueError(
                f"epsilon is {epsilon!r}; {high:.3g} users of these budgets reach {_shown(found)}: "
                "it takes a larger epsilon or delta, or smaller budgets"
            )
        # What is reached falls about as the root of the users who are honest.
        factor = max(4.0, 1.1 * (found / epsilon) ** 2) if found < math.inf else 4.0
        more = math.ceil(max(high - dishonest, 1) * factor)
        low, high = high, min(max(dishonest + more, high + 1), max(MOST_USERS, high))
    while high > low + max(1, int(TOLERANCE * low)):
        # Of very different numbers the geometric middle: the more users, the longer a certificate takes.
        honest = max(low - dishonest, 1), high - dishonest
        middle = (low + high) // 2 if honest[1] <= 4 * honest[0] else dishonest + math.isqrt(honest[0] * honest[1])
        if reached(resized(shape, middle)) <= epsilon:
            high = middle
        else:
            low = middle
    return resized(shape, high)
