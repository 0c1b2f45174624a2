"""Every kind of block says the same in a terminal and in HTML; the lines of drawings lie where the numbers are."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest

from croupier.accountant import privacy_profile
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.questions import Question
from croupier.show.blocks import (
    Bar,
    Bars,
    Block,
    Curve,
    Folded,
    Heading,
    Line,
    Points,
    Section,
    Sentence,
    Table,
    Tone,
)
from croupier.show.html import STATIC, html
from croupier.show.numbers import Precision
from croupier.show.profile import profile_blocks
from croupier.show.results import result_blocks
from tests.support.blocks import words_of
from tests.support.messages import naming
from tests.support.results import result_of


def numbers() -> Table:
    table = Table("who", "share", title="People", caption="Of all.")
    table.row("women", "51 %")
    table.end_group()
    table.row("men", "49 %")
    return table


BAR = Bar("yes", "31 %", "1.5 %", "", "28 to 34 %", "27 to 35 %", "", 0.31, (0.28, 0.34), (0.27, 0.35))
BLOCKS: list[tuple[Block, list[str]]] = [
    (Heading("Results"), ["Results"]),
    (Sentence("Nothing was read.", Tone.ALARM), ["Nothing was read."]),
    (Points(["one", "two"]), ["one", "two"]),
    (Section("Why", ["Because."], ["a point"], ["croupier up"]), ["Why", "Because.", "a point", "croupier up"]),
    (numbers(), ["People", "who", "share", "women", "51 %", "men", "49 %", "Of all."]),
    (Bars([BAR], ["0 %", "100 %"], filled=True, confidence=0.95), ["yes", "31 %", "1.5 %", "28 to 34 %", "27 to 35 %"]),
    (
        Curve(Line("rr", "CERTIFIED", [(0.1, 1e-2), (0.2, 1e-4)]), Line("attack", "LOWER_BOUND", []), [], numbers()),
        ["women", "51 %"],
    ),
    (Folded("This holds if", [Sentence("All are honest.")]), ["This holds if", "All are honest."]),
]


@pytest.mark.parametrize(("block", "texts"), BLOCKS, ids=lambda value: type(value).__name__)
def test_a_block_says_the_same_everywhere(block: Block, texts: list[str]) -> None:
    page = " ".join(re.sub("<[^>]*>", " ", html([block])).split())
    terminal = words_of(block)
    assert [text for text in texts if text not in page or text not in terminal] == []


def test_every_kind_of_block_is_tried() -> None:
    assert {type(block) for block, _ in BLOCKS} == set(get_args(Block))


def bars_of(result: Any) -> list[Bar]:
    return [bar for block in result_blocks(result) if isinstance(block, Bars) for bar in block.bars]


def curve_of(profile: Any) -> Curve:
    (curve,) = [block for block in profile_blocks(profile) if isinstance(block, Curve)]
    return curve


def points_of(line: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, _, y in (point.partition(",") for point in line.split())]


def test_a_share_lies_between_nothing_and_all() -> None:
    (bar,) = bars_of(result_of(Question("q", RandomizedResponse()), [(0.25, (0.2, 0.3), (0.2, 0.3))]))
    assert (bar.from_people, bar.at) == ((0.2, 0.3), 0.25)
    assert (bar.label, bar.estimate, bar.people, bar.impossible) == ("yes", "25.0 %", "20.0 to 30.0 %", "")


def test_an_impossible_estimate_is_drawn_in_its_interval() -> None:
    """Reproduction: the dot lay outside its own interval, and the scale was stretched to reach it."""
    asked = Question("q", KaryResponse(2, ("a", "b")))
    result = result_of(asked, [(-0.25, (0.0, 0.1), (0.0, 0.1)), (1.0, (0.9, 1.0), (0.9, 1.0))])
    result["projected"] = [0.0, 1.0]
    first, second = bars_of(result)
    assert (first.at, first.from_people, first.estimate, first.impossible) == (0.0, (0.0, 0.1), "0 %", "−25 %")
    assert (second.label, second.at, second.population) == ("b", 1.0, "90.0 to 100.0 %")
    assert "unbiased estimate" in words_of(*result_blocks(result))


def test_a_mean_lies_in_the_range_of_the_question_and_a_vector_nowhere() -> None:
    result = result_of(Question("q", Laplace(0.0, 20.0)), [(5.0, (4.0, 6.0), (4.0, 6.0))])
    (bar,) = bars_of(result)
    assert (bar.label, bar.estimate, bar.at, bar.noisy) == ("mean", "5.0", 0.25, False)
    (noisy,) = bars_of(result | {"precision": Precision.COVERS_RANGE})
    assert noisy.noisy
    assert bars_of(result | {"values": []}) == []


def test_a_text_in_html_is_escaped() -> None:
    assert html([Sentence("<b>", language='"')]) == '<p lang="&quot;">&lt;b&gt;</p>'


def test_the_curve_goes_through_what_is_certified_and_above_it_between() -> None:
    profile = privacy_profile({0.5: 30, 1.0: 20}, "rr", deltas=(1e-2, 1e-4, 1e-6))
    curve = curve_of(profile)
    drawn = html([curve])
    (line,) = re.findall(r'class="certified" fill="none" stroke="[^"]*" points="([^"]*)"', drawn)
    points = points_of(line)
    ticks = {text: float(y) - 6 for y, text in re.findall(r'y="([\d.]+)">(1e-\d)<', drawn)}
    assert (points[0][1], points[-1][1]) == pytest.approx((ticks["1e-2"], ticks["1e-6"]), abs=0.2)
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    middle_x, middle_y = points[len(points) // 4]
    (left, low), (right, high) = points[0], next(point for point in points if point[1] >= ticks["1e-4"])
    straight = low + (high - low) * (middle_x - left) / (right - left)
    assert middle_y < straight  # a larger delta than a straight line on this scale would claim
    assert [row[0] for row in curve.numbers.rows] == ["0.01", "0.0001", "1e-06"]
    assert all(float(attack) <= float(certified) for _, certified, attack, _ in curve.numbers.rows)
    assert {line.grade for line in curve.published} <= {"CERTIFIED", "ASYMPTOTIC", "HEURISTIC"}
    published = re.findall(r'class="published [^"]*" fill="none" stroke="[^"]*" points="([^"]*)"', drawn)
    assert len(published) == len(curve.published)
    assert all(x <= 600 for line in published for x, _ in points_of(line))


def test_no_two_published_bounds_look_the_same_and_each_is_a_line() -> None:
    """Reproduction: the seventh looked like the first, a HEURISTIC line like a CERTIFIED one."""
    profile = privacy_profile({1.0: 1000}, "rr", deltas=[1e-2, 1e-4, 1e-6])
    curve = curve_of(profile)
    assert re.search(naming("δ = 0.01", "1,000 people"), words_of(*profile_blocks(profile)))
    assert len(curve.published) > 6
    assert all(len(line.points) > 1 for line in curve.published)
    looks = re.findall(r'polyline class="published ([^"]*)"', html([curve]))
    assert len(set(looks)) == len(curve.published)
    sheet = (STATIC / "blocks.css").read_text()
    assert all(f".{name} {{" in sheet for look in looks for name in look.split())


def test_a_curve_of_one_delta_is_drawn() -> None:
    """A local delta that is not amplified is that of every point."""
    curve = curve_of(privacy_profile([(1.0, 2, 0.05)], "gaussian", deltas=[1e-2, 1e-6]))
    assert [row[0] for row in curve.numbers.rows] == ["0.05"]
    assert "polyline" in html([curve])
