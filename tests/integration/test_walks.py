"""No call that handles a report or a budget returns into a file that is still waiting for it up the stack."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from croupier.client.async_client import AsyncClient
from croupier.protocol.names import PublicKey
from tests.support import settings
from tests.support.rounds import QUESTIONS, people, table
from tests.support.walks import ROOT, walked

STOPS = (
    "client/async_client.py",
    "client/one_answer.py",
    "croupier/protocol/questions.py",
    "croupier/protocol/onion.py",
    "client/tickets.py",
    "accountant/service/tickets.py",
    "client/submission.py",
    "shuffler/submissions.py",
    "shuffler/batch_mixer.py",
    "croupier/runtime/lane_sender.py",
    "croupier/runtime/lane_receiver.py",
    "accountant/service/ticket_keys.py",
    "analyzer/held_reports.py",
    "client/round_checks.py",
)
"""Files that a report or a budget comes through."""


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_a_report_and_a_budget_never_go_back(tmp_path: Path) -> None:
    """Reproduction: a role was eight classes deep, and calls fell into it through hooks and climbed back."""
    async with table(tmp_path, 2) as here:
        terms = await here.operator.open_round(settings())
        await here.submit(terms, people(QUESTIONS[0], 29, seed=1))
        place, transport = here.inside.directory, here.inside.transport
        async with AsyncClient(place, directory=tmp_path / "device", transport=transport) as client:
            await here.operator.enrol([PublicKey(bytes.fromhex(client.public_key))])
            asked = await client.round()
            with walked() as walk:
                await asked.submit(1, max_local_epsilon=1.7)
                await here.operator.close_round(terms.round_id)
                await asked.result(wait_s=60)
    assert [stop for stop in STOPS if stop not in walk.files] == []
    assert walk.returns == set()


def test_a_call_that_comes_back_is_noticed() -> None:
    def written(place: str, text: str) -> dict[str, Callable[..., None]]:
        names: dict[str, Callable[..., None]] = {}
        exec(compile(text, str(ROOT / place), "exec"), names)
        return names

    low = written("croupier/net/low.py", "def run(work): work()")
    high = written("client/high.py", "def back(): pass\ndef plain(run): run(lambda: None)\ndef yoyo(run): run(back)")
    with walked() as walk:
        high["plain"](low["run"])
    assert (walk.files, walk.returns) == (["client/high.py", "croupier/net/low.py"], set())
    with walked() as walk:
        high["yoyo"](low["run"])
    assert walk.returns == {"croupier/net/low.py:run -> client/high.py:back"}
