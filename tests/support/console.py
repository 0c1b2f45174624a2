"""A console that is served to a browser."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from croupier.console.guard import Listening
from croupier.console.server import ConsoleServer
from tests.support.gateways import serving
from tests.support.rounds import Table


def served(directory: Path, at: Table) -> AbstractAsyncContextManager[str]:
    """Yields the URL of the console of a deployment."""
    return serving(ConsoleServer(directory, Listening(), transport=at.inside.transport, every_s=0.3))
