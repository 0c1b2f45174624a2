"""Rounds with budget privacy from the operator to the result: drawn once, published, kept in the ledger, deleted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import croupier_check
import pytest

from croupier.accountant.rounds.ledger import Ledger
from croupier.accountant.spending import BudgetsTold
from croupier.client.submission import Participant
from croupier.protocol.certificates import certificate_json
from croupier.protocol.codes import Assumption, Note
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.kinds import DocumentKind
from croupier.runtime.noise import truncated_laplace
from croupier.runtime.steps import StoreStep
from croupier.runtime.transaction import Transaction
from tests.support import settings
from tests.support.arena import WAIT_S
from tests.support.rounds import table
from tests.support.statements import codes

pytestmark = pytest.mark.virtual_time
NOISED = replace(settings(), budget_privacy=1.0)


@pytest.mark.parametrize(
    "crash",
    [
        StoreStep.DRAW_TIER_COUNTS,
        *(pytest.param(step, marks=pytest.mark.slow) for step in (StoreStep.ENTER_CERTIFICATE, StoreStep.FINISH_GRANT)),
    ],
)
async def test_an_accountant_that_crashes_publishes_counts_of_the_first_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: StoreStep
) -> None:
    """The store dies around a commit, three times before it and three times behind it: the first that is kept stays."""
    drawn: list[list[int]] = []

    def draw(scale: float, radius: int, size: int) -> list[int]:
        drawn.append(truncated_laplace(scale, radius, size))
        return drawn[-1]

    monkeypatch.setattr("croupier.accountant.service.tier_counts.truncated_laplace", draw)
    async with table(tmp_path, 1) as at:
        terms = await at.operator.open_round(NOISED)
        await at.submit(terms, [Participant(1, 0.5)] * 60 + [Participant(0, 2.0)] * 60)
        store = at.inside.running["accountant"].service.store
        run, left = store.run, [6]

        async def failing(name: str, work: Callable[[Transaction], Any]) -> Any:
            if name != crash or not left[0]:
                return await run(name, work)
            left[0] -= 1
            if left[0] % 2 == 0:
                await run(name, work)
            raise Refusal(Code.STORE_FAILED)

        monkeypatch.setattr(store, "run", failing)
        publication, certificate = await at.finish(terms)
        async with asyncio.timeout(WAIT_S):
            while True:
                row = await run("look", lambda tx: tx.round(terms.round_id))
                if row.state == pb.ROUND_STATE_RELEASED:
                    break
                await asyncio.sleep(0.02)
        kept, told = await store.run(
            "look",
            lambda tx: (
                tx.document(terms.round_id, DocumentKind.TIER_COUNTS),
                Ledger(tx.connection).budgets_told(),
            ),
        )
    (shifts,) = drawn
    assert certificate.granted
    expected = [max(0, users - 27 + shift) for users, shift in zip((60, 0, 60), shifts, strict=True)]
    assert [tier.count for tier in certificate.tiers] == expected
    assert (certificate.num_users, certificate.most_uncounted) == (120, 54)
    assert Assumption.BUDGETS_NOISED in codes(certificate.assumptions)
    assert "3 tier(s)" in croupier_check.check(json.loads(json.dumps(certificate_json(certificate))))[0]
    assert kept is None
    assert told == BudgetsTold(1.0, 1e-6, 1, 0)
    assert Note.TIERS_SCALED not in codes(publication.notes)
    assert (publication.num_reports, len(publication.values)) == (120, 1)


async def test_a_round_with_exact_counts_or_one_budget_is_in_the_ledger_as_such(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        for chosen in (settings(), replace(settings(), budget_grid=(2.0,))):
            terms = await at.operator.open_round(chosen)
            await at.submit(terms, [Participant(1, 2.0)] * 20)
            _, certificate = await at.finish(terms)
            assert [(tier.local_epsilon, tier.count) for tier in certificate.tiers] == [(2.0, 20)]
            assert not certificate.HasField("budget_privacy")
        store = at.inside.running["accountant"].service.store
        told = await store.run("look", lambda tx: Ledger(tx.connection).budgets_told())
    assert told == BudgetsTold(exact=1)
