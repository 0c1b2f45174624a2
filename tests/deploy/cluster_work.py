"""Work that takes its worker along once, waits, or fails; in a file of its own, because workers import it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from croupier.protocol.errors import Code, Refusal
from croupier.runtime.tasks import LaneWork, records_of


def records_unless_first(place: Path, lane_work: LaneWork, items: list[bytes]) -> list[bytes]:
    """Does what `records_of` does, but the first process that comes here leaves its id in a file, and waits."""
    own = place / f"{os.getpid()}"
    own.write_text(f"{os.getpid()}")
    try:
        os.link(own, place / "victim")
    except FileExistsError:
        return records_of(lane_work, items)
    wait_until(place / "released")
    return []


def refuse(hint: str) -> None:
    raise Refusal(Code.BAD_BATCH, hint)


def wait_until(file: Path) -> None:
    """Says with a file beside it that it waits for this one."""
    file.with_suffix(".waits").touch()
    while not file.exists():
        time.sleep(0.02)
