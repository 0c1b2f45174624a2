"""Estimates in the terminal: tables of results, and what has to be said beside them.

Each is made from the JSON document that the same command prints with `--json`.
"""

from __future__ import annotations

from typing import Any

from rich.table import Table

from croupier.protocol.rounding import round_up
from croupier.show.text import delta_too_large

__all__ = [
    "answers_table",
    "clamping_line",
    "estimates_table",
    "merging_line",
    "notes_of",
    "precision_line",
    "remarks",
    "result_remarks",
]

_FEW_ROUNDS = 4
"""A remark on more rounds than these, and on all of them, is not followed by their names."""


def answers_table(result: dict[str, Any]) -> Table:
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
        projected = _listed(question["projected"])
        truths, estimates = _listed(question["truth"]), _listed(question["estimate"])
        errors, labels = _listed(question["standard_error"]), question["labels"] or [""]
        intervals, populations = (
            question[key] if len(truths) > 1 else [question[key]]
            for key in ("confidence_interval", "population_interval")
        )
        for index, truth in enumerate(truths):
            table.add_row(
                f"{question['name']} = {labels[index]}" if len(truths) > 1 else question["name"],
                f"{truth:.4f}",
                f"{estimates[index]:.4f} ± {errors[index]:.4f}",
                "[{:.4f}, {:.4f}]".format(*intervals[index]),
                "[{:.4f}, {:.4f}]".format(*populations[index]),
                *([f"{projected[index]:.4f}"] if impossible else []),
                end_section=index == len(truths) - 1,
            )
    return table


def estimates_table(result: dict[str, Any]) -> Table:
    """Returns a published result: each estimate with its standard error and intervals."""
    # A histogram has a line for every category; a share and a mean are one number without a name.
    labels = result["labels"]
    impossible = _is_impossible(result)
    intervals, populations = (
        result[key] if labels else [result[key]] for key in ("confidence_interval", "population_interval")
    )
    of_these, of_population = _interval_headings(result)
    drawn = bool(populations) and populations[0] is not None  # a result of an earlier version has none
    headings = [*(["category"] if labels else []), "estimate", "± standard error", of_these]
    headings += [of_population] if drawn else []
    table = Table(*headings, *(["nearest possible"] if impossible else []))
    table.caption = _misses(result) if result["confidence_level"] else None
    for index, estimate in enumerate(_listed(result["estimate"])):
        low, high = intervals[index]
        cells = [f"{estimate:.5g}", f"{_listed(result['standard_error'])[index]:.2g}", f"[{low:.5g}, {high:.5g}]"]
        cells += ["[{:.5g}, {:.5g}]".format(*populations[index])] if drawn else []
        cells += [f"{_listed(result['projected'])[index]:.5g}"] if impossible else []
        table.add_row(*([labels[index]] if labels else []), *cells)
    return table


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _interval_headings(result: dict[str, Any]) -> tuple[str, str]:
    """Returns the headings of the two intervals of a result."""
    level = f"{100 * result['confidence_level']:g} % interval"
    return f"{level}: these people", f"{level}: population"


def _misses(result: dict[str, Any]) -> str:
    """Returns how often an interval is wrong, and when the one for the population holds."""
    level = result["confidence_level"]
    return (
        f"one {100 * level:g} % interval in {1 / (1 - level):.3g} misses the truth; 'population' is the one that these "
        "people are drawn from at random"
    )


def _is_impossible(result: dict[str, Any]) -> bool:
    """Returns whether an estimate of a result is not the nearest possible value."""
    pairs = zip(_listed(result["estimate"]), _listed(result["projected"]), strict=True)
    return any(abs(estimate - projected) > 1e-9 * (1 + abs(estimate)) for estimate, projected in pairs)


def notes_of(result: dict[str, Any]) -> list[str]:
    """Returns the notes of the analyzer beside a result, a sentence each."""
    return [note["text"] for note in result["notes"]]


def result_remarks(result: dict[str, Any]) -> list[str]:
    """Returns what has to be said about a published result beside its numbers, a line each."""
    certificate = result["certificate"]
    beware = delta_too_large(certificate["delta"], certificate["num_users"])
    lines = (precision_line(result), beware, clamping_line(result), merging_line(result), *notes_of(result))
    return [line for line in lines if line]


def remarks(result: dict[str, Any]) -> list[str]:
    """Returns what has to be said about the answers of a demonstration, each remark once."""
    about: dict[str, list[str]] = {}
    for question in result["questions"]:
        noisy = precision_line(question)
        for line in (*([noisy] if noisy else []), *notes_of(question), *question["data_notes"]):
            about.setdefault(line, []).append(question["name"])
    every = len(result["questions"]) if len(result["questions"]) > _FEW_ROUNDS else 0
    return [f"{'every round' if len(names) == every else '; '.join(names)}: {line}" for line, names in about.items()]


def precision_line(result: dict[str, Any]) -> str:
    """Returns a sentence on a result that is too noisy to use; "" where it can be used."""
    if result["precision"] == "covers range":
        return (
            f"TOO NOISY TO USE: the {100 * result['confidence_level']:g} % interval is longer than half of the "
            "possible range; ask more people, or allow larger budgets"
        )
    if result["precision"] == "hides shares":
        error, share = max(_listed(result["standard_error"])), max(_listed(result["projected"]))
        return (
            f"TOO NOISY TO USE: twice the standard error, {2 * error:.2g}, is more than the largest share, "
            f"{share:.2g}, so that no category can be told from an absent one; ask more people or about fewer "
            "categories, or allow larger budgets"
        )
    return ""


def clamping_line(result: dict[str, Any]) -> str:
    """Returns what limits the influence of one report, or "" where no report can be large."""
    clamping = result["clamping"]
    if clamping is None:
        return ""
    return (
        f"{clamping['num_clamped']:,} of {result['num_reports']:,} reports were outside [{clamping['low']:.5g}, "
        f"{clamping['high']:.5g}] and count as its ends; this moves the mean by at most {clamping['bias']:.2g}, "
        f"and one false report by at most {clamping['influence']:.2g}"
    )


def merging_line(result: dict[str, Any]) -> str:
    """Returns what merged tiers do to an estimate, or "" where that is nothing."""
    if not result["merging_bias"]:
        return ""
    return (
        f"budgets used by fewer than {result['certificate']['merged_below']:,} clients are counted with larger ones; "
        f"this moves an estimate by at most {round_up(result['merging_bias'], 3)}, which intervals allow for"
    )
