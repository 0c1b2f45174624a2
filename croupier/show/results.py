"""The results of a question as blocks: what was asked, a bar for each number, and everything that qualifies them.

A terminal, a report, the console and notebooks show these blocks. The input is the JSON document of a result
(`publication_json`), with the cross table and the sums that `cross_tables` may have added; it may come from anybody's
file. Needs no library: clients use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from croupier.protocol.codes import Note, RefusalReason
from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import round_up
from croupier.show.blocks import Bar, Bars, Block, Heading, Interval, Points, Sentence, Table, Tone
from croupier.show.language import number as in_words
from croupier.show.language import say, sentences
from croupier.show.numbers import Number, Precision, number_of, numbers_of
from croupier.show.statistics import Statistic, statistic

_AXES = (0.02, 0.05, 0.1, 0.2, 0.5)
"""Possible ends of the axis of a histogram, else 1: round numbers whose half is round as well."""


def result_blocks(
    result: JsonObject | Sequence[Statistic], advice: Callable[[JsonObject], Sequence[str]] = lambda _: ()
) -> list[Block]:
    """Returns the blocks of a result, or of those of several groups. advice: ways to halve the error of one."""
    asked = [statistic(result)] if isinstance(result, dict) else result
    return [*question_blocks(asked, advice), *(Sentence(line, Tone.QUIET) for line in remarks(asked))]


def question_blocks(rounds: Sequence[Statistic], advice: Callable[[JsonObject], Sequence[str]]) -> list[Block]:
    """Returns the blocks of a question that was asked in one round, or in several groups, but for its `remarks`."""
    about, several = next((asked for asked in rounds if asked.granted), rounds[0]), len(rounds) > 1
    blocks: list[Block] = [Heading(about.title, language=about.language)]
    if about.question not in ("", about.title):
        blocks.append(Sentence(about.question, language=about.language))
    if about.help_text:
        blocks.append(Sentence(about.help_text, Tone.QUIET, about.language))
    refused = [
        f"{_named(asked)}{why}"
        for asked in rounds
        if not asked.granted
        for why in sentences(RefusalReason, asked.result["certificate"]["refusals"])
    ]
    if refused:
        told = say("There is no result. The accountant refused to certify this round, so that nothing was read:")
        blocks += [Sentence(told, Tone.ALARM), Points(refused)]
    if read := [asked for asked in rounds if asked.granted]:
        counted = say(" and ").join(f"{_named(asked)}{in_words(f'{asked.people:,}')}" for asked in read)
        told = say("Estimated: {about}. Answers counted: {counted}.", about=about.about, counted=counted)
        blocks.append(Sentence(told, Tone.QUIET))
    blocks += [Sentence(f"{_named(asked)}{line}", Tone.ALARM) for asked in read if (line := precision_line(asked))]
    ends = _ends(read or rounds)
    bars = [
        _bar(asked, each, ends, asked.group, is_noisy(asked.result))
        for kind in ("numbers", "details")
        for place in range(max((len(getattr(asked, kind)) for asked in read), default=0))
        for asked in read
        for each in getattr(asked, kind)[place : place + 1]
    ]
    if bars:
        blocks.append(Bars(bars, _scale(about, ends), about.is_share, about.level))
    for asked in read:
        blocks += [*_histogram(asked), *sum_blocks(asked), *table_blocks(asked)]
    halved: dict[str, list[str]] = {}
    for asked in read:
        for line in advice(asked.result):
            halved.setdefault(line, []).append(asked.group)
    said = [f"{', '.join(names)}: {line}" if several else line for line, names in halved.items()]
    return [*blocks, *(Sentence(line, Tone.QUIET) for line in said)]


def _named(asked: Statistic) -> str:
    return f"{asked.group}: " if asked.group else ""


# ---------------------------------------------------------------------------------------------------------- remarks


def remarks(rounds: Iterable[Statistic]) -> list[str]:
    """Returns the remarks on results that can be read, a sentence each, with the groups of which it is true."""
    remarked: dict[str, dict[str, None]] = {}
    readable = [asked for asked in rounds if asked.granted]
    for asked in readable:
        result = asked.result
        if result["sealed"]:
            line = say("The result is sealed to its collector, whose key opens it.")
            remarked.setdefault(line, {})[asked.group] = None
            continue
        notes = [say("Note: {note}", note=note) for note in sentences(Note, result["certificate"]["notes"])]
        stated = [
            *notes,
            clamping_line(result),
            hop_line(asked),
            *sentences(Note, result["notes"]),
            *data_notes_of(result),
        ]
        for line in filter(None, stated):
            remarked.setdefault(f"{line[0].upper()}{line[1:].rstrip('.')}.", {})[asked.group] = None
    return [
        line if len(groups) == len(readable) else f"{', '.join(groups)}: {line}" for line, groups in remarked.items()
    ]


def data_notes_of(result: Mapping[str, Any]) -> list[str]:
    """Returns the sentences on the file behind a demonstration or simulation; else nothing."""
    notes = result.get("data_notes")
    return [str(note) for note in notes] if isinstance(notes, list) else []


def is_noisy(result: Mapping[str, Any]) -> bool:
    """Returns whether a result is too noisy to use."""
    return result.get("precision") in (Precision.COVERS_RANGE, Precision.HIDES_SHARES)


def precision_line(asked: Statistic) -> str:
    """Returns a sentence on a result that is too noisy to use; "" if it can be used."""
    if not is_noisy(asked.result):
        return ""
    if asked.result["precision"] == Precision.COVERS_RANGE:
        return say(
            "TOO NOISY TO USE: the {level} interval is longer than half of the possible range; ask more people, or "
            "allow larger budgets.",
            level=asked.level_text,
        )
    numbers = numbers_of(asked.result)
    error, share = max(each.standard_error for each in numbers), max(each.projected for each in numbers)
    values = {"share": in_words(f"{share:.2g}"), "error": in_words(f"{error:.2g}")}
    if all(each.participants[0] <= 0 for each in numbers):
        return say(
            "TOO NOISY TO USE: no category can be told from an absent one: the largest share is {share}, and the "
            "standard error up to {error}; ask more people or about fewer categories, or allow larger budgets.",
            **values,
        )
    return say(
        "TOO NOISY TO USE: the nearest possible value of the largest share is {share}, and the standard error up to "
        "{error}; ask more people or about fewer categories, or allow larger budgets.",
        **values,
    )


def clamping_line(result: JsonObject) -> str:
    """Returns the limit on the influence of one report, or "" if no report can be large."""
    clamping = result["clamping"]
    if clamping is None:
        return ""
    limits = {name: in_words(f"{clamping[name]:.5g}") for name in ("low", "high")}
    return say(
        "{clamped} of {reports} reports were outside [{low}; {high}] and count as its ends; this moves the mean by at "
        "most {bias}, and one false report by at most {influence}",
        clamped=clamping["num_clamped"],
        reports=result["num_reports"],
        bias=in_words(f"{clamping['bias']:.2g}"),
        influence=in_words(f"{clamping['influence']:.2g}"),
        **limits,
    )


def hop_line(asked: Statistic) -> str:
    """Returns the largest effect of one dishonest hop's fake reports on an estimate; "" without hop noise."""
    influence, distribution = asked.result.get("hop_influence"), asked.result.get("distribution")
    if not influence:
        return ""
    moved = asked.at_most(influence)
    what = say("an estimate by at most {moved}", moved=moved)
    if distribution is not None and distribution["hop_influence"]:
        share = in_words(round_up(100 * distribution["hop_influence"], 3))
        what = say(
            "the mean by at most {moved}, and the share of people on some of the levels by at most {share} points,",
            moved=moved,
            share=share,
        )
    return say(
        "every hop has added fake reports, which are subtracted on average, and which intervals allow for; a dishonest "
        "hop could have moved {what} with its own. A round without hop noise has no fake reports; its guarantee then "
        "needs honest participants and an honest accountant",
        what=what,
    )


# ------------------------------------------------------------------------------------------------------------- bars


def _ends(summaries: Sequence[Statistic]) -> Interval:
    """Returns the ends of a chart: those of the possible range, or of all intervals if it is unknown."""
    if summaries[0].scale is not None:
        return summaries[0].scale
    numbers = [each for summary in summaries for each in summary.numbers]
    ends = [end for each in numbers for interval in (each.participants, each.population) for end in interval]
    return (min(ends), max(ends)) if ends else (0.0, 1.0)


def _bar(
    summary: Statistic,
    number: Number,
    ends: Interval,
    group: str = "",
    noisy: bool = False,
    sentence: str | None = None,
) -> Bar:
    low, high = ends

    def place(value: float) -> float:
        return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5

    def both(interval: Interval) -> Interval:
        return place(interval[0]), place(interval[1])

    said = f"{f'{group}: ' if group else ''}{summary.sentence(number)}" if sentence is None else sentence
    return Bar(
        label=" · ".join(part for part in (number.label or ("" if group else say("mean")), group) if part),
        estimate=summary.estimate(number),
        error=summary.error(number),
        impossible=summary.impossible(number),
        people=summary.interval(number.participants),
        population=summary.interval(number.population),
        sentence=said,
        at=place(number.shown),
        from_people=both(number.participants),
        from_population=both(number.population),
        noisy=noisy,
        truth=summary.truth(number),
    )


def _scale(summary: Statistic, ends: Interval) -> list[str]:
    """Returns the text below a chart: five marks of a share, else the ends of the range and their meaning."""
    if summary.is_share:
        return [f"{mark} %" for mark in (0, 25, 50, 75, 100)]
    unit = f" {summary.unit}" if summary.unit else ""
    marks = [in_words(f"{end:g}".replace("-", "−")) + unit for end in ends]
    return [f"{mark} ({meaning})" if meaning else mark for mark, meaning in zip(marks, summary.ends, strict=True)]


def _histogram(asked: Statistic) -> list[Block]:
    """Returns a bar for each level, the share of people on it; the axis has room for the largest end of an interval."""
    if not (levels := asked.histogram):
        return []
    shares = replace(asked, is_share=True)
    largest = max(each.participants[1] for each in levels)
    most = next((end for end in _AXES if largest <= end), 1.0)
    named = [replace(each, label=f"{each.label} {shares.unit}".strip()) for each in levels]
    told = say(
        "The share of people on each of {levels} levels, smoothed. A number between two levels counts on both, in "
        "parts.",
        levels=len(levels),
    )
    return [
        _heading(say("How the numbers are distributed"), asked),
        Sentence(told, Tone.QUIET),
        Bars(
            [_bar(shares, each, (0.0, most), sentence="") for each in named],
            [in_words(f"{100 * mark:g} %") for mark in (0.0, most / 2, most)],
            filled=True,
            confidence=shares.level,
        ),
    ]


def _heading(text: str, asked: Statistic, level: int = 3) -> Heading:
    return Heading(f"{text} · {asked.group}" if asked.group else text, level)


def sum_blocks(asked: Statistic) -> list[Block]:
    """Returns the shares of the people with one of several answers, if a result has them."""
    if not asked.result.get("sums"):
        return []
    with _reading(asked.result):
        numbers = [
            number_of(each["share"], say(" or ").join(each["categories"]), is_share=True)
            for each in asked.result["sums"]
        ]
        shares = replace(asked, is_share=True)
        bars = [_bar(shares, each, (0.0, 1.0), asked.group) for each in numbers]
        return [
            _heading(say("Answers added up"), asked),
            Bars(bars, _scale(shares, (0.0, 1.0)), True, shares.level),
        ]


def table_blocks(asked: Statistic) -> list[Block]:
    """Returns the cross table of a result, and the shares of the second question's answers within each row."""
    if "table" not in asked.result:
        return []
    shares = replace(asked, is_share=True)
    with _reading(asked.result):
        table = asked.result["table"]
        first, second = table["questions"]
        pairs = Table(first, *table["columns"], say("all"))
        pairs.caption = say("The share of people with each pair of answers, in per cent: the nearest possible table.")
        for row, cells, margin in zip(table["rows"], table["cells"], table["row_shares"], strict=True):
            pairs.row(row, *map(written_share, cells), written_share(margin["projected"]))
        totals = (written_share(share["projected"]) for share in table["column_shares"])
        pairs.row(say("all"), *totals, written_share(1.0))
        blocks: list[Block] = [_heading(say("{first} and {second} together", first=first, second=second), asked), pairs]
        for row, within in zip(table["rows"], table["within_rows"], strict=True):
            title = say("{second} among those who answered “{row}”", second=second, row=row)
            bars = []
            for column, share in zip(table["columns"], within, strict=True):
                each = number_of(share, column, is_share=True)
                said = say(
                    "{own} of those who took part and answered “{row}”, and {whole} in the population.",
                    own=shares.interval(each.participants),
                    row=row,
                    whole=shares.interval(each.population),
                )
                bars.append(_bar(shares, each, (0.0, 1.0), sentence=said))
            blocks += [_heading(title, asked, 4), Bars(bars, _scale(shares, (0.0, 1.0)), True, shares.level)]
        return [*blocks, *(Sentence(f"{line[0].upper()}{line[1:]}.") for line in cross_table_lines(table))]


def written_share(share: float) -> str:
    """Returns a share in per cent, without the sign."""
    return in_words(f"{100 * share:.1f}")


def cross_table_lines(table: Mapping[str, Any]) -> list[str]:
    """Returns in sentences which differences between rows the noise leaves to be seen, and the test of independence."""
    first, second = table["questions"]
    lines = []
    for each in table["differences"]:
        low, high = number_of(each["difference"]).population
        if low > 0 or high < 0:
            row, other = each["rows"]
            lines.append(
                say(
                    "{second} “{column}” is {more} common with {first} “{row}” than with “{other}”: by {points} "
                    "points, [{low}; {high}] in the population",
                    second=second,
                    column=each["column"],
                    more=say("more") if low > 0 else say("less"),
                    first=first,
                    row=row,
                    other=other,
                    points=written_share(abs(each["difference"]["projected"])),
                    low=written_share(low),
                    high=written_share(high),
                )
            )
    test = table["independence"]
    told = "{first} and {second} may be independent"
    if test["p_value"] < 0.05:
        told = "{first} and {second} depend on each other"
    tested = say(
        "χ² = {statistic} with {degrees} degrees of freedom, p = {p_value}; the noise is allowed for",
        statistic=in_words(f"{test['statistic']:.2f}"),
        degrees=test["degrees"],
        p_value=in_words(f"{test['p_value']:.3g}"),
    )
    return [*lines, f"{say(told, first=first, second=second)}: {tested}"]


@contextmanager
def _reading(result: JsonObject) -> Iterator[None]:
    """Refuses with a sentence a table or sums that anyone may have written into a file."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, ArithmeticError) as error:
        raise ValueError(
            f"the table or the sums of {result['round_id']} cannot be read; they must be what 'croupier survey results "
            f"--json' printed ({type(error).__name__}: {error})"
        ) from error
