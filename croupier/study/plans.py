"""The plan of a study: error and ε of every question per wave, per year and over the study, and the missing quantity.

The numbers of every budget hold if everybody uses it. With budget privacy the certificates are for the draw that omits
most people; certificates are not monotone in the counts, so another draw may cost some per cent more. A plan is a
forecast: the cost of a wave is in its own certificate, and the ledger keeps the limit.

Waves are composed by a privacy filter (`accountant.privacy_filter`), as in the ledger: the limit of the study is fixed
before the first wave, so that it holds for any later waves. In a permanent study the certificate of a question covers
all its waves, and counts once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from statistics import NormalDist

from croupier.accountant.accuracy import Margins, margins
from croupier.accountant.budgets import Budgets
from croupier.accountant.certificate import Certificate
from croupier.accountant.certification import certify
from croupier.accountant.composed_certificates import ComposedRelease, compose, compose_releases
from croupier.accountant.guarantees import Guarantee
from croupier.accountant.mechanisms.registry import randomizer_of
from croupier.accountant.numerics.decimals import sum_as_decimals
from croupier.accountant.numerics.roots import largest_allowed
from croupier.accountant.release import conditions_of_round
from croupier.accountant.rounds.round_guarantee import fakes_of_round
from croupier.operator.survey_file import CalendarFile, SurveyFile
from croupier.operator.survey_plans import survey_from, with_budgets
from croupier.protocol.deployment import Deployment
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.permanent import PermanentSeries
from croupier.protocol.rounding import round_down, round_up
from croupier.protocol.schedules import DAYS
from croupier.protocol.surveys import QuestionTerms

_Z = NormalDist().inv_cdf(0.975)
_STEPS = 14
"""Halvings of the range of the logarithm of a budget: to about a tenth of a per cent."""
_LEAST_BUDGET, _MOST_BUDGET = 1e-3, 20.0
_SAFE = 0.995
"""The factor on a budget if the last step of a search is above its limit."""


@dataclass(frozen=True)
class PlannedQuestion:
    """A question in one wave, if everybody uses one budget.

    Attributes:
        name: of the question.
        local_epsilon: its part of the budget.
        certificate: of one wave; of all waves in a permanent study.
        margins: half of the 95 % intervals in one wave, on a range of 1.
    """

    name: str
    local_epsilon: float
    certificate: Certificate
    margins: Margins


@dataclass(frozen=True)
class PlannedTotal:
    """The cost of a number of waves for one person under each trust statement.

    Attributes:
        period: "wave", "year" or "study".
        waves: their number.
        shuffle: if one hop keeps its order secret and the accountant is honest; None without a bound.
        one_honest: if one hop is honest, whatever everybody else does; None without hop noise.
        alone: if no server is honest: the person's own noise.
    """

    period: str
    waves: int
    shuffle: Guarantee | None
    one_honest: Guarantee | None
    alone: Guarantee | None


@dataclass(frozen=True)
class PlannedTier:
    """A budget for all answers of a wave, and its results if everybody uses it.

    Attributes:
        budget: the ε of all answers of a wave together.
        questions: in order.
        totals: of a wave, a year and the study.
        waves_borne: the number of waves that the limit of the study allows; at most the requested number.
    """

    budget: float
    questions: tuple[PlannedQuestion, ...]
    totals: tuple[PlannedTotal, ...]
    waves_borne: int


@dataclass(frozen=True)
class StudyPlan:
    """A plan.

    Attributes:
        people: who answer every question of every wave.
        waves: of the study.
        epsilon_total, delta_total: the limit over all waves.
        solved: the missing quantity that was found: "budget", "waves" or "epsilon"; empty if none was requested.
        tiers: one for each budget, the smallest first.
    """

    people: int
    waves: int
    epsilon_total: float
    delta_total: float
    solved: tuple[str, ...]
    tiers: tuple[PlannedTier, ...]


def plan_study(
    file: SurveyFile,
    deployment: Deployment | None,
    people: int,
    *,
    error: float | None = None,
    epsilon_total: float | None = None,
    waves: int | None = None,
) -> StudyPlan:
    """Returns the plan of a study.

    * error alone: the smallest budget with this margin in every question, and its ε over the waves of the file.
    * epsilon_total alone: the largest budget that allows all waves, and the margins.
    * error and epsilon_total: the smallest budget with this margin, and the number of waves that the limit allows.
    * waves alone, or nothing: the budgets of the file, over this many waves, or those of the file.

    Args:
        file: of the study.
        deployment: of the study; None: a deployment with two hops.
        people: who answer every question of every wave, at least the minimum.
        error: half of the 95 % interval for the population in every wave, on a range of 1.
        epsilon_total: the largest cost of all waves for one person, at the file's delta_total.
        waves: their number; not with both others.

    Raises:
        ValueError: too much is given, or no answer exists.
    """
    if people < file.min_batch_size:
        raise ValueError(f"expected is {people}; a wave has a result with at least {file.min_batch_size} people")
    if error is not None and not 0 < error < 0.5:
        raise ValueError(f"error is {error:g}; it must be above 0 and below 0.5 of the range")
    if epsilon_total is not None and not (math.isfinite(epsilon_total) and epsilon_total > 0):
        raise ValueError(f"epsilon_total is {epsilon_total:g}; it must be a finite number > 0")
    if error is not None and epsilon_total is not None and waves is not None:
        raise ValueError("error, epsilon_total and waves are all given; leave one of them out, and it is answered")
    if file.calendar is None or file.epsilon_total is None:
        raise ValueError(f"survey {file.name!r} has no [calendar]: it is asked once, see 'croupier survey check'")
    limit = epsilon_total or file.epsilon_total
    planner = _Planner(file, file.calendar, deployment, people, limit)
    number, solved = waves or file.waves, tuple[str, ...]()
    if error is None and epsilon_total is None:
        budgets = planner.budgets
    elif error is not None:
        budgets, solved = (planner.budget_for_error(error),), ("budget", "epsilon")
        if epsilon_total is not None:
            solved = ("budget", "waves")
            number = planner.waves_borne(budgets[0], None)
            if not number:
                raise ValueError(
                    f"error is {error:g} and epsilon_total is {limit:g}; not even one wave has both: allow a larger "
                    "one, or ask more people"
                )
    else:
        budgets, solved = (planner.budget_for_limit(number),), ("budget",)
    tiers = tuple(planner.tier(budget, number) for budget in budgets)
    return StudyPlan(people, number, limit, file.delta_total, solved, tiers)


class _Planner:
    def __init__(
        self, file: SurveyFile, calendar: CalendarFile, deployment: Deployment | None, people: int, limit: float
    ) -> None:
        self._file, self._calendar = with_budgets(file, deployment), calendar
        self._people, self._limit, self._delta = people, limit, file.delta_total
        self._terms = survey_from(self._file, deployment).questions
        self._parts = self._shares()
        self._certify = cache(self._certified)
        self._totals: dict[tuple[int, ...], Guarantee | None] = {}

    @property
    def budgets(self) -> tuple[float, ...]:
        """The budgets of the file, for all answers of a wave together."""
        return tuple(
            sum_as_decimals(terms.budget_grid[place] for terms in self._terms) for place in range(self._places)
        )

    @property
    def _places(self) -> int:
        return len(self._terms[0].budget_grid)

    def _shares(self) -> list[float]:
        """Returns which part of a budget each question gets, as in the largest budget of the file."""
        largest = [terms.budget_grid[-1] for terms in self._terms]
        return [part / sum(largest) for part in largest]

    def _certified(self, question: int, local_epsilon: float, quick: bool, waves: int) -> Certificate:
        terms = self._terms[question]
        uncounted = terms.counted_by.most_uncounted * len(terms.budget_grid)
        counted = max(1, self._people - uncounted) + terms.counted_by.victims
        sizes = terms.rule.sizes if terms.rule else ()
        certificates = [
            certify(
                Budgets.from_tiers([(local_epsilon, counted, terms.local_delta)]),
                randomizer_of(mechanism),
                delta=terms.shared.delta,
                attack=False,
                rounds=PermanentSeries(waves) if self._file.permanent else 1,
                seconds=5.0,
                **conditions_of_round(terms, bounds="blanket" if quick else "all"),
            )
            for mechanism in (map(KaryResponse, sizes) if sizes else [terms.question.mechanism])
        ]
        return max(certificates, key=lambda certificate: certificate.epsilon)

    def questions(self, budget: float, *, quick: bool = False, waves: int = 0) -> list[PlannedQuestion]:
        """Returns every question if everybody uses a budget.

        quick: by the blanket bound, which is never smaller. waves: the number of waves of a permanent study, which its
        certificates cover; 0: the file's number.
        """
        planned, kept = [], self._file.permanent
        for place, (terms, part) in enumerate(zip(self._terms, self._parts, strict=True)):
            local_epsilon = self._local(budget, place, part)
            planned.append(
                PlannedQuestion(
                    terms.question.name,
                    local_epsilon,
                    self._certify(place, local_epsilon, quick, (waves or self._file.waves) if kept else 1),
                    self._margins(terms, local_epsilon),
                )
            )
        return planned

    def _local(self, budget: float, place: int, part: float) -> float:
        """Returns a question's part of a budget: the file's part if the budget is one of the file's."""
        at = next((at for at, known in enumerate(self.budgets) if known == budget), None)
        return budget * part if at is None else self._terms[place].budget_grid[at]

    def _margins(self, terms: QuestionTerms, local_epsilon: float) -> Margins:
        budgets = Budgets.from_tiers([(local_epsilon, self._people, terms.local_delta)])
        randomizer = randomizer_of(terms.question.mechanism)
        own = margins(budgets, randomizer)
        gain, _ = randomizer.signal(budgets.local_epsilon, budgets.local_delta)
        of_hops = _Z * math.sqrt(fakes_of_round(terms).variance) / float(gain @ budgets.count)
        return Margins(math.hypot(own.participants, of_hops), math.hypot(own.population, of_hops))

    def total(self, questions: Sequence[PlannedQuestion], waves: int) -> Guarantee | None:
        """Returns the cost of a number of waves by the shuffle, composed by a filter; None without a bound."""
        certificates = [question.certificate for question in questions]  # kept by `_certify`, so that an id names one
        times = 1 if self._file.permanent else waves
        key = times, *map(id, certificates)
        if key not in self._totals:
            self._totals[key] = _bound(
                partial(compose, [each for each in certificates for _ in range(times)], delta=self._delta)
            )
        return self._totals[key]

    def _one_honest(self, questions: Sequence[PlannedQuestion], waves: int) -> Guarantee | None:
        """Returns the cost of a number of waves by hop noise alone; None if a question has no hop noise."""
        releases = []
        for terms, question in zip(self._terms, questions, strict=True):
            fakes = fakes_of_round(terms)
            if not fakes or question.certificate.one_honest_hop is None:
                return None
            if self._file.permanent:
                releases.append(ComposedRelease(question.certificate.one_honest_hop))
            else:
                curve = fakes.curve(question.local_epsilon).to_compose(self._delta, question.local_epsilon)
                releases.append(
                    ComposedRelease(question.certificate.one_honest_hop, curve, question.local_epsilon, waves)
                )
        return _bound(partial(compose_releases, releases, delta=self._delta))

    def _alone(self, questions: Sequence[PlannedQuestion], waves: int) -> Guarantee | None:
        """Returns the cost of a number of waves if no server is honest."""
        count = 1 if self._file.permanent else waves
        releases = [ComposedRelease(question.certificate.everyone_else_colludes, count=count) for question in questions]
        return _bound(partial(compose_releases, releases, delta=self._delta))

    def tier(self, budget: float, waves: int) -> PlannedTier:
        questions = self.questions(budget, waves=waves)
        year = min(waves, 365 // DAYS[self._calendar.every]) if self._calendar.every in DAYS else waves
        totals = tuple(
            PlannedTotal(
                period,
                number,
                self.total(questions, number),
                self._one_honest(questions, number),
                self._alone(questions, number),
            )
            for period, number in (("wave", 1), ("year", year), ("study", waves))
        )
        return PlannedTier(budget, tuple(questions), totals, self.waves_borne(budget, waves))

    def waves_borne(self, budget: float, most: int | None) -> int:
        """Returns how many waves the limit allows with this budget, at most `most`, or 4096.

        The certificates of a permanent study depend on the number: hop noise hides a report less in more waves.
        """
        if most is not None and self._within(budget, most):
            return most
        return largest_allowed(lambda waves: self._within(budget, waves), 4096 if most is None else most)

    def _within(self, budget: float, waves: int, *, quick: bool = False) -> bool:
        total = self.total(self.questions(budget, quick=quick, waves=waves), waves)
        return total is not None and total.epsilon <= self._limit

    def budget_for_error(self, error: float) -> float:
        """Returns the smallest budget with which no question has a larger margin for the population."""

        def fits(budget: float) -> bool:
            parts = zip(self._terms, self._parts, strict=True)
            return all(self._margins(terms, budget * part).population <= error for terms, part in parts)

        largest = self._largest_budget()
        if not fits(largest):
            best = max(
                self._margins(terms, largest * part).population
                for terms, part in zip(self._terms, self._parts, strict=True)
            )
            raise ValueError(
                f"error is {error:g}; {self._people:,} people reach at best {round_up(best, 3)}: allow a larger error, "
                "or ask more people"
            )
        return float(round_up(_edge(fits, largest, smallest=True), 4))

    def budget_for_limit(self, waves: int) -> float:
        """Returns the largest budget for which the limit allows all waves."""

        def fits(budget: float) -> bool:
            return self._within(budget, waves, quick=True)

        if not fits(_LEAST_BUDGET):
            raise ValueError(
                f"epsilon_total is {self._limit:g}; {waves:,} waves exceed it with the smallest budget, "
                f"{_LEAST_BUDGET:g}: ask less often, or allow more"
            )
        budget = float(round_down(_edge(fits, self._largest_budget(), smallest=False), 4))
        while not self._within(budget, waves):
            budget = float(round_down(budget * _SAFE, 4))
        return budget

    def _largest_budget(self) -> float:
        """Returns the largest budget of which no question's part is above what clients accept."""
        accepted = [fakes_of_round(terms).accepted_local_epsilon for terms in self._terms]
        return min(_MOST_BUDGET, *accepted) / max(self._parts)


def _bound(composed: Callable[[], Guarantee]) -> Guarantee | None:
    """Returns a composition; None if more is lost with certainty than its delta."""
    try:
        return composed()
    except ValueError:
        return None


def _edge(fits: Callable[[float], bool], largest: float, *, smallest: bool) -> float:
    """Returns about the smallest budget that fits, where larger ones do, or the largest, where smaller ones do."""
    low, high = math.log(_LEAST_BUDGET), math.log(largest)
    if fits(math.exp(low if smallest else high)):
        return math.exp(low if smallest else high)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if fits(math.exp(middle)) == smallest:
            high = middle
        else:
            low = middle
    return math.exp(high if smallest else low)
