"""Turns that end otherwise than by everybody's answer, and clients who would have a round end so: each is performed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from client.fleet import run_fleet
from client.submission import Participant, Sealed
from protocol.identity import sign_submission
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


async def test_who_joined_without_a_budget_hides_nobody_by_answering(tmp_path: Path) -> None:
    """Reproduction: two clients whose submissions do not open answered in the place of two who had vanished."""
    async with laid(tmp_path) as table:
        group = people(14)
        terms = await table.operator.open_round(settings(task(), needed=8))
        junk = {name: os.urandom(Onion(terms).joint.sealed_size) for name in list(group)[:2]}
        signed = {name: sign_submission(terms.round_id, one, group[name].key) for name, one in junk.items()}
        table.outbox.keep(terms.round_id, {name: Sealed(one.SerializeToString(), b"") for name, one in signed.items()})
        users = {name: Participant(None, one.wish, one.key) for name, one in group.items()}
        report = await run_fleet(
            table.channel, terms, users, outbox=table.outbox, pool=table.pool, enrol=table.operator.enrol
        )
        assert report.accepted == 14
        await table.operator.close_round(terms.round_id)
        taken = await table.take(terms, dict(list(group.items())[:12]))
        _, certificate = await table.result(terms)
        assert (taken.report.num_answers, certificate.num_users) == (12, 12)
        assert certificate.dishonest == 2  # of the twelve with a budget, ten have answered
