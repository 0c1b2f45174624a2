"""Pages of a web application, asked for without a socket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp

HERE = {"host": "127.0.0.1:8780"}


async def answered(app: ASGIApp, path: str, headers: Mapping[str, str] = HERE) -> list[Any]:
    """Returns the messages of the answer to GET `path`."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": raw, "scheme": "http"}
    await app(scope, receive, send)
    return sent


async def page_of(app: ASGIApp, path: str) -> str:
    """Returns the body of the answer to GET `path`."""
    return "".join(message.get("body", b"").decode() for message in (await answered(app, path))[1:])
