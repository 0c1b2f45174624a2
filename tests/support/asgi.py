"""Pages of a web application, asked for without a socket."""

from __future__ import annotations

from typing import Any

from starlette.types import ASGIApp


async def page_of(app: ASGIApp, path: str) -> str:
    """Returns the body of the answer to GET `path`."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1:8780")]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers, "scheme": "http"}
    await app(scope, receive, send)
    return "".join(message.get("body", b"").decode() for message in sent[1:])
