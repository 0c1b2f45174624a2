"""Forecasts for the operator: the outcome of a round before it opens, and the budgets that it can offer without risk.

A round is at risk while some mixture of its budgets would have it refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from croupier.accountant.rounds.account import Account, answer
from croupier.accountant.rounds.forecast import always_granted
from croupier.net.retrying import retrying
from croupier.operator.operator import Operator
from croupier.operator.round_settings import RoundSettings, check_settings
from croupier.protocol.deployment import Deployment
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import RoundId
from croupier.protocol.rounding import round_down
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
