"""Blocks as HTML: for reports, the console's pages and notebooks. Every text is escaped here.

Drawings have colours of their own, so that they can be read without a style sheet; `static/blocks.css` knows light and
dark. No script is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from pathlib import Path

from croupier.show.blocks import Bar, Bars, Block, Curve, Folded, Heading, Line, Points, Section, Sentence, Table, Tone
from croupier.show.language import say

STATIC = Path(__file__).parent / "static"
"""The style sheets: that of blocks, and that of the page of a report."""
_WIDTH, _HEIGHT, _LEFT, _BELOW = 600, 400, 84, 64
"""The size of a curve and the room for labels at its left and below it, in pixels."""
_TICKS = 5
"""The most intervals between the ticks of an axis."""
_LOOKS = 6
"""Colours and dashes of the style sheet, which has them once more with other dashes."""


def html(blocks: Iterable[Block], top: int = 2) -> str:
    """Returns blocks as HTML; top: the level of the largest headings."""
    return "\n".join(_html(block, top) for block in blocks)


def _html(block: Block, top: int) -> str:
    match block:
        case Heading():
            return _heading(block.text, top + block.level - 2, block.language)
        case Sentence():
            return _paragraph(block.text, block.tone, block.language)
        case Points():
            return _list(block.lines, block.tone)
        case Section():
            parts = [*([_heading(block.title, top)] if block.title else []), *map(_paragraph, block.paragraphs)]
            parts += [_list(block.points)] if block.points else []
            return "\n".join([*parts, *(f"<pre tabindex='0'>{escape(line)}</pre>" for line in block.commands)])
        case Table():
            return _table(block)
        case Bars():
            marks = "".join(f"<span>{escape(mark)}</span>" for mark in block.scale)
            scale = f'<p class="scale" aria-hidden="true">{marks}</p>' if marks else ""
            return f'<ul class="bars">{"".join(_bar(bar, block.filled) for bar in block.bars)}</ul>{scale}'
        case Curve():
            return _curve(block)
        case Folded():
            inside = html(block.blocks, top + 1)
            return f"<details><summary>{escape(block.title)}</summary>\n{inside}\n</details>"


def _heading(text: str, level: int, language: str = "") -> str:
    return f"<h{level}{_attribute('lang', language)}>{escape(text)}</h{level}>"


def _paragraph(text: str, tone: Tone = Tone.PLAIN, language: str = "") -> str:
    return f"<p{_attribute('class', tone.value)}{_attribute('lang', language)}>{escape(text)}</p>"


def _list(lines: Iterable[str], tone: Tone = Tone.PLAIN) -> str:
    return f"<ul{_attribute('class', tone.value)}>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _attribute(name: str, value: str) -> str:
    return f' {name}="{escape(value)}"' if value else ""


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.columns)
    columns = [_attribute("data-column", name) for name in table.columns]
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td{column}>{escape(cell)}</td>" for column, cell in zip(columns[1:], rest, strict=False))
        + "</tr>"
        for first, *rest in table.rows
    )
    title = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    label = escape(table.title or ", ".join(filter(None, table.columns)))
    inside = (
        f"<table>{title}{f'<thead><tr>{head}</tr></thead>' if any(table.columns) else ''}<tbody>{body}</tbody></table>"
    )
    below = _paragraph(table.caption, Tone.QUIET) if table.caption else ""
    return f'<div class="wide" tabindex="0" role="region" aria-label="{label}">{inside}</div>{below}'


def _bar(bar: Bar, filled: bool) -> str:
    at, (low, high) = _part(bar.at), map(_part, bar.from_people)
    drawn = ['<path class="ground" stroke="#a9b8c2" d="M0 8H100"/>']
    if filled and not bar.noisy:
        drawn.append(f'<rect class="bar" fill="#c9dbe7" x="0" y="1" width="{at}" height="14"/>')
    least, most = map(_part, bar.from_population)
    ends = f"M{least} 8H{most}M{least} 4V12M{most} 4V12"
    drawn.append(f'<path class="population" fill="none" stroke="#5f3b78" d="{ends}"/>')
    width = round(max(high - low, 0.3), 2)
    drawn.append(f'<rect class="people" fill="#2a6f97" x="{low}" y="5" width="{width}" height="6"/>')
    if not bar.noisy:
        drawn.append(f'<path class="estimate" stroke="#12364d" d="M{at} 1V15"/>')
    number = f"<strong>{escape(bar.estimate)}</strong>" if bar.estimate else ""
    said = say("± {error} (standard error)", error=bar.error) if bar.error else ""
    if bar.noisy:
        number, said = "", say("too noisy to use")
    if not bar.sentence:
        said = say(
            "{error}; people who took part {people}; population {population}",
            error=said,
            people=bar.people,
            population=bar.population,
        )
    if bar.truth:
        said = say("{error}; truth {truth}", error=said, truth=bar.truth)
    beside = f' <span class="small">{_whole(said)}</span>' if said else ""
    below = f'<p class="small">{_whole(bar.sentence)}</p>' if bar.sentence else ""
    box = 'viewBox="0 0 100 16" width="100%" height="24" preserveAspectRatio="none" aria-hidden="true"'
    return (
        f'<li{_attribute("class", "noisy" if bar.noisy else "")}><p class="number"><span>{escape(bar.label)}</span> '
        f"<span>{number}{beside}</span></p><svg {box}>{''.join(drawn)}</svg>{below}</li>"
    )


def _whole(text: str) -> str:
    """Returns a text as HTML, in which no line parts a number from its sign."""
    return escape(text).replace(" %", "\N{NO-BREAK SPACE}%")


def _part(position: float) -> float:
    return round(100 * position, 2)


def _curve(curve: Curve) -> str:
    """Returns delta (logarithmic) against epsilon, with a legend, and the numbers folded."""
    deltas = [delta for _, delta in curve.certified.points]
    top, bottom = math.log10(max(deltas)), math.log10(min(deltas))
    if bottom == top:  # a local delta that is not amplified
        bottom = top - 1
    lines = [curve.certified, *curve.published]
    widest = max(epsilon for line in lines for epsilon, _ in line.points)
    foot, right = _HEIGHT - _BELOW, _WIDTH - 12

    def x(epsilon: float) -> float:
        return round(_LEFT + (right - _LEFT) * epsilon / widest, 2)

    def y(delta: float) -> float:
        share: float = (top - math.log10(delta)) / (top - bottom)
        return round(12 + (foot - 12) * share, 2)

    def polyline(line: Line, look: str) -> str:
        points = " ".join(f"{x(epsilon)},{y(delta)}" for epsilon, delta in line.points)
        return f'<polyline class="{look}" fill="none" stroke="#2a6f97" points="{points}"/>'

    step = _step(widest)
    drawn = []
    for tick in range(int(widest / step + 1e-9) + 1):
        at = x(step * tick)
        drawn += [
            f'<path class="tick" stroke="#a9b8c2" d="M{at} 12V{foot}"/>',
            _label(at, foot + 28, f"{step * tick:.10g}"),
        ]
    for power in range(math.ceil(bottom - 1e-9), math.floor(top + 1e-9) + 1):
        if (power - math.floor(top + 1e-9)) % 2 == 0:
            at = y(10.0**power)
            drawn += [
                f'<path class="tick" stroke="#a9b8c2" d="M{_LEFT} {at}H{right}"/>',
                _label(_LEFT - 8, at + 6, f"1e{power}", "end"),
            ]
    drawn += [_label((_LEFT + _WIDTH) / 2, _HEIGHT - 8, "central ε"), _label(_LEFT - 20, foot + 28, "δ ↑", "end")]
    looks = [
        f"published look-{place % _LOOKS + 1}{' again' if place >= _LOOKS else ''}"
        for place in range(len(curve.published))
    ]
    drawn += [polyline(line, look) for line, look in zip(curve.published, looks, strict=True)]
    drawn.append(polyline(curve.certified, "certified"))
    drawn += [
        f'<path class="attack" stroke="#b8336a" d="M{x(epsilon) - 6} {y(delta) - 6}l12 12m0 -12l-12 12"/>'
        for epsilon, delta in curve.attacks.points
    ]
    legend = [_key(curve.certified, "certified", "M0 6H40")]
    legend += [_key(curve.attacks, "attack", "M15 1l10 10m0 -10l-10 10")] if curve.attacks.points else []
    legend += [_key(line, look, "M0 6H40") for line, look in zip(curve.published, looks, strict=True)]
    return (
        f'<svg class="curve" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="δ against ε; the numbers are in '
        f'the table below">{"".join(drawn)}</svg><ul class="legend">{"".join(legend)}</ul>'
        f"{_html(Folded(say('The numbers'), [curve.numbers]), 3)}"
    )


def _label(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text class="{anchor}" text-anchor="{anchor}" x="{x}" y="{y}">{text}</text>'


def _key(line: Line, look: str, path: str) -> str:
    drawn = f'<path class="{look}" fill="none" stroke="#2a6f97" d="{path}"/>'
    refuted = ", refuted by the attack" if line.is_refuted else ""
    svg = f'<svg viewBox="0 0 40 12" width="40" height="12" aria-hidden="true">{drawn}</svg>'
    return f'<li>{svg} {escape(line.name)} <span class="grade">{escape(line.grade)}{refuted}</span></li>'


def _step(widest: float) -> float:
    """A round number of which at most five fit."""
    power = 10.0 ** math.floor(math.log10(widest / _TICKS))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor * _TICKS >= widest * (1 - 1e-9))
