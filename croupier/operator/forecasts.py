"""Forecasts for the operator: the outcome of a round before it opens, and the budgets that it can offer without risk.

A round is at risk while some mixture of its budgets would have it refused. `fit` removes from a grid the budgets that
put the smallest batch at risk, so that the accountant refuses the round for no choice of the budgets on a form, the
command line or a participants' page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from croupier.accountant.rounds.account import Account, answer
from croupier.accountant.rounds.forecast import always_granted, could_be_granted, forecast
from croupier.net.retrying import retrying
from croupier.operator.operator import Operator
from croupier.operator.round_settings import RoundSettings, check_settings
from croupier.protocol.deployment import Deployment
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import RoundId
from croupier.protocol.rounding import round_down
from croupier.protocol.statements import joined
from croupier.protocol.surveys import QuestionTerms
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs

_PATIENCE_S, _TIMEOUT_S = 20.0, 60.0
"""Seconds after which a failing forecast is not tried again, and after which one call is given up."""
_SHARES = (0.125, 0.25, 0.5, 1.0)
"""The budgets of a grid that was not given, as parts of the largest: a person can choose 8 times less than the most."""
_MOST_BY_DEFAULT = 4.0
"""The largest budget that is offered by default: at 4, a report of one bit is the truth in 98 of 100 cases."""
_LADDER = tuple(
    float(f"{digits}e{power}") for power in (-3, -2, -1, 0) for digits in range(10, 100) if digits * 10**power <= 20
)
"""Budgets that are tried, of two significant digits, as people write them."""


@dataclass(frozen=True)
class GridFit:
    """Settings whose grid puts the smallest batch at no risk, or that are at risk on request.

    Attributes:
        settings: with a grid.
        left_out: requested budgets that are not in the grid.
        largest: the largest budget that the smallest batch can bear; None if all requested budgets are offered.
        at_risk: whether some mixture would have the smallest batch refused.
    """

    settings: RoundSettings
    left_out: tuple[float, ...] = ()
    largest: float | None = None
    at_risk: bool = False

    @property
    def warning(self) -> str:
        """A warning for the operator if the requested grid was changed or is at risk; else empty."""
        if not (self.left_out or self.at_risk):
            return ""
        people = self.settings.min_batch_size
        most = "no budget" if self.largest is None else f"{self.largest:g} is the largest local ε that"
        most += f" can be offered to {people:,} people without that risk"
        asked = replace(self.settings, budget_grid=(*self.settings.budget_grid, *self.left_out))
        if asked.counted_by.most_uncounted:
            most += ", while the counts in its certificate hide people's budgets (--budget-privacy 0: they do not)"
        if self.left_out:
            budgets = " and ".join(f"{budget:g}" for budget in self.left_out)
            return (
                f"left out of the grid: {budgets}. With {people:,} people, the minimum, the accountant "
                f"would refuse the round for some choice of budgets, and every answer would be destroyed; {most}. "
                "--at-risk offers them nevertheless"
            )
        return (
            f"with {people:,} people, the minimum, the accountant refuses the round for some choice of budgets, and "
            f"every answer is destroyed; {most}"
        )


def fit(
    settings: RoundSettings, deployment: Deployment | None = None, *, at_risk: bool = False, expected: int = 0
) -> GridFit:
    """Returns settings with a grid that puts no batch of at least `min_batch_size` people at risk.

    An empty grid becomes four budgets, up to the largest that the smallest batch can bear, and at most 4. From a given
    grid, the largest budgets are removed until no mixture of the others is refused.

    Args:
        settings: of a round that is to be opened.
        deployment: of the round.
        at_risk: keep the given grid, as long as some choice of budgets can be granted.
        expected: the expected number of people; a round at risk may be granted with more than the minimum.

    Raises:
        ValueError: the terms are invalid, or the round cannot be granted.
    """

    def safe(grid: Sequence[float]) -> bool:
        terms = check_settings(replace(settings, budget_grid=tuple(grid)), deployment)
        return always_granted(terms, settings.min_batch_size)

    if not settings.budget_grid:
        suggested = default_grid(safe)
        if suggested is None:
            raise ValueError(_refusal(replace(settings, budget_grid=_grid_up_to(_LADDER[0])), deployment))
        return GridFit(replace(settings, budget_grid=suggested))
    grid = settings.budget_grid
    if safe(grid):
        return GridFit(settings)
    largest = largest_budget(settings, deployment)
    if at_risk:
        people = max(settings.min_batch_size, expected)
        if not could_be_granted(check_settings(settings, deployment), people):
            raise ValueError(_refusal(settings, deployment, people))
        return GridFit(settings, largest=largest, at_risk=True)
    kept = next((grid[:end] for end in range(len(grid) - 1, 0, -1) if safe(grid[:end])), ())
    if not kept:
        most = "" if largest is None else f"; the largest budget that can be offered is {largest:g}"
        raise ValueError(_refusal(settings, deployment) + (most and f"{most}: choose a smaller --grid"))
    return GridFit(replace(settings, budget_grid=kept), grid[len(kept) :], largest)


def default_grid(safe: Callable[[Sequence[float]], bool]) -> tuple[float, ...] | None:
    """Returns the default grid: four budgets, the largest at most 4; None if none is safe.

    safe: whether a grid puts the smallest batch at no risk; then every grid with smaller budgets puts it at none.
    """
    largest = _largest(lambda top: safe(_grid_up_to(top)), _MOST_BY_DEFAULT)
    return None if largest is None else _grid_up_to(largest)


def largest_budget(settings: RoundSettings, deployment: Deployment | None = None) -> float | None:
    """Returns the largest budget, of two digits, that the smallest batch can bear beside the smaller ones of the grid.

    None if it can bear none.
    """

    def safe(top: float) -> bool:
        grid = (*(budget for budget in settings.budget_grid if budget < top), top)
        terms = check_settings(replace(settings, budget_grid=grid), deployment)
        return always_granted(terms, settings.min_batch_size)

    return _largest(safe, _LADDER[-1])


def _grid_up_to(top: float) -> tuple[float, ...]:
    return tuple(float(round_down(share * top, 2)) for share in _SHARES)


def _largest(safe: Callable[[float], bool], most: float) -> float | None:
    """Returns the largest safe budget up to `most`, if all smaller ones are safe, too; None if there is none."""
    ladder = [budget for budget in _LADDER if budget <= most]
    low, high = 0, len(ladder)  # below low all are safe, from high on none is
    while low < high:
        middle = (low + high) // 2
        if safe(ladder[middle]):
            low = middle + 1
        else:
            high = middle
    return ladder[low - 1] if low else None


def _refusal(settings: RoundSettings, deployment: Deployment | None, people: int = 0) -> str:
    people = people or settings.min_batch_size
    best = forecast(check_settings(settings, deployment), people).best
    uncounted, exact = settings.counted_by.most_uncounted, ""
    if uncounted:
        exact = (
            f", or --budget-privacy 0: the counts that hide people's budgets leave out up to {uncounted:,} "
            "people of every budget"
        )
    return (
        f"the round cannot be granted: with {people:,} people, whatever budgets of the grid they use, the accountant "
        f"would refuse it ({joined(best.refusals)}). Choose a larger --min-batch-size or --epsilon-max, or smaller "
        f"budgets{exact}"
    )


def is_granted(forecast: rpc.ForecastResponse) -> bool:
    """Whether every mixture of budgets would be granted."""
    return not any(outcome.refusals for outcome in forecast.outcomes)


async def forecast_opening(
    operator: Operator | None, terms: QuestionTerms, people: int, wave: int = 0
) -> rpc.ForecastResponse:
    """Returns the forecast of a question with a number of people, who answer every question of its survey.

    Args:
        operator: asks the accountant, which knows the ledger; without one, the ledger is ignored.
        terms: of the question.
        people: the number of people whose reports and budgets arrive.
        wave: in which it is to be asked; 0 for a survey that is asked once.
    """
    if operator is None:
        return answer(terms, people, people, Account(), ())
    request = rpc.ForecastRequest(survey=terms.survey.payload, question=terms.place, num_reports=people, wave=wave)
    return await _ask(operator, request)


async def forecast_now(
    operator: Operator, round_id: RoundId, closed_before: Mapping[str, int] = MappingProxyType({})
) -> rpc.ForecastResponse:
    """Returns the forecast of an open round that is closed now.

    closed_before: rounds that are closed before it, with the number of reports of each.

    Raises:
        Refusal: the round is unknown, or nobody has answered it yet.
    """
    first, *_ = await operator.status(round_id)
    if not isinstance(first, rpc.StatusResponse):
        raise first
    reports = first.rounds[0].num_items
    if not reports:
        raise Refusal(Code.NOT_READY, f"nobody has answered round {round_id!r} yet")
    before = [rpc.ClosingRound(round_id=name, num_reports=number) for name, number in closed_before.items()]
    return await _ask(operator, rpc.ForecastRequest(round_id=round_id, num_reports=reports, closed_before=before))


async def _ask(operator: Operator, request: rpc.ForecastRequest) -> rpc.ForecastResponse:
    stub = stubs.AccountantStub(operator.channel_to(operator.deployment.accountant.name))
    return await retrying(lambda: stub.Forecast(request, timeout=_TIMEOUT_S), give_up_after_s=_PATIENCE_S)
