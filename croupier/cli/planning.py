"""What `croupier plan --error` answers: people or budgets for a margin of error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from croupier.accountant import (
    Budgets,
    ErrorPlan,
    Randomizer,
    certify,
    margins,
    plan_for_error,
    randomizer_from_name,
)
from croupier.accountant.accuracy import halving
from croupier.accountant.ranges import check_count, check_linkage
from croupier.cli.mechanism_options import SettingOptions
from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import round_down, round_up
from croupier.show.certificate_tables import certificate_table


@Parameter(name="*", group="A margin of error")
@dataclass(frozen=True)
class ErrorOptions:
    """The margin of error that a plan is for."""

    error: Annotated[
        float | None,
        Parameter(
            help="Solve for people or budgets: half of the 95 % interval for the population, 0.05 for ± 5 points of a "
            "share; of a mean in its own unit."
        ),
    ] = None
    groups: Annotated[int, Parameter(help="With --error: how many groups, each with that error.")] = 1
    categories: Annotated[
        int | None, Parameter(help="With --error: the number of answers to choose from; short for krr(k=…).")
    ] = None
    low: Annotated[float | None, Parameter(help="With --error, for a mean: the smallest possible value.")] = None
    high: Annotated[float | None, Parameter(help="With --error, for a mean: the largest possible value.")] = None

    def check(self) -> None:
        """Raises ValueError for options that do not fit each other."""
        check_count(self.groups, "groups", 1)
        if self.error is None:
            given = {"groups": self.groups > 1, "categories": self.categories, "low": self.low, "high": self.high}
            for name, value in given.items():
                if value not in (None, False):
                    raise ValueError(f"--{name} is given without --error; it says what the error is of")
        if (self.low is None) != (self.high is None):
            raise ValueError("only one of --low and --high is given; a mean needs both")
        if self.low is not None and self.high is not None:
            if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
                raise ValueError(f"low is {self.low:g} and high is {self.high:g}; low must be below high")
            if self.categories is not None:
                raise ValueError("--categories and --low are both given; ask for shares or for a mean")

    @property
    def width(self) -> float:
        """The length of the range; 1 for shares."""
        return 1.0 if self.low is None or self.high is None else self.high - self.low

    def name(self, given: str) -> str:
        """Returns the randomizer's name: krr where categories are given, a mean's purpose where a range is."""
        if self.categories is not None and given in ("rr", "krr"):
            return f"krr(k={self.categories})"
        return "mean" if self.low is not None and given == "rr" else given


def planned_for_error(
    asked: ErrorOptions,
    randomizer: Randomizer | str,
    *,
    budgets: Budgets | None,
    users: int | None,
    epsilon: float | None,
    delta: float,
    setting: SettingOptions,
) -> tuple[JsonObject, list[Any]]:
    """Returns the JSON document of the answer, and what the terminal shows.

    Raises:
        ValueError: as `plan_for_error`.
    """
    if asked.error is None or not (math.isfinite(asked.error) and 0 < asked.error < asked.width / 2):
        raise ValueError(f"error is {asked.error}; it must be above 0 and below {asked.width / 2:g}, half of the range")
    answer = plan_for_error(
        randomizer,
        asked.error / asked.width,
        delta=delta,
        epsilon=epsilon,
        num_users=users,
        budgets=budgets,
        rounds=setting.rounds,
        dishonest=setting.dishonest,
        linkage=check_linkage(setting.linkage),
    )
    alike = answer.certificate
    family = randomizer_from_name(alike.randomizer) if isinstance(randomizer, str) else randomizer
    better = halving(answer.budgets, family)
    costs = None
    if better.budgets is not None:
        costs = certify(
            better.budgets,
            family,
            delta=alike.delta,
            dishonest=alike.dishonest,
            linkage=alike.linkage,
            rounds=alike.rounds,
            attack=False,
            seconds=5.0,
        ).epsilon
    people = answer.budgets.num_users
    document: JsonObject = {
        "goal": "margin of error",
        "randomizer": family.name,
        "error": asked.error,
        "groups": asked.groups,
        "num_users": people,
        "num_users_of_all_groups": people * asked.groups,
        "budgets": _budgets_json(answer.budgets),
        "margins": {
            "participants": answer.margins.participants * asked.width,
            "population": answer.margins.population * asked.width,
        },
        "halving": {
            "num_users": better.num_users,
            "budgets": None if better.budgets is None else _budgets_json(better.budgets),
            "epsilon": costs,
            "participants": None
            if better.budgets is None
            else margins(better.budgets, family).participants * asked.width,
        },
        "certificate": alike.to_json(),
    }
    return document, [*_lines(asked, answer, better.budgets, costs), certificate_table(alike.to_json())]


def _budgets_json(budgets: Budgets) -> list[JsonObject]:
    return [{"epsilon": t.local_epsilon, "delta": t.local_delta, "count": t.count} for t in budgets.tiers]


def _lines(asked: ErrorOptions, answer: ErrorPlan, better: Budgets | None, costs: float | None) -> list[str]:
    people = answer.budgets.num_users
    groups = f" in each of {asked.groups:,} groups, {people * asked.groups:,} in all" if asked.groups > 1 else ""
    shares = asked.low is None
    factor, unit = (100.0, " points") if shares else (asked.width, "")

    def size(margin: float) -> str:
        return f"± {round_up(factor * margin, 3)}{unit}"

    lines = [
        f"{people:,} people{groups}, with a local ε of {_spread(answer.budgets)}.",
        f"95 % intervals, at the least favourable values: {size(answer.margins.population)} for the population that "
        f"they are a random sample of, {size(answer.margins.participants)} for the people who take part.",
    ]
    if asked.groups > 1:
        lines.append(
            f"The difference of two groups: {size(math.sqrt(2) * answer.margins.population)} for their populations. A "
            "person is in one group only, so that the certificate below is for everybody."
        )
    halved = f"To halve the error: four times the people, {4 * people * asked.groups:,}"
    if better is None or costs is None:
        halved += "; no local budget that a client accepts would do it"
    else:
        halved += (
            f"; or, for the people who take part, a local ε of {_spread(better)}, which is certified "
            f"ε = {round_up(costs)} instead of {round_up(answer.certificate.epsilon)}"
        )
    return [*lines, f"{halved}."]


def _spread(budgets: Budgets) -> str:
    low, high = (round_down(float(budgets.local_epsilon[end]), 4) for end in (0, -1))
    return low if low == high else f"{low} to {high}"
