"""The web page shows a question as people read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from croupier.console.app import make_app
from croupier.console.guard import Listening
from croupier.console.source import Source
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.questions import Question
from croupier.protocol.wordings import Wording
from tests.support import settings
from tests.support.rounds import table

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]
ASKED = [
    Question("bit", RandomizedResponse(), (Wording("en", "Do you smoke?", "Health", choices=("never", "at times")),)),
    Question("mood", KaryResponse(2, ("a", "b")), (Wording("de", "Wie?", choices=("so", "R und D")),)),
    Question("sleep", OneBit(0.0, 24.0), (Wording("en", "How long?", unit="hours", high="all day"),)),
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
        for question in ASKED:
            terms = await at.operator.open_round(settings(question))
            shown = await get(app, f"/rounds/{terms.round_id}")
            (wording,) = question.wordings
            assert [text for text in (wording.question, *wording.choices, wording.high) if text not in shown] == []
