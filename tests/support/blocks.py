"""What a terminal shows of blocks."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType

from croupier.show.blocks import Block
from croupier.show.terminal import drawn


def shown(*blocks: Block | RenderableType, width: int = 160) -> str:
    """Returns blocks as a terminal of this width prints them."""
    console = Console(file=io.StringIO(), width=width, markup=False)
    for block in blocks:
        drawing = drawn(block)
        console.print(drawing, soft_wrap=bool(getattr(drawing, "no_wrap", False)))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def words_of(*blocks: Block | RenderableType, width: int = 160) -> str:
    """Returns what is shown with single spaces."""
    return " ".join(shown(*blocks, width=width).split())
