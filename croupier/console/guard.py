"""What stands before every page: who may read it, and what a browser may do with it.

On loopback a request must name this machine, so that no page of a foreign name that leads here (DNS rebinding) reads
anything. Elsewhere it must bring the token, as the password of HTTP's basic authentication: no cookie is needed.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from croupier.deploy.listening import WebAddress
from croupier.net.http_channel import is_loopback

_LEAST_TOKEN = 16
"""The fewest characters of a token where other machines can reach the console, so that it cannot be guessed."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with none at all a form would be sent without its origin
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_OWN = ("Content-Security-Policy",)
"""What the participants' page says of itself: it allows one script, by its hash."""


@dataclass(frozen=True)
class Listening(WebAddress):
    """Where the page is served, and what protects it there.

    Attributes:
        token: what a reader must know; needed unless the host is loopback, and then not used.
    """

    token: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError as `WebAddress`, and for a page that all could read."""
        if not self.on_loopback and len(self.token) < _LEAST_TOKEN:
            raise ValueError(
                f"others can reach {self.host}: give --token-file, with at least {_LEAST_TOKEN} characters, or listen "
                "on 127.0.0.1"
            )
        super().__post_init__()


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, where: Listening) -> None:
        self._app = app
        self._where = where

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuses a request, or passes it on and adds headers to what is answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = MutableHeaders(scope=message)
                given.update(_HEADERS | {name: given[name] for name in _OWN if name in given})
            await send(message)

        headers = Headers(scope=scope)
        app: ASGIApp = self._app
        if self._where.on_loopback and not _names_this_machine(headers.get("host", "")):
            app = PlainTextResponse("this page is served under the name of this machine alone\n", 421)
        elif not self._where.on_loopback and not _knows(self._where.token, headers.get("authorization", "")):
            app = PlainTextResponse(
                "the token is needed, as the password of any user\n",
                401,
                {"WWW-Authenticate": 'Basic realm="croupier console", charset="UTF-8"'},
            )
        await app(scope, receive, with_headers)


def _names_this_machine(host: str) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


def _knows(token: str, authorization: str) -> bool:
    kind, _, given = authorization.partition(" ")
    if kind.lower() != "basic":
        return False
    try:
        _, _, password = base64.b64decode(given, validate=True).partition(b":")
    except binascii.Error:
        return False
    return secrets.compare_digest(password, token.encode())
