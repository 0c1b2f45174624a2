"""The largest point in few evaluations: lines, jumps, what wavers, and the ends."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from croupier.accountant.planner import largest_point

TOLERANCE = 1e-3


class Between:
    """All numbers between 10^-4 and 20."""

    least, most, slope = 1e-4, 20.0, 1.0

    def nearest(self, point: float) -> float:
        return point


class Whole:
    """One over every whole number up to 10^9."""

    least, most, slope = 1e-9, 1.0, 0.5

    def nearest(self, point: float) -> float:
        return 1 / math.ceil(1 / point * (1 - 1e-12))


def searched(reached: Callable[[float], float], target: float, start: float) -> tuple[float, int]:
    """The largest factor found between 10^-4 and 20, where `reached` is what candidates reach; and how many it took."""
    steps: list[float] = []

    def counted(point: float) -> float:
        steps.append(point)
        return reached(point)

    point, value = largest_point(counted, target, Between(), start, TOLERANCE)
    assert point in steps
    assert value == reached(point)
    return point, len(steps)


def test_the_last_steps_of_a_plan_do_not_all_go_too_far() -> None:
    """Reproduction: each ended a little beyond the target, and 777 users were asked for where 651 do."""

    def reached(factor: float) -> float:
        return 1.5 - math.exp(3 - 3 * factor) / 2

    point, steps = searched(reached, reached(1.3), 1.0)
    assert 1.3 * (1 - 2 * TOLERANCE) < point <= 1.3
    assert steps <= 6


@pytest.mark.parametrize("start", [1e-3, 1.0, 15.0])
@pytest.mark.parametrize("power", [0.1, 0.3, 1.0, 3.0])
def test_the_slope_is_learned_on_the_way(power: float, start: float) -> None:
    """Reproduction: as long as no step was too far each was as if the slope were 1, and budgets came out smaller."""
    point, steps = searched(lambda factor: math.pow(factor, power), 1.6**power, start)
    assert 1.6 * (1 - TOLERANCE) < point < 1.6 * (1 + 1e-12)
    assert steps <= 10 if power < 1 else steps <= 7


@pytest.mark.parametrize("beyond", [2.0, math.inf])
@pytest.mark.parametrize("before", [0.0, 0.5])
def test_a_jump_is_found_by_halving(before: float, beyond: float) -> None:
    """Gaussian noise is amplified up to some budget, and from there on not at all."""
    point, steps = searched(lambda factor: before if factor < 3.7 else beyond, 1.0, 1.0)
    assert 3.7 * (1 - TOLERANCE) < point < 3.7
    assert steps <= 22


def test_what_is_not_monotone_is_not_looked_for_any_closer() -> None:
    """Reproduction: the exchange bound of many rounds wavers by 2 %, and ten certificates went into the last 0.1 %."""

    def wavering(factor: float) -> float:
        return factor * (1 + 0.02 * math.sin(300 * factor))

    point, steps = searched(wavering, 5.0, 1.0)
    assert wavering(point) <= 5.0
    assert 4.75 < point < 5.1
    assert steps <= 8


def test_the_ends_of_what_is_looked_for() -> None:
    assert searched(lambda factor: factor / 1000, 1.0, 1.0)[0] == 20.0
    assert largest_point(lambda factor: 5 + factor, 1.0, Between(), 1.0, TOLERANCE) == (1e-4, 5 + 1e-4)


@pytest.mark.parametrize("fewest", [1, 2, 17, 640, 10**6])
def test_whole_numbers_are_found_exactly_where_they_are_few(fewest: int) -> None:
    """One over a number of people, of whom there are at least `fewest`."""

    def reached(point: float) -> float:
        return math.sqrt(point)

    point, _ = largest_point(reached, reached(1 / fewest) * (1 + 1e-9), Whole(), 1 / 300, TOLERANCE)
    number = round(1 / point)
    assert point == 1 / number
    assert fewest <= number <= fewest * (1 + TOLERANCE)
