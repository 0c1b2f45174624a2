"""How long certificates take, and how much memory, beside what they may take."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["TIMED_CASES", "TimedCase", "measure_certificates", "time_case"]


@dataclass(frozen=True)
class TimedCase:
    """One certificate to time.

    Attributes:
        name: for the table.
        randomizer: its name.
        tiers: (local epsilon, users); empty where the budgets are arbitrary.
        arbitrary: how many budgets are drawn from [0.05, 2] instead.
        target_s: the seconds to stay below.
    """

    name: str
    randomizer: str
    tiers: tuple[tuple[float, int], ...] = ()
    arbitrary: int = 0
    target_s: float = 1.0


_ONE = ((1.0, 10_000),)
_TEN = tuple((round(0.2 * tier, 1), 10**7) for tier in range(1, 11))
TIMED_CASES = (
    TimedCase("rr, 10^4 users", "rr", _ONE, target_s=0.1),
    TimedCase("krr k=10, 10^4 users", "krr", _ONE, target_s=0.1),
    TimedCase("laplace, 10^4 users", "laplace", _ONE, target_s=0.1),
    TimedCase("rr, 10^6 arbitrary budgets", "rr", arbitrary=10**6, target_s=1.0),
    TimedCase("krr k=10, 10^6 arbitrary budgets", "krr", arbitrary=10**6, target_s=1.0),
    TimedCase("laplace, 10^6 arbitrary budgets", "laplace", arbitrary=10**6, target_s=5.0),
    TimedCase("rr, 10^8 users in 10 tiers", "rr", _TEN, target_s=10.0),
    TimedCase("krr k=10, 10^8 users in 10 tiers", "krr", _TEN, target_s=10.0),
    TimedCase("laplace, 10^8 users in 10 tiers", "laplace", _TEN, target_s=10.0),
)


def measure_certificates(report: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
    """Returns seconds and peak memory of each case, each warm in an interpreter of its own.

    Args:
        report: called with each row as soon as it is measured.
    """
    rows = []
    for index in range(len(TIMED_CASES)):
        program = (
            "import json; from deploy.bench.certificates import TIMED_CASES, time_case;"
            f"print(json.dumps(time_case(TIMED_CASES[{index}])))"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout))
        report(rows[-1])
    return rows


def time_case(case: TimedCase) -> dict[str, Any]:
    """Returns what one case takes in this process."""
    import numpy as np

    from accountant import Budgets, certify, lower_bound, randomizer_from_name
    from runtime.workers import peak_memory_bytes

    randomizer = randomizer_from_name(case.randomizer, **({"k": 10} if case.randomizer == "krr" else {}))
    certify([1.0] * 100, randomizer, delta=1e-3)  # imports
    if case.arbitrary:
        # Seeded: synthetic budgets, the same in every run.
        budgets = Budgets.from_epsilons(np.random.default_rng(0).uniform(0.05, 2, case.arbitrary))
    else:
        budgets = Budgets.from_tiers(case.tiers)
    started = time.perf_counter()
    certificate = certify(budgets, randomizer, delta=1e-6, attack=False)
    certified_s = time.perf_counter() - started
    started = time.perf_counter()
    found = lower_bound(budgets, randomizer, delta=1e-6)
    return {
        "case": case.name,
        "certify_s": certified_s,
        "target_s": case.target_s,
        "share_of_target": certified_s / case.target_s,
        "attack_s": time.perf_counter() - started,
        "peak_memory_bytes": peak_memory_bytes(),
        "epsilon": certificate.epsilon,
        "attack_epsilon": found.epsilon,
    }
