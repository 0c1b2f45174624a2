"""The planner: the local budgets for a number of users, or the number of users, that meet a target.

Given a number of users (or the shape of their budgets) and a target (epsilon, delta, rounds): the largest local
budgets. Given budgets and a target: the number of users. Given both: the accuracy to expect. Every answer is certified
before it is returned, so the search decides only how good it is, never whether it is true: it evaluates one tier only,
and first a quick bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, partial
from typing import Protocol, Unpack

import numpy as np

from croupier.accountant.budgets import AnyBudgets, Budgets, as_budgets
from croupier.accountant.certificate import Certificate
from croupier.accountant.certification import certify
from croupier.accountant.group_guarantees import BoundPolicy, group_guarantee
from croupier.accountant.guarantees import TierCertificate
from croupier.accountant.hop_fakes import Fakes
from croupier.accountant.mechanism_choice import best_answer, purpose_of, standard_error
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.registry import as_randomizer
from croupier.accountant.numerics.gaussian import gaussian_delta, gaussian_epsilon
from croupier.accountant.numerics.roots import root_between
from croupier.accountant.ranges import DEFAULT_DELTA, Bounds, check_count, check_target_delta, is_number, outside
from croupier.accountant.release import Conditions, SettledConditions
from croupier.accountant.victims import groups_of_victims
from croupier.protocol.rounding import round_down, round_up

MOST_TIERS = 8
"""With more budgets of noise the search uses the blanket bound, and only the final certificate uses all bounds."""
USUAL_STEPS = 9
"""The typical number of candidates that a plan tries; the progress display assumes it."""
FEW_ROUNDS = 4
"""With more rounds the sum of epsilons is rarely less than composed losses, and a search does not try the sum."""
INVERTED = 1.0003
"""A factor on epsilons found at the target, because an inverted certificate may be up to 0.05 % larger."""
RANGE_OF_LOG_MU = -30.0, 10.0
"""The range of the search for the logarithm of a Gaussian's mu."""
MOST_STEP = math.log(64)
"""The logarithm of the largest ratio of successive points of a search, and the excess where there is no logarithm."""
ROUGH = 0.1
"""Relative distance of the first search, on a quick bound, from its target."""
TOLERANCE = 1e-3
"""Relative width of the bracket around the answer."""
LEAST_LOCAL_EPSILON = 1e-4
"""The smallest local budget that a plan tries; see `MOST_LOCAL_EPSILON`."""
MOST_LOCAL_EPSILON = 20.0
"""Local budgets are searched between these; a client's randomizer accepts no larger ones."""
MOST_USERS = 10**9
"""The most users that a search tries; a blanket bound for this number already takes seconds."""


class Candidates(Protocol):
    """The candidates of a search as points > 0, of which larger ones reach a larger epsilon."""

    @property
    def least(self) -> float:
        """The smallest point."""

    @property
    def most(self) -> float:
        """The largest point."""

    @property
    def slope(self) -> float:
        """About d ln epsilon / d ln point."""

    def nearest(self, point: float) -> float:
        """Returns the allowed point nearest to a number between the smallest and the largest."""


class Goal(StrEnum):
    """The quantity that a plan answers."""

    LOCAL_BUDGETS = "local budgets"
    NUM_USERS = "number of users"
    ACCURACY = "accuracy"


@dataclass(frozen=True)
class Plan:
    """The answer: these budgets, certified; and the standard error of the estimate.

    standard_error is that of a mean on a range of 1, of a share, or of one coordinate of a mean of unit vectors, from
    the randomizers' noise alone, at the least favourable values. None if it is unknown for the randomizer.
    """

    goal: Goal
    budgets: Budgets
    certificate: Certificate
    standard_error: float | None
    target_epsilon: float | None
    most_local: float = MOST_LOCAL_EPSILON
    """The largest local budget that a client accepts."""
    chosen: str | None = None
    """The mechanism that was chosen for a purpose; None if it was given."""

    def __str__(self) -> str:
        """Returns the answer in one line: "number of users: 3,534 users with local ε 0.5 to 2; …"."""
        low, high = (round_down(float(self.budgets.local_epsilon[end]), 4) for end in (0, -1))
        spread = low if low == high else f"{low} to {high}"
        error = "unknown" if self.standard_error is None else f"{self.standard_error:.3g} of the range"
        users = f"{self.budgets.num_users:,} users with local ε {spread}"
        capped = f" ({self.most_local:g} is the most that a client accepts)" if self.capped else ""
        chosen = f"{self.chosen}; " if self.chosen else ""
        return f"{self.goal}: {chosen}{users}{capped}; standard error from the noise {error}"

    @property
    def capped(self) -> bool:
        """Whether the target would allow larger local budgets than clients accept."""
        largest = float(self.budgets.local_epsilon[-1])
        return self.goal is Goal.LOCAL_BUDGETS and largest >= self.most_local * (1 - 1e-9)


def plan(
    randomizer: Randomizer | str,
    *,
    delta: float = DEFAULT_DELTA,
    epsilon: float | None = None,
    num_users: int | None = None,
    budgets: AnyBudgets | None = None,
    rounds: int = 1,
    progress: Callable[[int, int], None] | None = None,
    **conditions: Unpack[Conditions],
) -> Plan:
    """Finds the missing quantity, for a total target (epsilon, delta) over all rounds.

    * num_users and epsilon: the largest local budget that all of num_users can have, up to 20, the most that a client
      accepts; with hop noise up to 8.
    * num_users, budgets and epsilon: the shape of budgets, for num_users people: the largest factor on the budgets that
      leaves none above 20, or 8.
    * budgets and epsilon: the least number of users of these proportions.
    * budgets (with or without num_users) and no epsilon: the certificate, and the accuracy to expect.

    Args:
        randomizer: as for `certify`; "mean" chooses the mechanism for a mean of numbers, with its levels, and
            "categories(k=1024)" the one for one of many categories, with its parameters.
        delta: of the target, over all rounds, in (0, 1).
        epsilon: of the target, over all rounds, > 0.
        num_users: the number of users.
        budgets: their budgets, or only the proportions.
        rounds: the number of releases that one client may take part in.
        progress: called with the number of candidates that have been tried, and about how many there will be.
        conditions: as for `certify`, every one by its name; see `Conditions`. The standard error includes hop noise.

    Returns:
        The answer and its certificate. Direction of error: the certificate of the answer holds; the answer may be up to
        about 0.1 % from the best, and further with more than eight different budgets of noise, or if certificates are
        not smooth: those of noise over many rounds vary by up to 2 %.

    Raises:
        ValueError: nothing is left to answer, or no answer exists (the message names the nearest setting).
    """
    settled = SettledConditions.of(conditions, Conditions)
    shape = None if budgets is None else as_budgets(budgets)
    purpose = purpose_of(randomizer)
    if purpose is not None:
        again = partial(
            plan,
            delta=delta,
            epsilon=epsilon,
            num_users=num_users,
            budgets=budgets,
            rounds=rounds,
            progress=progress,
            **conditions,
        )
        if epsilon is None and shape is not None:
            answer = again(purpose.best(shape if num_users is None else resized(shape, num_users), settled))
        else:
            answer = best_answer(again, purpose, settled, _variance_of_one)
        return replace(answer, chosen=answer.certificate.randomizer)
    randomizer = as_randomizer(randomizer)
    if num_users is not None:
        check_count(num_users, "num_users", 1)
    check_target_delta(delta)
    check_count(rounds, "rounds", 1)
    settled.check(randomizer)
    tell = progress or (lambda tried, about: None)
    search = PlanSearch(randomizer, delta, rounds, conditions, tell)
    if epsilon is None:
        if shape is None:
            raise ValueError("neither epsilon nor budgets is given; give a target, or budgets whose accuracy to tell")
        given = shape if num_users is None else resized(shape, num_users)
        return _answer(Goal.ACCURACY, given, search, search.certificate(given), None)
    if not (is_number(epsilon) and epsilon > 0):
        raise outside("epsilon", epsilon, "a finite number > 0")
    if num_users is None:
        if shape is None:
            raise ValueError("neither num_users nor budgets is given; one of them is needed")
        return _largest_certified(Goal.NUM_USERS, search, _Users(shape, settled.dishonest), epsilon)
    even = Budgets.from_tiers([(1.0, num_users)]) if shape is None else resized(shape, num_users)
    factors = _Factors(even, epsilon, rounds, search.most_local)
    return _largest_certified(Goal.LOCAL_BUDGETS, search, factors, epsilon)


def _variance_of_one(plan: Plan) -> float:
    """Returns the variance of the mean times the number of people, which compares plans for different numbers."""
    return math.inf if plan.standard_error is None else plan.standard_error**2 * plan.budgets.num_users


@dataclass
class PlanSearch:
    """The requirements on every candidate, and the number of candidates tried."""

    randomizer: Randomizer
    delta: float
    rounds: int
    conditions: Conditions
    progress: Callable[[int, int], None]
    tried: int = field(default=0, init=False)
    exactly: bool = field(default=False, init=False)
    """Use `certify` even for a single tier, not the faster approximation."""

    @cached_property
    def settled(self) -> SettledConditions:
        """The conditions with their defaults."""
        return SettledConditions.of(self.conditions, Conditions)

    @cached_property
    def fakes(self) -> Fakes:
        """The fakes that hops add. Raises ValueError where they cannot."""
        return self.settled.fakes(self.randomizer)

    @property
    def most_local(self) -> float:
        """The largest local budget that a client accepts without a limit of its own."""
        return min(MOST_LOCAL_EPSILON, self.fakes.accepted_local_epsilon)

    def certificate(self, budgets: Budgets, bounds: Bounds | None = None, rounds: int | None = None) -> Certificate:
        """Returns the candidate's certificate; with an attack, unless it is for a quick bound or fewer rounds."""
        certificate = certify(
            budgets,
            self.randomizer,
            delta=self.delta,
            rounds=rounds or self.rounds,
            attack=bounds is None and rounds is None,
            **(self.conditions if bounds is None else {**self.conditions, "bounds": bounds}),
        )
        self._count()
        return certificate

    def roughly(self, budgets: Budgets, tier: int | None) -> tuple[float, int]:
        """Returns about the epsilon of a candidate, and its tier, counted from the largest budget down.

        It uses the blanket bound, and composes rounds as if Gaussian. tier: the only one to evaluate; None: all.
        """
        if tier is None:
            every = self.certificate(budgets, "blanket", 1)
            tier, epsilon, delta = _worst_tier(every, self.delta), every.epsilon, every.delta
        else:
            answer = self._answer(
                budgets, tier, BoundPolicy(blanket_only=True, fakes=self.fakes), delta=self.delta, rounds=1
            )
            epsilon, delta = answer.epsilon, answer.delta
        if delta > self.delta:
            return math.inf, tier
        if self.rounds == 1 or epsilon == 0:
            return epsilon, tier
        return _as_if_gaussian(epsilon, self.delta, self.delta, self.rounds), tier

    def reached(self, budgets: Budgets, tier: int, few: bool, target: float) -> float:
        """Returns about the certified epsilon of one tier, counted from the largest budget down; infinite for none.

        few: all bounds may be used, and not only the blanket's. With many rounds, the guarantee of one round alone is
        ignored. Slow bounds are evaluated at the target and not inverted: their delta there, taken as Gaussian, gives
        the distance of epsilon from the target, which is exact at the target itself.
        """
        blanket_only = self.settled.adaptive_order or self.settled.bounds == "blanket" or not (few or self.exactly)
        if self.rounds == 1 and not (self.exactly or blanket_only or self.randomizer.clones_are_fair_bits):
            lost = self._answer(budgets, tier, BoundPolicy(fakes=self.fakes), epsilon=target, rounds=1).delta
            if not 0 < lost < 1:
                return 0.0 if lost <= 0 else math.inf
            return _as_if_gaussian(target, lost, self.delta) * INVERTED
        policy = BoundPolicy(
            blanket_only, composed_only=self.rounds > FEW_ROUNDS and not self.exactly, fakes=self.fakes
        )
        answer = self._answer(budgets, tier, policy, delta=self.delta, rounds=self.rounds)
        return answer.epsilon if answer.delta <= self.delta else math.inf

    def _answer(
        self,
        budgets: Budgets,
        tier: int,
        policy: BoundPolicy,
        *,
        rounds: int,
        delta: float | None = None,
        epsilon: float | None = None,
    ) -> TierCertificate:
        colluding = self.settled.dishonest + self.fakes.most
        groups = groups_of_victims(budgets, self.randomizer, colluding, self.settled.linkage)
        groups.sort(key=lambda group: (group.victim.local_epsilon, group.victim.local_delta), reverse=True)
        group = groups[min(tier, len(groups) - 1)]
        self._count()
        about = self.delta if delta is None else None
        return group_guarantee(group, self.randomizer, delta, epsilon, rounds, policy, 0.0, about).tier

    def _count(self) -> None:
        self.tried += 1
        self.progress(self.tried, max(USUAL_STEPS, self.tried + 2))


def _as_if_gaussian(epsilon: float, at: float, delta: float, rounds: int = 1) -> float:
    """Returns the epsilon at delta of Gaussian rounds that each have this epsilon > 0 at the delta `at`."""
    log_mu = root_between(lambda log_mu: gaussian_delta(math.exp(log_mu), epsilon) - at, *RANGE_OF_LOG_MU)
    return gaussian_epsilon(math.sqrt(rounds) * math.exp(log_mu), delta)


def _worst_tier(certificate: Certificate, delta: float) -> int:
    """Returns the tier with the largest epsilon, or a delta that is too large, counted from the largest budget down."""
    tiers = certificate.tiers[::-1]
    return max(range(len(tiers)), key=lambda place: (tiers[place].delta > delta, tiers[place].epsilon))


def _largest_certified(goal: Goal, search: PlanSearch, among: _Factors | _Users, epsilon: float) -> Plan:
    """Returns the largest candidate whose certificate meets the target.

    The search uses a quick bound first, then the certified epsilon of the tier that decides, and finally `certify`. If
    another tier decides its result, the search is repeated with all tiers that have decided.
    """
    shape, randomizer = among.shape, search.randomizer
    few = randomizer.clones_are_fair_bits or shape.num_tiers <= MOST_TIERS
    deciding: set[int] = set()

    def roughly(point: float) -> float:
        reached, tier = search.roughly(among.budgets(point), next(iter(deciding), None))
        deciding.add(tier)
        return reached

    point, _ = largest_point(roughly, epsilon, among, among.start, ROUGH)
    known: dict[tuple[float, int], float] = {}

    def reached(point: float) -> float:
        for tier in deciding:
            if (point, tier) not in known:
                known[point, tier] = search.reached(among.budgets(point), tier, few, epsilon)
        return max(known[point, tier] for tier in deciding)

    while True:
        point, value = largest_point(reached, epsilon, among, point, TOLERANCE)
        if value > epsilon:
            if search.exactly:
                raise ValueError(among.refusal(epsilon, value))
            search.exactly = True  # a refusal needs exact results
            known.clear()
            continue
        budgets = among.budgets(point)
        certificate = search.certificate(budgets)
        if certificate.epsilon <= epsilon and certificate.delta <= search.delta:
            return _answer(goal, budgets, search, certificate, epsilon)
        worst = _worst_tier(certificate, search.delta)
        if worst in deciding:
            search.exactly = True
            known.clear()
        deciding.add(worst)
        known[point, worst] = certificate.epsilon if certificate.delta <= search.delta else math.inf


def largest_point(
    reached: Callable[[float], float], target: float, among: Candidates, start: float, tolerance: float
) -> tuple[float, float]:
    """Returns about the largest point with reached(point) <= target and its value; the least point if there is none.

    reached is usually increasing, but need not be: the returned point was evaluated, and points beyond it need not be
    above the target. Steps from `start` as long as the slope says lead to two points with the target between them;
    Brent's method narrows them to a relative distance of `tolerance`.
    """
    from scipy.optimize import brentq

    known: dict[float, float] = {}
    first, end = math.log(among.least), math.log(among.most)

    def excess(place: float) -> float:
        point = among.least if place <= first else among.most if place >= end else among.nearest(math.exp(place))
        if point not in known:
            known[point] = reached(point)
        value = known[point]
        return math.log(value / target) if 0 < value < math.inf else math.copysign(MOST_STEP, value - target)

    place = last = min(max(math.log(start), first), end)
    above, step = excess(place), tolerance
    while (excess(place) > 0) == (above > 0):
        last, above = place, excess(place)
        step = max(2 * step, min((abs(above) + tolerance) / among.slope, MOST_STEP))
        place = min(max(last - math.copysign(step, above), first), end)
        if place == last:
            break
    else:
        brentq(excess, last, place, xtol=tolerance / 2)
    point = max((point for point, value in known.items() if value <= target), default=min(known))
    return point, known[point]


def _answer(goal: Goal, budgets: Budgets, search: PlanSearch, certificate: Certificate, target: float | None) -> Plan:
    try:
        error = standard_error(budgets, search.randomizer, search.fakes.variance)
    except ValueError:
        error = None
    return Plan(goal, budgets, certificate, error, target, most_local=search.most_local)


def resized(budgets: Budgets, num_users: int) -> Budgets:
    """Returns budgets of these proportions for num_users people: shares are rounded, by the largest remainders.

    With enough people every budget keeps at least one, because a shape without its rare budgets is another one.
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


def _shown(epsilon: float) -> str:
    return round_up(epsilon, 4) if epsilon < math.inf else "none at this delta, for their own is larger"


@dataclass(frozen=True)
class _Factors:
    """Candidates: a shape of budgets times a factor, with which epsilon grows."""

    shape: Budgets
    epsilon: float
    rounds: int
    most_local: float
    slope: float = 1.0
    """About d ln epsilon / d ln factor."""

    @property
    def most(self) -> float:
        """The factor that makes the largest budget the most that a client accepts."""
        return self.most_local / float(self.shape.local_epsilon[-1])

    @property
    def least(self) -> float:
        """A factor that is always enough: it makes the largest local budget, which is a guarantee, epsilon."""
        certain = self.epsilon / float(self.shape.local_epsilon[-1]) / (1 + 1e-9) / self.rounds
        return min(max(LEAST_LOCAL_EPSILON / float(self.shape.local_epsilon[0]), certain), self.most)

    @property
    def start(self) -> float:
        """The factor that makes the largest budget 1."""
        return 1.0 / float(self.shape.local_epsilon[-1])

    def nearest(self, point: float) -> float:
        """Returns the point itself."""
        return point

    def budgets(self, point: float) -> Budgets:
        """Returns the candidate."""
        return Budgets(self.shape.local_epsilon * point, self.shape.local_delta, self.shape.count)

    def refusal(self, epsilon: float, reached: float) -> str:
        """Returns the message if the least factor is too large."""
        largest = round_down(self.least * float(self.shape.local_epsilon[-1]), 3)
        return (
            f"epsilon is {epsilon!r}; reached at local budgets up to {largest} is "
            f"{_shown(reached)}: it takes a larger epsilon or delta"
        )


@dataclass(frozen=True)
class _Users:
    """Candidates of the same proportions; the point is one over the number of honest users."""

    shape: Budgets
    dishonest: int
    slope: float = 0.5

    @property
    def most(self) -> float:
        """The point of one user of every budget, at least one of them honest."""
        return 1 / max(1, self.shape.num_tiers - self.dishonest)

    @property
    def least(self) -> float:
        """The point of MOST_USERS."""
        return min(self.most, 1 / max(1, MOST_USERS - self.dishonest))

    @property
    def start(self) -> float:
        """The point of 300 honest users."""
        return 1 / 300

    def nearest(self, point: float) -> float:
        """Returns the point of the next whole number of users, which is no smaller than this point's."""
        return 1 / math.ceil(1 / point * (1 - 1e-12))

    def budgets(self, point: float) -> Budgets:
        """Returns the candidate."""
        return resized(self.shape, self.dishonest + round(1 / point))

    def refusal(self, epsilon: float, reached: float) -> str:
        """Returns the message if the most users are too few."""
        return (
            f"epsilon is {epsilon!r}; {self.dishonest + 1 / self.least:.3g} users of these budgets reach "
            f"{_shown(reached)}: it takes a larger epsilon or delta, or smaller budgets"
        )
