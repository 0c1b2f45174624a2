"""How long certificates take as whole processes, and how much memory, beside what they may take."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from croupier.protocol.names import JsonObject


@dataclass(frozen=True)
class TimedCase:
    """One run of `croupier certify`, at delta = 1e-6 and with its attack, to time.

    Attributes:
        name: for the table.
        options: the randomizer and whatever else the command takes.
        tiers: (local epsilon, users) or (local epsilon, users, local delta); empty where the budgets are arbitrary.
        arbitrary: how many budgets are spread over [0.05, 2] instead.
        program: what is run instead, in Python, for what the command cannot do; it prints an epsilon.
        target_s: the processor seconds to stay below.
    """

    name: str
    target_s: float
    options: str = ""
    tiers: tuple[tuple[float, ...], ...] = ()
    arbitrary: int = 0
    program: str = ""


_GOLDEN = (math.sqrt(5) - 1) / 2
"""Its multiples are spread evenly over the unit interval, in no order."""
_ONE = ((1.0, 10_000),)
_FEW = ((1.0, 1_000),)
_THREE = ((0.5, 54_000_000), (1.0, 37_000_000), (2.0, 9_000_000))
_GAUSSIAN = tuple((tier[0], tier[1], 1e-8) for tier in _THREE)
_FORTY = tuple((1 + 0.0003 * tier, 3000, 0.1) for tier in range(1, 41))
_UNEQUAL = """
from croupier.accountant import certify, compose
rounds = [certify({4.0: 1_000}, "rr", delta=1e-6), certify({0.05: 1_000_000}, "rr", delta=1e-6)]
print(compose(rounds, delta=1e-6).epsilon)
"""
TIMED_CASES = (
    TimedCase("rr, 10^4 users", 1.5, "--randomizer rr", _ONE),
    TimedCase("rr, 10^6 arbitrary budgets", 1.5, "--randomizer rr", arbitrary=10**6),
    TimedCase("krr k=10, 10^6 arbitrary budgets", 1.5, "--randomizer krr(k=10)", arbitrary=10**6),
    TimedCase("laplace, 10^6 arbitrary budgets", 6, "--randomizer laplace", arbitrary=10**6),
    TimedCase("rr, 10^8 users in 3 tiers", 5, "--randomizer rr", _THREE),
    TimedCase("krr k=10, 10^8 users in 3 tiers", 5, "--randomizer krr(k=10)", _THREE),
    TimedCase("hemisphere, 10^8 users in 3 tiers", 5, "--randomizer hemisphere", _THREE),
    TimedCase("laplace, 10^8 users in 3 tiers", 5, "--randomizer laplace", _THREE),
    TimedCase("gaussian, 10^8 users in 3 tiers", 5, "--randomizer gaussian", _GAUSSIAN),
    TimedCase("gaussian, 120,000 users in 40 tiers", 3, "--randomizer gaussian", _FORTY),
    TimedCase("rr, 1,000 users, 3 rounds", 2, "--randomizer rr --rounds 3", _FEW),
    TimedCase("rr, 1,000 users, 100 rounds", 5, "--randomizer rr --rounds 100", _FEW),
    TimedCase("rr 4.0 x 1,000 composed with rr 0.05 x 10^6", 5, program=_UNEQUAL),
)


def measure_certificates(report: Callable[[JsonObject], None]) -> list[JsonObject]:
    """Returns processor seconds and peak memory of each case.

    Args:
        report: called with each row as soon as it is measured.
    """
    rows = []
    for case in TIMED_CASES:
        rows.append(time_case(case))
        report(rows[-1])
    return rows


def time_case(case: TimedCase) -> JsonObject:
    """Returns what one case takes in a process of its own: user and system seconds, as others may share the cores."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["-c", case.program] if case.program else _command(case, Path(folder))
        with (Path(folder) / "out").open("wb+") as out:
            running = subprocess.Popen([sys.executable, *arguments], stdout=out)
            _, status, used = os.wait4(running.pid, 0)
            running.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            said = out.read()
    if running.returncode != 0:
        raise RuntimeError(f"{case.name}: ended with code {running.returncode}")
    result = json.loads(said)
    seconds = used.ru_utime + used.ru_stime
    return {
        "case": case.name,
        "processor_s": seconds,
        "target_s": case.target_s,
        "share_of_target": seconds / case.target_s,
        "peak_memory_bytes": used.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        "epsilon": result if case.program else result["epsilon"],
        "attack_epsilon": None if case.program else result["lower_bound_epsilon"],
    }


def _command(case: TimedCase, folder: Path) -> list[str]:
    budgets = folder / "budgets.csv"
    with budgets.open("w", encoding="utf-8") as file:
        if case.arbitrary:
            file.write("epsilon\n")
            file.writelines(f"{0.05 + 1.95 * (place * _GOLDEN % 1)!r}\n" for place in range(case.arbitrary))
        else:
            file.write("epsilon,count,delta\n")
            file.writelines(",".join(map(repr, (*tier, 0.0)[:3])) + "\n" for tier in case.tiers)
    return ["-m", "croupier.cli", "certify", str(budgets), "--delta", "1e-6", "--json", *case.options.split()]
