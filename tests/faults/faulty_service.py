"""`deploy.node.serve` with faults: python -m tests.faults.faulty_service NAME SITE. Production has no hook for it.

The orders are in SITE/orders.json, which the test rewrites; what the store has seen goes to SITE/testimony, and
what should never happen to SITE/complaints. A kill is a real SIGKILL from the inside, at the very commit point.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from croupier.deploy.node.serve import RunningService
from croupier.runtime import lane_sender
from croupier.runtime.rows import chunks
from tests.faults.faulty_store import SMALL_CHUNK_BYTES, SMALL_PIECE_BYTES, FaultyStore, Orders, ShiftedClock, Trap
from tests.faults.listener import ROOMS, Listener

ORDERS_FILE, TESTIMONY_FILE, COMPLAINTS_FILE = "orders.json", "testimony", "complaints"


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    while True:
        time.sleep(1)


def _read(file: Path) -> Orders:
    fields: dict[str, Any] = json.loads(file.read_text())
    trap = fields.pop("trap")
    return Orders(trap=Trap(**trap) if trap else None, **fields)


def _append(file: Path, line: str) -> None:
    with file.open("a") as out:
        out.write(line + "\n")


async def _serve(name: str, site: Path) -> None:
    orders = partial(_read, site / ORDERS_FILE)
    store = partial(FaultyStore, orders=orders, die=_die, witness=partial(_append, site / TESTIMONY_FILE))
    running = RunningService(name, site, workers=1, clock=ShiftedClock(orders), open_store=store)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await running.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    test = os.getppid()
    while not stop.is_set() and os.getppid() == test:  # a test that is killed cannot end us
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 1.0)
    await running.stop()


def main(name: str, site: Path) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    listener = Listener(lambda line: _append(site / COMPLAINTS_FILE, json.dumps(line)))
    for logger in (*ROOMS, "asyncio"):
        logging.getLogger(logger).addHandler(listener)
    lane_sender.CHUNK_BYTES = SMALL_CHUNK_BYTES
    chunks.SHREDDED_BYTES = SMALL_PIECE_BYTES
    asyncio.run(_serve(name, site))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
