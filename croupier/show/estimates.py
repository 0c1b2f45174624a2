"""Estimates in the terminal: tables of results, and remarks beside them.

Each is made from the JSON document that the same command prints with `--json`.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from croupier.protocol.rounding import round_up
from croupier.show.distribution import shares_of, statistics_of
from croupier.show.text import note_lines
from croupier.show.views.demonstration import DemoView
from croupier.show.views.published_results import Precision, ResultView, level_of, numbers_of

_MOST_LEVELS = 40
"""Levels of a histogram that are printed."""
_FEW_ROUNDS = 4
"""A remark on more rounds than these, and on all of them, is not followed by their names."""


def answers_table(result: DemoView) -> Table:
    """Returns the truth and the estimate of each question of a demonstration."""
    table = Table(title="what the analyzer learned")
    impossible = any(_is_impossible(question) for question in result["questions"])
    last = ["nearest possible"] if impossible else []
    first = result["questions"][0]
    of_these, of_population = _interval_headings(first)
    for heading in ("question", "truth", "estimate ± standard error", of_these, of_population, *last):
        table.add_column(heading, justify="left" if heading == "question" else "right", overflow="fold")
    table.caption = _misses(first)
    for question in result["questions"]:
        truths = question["truth"] if isinstance(question["truth"], list) else [question["truth"]]
        for truth, number in zip(truths, numbers_of(question), strict=True):
            table.add_row(
                f"{question['name']} = {number.label}" if number.label else question["name"],
                f"{truth:.4f}",
                f"{number.estimate:.4f} ± {number.standard_error:.4f}",
                _interval(number.interval, ".4f"),
                _interval(number.population, ".4f"),
                *([f"{number.shown:.4f}"] if impossible else []),
            )
        table.add_section()
    return table


def estimates_table(result: ResultView) -> Table:
    """Returns a published result: each estimate with its standard error and intervals."""
    # A histogram has a line for every category; a share and a mean are one number without a name.
    numbers, labelled = numbers_of(result), bool(result["labels"])
    impossible = _is_impossible(result)
    of_these, of_population = _interval_headings(result)
    drawn = bool(numbers) and numbers[0].population is not None  # a result of an earlier version has none
    headings = [*(["category"] if labelled else []), "estimate", "± standard error", of_these]
    headings += [of_population] if drawn else []
    table = Table(*headings, *(["nearest possible"] if impossible else []))
    table.caption = _misses(result) if result["confidence_level"] else None
    for number in numbers:
        cells = [f"{number.estimate:.5g}", f"{number.standard_error:.2g}", _interval(number.interval, ".5g")]
        cells += [_interval(number.population, ".5g")] if drawn else []
        cells += [f"{number.shown:.5g}"] if impossible else []
        table.add_row(*([number.label] if labelled else []), *cells)
    return table


def distribution_tables(result: ResultView) -> list[Table]:
    """Returns the numbers beside a mean on ordered levels, and the histogram; none if a result has none."""
    of_these, of_population = _interval_headings(result)
    if not (statistics := statistics_of(result)):
        return []
    numbers = Table("of these numbers", "estimate", of_these, of_population)
    for number in statistics:
        name = number.label.replace("quantile", "of people: at most")
        ends = _interval(number.interval, ".5g"), _interval(number.population, ".5g")
        numbers.add_row(name, f"{number.estimate:.5g}", *ends)
    histogram = Table(
        "level", "share of people", "± standard error", of_these, of_population, title="histogram, smoothed"
    )
    shares = shares_of(result)
    for number in shares[:_MOST_LEVELS]:
        ends = _interval(number.interval, ".4f"), _interval(number.population, ".4f")
        histogram.add_row(number.label, f"{number.projected:.4f}", f"{number.standard_error:.2g}", *ends)
    left = f"; {len(shares) - _MOST_LEVELS} more levels are in --json" if len(shares) > _MOST_LEVELS else ""
    histogram.caption = f"a number between two levels counts on both, in parts{left}"
    return [numbers, histogram]


def _interval(ends: Sequence[float] | None, written: str) -> str:
    return "" if ends is None else f"[{', '.join(format(end, written) for end in ends)}]"


def _interval_headings(result: ResultView) -> tuple[str, str]:
    """Returns the headings of the two intervals of a result."""
    level = f"{100 * level_of(result):g} % interval"
    return f"{level}: these people", f"{level}: population"


def _misses(result: ResultView) -> str:
    """Returns the error rate of an interval, and the condition of the one for the population."""
    level = level_of(result)
    return (
        f"one {100 * level:g} % interval in {1 / (1 - level):.3g} misses the truth; 'population' is the one that these "
        "people are drawn from at random"
    )


def _is_impossible(result: ResultView) -> bool:
    """Returns whether an estimate of a result lies outside its range."""
    return not all(number.is_possible for number in numbers_of(result))


def data_notes_of(result: ResultView) -> list[str]:
    """Returns the sentences on the file behind a demonstration or simulation; else nothing."""
    notes: object = result.get("data_notes")
    return [str(note) for note in notes] if isinstance(notes, list) else []


def notes_of(result: ResultView) -> list[str]:
    """Returns the notes of the analyzer beside a result, a sentence each."""
    return [note["text"] for note in result["notes"]]


def result_remarks(result: ResultView) -> list[str]:
    """Returns the remarks on a published result, a line each."""
    lines = (
        precision_line(result),
        *note_lines(result["certificate"]["notes"]),
        clamping_line(result),
        hop_line(result),
        *notes_of(result),
    )
    return [line for line in (*lines, *data_notes_of(result)) if line]


def remarks(result: DemoView) -> list[str]:
    """Returns the remarks on the answers of a demonstration, each once."""
    about: dict[str, list[str]] = {}
    for question in result["questions"]:
        limits = filter(None, (precision_line(question), hop_line(question)))
        for line in (*limits, *notes_of(question), *data_notes_of(question)):
            about.setdefault(line, []).append(question["name"])
    every = len(result["questions"]) if len(result["questions"]) > _FEW_ROUNDS else 0
    return [f"{'every round' if len(names) == every else '; '.join(names)}: {line}" for line, names in about.items()]


def precision_line(result: ResultView) -> str:
    """Returns a sentence on a result that is too noisy to use; "" if it can be used."""
    if result["precision"] == Precision.COVERS_RANGE:
        return (
            f"TOO NOISY TO USE: the {100 * level_of(result):g} % interval is longer than half of the "
            "possible range; ask more people, or allow larger budgets"
        )
    if result["precision"] == Precision.HIDES_SHARES:
        numbers = numbers_of(result)
        error, share = max(number.standard_error for number in numbers), max(number.projected for number in numbers)
        absent = all(number.interval[0] <= 0 for number in numbers)
        why = "no category can be told from an absent one: the" if absent else "the nearest possible value of the"
        return (
            f"TOO NOISY TO USE: {why} largest share is {share:.2g}, and the standard error up to {error:.2g}; ask more "
            "people or about fewer categories, or allow larger budgets"
        )
    return ""


def clamping_line(result: ResultView) -> str:
    """Returns the limit on the influence of one report, or "" if no report can be large."""
    clamping = result["clamping"]
    if clamping is None:
        return ""
    return (
        f"{clamping['num_clamped']:,} of {result['num_reports']:,} reports were outside [{clamping['low']:.5g}, "
        f"{clamping['high']:.5g}] and count as its ends; this moves the mean by at most {clamping['bias']:.2g}, "
        f"and one false report by at most {clamping['influence']:.2g}"
    )


def hop_line(result: ResultView, moved: str = "") -> str:
    """Returns the largest effect of one dishonest hop's fake reports on an estimate; "" without hop noise.

    Args:
        result: the published result.
        moved: the hop influence in the units of the page; by default in the unit of the estimate.
    """
    influence = result.get("hop_influence")
    if not influence:
        return ""
    what, beside, distribution = "an estimate", "", result.get("distribution")
    if distribution is not None and distribution["hop_influence"]:
        share = round_up(100 * distribution["hop_influence"], 3)
        what, beside = "the mean", f", and the share of people on some of the levels by at most {share} points,"
    return (
        "every hop has added fake reports, which are subtracted on average, and which intervals allow for; a dishonest "
        f"hop could have moved {what} by at most {moved or round_up(influence, 3)}{beside} with its own. A round "
        "without hop noise has no fake reports; its guarantee then needs honest participants and an honest accountant"
    )
