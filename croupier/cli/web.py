"""What is served over HTTP: the web page of a deployment, by itself or beside another command, and the gateway."""

from __future__ import annotations

import threading
import webbrowser
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from croupier.cli.console import HERE, Directory, Json, note, show, text_of

if TYPE_CHECKING:
    from croupier.console.guard import Listening


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal():
        raise ValueError(f"listen is {listen!r}; it must be HOST:PORT")
    return host.strip("[]"), int(port)


def console(
    *,
    directory: Directory = HERE,
    listen: Annotated[str, Parameter(help="HOST:PORT; beyond loopback it needs a token and TLS.")] = "127.0.0.1:8780",
    open_page: Annotated[bool, Parameter("--open", help="Open the page in the browser.")] = False,
    token_file: Annotated[
        Path | None, Parameter(help="What readers must give as the password, if others can reach it.")
    ] = None,
    tls_certificate: Annotated[Path | None, Parameter(help="PEM file, if others can reach it.")] = None,
    tls_key: Annotated[Path | None, Parameter(help="PEM file, if others can reach it.")] = None,
    as_json: Json = False,
) -> None:
    from croupier.console.guard import Listening

    token = text_of(token_file) if token_file else ""
    where = Listening(*_address(listen), tls_certificate, tls_key, token)
    serve_page(directory, where, open_page=open_page, as_json=as_json)


def gateway(
    *,
    directory: Directory = HERE,
    listen: Annotated[str, Parameter(help="HOST:PORT; beyond loopback it needs TLS.")] = "127.0.0.1:8790",
    allow_origin: Annotated[
        list[str] | None,
        Parameter(
            help="A web site whose pages may call it, https://HOST, or null for the page in a file; may be repeated."
        ),
    ] = None,
    tls_certificate: Annotated[Path | None, Parameter(help="PEM file, if others can reach it.")] = None,
    tls_key: Annotated[Path | None, Parameter(help="PEM file, if others can reach it.")] = None,
    as_json: Json = False,
) -> None:
    from croupier.deploy.gateway.server import serve_gateway
    from croupier.deploy.listening import WebAddress

    def ready(url: str) -> None:
        if as_json:
            show(as_json, {"url": url})
        else:
            note(f"gateway: {url} (Ctrl-C ends it); participants answer at {url}participate/")

    where = WebAddress(*_address(listen), tls_certificate, tls_key)
    serve_gateway(directory, where, allow_origin or [], ready)


def serve_page(
    directory: Path,
    where: Listening | None = None,
    *,
    work: Callable[[], Awaitable[None]] | None = None,
    open_page: bool = False,
    as_json: bool = False,
) -> None:
    """Serves the page of a deployment until Ctrl-C, on any free loopback port if not said where.

    Raises:
        ImportError: the extra 'console' is not installed.
        ValueError: as `console.server.serve`.
    """
    from croupier.console.guard import Listening
    from croupier.console.server import serve

    def ready(url: str) -> None:
        if as_json:
            show(as_json, {"url": url})
        else:
            note(f"page: {url} (Ctrl-C ends it)")
        if open_page:  # some browsers return when they are closed
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    serve(directory, where or Listening(), ready, work)
