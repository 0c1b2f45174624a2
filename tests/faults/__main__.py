"""`make faults`: many new fault schedules, in three runs side by side; prints how far it is, ends with 1 on a failure.

python -m tests.faults [--schedules 1000] [--process-schedules 30] [--runs 3] [--seed N]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import shlex
import sys
import time

_TESTS = "tests/faults/test_schedules.py"


async def _run(number: int, schedules: int, process_schedules: int, seed: int) -> int:
    """Runs pytest and passes its lines on; returns its exit code."""
    drawing = {
        "CROUPIER_FAULT_SCHEDULES": str(schedules),
        "CROUPIER_FAULT_PROCESS_SCHEDULES": str(process_schedules),
        "CROUPIER_FAULT_SEED": str(seed),
    }
    environment = {**os.environ, **drawing, "GRPC_VERBOSITY": "NONE"}
    command = [sys.executable, "-m", "pytest", "-s", "-q", "-x", "-p", "no:cacheprovider", _TESTS]
    # What is drawn differs from run to run; the rest is the same and played once.
    chosen = ["(acknowledged or learnt)"] if number else []
    chosen += [] if process_schedules else ["not real_processes"]
    command += ["-k", " and ".join(chosen)] if chosen else []
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, limit=1 << 20
    )
    if process.stdout is None:
        raise RuntimeError("pytest has no standard output")
    async for line in process.stdout:
        sys.stdout.write(f"run {number}: {line.decode(errors='replace')}")
        sys.stdout.flush()
    code = await process.wait()
    if code:
        again = [*(f"{name}={value}" for name, value in drawing.items()), "python", *command[1:]]
        sys.stdout.write(f"run {number}: FAILED; to draw the same again: {shlex.join(again)}\n")
    return code


async def _main(arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    seed = arguments.seed or secrets.randbelow(1 << 31) + 1
    runs = range(arguments.runs)

    def share(total: int, number: int) -> int:
        runs: int = arguments.runs
        return total // runs + (number < total % runs)

    sys.stdout.write(f"seed {seed}: {arguments.schedules} schedules, {arguments.process_schedules} with processes\n")
    codes = await asyncio.gather(
        *(
            _run(number, share(arguments.schedules, number), share(arguments.process_schedules, number), seed + number)
            for number in runs
        )
    )
    verdict = "FAILED, see above" if any(codes) else "every promise was kept"
    sys.stdout.write(f"seed {seed}: {verdict}, {time.monotonic() - started:.0f} s\n")
    return 1 if any(codes) else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Plays drawn fault schedules.")
    parser.add_argument("--schedules", type=int, default=1000, help="with all services in one process")
    parser.add_argument("--process-schedules", type=int, default=30, help="with a process for every service")
    parser.add_argument("--runs", type=int, default=3, help="how many run side by side")
    parser.add_argument("--seed", type=int, default=0, help="to draw the same schedules again")
    sys.exit(asyncio.run(_main(parser.parse_args())))
