"""A report on answered questions for people who were not there: one HTML page without scripts, which prints.

The page holds everything itself, downloads included, and loads nothing. All texts come from others and are escaped by
the template; a content security policy allows the page's own style and no script.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict

from croupier.accountant.basic_composition import weakest
from croupier.accountant.certificate import Certificate
from croupier.accountant.composed_certificates import compose, worst_cases
from croupier.accountant.guarantees import Guarantee
from croupier.accountant.guessing import right_at_most
from croupier.protocol.rounding import percent, round_up
from croupier.protocol.shown import sanitize_for_display
from croupier.protocol.statements import to_prose
from croupier.protocol.texts import describe_device_step
from croupier.show.cross_tables import cross_table_lines, sum_numbers, within_numbers, written_share
from croupier.show.csv_file import result_csv
from croupier.show.estimates import hop_line, precision_line, result_remarks
from croupier.show.statistics import Number, Statistic, differences, halving_lines, statistic
from croupier.show.views.published_results import NumberView, ResultView

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATES = Path(__file__).parent / "templates"
_AXES = (0.02, 0.05, 0.1, 0.2, 0.5)
"""Possible ends of the axis of a histogram, else 1: round numbers whose half is round as well."""
_UNNAMED = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class ReportRound:
    """A round in a report.

    Attributes:
        result: `publication_json`.
        group: the people of this round, if others answered the same question in another one; or "".
        signed: the document signed by the analyzer, if it is known.
    """

    result: ResultView
    group: str = ""
    signed: bytes = b""


class _Row(TypedDict):
    """A number in a chart: its text, and the positions of its bar and its intervals between 0 and 100.

    A noisy number is from a result that cannot be used: the chart shows its intervals, and no estimate.
    """

    label: str
    estimate: str
    sentence: str
    at: float
    participants: tuple[float, float]
    population: tuple[float, float] | None
    noisy: bool


class _TableView(TypedDict):
    """A cross table: its cells in per cent, and for each of its rows the shares within it as a chart."""

    group: str
    questions: list[str]
    columns: list[str]
    rows: list[tuple[str, list[str]]]
    within: list[tuple[str, list[_Row]]]
    lines: list[str]


class _QuestionView(TypedDict):
    """A question with its chart and sentences."""

    title: str
    question: str
    help_text: str
    language: str
    about: str
    people: str
    is_share: bool
    rows: list[_Row]
    scale: list[str]
    histograms: list[tuple[str, list[_Row], list[str]]]
    sums: list[_Row]
    tables: list[_TableView]
    verdicts: list[str]
    remarks: list[str]
    differences: list[tuple[str, bool]]
    halving: list[str]
    refusals: list[str]


class _FiguresView(TypedDict):
    """A guarantee, and how often a guess is right at most; "delta" is empty where it is 0."""

    right: str
    epsilon: str
    delta: str
    grade: str


class _CostView(TypedDict):
    """The cost of a round for a person, in a row of a table; "hop" is None without hop noise."""

    about: str
    people: str
    shuffled: _FiguresView
    hop: _FiguresView | None
    alone: _FiguresView


class _TogetherView(TypedDict):
    """The total cost of all rounds for a person; if no ε is proved, only "rounds" is given."""

    rounds: int
    shuffled: NotRequired[_FiguresView]
    hop: NotRequired[_FiguresView | None]
    alone: NotRequired[_FiguresView]
    assumptions: NotRequired[list[str]]


class _FileView(TypedDict):
    """A file inside the page."""

    name: str
    what: str
    uri: str


class _RoundView(TypedDict):
    """A round with the files that can be downloaded from the page itself."""

    round_id: str
    file: str
    files: list[_FileView]
    signed: bool


def report_of(
    title: str,
    rounds: Sequence[ReportRound],
    *,
    introduction: Sequence[str] = (),
    verified: str = "",
    language: str = "",
    fixed_terms: bool = False,
) -> str:
    """Returns the page.

    Args:
        title: above everything.
        rounds: in the order of the questions; at least one. Rounds with different groups that ask the same question
            are compared; their people must be different ones.
        introduction: paragraphs below the title.
        verified: the deployment whose keys all signatures were verified with; "" if that has not been done, which the
            page then says.
        language: of the wordings; the first one of a question without a wording in it.
        fixed_terms: all rounds were planned before the first result, like those of a survey.

    Raises:
        ValueError: no round, or a document that is not that of a result.
        ImportError: jinja2 is missing; the extra 'report' has it.
    """
    if not rounds:
        raise ValueError("the report has no round; name at least one")
    ids = [report_round.result["round_id"] for report_round in rounds]
    if len(set(ids)) < len(ids):
        twice = next(round_id for round_id in ids if ids.count(round_id) > 1)
        raise ValueError(
            f"round {twice!r} is named twice; each is reported once, and groups must hold different people"
        )
    clean = [
        ReportRound(
            sanitize_for_display(report_round.result), sanitize_for_display(report_round.group), report_round.signed
        )
        for report_round in rounds
    ]
    read = [(report_round, statistic(report_round.result, language)) for report_round in clean]
    questions: dict[object, list[tuple[ReportRound, Statistic]]] = {}
    for place, (report_round, summary) in enumerate(read):
        # The same labels and scale: a round with others has another question, whatever its name.
        key = (
            (summary.name, summary.question, summary.about, *(n.label for n in summary.numbers))
            if report_round.group
            else place
        )
        questions.setdefault(key, []).append((report_round, summary))
    certified = [
        (report_round, summary, _certificate(report_round.result))
        for report_round, summary in read
        if report_round.result["certificate"]["granted"]
    ]
    views = [_question(group) for group in questions.values()]
    repeated = views[0]["remarks"] if len(views) > 1 else []
    common = [line for line in repeated if all(line in view["remarks"] for view in views)]
    for view in views:
        view["remarks"] = [line for line in view["remarks"] if line not in common]
    style = (_TEMPLATES / "report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return _template().render(
        title=sanitize_for_display(title),
        introduction=sanitize_for_display([*introduction]),
        verified=sanitize_for_display(verified),
        style=style,
        style_digest=digest,
        level=next((f"{100 * summary.level:g} %" for _, summary in read if summary.level), "95 %"),
        questions=views,
        remarks=common,
        devices=list(dict.fromkeys(_device(report_round.result) for report_round, _, _ in certified)),
        costs=[_cost(report_round, summary, certificate) for report_round, summary, certificate in certified],
        together=_together(
            [(report_round.group, certificate) for report_round, _, certificate in certified], fixed_terms
        ),
        assumptions=list(dict.fromkeys(to_prose(line) for _, _, summary in certified for line in summary.assumptions)),
        rounds=[_round(report_round) for report_round, _ in read],
    )


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(_TEMPLATES)
    return Environment(
        autoescape=True, loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).get_template("report.html")


def _certificate(result: ResultView) -> Certificate:
    certificate = Certificate.from_json(result["certificate"])
    certificate.check_not_refuted()
    return certificate


def _question(group: list[tuple[ReportRound, Statistic]]) -> _QuestionView:
    about, several = group[0][1], len(group) > 1
    rows: list[_Row] = []
    ends = _ends([summary for _, summary in group])
    for index in range(len(about.numbers)):
        for report_round, summary in group:
            number = summary.numbers[index]
            label = " · ".join(part for part in (number.label, report_round.group) if part)
            row = _row(summary, number, label, ends, f"{report_round.group}: " if several else "")
            rows.append(row | {"noisy": bool(precision_line(report_round.result))})
    for report_round, summary in group:
        for number in summary.details:
            label = " · ".join(part for part in (number.label, report_round.group) if part)
            row = _row(summary, number, label, ends, f"{report_round.group}: " if several else "")
            rows.append(row | {"noisy": bool(precision_line(report_round.result))})
    groups = [report_round.group for report_round, _ in group]
    named = [(f"{report_round.group}: " if several else "", report_round.result) for report_round, _ in group]
    verdicts: list[str] = []
    remarks: list[str] = []
    refusals: list[str] = []
    halved: dict[str, list[str]] = {}
    for name, result in named:
        if not result["certificate"]["granted"]:
            refusals += [f"{name}{why['text']}" for why in result["certificate"]["refusals"]]
            continue
        if result["sealed"]:
            remarks.append(f"{name}the result is sealed to its collector, whose key opens it.")
            continue
        for line in result_remarks(result):
            is_verdict = line == precision_line(result)
            is_hops = line == hop_line(result)
            said = hop_line(result, about.at_most(result["hop_influence"] or 0.0)) if is_hops else line
            (verdicts if is_verdict else remarks).append(f"{name}{_as_sentence(said)}")
        for line in halving_lines(result):
            halved.setdefault(line, []).append(name.removesuffix(": "))
    compared = differences([(report_round.group, summary) for report_round, summary in group]) if several else []
    return {
        "title": about.title,
        "question": "" if about.question == about.title else about.question,
        "help_text": about.help_text,
        "language": about.language or "en",
        "about": about.about,
        "people": " and ".join(
            f"{f'{report_round.group}: ' if several else ''}{summary.people:,}" for report_round, summary in group
        ),
        "is_share": about.is_share,
        "rows": rows,
        "scale": _scale(about, ends) if rows else [],
        "histograms": [
            (report_round.group, *_histogram(summary)) for report_round, summary in group if summary.histogram
        ],
        "sums": [row for name, result in named for row in _sums(about, result, name)],
        "tables": [
            _table(about, result, group) for group, (_, result) in zip(groups, named, strict=True) if "table" in result
        ],
        "verdicts": verdicts,
        "remarks": remarks,
        "differences": [(difference.sentence(about), difference.is_seen) for difference in compared],
        "halving": [f"{', '.join(names)}: {line}" if several else line for line, names in halved.items()],
        "refusals": refusals,
    }


def _as_sentence(remark: str) -> str:
    return f"{remark[:1].upper()}{remark[1:].rstrip('.')}."


def _ends(summaries: Sequence[Statistic]) -> tuple[float, float]:
    """Returns the ends of a chart: those of the possible range, or of all intervals if it is unknown."""
    if summaries[0].scale is not None:
        return summaries[0].scale
    numbers = [number for summary in summaries for number in summary.numbers]
    ends = [
        end for number in numbers for interval in (number.participants, number.population or ()) for end in interval
    ]
    return (min(ends), max(ends)) if ends else (0.0, 1.0)


def _row(summary: Statistic, number: Number, label: str, ends: tuple[float, float], name: str) -> _Row:
    low, high = ends

    def place(value: float) -> float:
        return round(100 * min(1.0, max(0.0, (value - low) / (high - low))), 2) if high > low else 50.0

    def both(interval: tuple[float, float]) -> tuple[float, float]:
        return place(interval[0]), place(interval[1])

    return {
        "label": label or "mean",
        "estimate": summary.estimate(number),
        "sentence": f"{name}{summary.sentence(number)}".replace(" %", "\N{NO-BREAK SPACE}%"),
        "at": place(number.estimate),
        "participants": both(number.participants),
        "population": None if number.population is None else both(number.population),
        "noisy": False,
    }


def _histogram(summary: Statistic) -> tuple[list[_Row], list[str]]:
    """Returns a bar for each level, the share of people on it, and the marks of the axis, which ends at a round number.

    The axis has room for the largest end of an interval.
    """
    shares = replace(summary, is_share=True)
    largest = max(number.participants[1] for number in summary.histogram)
    most = next((end for end in _AXES if largest <= end), 1.0)
    rows = [
        _row(shares, number, f"{number.label} {summary.unit}".strip(), (0.0, most), "") for number in summary.histogram
    ]
    return rows, [f"{100 * mark:g} %" for mark in (0.0, most / 2, most)]


def _beside(summary: Statistic, number: NumberView, name: str = "") -> _Row:
    """Returns a share that was computed from the shares of a result."""
    low, high = number.interval
    ends = (low, high), None if number.population is None else (number.population[0], number.population[1])
    if not all(map(math.isfinite, (number.estimate, number.projected, *number.interval, *(number.population or ())))):
        raise ValueError(f"a share of “{number.label}” is not finite")
    moved = None if number.is_possible else number.estimate
    shown = Number(number.label, number.shown, moved, *ends, number.standard_error)
    return _row(summary, shown, number.label, (0.0, 1.0), name)


def _sums(summary: Statistic, result: ResultView, name: str) -> list[_Row]:
    shares = replace(summary, is_share=True, people=result["num_reports"])
    with _reading(result):
        return [_beside(shares, number, name) for number in sum_numbers(result.get("sums", []))]


def _table(summary: Statistic, result: ResultView, group: str) -> _TableView:
    """Returns the cross table of a result; the sentences below its bars are about the people of one row."""
    shares = replace(summary, is_share=True)
    with _reading(result):
        table = result["table"]
        within: list[tuple[str, list[_Row]]] = []
        for row, numbers in within_numbers(table):
            drawn: list[_Row] = []
            for number in numbers:
                bar = _beside(shares, number)
                low, high = number.interval
                least, most = number.population or (0.0, 1.0)
                own, whole = shares.interval((low, high)), shares.interval((least, most))
                sentence = f"{own} of those who took part and answered “{row}”, and {whole} in the population."
                drawn.append(bar | {"sentence": sentence.replace(" %", "\N{NO-BREAK SPACE}%")})
            within.append((row, drawn))
        totals = [written_share(share["projected"]) for share in table["column_shares"]]
        rows = [
            (row, [*map(written_share, cells), written_share(margin["projected"])])
            for row, cells, margin in zip(table["rows"], table["cells"], table["row_shares"], strict=True)
        ]
        return {
            "group": group,
            "questions": table["questions"],
            "columns": table["columns"],
            "rows": [*rows, ("all", [*totals, "100.0"])],
            "within": within,
            "lines": [f"{line[0].upper()}{line[1:]}." for line in cross_table_lines(table)],
        }


@contextmanager
def _reading(result: ResultView) -> Iterator[None]:
    """Refuses with a sentence a table or sums that anyone may have written into a file."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, ArithmeticError) as error:
        raise ValueError(
            f"the table or the sums of {result['round_id']} cannot be read; they must be what 'croupier survey results "
            f"--json' printed ({type(error).__name__}: {error})"
        ) from error


def _scale(summary: Statistic, ends: tuple[float, float]) -> list[str]:
    """Returns the text below a chart: five marks of a share, else the ends of the range and their meaning."""
    if summary.is_share:
        return [f"{mark} %" for mark in (0, 25, 50, 75, 100)]
    marks = [f"{end:g}".replace("-", "−") + (f" {summary.unit}" if summary.unit else "") for end in ends]
    return [f"{mark} ({meaning})" if meaning else mark for mark, meaning in zip(marks, summary.ends, strict=True)]


def _device(result: ResultView) -> str:
    kind = result["certificate"].get("randomizer", "").partition("(")[0]
    return describe_device_step(kind, "the person's", records=0) or "randomizes the person's answer"


def _cost(report_round: ReportRound, summary: Statistic, certificate: Certificate) -> _CostView:
    hop = certificate.one_honest_hop
    return {
        "about": " · ".join(part for part in (summary.title, report_round.group) if part),
        "people": f"{certificate.num_users:,}",
        "shuffled": _figures(certificate),
        "hop": None if hop is None else _figures(hop),
        "alone": _figures(certificate.everyone_else_colludes),
    }


def _figures(guarantee: Certificate | Guarantee) -> _FiguresView:
    return {
        "right": percent(right_at_most(guarantee.epsilon, guarantee.delta)),
        "epsilon": round_up(guarantee.epsilon, 4),
        "delta": round_up(guarantee.delta, 3) if guarantee.delta else "",
        "grade": str(guarantee.grade),
    }


def _together(certified: Sequence[tuple[str, Certificate]], fixed_terms: bool) -> _TogetherView | None:
    """Returns the total cost of all rounds for a person in one group with all answers; None for one round each."""
    groups = sorted({group for group, _ in certified if group}) or [""]
    of_groups = [[certificate for group, certificate in certified if group in ("", name)] for name in groups]
    of_groups = [mine for mine in of_groups if len(mine) > 1]
    if not of_groups:
        return None
    rounds = max(map(len, of_groups))
    try:
        composed = [compose(mine, fixed_terms=fixed_terms) for mine in of_groups]
    except ValueError:  # more is lost with certainty than a delta allows
        return {"rounds": rounds}
    cases = [worst_cases(mine) for mine in of_groups]
    has_hop_noise = any(case.one_honest_hop for case in cases)
    return {
        "rounds": rounds,
        "shuffled": _figures(weakest(composed)),
        "hop": _figures(weakest(c.one_honest_hop or c.no_honest_hop for c in cases)) if has_hop_noise else None,
        "alone": _figures(weakest(case.no_honest_hop for case in cases)),
        "assumptions": [to_prose(line) for line in composed[0].assumptions[-1:]],
    }


def _round(report_round: ReportRound) -> _RoundView:
    """Returns a round's id, and its files as they can be downloaded from the page itself."""
    result = report_round.result
    name = _UNNAMED.sub("_", result["round_id"])[:100]
    files: list[_FileView] = [
        _file(f"{name}.json", "result and certificate", "application/json", json.dumps(result, indent=1).encode())
    ]
    if result["certificate"]["granted"] and not result["sealed"]:
        files.append(_file(f"{name}.csv", "table for spreadsheets", "text/csv", result_csv(result).encode()))
    if report_round.signed:
        files.append(_file(f"{name}.signed", "signed document", "application/octet-stream", report_round.signed))
    return {"round_id": result["round_id"], "file": name, "files": files, "signed": bool(report_round.signed)}


def _file(name: str, what: str, kind: str, content: bytes) -> _FileView:
    return {"name": name, "what": what, "uri": f"data:{kind};base64,{base64.b64encode(content).decode()}"}
