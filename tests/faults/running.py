"""Runs a schedule from start to end in the world of this process, or in that of real processes."""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from unittest import mock

from deploy.keygen import make_deployment
from protocol import service
from tests.faults.play import play
from tests.faults.schedules import Schedule
from tests.faults.worlds import InProcessWorld

__all__ = ["SMALL_CHUNK_BYTES", "deployed", "run_in_process"]

SMALL_CHUNK_BYTES = 1000  # a few ciphertexts: lanes have several chunks, as large rounds do


@lru_cache
def deployed(hops: int) -> Path:
    """Returns a directory with the keys of a deployment; the same one for every schedule of this process."""
    root = tempfile.mkdtemp(prefix="croupier-")
    atexit.register(shutil.rmtree, root)
    directory = Path(root) / "deployment"
    make_deployment(directory, "local", hops)
    return directory


def run_in_process(schedule: Schedule) -> None:
    """Plays a schedule; raises Violation with the schedule that did it."""

    async def main(root: Path) -> None:
        world = InProcessWorld(deployed(schedule.hops), root)
        try:
            await world.build()
            await play(world, schedule)
        finally:
            await world.close()

    with (
        tempfile.TemporaryDirectory(prefix="croupier-") as root,
        mock.patch.object(service, "_CHUNK_BYTES", SMALL_CHUNK_BYTES),
    ):
        asyncio.run(main(Path(root)))
