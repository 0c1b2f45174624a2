"""Turns that end otherwise than by everybody's answer, and clients who would have a round end so: each is performed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from client.submission import Sealed
from protocol.onion import Onion
from tests.turns.support import laid, people, settings, task

pytestmark = pytest.mark.asyncio


async def test_two_clients_with_the_same_answer_are_one_answer_and_stop_no_round(tmp_path: Path) -> None:
    """Reproduction: hop 1 counted both, the analyzer had learnt from one, and nothing was published."""
    async with laid(tmp_path) as table:
        group = people(8)
        terms = await table.gather(group, settings(task(), needed=6))
        copied = Onion(terms).wrap_answer(np.array([0, 0, 1], dtype="<f4").tobytes())
        for name in list(group)[:2]:
            table.outbox.keep(f"answers/{terms.round_id}", {name: Sealed(copied, b"")})
        taken = await table.take(terms, group)
        assert (taken.report.num_answers, taken.report.num_skipped) == (7, 1)
        publication, certificate = await table.result(terms)
        assert publication.num_reports == certificate.num_answers == 7
        assert certificate.dishonest == 1
