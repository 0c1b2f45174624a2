"""The web page of a deployment, by itself or beside another command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deploy.cli.console import HERE, Directory, Json, note, plain_errors, show

if TYPE_CHECKING:
    from deploy.console.guard import Listening

__all__ = ["add_commands", "serve_page"]


def add_commands(app: typer.Typer) -> None:
    """Adds the command of this module to the command line."""
    app.command()(console)


def console(
    directory: Directory = HERE,
    listen: Annotated[
        str, typer.Option(help="HOST:PORT; beyond loopback it needs a token and TLS.")
    ] = "127.0.0.1:8780",
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    key: Annotated[
        Path | None, typer.Option(help="To answer with this key, from 'keygen --client'; a new one if not given.")
    ] = None,
    token_file: Annotated[
        typer.FileText | None, typer.Option(help="What readers must give as the password, if others can reach it.")
    ] = None,
    tls_certificate: Annotated[Path | None, typer.Option(help="PEM file, if others can reach it.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file, if others can reach it.")] = None,
    as_json: Json = False,
) -> None:
    """Serve a web page: services, rounds as they happen, results and certificates, a form to answer a round."""
    with plain_errors():
        from deploy.console.guard import Listening

        host, colon, port = listen.rpartition(":")
        if not colon or not port.isdecimal():
            raise ValueError(f"listen is {listen!r}; it must be HOST:PORT")
        token = token_file.read().strip() if token_file else ""
        where = Listening(host.strip("[]"), int(port), token, tls_certificate, tls_key)
        serve_page(directory, where, key=key, open_page=open_page, as_json=as_json)


def serve_page(
    directory: Path,
    where: Listening | None = None,
    *,
    key: Path | None = None,
    work: Callable[[], Awaitable[None]] | None = None,
    open_page: bool = False,
    as_json: bool = False,
) -> None:
    """Serves the page of a deployment until Ctrl-C, on any free loopback port if not said where.

    Raises:
        ImportError: the extra 'console' is not installed.
        ValueError: as `deploy.console.server.serve`.
    """
    import threading
    import webbrowser

    from deploy.console.guard import Listening
    from deploy.console.server import serve

    def ready(url: str) -> None:
        if as_json:
            show(as_json, {"url": url})
        else:
            note(f"page: {url} (Ctrl-C ends it)")
        if open_page:  # some browsers return when they are closed
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    serve(directory, where or Listening(), ready, key, work)
