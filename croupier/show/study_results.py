"""The results of a study as one tidy table, and the differences between its waves, with intervals and a test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from croupier.accountant.certificate import Certificate
from croupier.accountant.mechanisms.registry import stated_randomizer
from croupier.analyzer.differences import Interval, Reach, apart, reach
from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import round_up
from croupier.show.blocks import Block, Sentence, Table
from croupier.show.csv_file import csv_text
from croupier.show.language import number, say
from croupier.show.numbers import level_of, numbers_of
from croupier.show.text import note_lines, utc

_DIGITS = 4
_LATE_S = 60.0
"""Seconds after which an opening counts as late."""


def rows_of_result(wave: int, opens_unix_s: int, question: str, result: JsonObject) -> list[JsonObject]:
    """Returns a row for every number of a result; one without numbers for a result that is refused or sealed.

    The keys of a row, whose numbers are None without a result:
        wave, opens_unix_s: its number, and its opening by the calendar.
        question, value: the question's name; the category of the number, or "" for a share or mean.
        outcome: "granted", "refused", "too few", "held", "missed", or the state of a wave that has not ended.
        estimate: unbiased; because of the noise it may be outside the possible range.
        standard_error, low, high: of the noise: for the people who took part.
        uneven_standard_error: the part of `standard_error` that comes from uneven budgets: people with larger ones
            weigh more, and in every wave they may be the same people.
        sampling_standard_error: of drawing these people from a population; it is not in `standard_error`.
        population_low, population_high: of noise and sampling: for a population of which they are a random sample.
        level, range_low, range_high: of the intervals; the ends of the possible range.
        epsilon, delta, grade, n: of the certificate of the question in this wave; the number of counted answers.
    """
    certificate = result["certificate"]
    granted = certificate["granted"]
    numbers = numbers_of(result) if granted else []
    if not numbers:
        return [_row(wave, opens_unix_s, question, "granted" if granted else "refused", n=result["num_reports"])]
    errors = [value["sampling_standard_error"] for value in result["values"]]
    uneven, asked = _uneven(result), result["asked"]
    scale = (0.0, 1.0) if asked is None else _scale(asked)
    return [
        _row(wave, opens_unix_s, question, "granted", result["num_reports"])
        | {
            "value": number.label,
            "estimate": number.estimate,
            "standard_error": number.standard_error,
            "low": number.participants[0],
            "high": number.participants[1],
            "uneven_standard_error": min(number.standard_error, uneven * error),
            "sampling_standard_error": error,
            "population_low": number.population[0],
            "population_high": number.population[1],
            "level": level_of(result),
            "range_low": scale[0],
            "range_high": scale[1],
            "epsilon": certificate["epsilon"],
            "delta": certificate["delta"],
            "grade": str(certificate["grade"]),
        }
        for number, error in zip(numbers, errors, strict=True)
    ]


def _scale(asked: JsonObject) -> Interval:
    parameters = asked["parameters"]
    return (float(parameters["low"]), float(parameters["high"])) if "low" in parameters else (0.0, 1.0)


def _uneven(result: JsonObject) -> float:
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


def rows_without_result(wave: int, opens_unix_s: int, question: str, outcome: str) -> list[JsonObject]:
    """Returns the row of a question that has no result in a wave."""
    return [_row(wave, opens_unix_s, question, outcome, n=0)]


_NUMBERS = (
    *("estimate", "standard_error", "low", "high", "uneven_standard_error", "sampling_standard_error"),
    *("population_low", "population_high", "level", "range_low", "range_high", "epsilon", "delta"),
)


def _row(wave: int, opens_unix_s: int, question: str, outcome: str, n: int) -> JsonObject:
    begin = {"wave": wave, "opens_unix_s": opens_unix_s, "question": question, "value": "", "outcome": outcome}
    return {**begin, **dict.fromkeys(_NUMBERS), "grade": "", "n": n}


def study_csv(rows: Sequence[JsonObject]) -> str:
    """Returns the rows as CSV, with an empty cell for a missing number."""
    columns = [*_row(0, 0, "", "", 0)]
    return csv_text(columns, ([row[name] for name in columns] for row in rows))


def differences_between(
    rows: Sequence[JsonObject], against: Literal["previous", "first"] = "previous"
) -> list[JsonObject]:
    """Returns the difference of every number between a wave and the wave before it, or the first one.

    Waves without a result are passed over. The noise of two waves is independent, so its variances add up. The errors
    of uneven budgets and sampling are not independent if the same people answer: they add up linearly, as if every
    answer had moved against the other. Do not use it for a permanent study, whose reports are the same in all waves.

    "p_value" is of the test that the number is the same for the people who took part, whose errors are the noise of
    both waves; "population_p_value" that it is the same in the population, whose errors are noise and sampling. A test
    at 5 % rejects if the 95 % interval does not contain 0.
    """
    series: dict[tuple[str, str], list[JsonObject]] = {}
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


def _measured(row: JsonObject) -> _Measured:
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


def _difference(row: JsonObject, other: JsonObject) -> JsonObject:
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


def results_table(rows: Sequence[JsonObject]) -> Table:
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
            table.end_group()
        last = row["wave"]
        if row["estimate"] is None or row["standard_error"] is None or row["low"] is None or row["high"] is None:
            table.row(str(row["wave"]), row["question"], "", row["outcome"], "", "", "", f"{row['n']:,}")
            continue
        table.row(
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


def differences_table(differences: Sequence[JsonObject]) -> Table:
    """Returns a row for every difference."""
    caption = (
        "p (noise): that the people who took part have not changed. p (noise and sampling): that the population has "
        "not. Both allow for the same people in both waves, whose answers move against each other."
    )
    table = Table(
        say("question"),
        say("value"),
        say("wave"),
        say("against"),
        say("difference ± standard error"),
        say("95 % interval"),
        say("p (noise)"),
        say("p (noise and sampling)"),
        title=say("Differences between waves"),
        caption=say(caption),
    )
    for difference in differences:
        low, high = (number(f"{difference[end]:+.3g}") for end in ("low", "high"))
        sampling = difference["population_p_value"]
        table.row(
            difference["question"],
            difference["value"],
            str(difference["wave"]),
            str(difference["against"]),
            number(f"{difference['difference']:+.3g} ± {difference['standard_error']:.2g}"),
            say("{low} to {high}", low=low, high=high),
            number(f"{difference['p_value']:.2g}"),
            "" if sampling is None else number(f"{sampling:.2g}"),
        )
    return table


def study_blocks(document: JsonObject) -> list[Block]:
    """Returns the numbers of a study, the differences between waves, the outcomes of waves, and the total cost."""
    waves = Table("wave", "version", "opens", "closes", "state", "why", title="Waves")
    for wave in document["waves"]:
        late = wave["late_s"] or 0.0
        why = f"opened {late / 60:.0f} minutes late" if late >= _LATE_S and not wave["why"] else wave["why"]
        times = utc(wave["opens_unix_s"]), utc(wave["closes_unix_s"])
        waves.row(str(wave["number"]), str(wave["version"]), *times, wave["state"], why)
    blocks: list[Block] = [results_table(document["rows"])] if document["rows"] else []
    blocks += [differences_table(document["differences"])] if document["differences"] else []
    return [*blocks, waves, *map(Sentence, _together_lines(document))]


def _together_lines(document: JsonObject) -> list[str]:
    """Returns the total cost of all results for one person, in sentences; nothing without results."""
    together = document["together"]
    if together is None:
        return []
    return [
        f"All results together, for a person who took part in every wave with the largest budget: "
        f"{together['grade']} ε = {round_up(together['epsilon'], 4)} at δ = {round_up(together['delta'])}, under "
        "the assumptions of the certificates. The study may cost a person at most "
        f"ε = {round_up(document['total_epsilon'])} at δ = {round_up(document['total_delta'])}.",
        *note_lines(together["notes"]),
    ]
