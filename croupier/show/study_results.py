"""The results of a study as one tidy table, and the differences between its waves, with intervals and a test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, TypedDict

from rich.table import Table

from croupier.accountant.certificate import Certificate
from croupier.accountant.mechanisms.registry import stated_randomizer
from croupier.analyzer.differences import Interval, Reach, apart, reach
from croupier.protocol.certificate_views import GuaranteeView
from croupier.protocol.rounding import round_up
from croupier.show.csv_file import csv_text
from croupier.show.text import note_lines
from croupier.show.views.published_results import ResultView, level_of, numbers_of
from croupier.show.views.questions import QuestionView

_DIGITS = 4
_LATE_S = 60.0
"""Seconds after which an opening counts as late."""


class StudyRowView(TypedDict):
    """A number of a question in a wave; the numbers are None without a result.

    Attributes:
        wave: its number.
        opens_unix_s: its opening by the calendar.
        question: its name.
        value: the category of the number, or "" for a share or mean.
        outcome: "granted", "refused", "too few", "held", "missed", or the state of a wave that has not ended.
        estimate: unbiased; because of the noise it may be outside the possible range.
        standard_error, low, high: of the noise: for the people who took part.
        uneven_standard_error: the part of `standard_error` that comes from uneven budgets: people with larger ones
            weigh more, and in every wave they may be the same people.
        sampling_standard_error: of drawing these people from a population; it is not in `standard_error`.
        population_low, population_high: of noise and sampling: for a population of which they are a random sample.
        level: of the intervals.
        range_low, range_high: the ends of the possible range.
        epsilon, delta, grade: of the certificate of the question in this wave.
        n: the number of counted answers.
    """

    wave: int
    opens_unix_s: int
    question: str
    value: str
    outcome: str
    estimate: float | None
    standard_error: float | None
    low: float | None
    high: float | None
    uneven_standard_error: float | None
    sampling_standard_error: float | None
    population_low: float | None
    population_high: float | None
    level: float | None
    range_low: float | None
    range_high: float | None
    epsilon: float | None
    delta: float | None
    grade: str
    n: int


class StudyDifferenceView(TypedDict):
    """The difference of a number between a wave and an earlier one.

    "p_value" is of the test that the number is the same for the people who took part, whose errors are the noise of
    both waves; "population_p_value" that it is the same in the population, whose errors are noise and sampling. A test
    at 5 % rejects if the 95 % interval does not contain 0. The same people may have answered both waves, with answers
    that move against each other.
    """

    question: str
    value: str
    wave: int
    against: int
    difference: float
    standard_error: float
    low: float
    high: float
    p_value: float
    population_low: float | None
    population_high: float | None
    population_p_value: float | None


class WaveView(TypedDict):
    """A wave of a study and its outcome."""

    number: int
    version: int
    survey_id: str
    opens_unix_s: int
    closes_unix_s: int
    state: str
    why: str
    late_s: float | None


class StudyResultsView(TypedDict):
    """A study: its waves, its numbers, the differences between waves, and their total cost."""

    study_id: str
    title: str
    questions: dict[str, str]
    waves: list[WaveView]
    rows: list[StudyRowView]
    differences: list[StudyDifferenceView]
    together: GuaranteeView | None
    total_epsilon: float
    total_delta: float


def rows_of_result(wave: int, opens_unix_s: int, question: str, result: ResultView) -> list[StudyRowView]:
    """Returns a row for every number of a result; one without numbers for a result that is refused or sealed."""
    certificate = result["certificate"]
    granted = certificate["granted"]
    numbers = numbers_of(result) if granted else []
    if not numbers:
        return [_row(wave, opens_unix_s, question, "granted" if granted else "refused", n=result["num_reports"])]
    sampling = result["sampling_standard_error"]
    errors = sampling if isinstance(sampling, list) else [sampling] * len(numbers)
    uneven, asked = _uneven(result), result["asked"]
    scale = (0.0, 1.0) if asked is None else _scale(asked)
    return [
        {
            "wave": wave,
            "opens_unix_s": opens_unix_s,
            "question": question,
            "value": number.label,
            "outcome": "granted",
            "estimate": number.estimate,
            "standard_error": number.standard_error,
            "low": number.interval[0],
            "high": number.interval[1],
            "uneven_standard_error": None if error is None else min(number.standard_error, uneven * error),
            "sampling_standard_error": error,
            "population_low": None if number.population is None else number.population[0],
            "population_high": None if number.population is None else number.population[1],
            "level": level_of(result),
            "range_low": scale[0],
            "range_high": scale[1],
            "epsilon": certificate["epsilon"],
            "delta": certificate["delta"],
            "grade": str(certificate["grade"]),
            "n": result["num_reports"],
        }
        for number, error in zip(numbers, errors, strict=True)
    ]


def _scale(asked: QuestionView) -> Interval:
    parameters = asked["parameters"]
    return (float(parameters["low"]), float(parameters["high"])) if "low" in parameters else (0.0, 1.0)


def _uneven(result: ResultView) -> float:
    """Returns the standard deviation of the people's weights in an estimate, as a part of their mean.

    Infinite if the certificate does not state the randomizer, from which the weights follow.
    """
    certificate = Certificate.from_json(result["certificate"])
    randomizer, budgets = stated_randomizer(certificate.assumptions), certificate.likely_budgets
    if randomizer is None:
        return math.inf
    weights, _ = randomizer.signal(budgets.local_epsilon, budgets.local_delta)
    mean = float(weights @ budgets.count) / budgets.num_users
    square = float(weights**2 @ budgets.count) / max(budgets.num_users - 1, 1)
    return math.sqrt(max(square / mean**2 - budgets.num_users / max(budgets.num_users - 1, 1), 0.0))


def rows_without_result(wave: int, opens_unix_s: int, question: str, outcome: str) -> list[StudyRowView]:
    """Returns the row of a question that has no result in a wave."""
    return [_row(wave, opens_unix_s, question, outcome, n=0)]


def _row(wave: int, opens_unix_s: int, question: str, outcome: str, n: int) -> StudyRowView:
    return {
        "wave": wave,
        "opens_unix_s": opens_unix_s,
        "question": question,
        "value": "",
        "outcome": outcome,
        "estimate": None,
        "standard_error": None,
        "low": None,
        "high": None,
        "uneven_standard_error": None,
        "sampling_standard_error": None,
        "population_low": None,
        "population_high": None,
        "level": None,
        "range_low": None,
        "range_high": None,
        "epsilon": None,
        "delta": None,
        "grade": "",
        "n": n,
    }


def study_csv(rows: Sequence[StudyRowView]) -> str:
    """Returns the rows as CSV, with an empty cell for a missing number."""
    columns = [*StudyRowView.__annotations__]
    return csv_text(columns, ([row[name] for name in columns] for row in rows))  # type: ignore[literal-required]


def differences_between(
    rows: Sequence[StudyRowView], against: Literal["previous", "first"] = "previous"
) -> list[StudyDifferenceView]:
    """Returns the difference of every number between a wave and the wave before it, or the first one.

    Waves without a result are passed over. The noise of two waves is independent, so its variances add up. The errors
    of uneven budgets and sampling are not independent if the same people answer: they add up linearly, as if every
    answer had moved against the other. Do not use it for a permanent study, whose reports are the same in all waves.
    """
    series: dict[tuple[str, str], list[StudyRowView]] = {}
    for row in rows:
        if row["estimate"] is not None:
            series.setdefault((row["question"], row["value"]), []).append(row)
    return [
        _difference(row, waves[0] if against == "first" else waves[place - 1])
        for waves in series.values()
        for place, row in enumerate(waves[1:], start=1)
    ]


@dataclass(frozen=True)
class _Measured:
    """A number of a wave: its distances, and the parts of them that two waves may share.

    Attributes:
        own, own_shared: for the people who took part.
        whole, whole_shared: for a population; None if no interval is known.
        width: of the possible range.
    """

    own: Reach
    own_shared: float
    whole: Reach | None
    whole_shared: float
    width: float


def _measured(row: StudyRowView) -> _Measured:
    estimate, error, low, high = (row[name] or 0.0 for name in ("estimate", "standard_error", "low", "high"))
    z = NormalDist().inv_cdf((1 + (row["level"] or 0.95)) / 2)
    scale = (row["range_low"] or 0.0, 1.0 if row["range_high"] is None else row["range_high"])
    uneven, width = z * (row["uneven_standard_error"] or 0.0), scale[1] - scale[0]
    own = reach(estimate, (low, high), z * error, scale)
    least, most, drawn = row["population_low"], row["population_high"], z * (row["sampling_standard_error"] or 0.0)
    if least is None or most is None:
        return _Measured(own, uneven, None, 0.0, width)
    whole = reach(estimate, (least, most), math.hypot(z * error, drawn), scale)
    sampling = max(whole.longest**2 - own.longest**2, drawn**2)
    return _Measured(own, uneven, whole, math.sqrt(sampling + uneven**2), width)


def _difference(row: StudyRowView, other: StudyRowView) -> StudyDifferenceView:
    second, first = _measured(row), _measured(other)
    z = NormalDist().inv_cdf((1 + (row["level"] or 0.95)) / 2)
    low, high, p_value = _tested(second.own, first.own, second.own_shared * first.own_shared, z, first.width)
    population: tuple[float | None, float | None, float | None] = (None, None, None)
    if second.whole is not None and first.whole is not None:
        shared = second.whole_shared * first.whole_shared
        population = _tested(second.whole, first.whole, shared, z, first.width)
    errors, uneven = (
        [each[name] or 0.0 for each in (row, other)] for name in ("standard_error", "uneven_standard_error")
    )
    return {
        "question": row["question"],
        "value": row["value"],
        "wave": row["wave"],
        "against": other["wave"],
        "difference": (row["estimate"] or 0.0) - (other["estimate"] or 0.0),
        "standard_error": math.sqrt(errors[0] ** 2 + errors[1] ** 2 + 2 * uneven[0] * uneven[1]),
        "low": low,
        "high": high,
        "p_value": p_value,
        "population_low": population[0],
        "population_high": population[1],
        "population_p_value": population[2],
    }


def _tested(second: Reach, first: Reach, shared: float, z: float, width: float) -> tuple[float, float, float]:
    """Returns the interval of a difference, and the two-sided p-value of the hypothesis that it is 0.

    The distance to the end of the interval on the side of 0 counts as z standard errors, so that both agree.
    """
    low, high = apart(second, first, math.inf, shared)
    difference = second.estimate - first.estimate
    distance = difference - low if difference > 0 else high - difference
    p_value = math.erfc(z * abs(difference) / distance / math.sqrt(2)) if distance > 0 else float(difference == 0)
    return max(low, -width), min(high, width), p_value


def study_results_table(rows: Sequence[StudyRowView]) -> Table:
    """Returns a row for every number of every wave."""
    level = next((row["level"] for row in rows if row["level"]), 0.95)
    table = Table(
        "wave",
        "question",
        "value",
        "estimate ± standard error",
        f"{100 * level:g} % interval",
        "ε",
        "grade",
        "n",
        title="Results",
    )
    last = None
    for row in rows:
        if last is not None and row["wave"] != last:
            table.add_section()
        last = row["wave"]
        if row["estimate"] is None or row["standard_error"] is None or row["low"] is None or row["high"] is None:
            table.add_row(str(row["wave"]), row["question"], "", row["outcome"], "", "", "", f"{row['n']:,}")
            continue
        table.add_row(
            str(row["wave"]),
            row["question"],
            row["value"],
            f"{row['estimate']:.{_DIGITS}g} ± {row['standard_error']:.2g}",
            f"{row['low']:.{_DIGITS}g} to {row['high']:.{_DIGITS}g}",
            "" if row["epsilon"] is None else round_up(row["epsilon"], 4),
            row["grade"],
            f"{row['n']:,}",
        )
    return table


def differences_table(differences: Sequence[StudyDifferenceView]) -> Table:
    """Returns a row for every difference."""
    table = Table(
        "question",
        "value",
        "wave",
        "against",
        "difference ± standard error",
        "95 % interval",
        "p (noise)",
        "p (noise and sampling)",
        title="Differences between waves",
        caption="p (noise): that the people who took part have not changed. p (noise and sampling): that the "
        "population has not. Both allow for the same people in both waves, whose answers move against each other.",
    )
    for difference in differences:
        table.add_row(
            difference["question"],
            difference["value"],
            str(difference["wave"]),
            str(difference["against"]),
            f"{difference['difference']:+.3g} ± {difference['standard_error']:.2g}",
            f"{difference['low']:+.3g} to {difference['high']:+.3g}",
            f"{difference['p_value']:.2g}",
            "" if difference["population_p_value"] is None else f"{difference['population_p_value']:.2g}",
        )
    return table


def results_lines(document: StudyResultsView) -> list[str]:
    """Returns the outcomes of the waves, and the total cost of all results for one person, in sentences."""
    lines = []
    for wave in document["waves"]:
        if wave["why"]:
            lines.append(f"Wave {wave['number']} ({wave['state']}): {wave['why']}.")
        elif wave["late_s"] and wave["late_s"] >= _LATE_S:
            lines.append(f"Wave {wave['number']} opened {wave['late_s'] / 60:.0f} minutes late.")
    together = document["together"]
    if together is not None:
        lines.append(
            f"All results together, for a person who took part in every wave with the largest budget: "
            f"{together['grade']} ε = {round_up(together['epsilon'], 4)} at δ = {round_up(together['delta'])}, under "
            "the assumptions of the certificates. The study may cost a person at most "
            f"ε = {round_up(document['total_epsilon'])} at δ = {round_up(document['total_delta'])}."
        )
        lines += note_lines(together["notes"])
    return lines
