"""Roles are made of parts: no deep classes, and one table that says what a role does in each state."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from croupier.protocol.v1 import messages_pb2 as pb
from tests.support.arena import arena

_PAGE = Path(__file__).parents[2] / "docs" / "life-of-a-round.md"
_ROW = re.compile(r"^\| (shuffler|accountant|analyzer) \| ([A-Z]+) \| `(\w+)` \|", re.MULTILINE)


@pytest.mark.virtual_time
async def test_the_page_has_the_tables_of_states(tmp_path: Path) -> None:
    written: dict[str, dict[str, str]] = {}
    for role, state, method in _ROW.findall(_PAGE.read_text(encoding="utf-8")):
        written.setdefault(role, {})[state] = method
    async with arena(tmp_path, 1) as at:
        for role, steps in written.items():
            engine = at.service("shuffler-1" if role == "shuffler" else role).engine
            names = {state: getattr(step, "__name__", "") for state, step in engine.steps.items()}
            assert {
                pb.RoundState.Name(state).removeprefix("ROUND_STATE_"): name for state, name in names.items()
            } == steps
    assert len(written) == 3
