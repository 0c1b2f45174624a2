"""A console that is served to a browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from croupier.console.guard import Listening
from croupier.console.server import ConsoleServer
from tests.support.rounds import Table


@asynccontextmanager
async def served(directory: Path, at: Table) -> AsyncIterator[str]:
    """Yields the URL of the console of a deployment."""
    server = ConsoleServer(directory, Listening(), transport=at.inside.transport, every_s=0.3)
    serving = asyncio.create_task(server.run_until_stopped())
    yield server.url
    server.should_exit = True
    await serving
