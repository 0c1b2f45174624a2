"""Every kind of block says the same in a terminal and in HTML."""

from __future__ import annotations

import re
from typing import get_args

import pytest

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
from croupier.show.html import html
from tests.support.blocks import words_of


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
