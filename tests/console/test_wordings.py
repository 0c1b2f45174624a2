"""The web page shows a question as people read it, where they answer and before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from croupier.deploy.console.app import make_app
from croupier.deploy.console.guard import Listening
from croupier.deploy.console.source import Source
from croupier.protocol.mechanisms import KaryResponse, OneBit, RandomizedResponse
from croupier.protocol.questions import Question
from croupier.protocol.wordings import Wording
from tests.support import settings
from tests.support.rounds import table

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]
MANY = tuple(f"town {number}" for number in range(13))
ASKED = [
    (
        Question(
            "bit", RandomizedResponse(), (Wording("en", "Do you smoke?", "Health", choices=("never", "at times")),)
        ),
        ["Health", "Do you smoke?", 'value="1" required> at times<', 'value="0" required> never<'],
    ),
    (
        Question(
            "mood", KaryResponse(2, ("a", "b")), (Wording("de", "Wie?", help_text="Kurz.", choices=("so", "R & D")),)
        ),
        ['<p class="big" lang="de">Wie?</p>', '<p lang="de">Kurz.</p>', 'value="b" required> R &amp; D<'],
    ),
    (Question("town", KaryResponse(13, MANY), (Wording("en", "Where?"),)), ['<option value="town 7">town 7</option>']),
    (
        Question("sleep", OneBit(0.0, 24.0), (Wording("en", "How long?", unit="hours", high="all day"),)),
        ["A number from 0 to 24 hours", "24: all day"],
    ),
]


async def get(app: Any, path: str) -> str:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1:8780")]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers, "scheme": "http"}
    await app(scope, receive, send)
    return "".join(message.get("body", b"").decode() for message in sent[1:])


async def test_the_web_page_asks_in_the_words_of_the_wording(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at, Source(at.inside.directory, at.inside.transport) as source:
        app = make_app(source, Listening())
        for question, expected in ASKED:
            terms = await at.operator.open_round(settings(question))
            form = await get(app, f"/rounds/{terms.round_id}/answer")
            assert [one for one in expected if one not in form] == []
            assert question.wordings[0].question in await get(app, f"/rounds/{terms.round_id}")
