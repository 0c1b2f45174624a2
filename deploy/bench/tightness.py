"""How close the certificates are to the attacks, and how long they take: docs/tightness.md and `make bench`.

Cases are those of the specification. A ratio of 1 means that the certificate is the truth.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["TIMED_CASES", "TightnessRow", "TimedCase", "markdown", "tightness_rows", "timings"]

Tiers = tuple[tuple[float, int], ...]
_A1, _A2, _B, _C = ((0.5, 1000),), ((0.5, 10_000),), ((1.0, 10_000),), ((4.0, 100_000),)
_SURVEY = ((0.1, 5400), (0.5, 3700), (1.0, 900))
_FOUR = ((0.5, 2500), (1.0, 2500), (1.5, 2500), (2.0, 2500))

CASES: tuple[tuple[str, dict[str, int], Tiers, float], ...] = (
    *(("rr", {}, tiers, delta) for tiers, delta in ((_A1, 1e-4), (_A2, 1e-4), (_B, 1e-6), (_C, 1e-6))),
    ("rr", {}, ((4.0, 1000),), 1e-6),
    ("rr", {}, ((0.5, 9000), (2.0, 1000)), 1e-6),
    ("rr", {}, ((0.1, 9999), (4.0, 1)), 1e-6),
    ("rr", {}, ((2.0, 99), (8.0, 1)), 1e-6),
    ("rr", {}, _SURVEY, 1e-6),
    *(("krr", {"k": 10}, tiers, delta) for tiers, delta in ((_A1, 1e-4), (_A2, 1e-4), (_B, 1e-6), (_C, 1e-6))),
    ("krr", {"k": 4}, _SURVEY, 1e-6),
    ("hemisphere", {"dimension": 60}, _SURVEY, 1e-6),
    ("laplace", {}, _B, 1e-6),
    ("laplace", {}, _A1, 1e-4),
    ("laplace", {}, ((4.0, 1000),), 1e-4),
    ("laplace", {}, _SURVEY, 1e-6),
    ("laplace", {}, _FOUR, 1e-6),
    ("laplace", {}, ((0.1, 9000), (3.0, 1000)), 1e-6),
    ("laplace", {}, ((0.01, 999), (8.0, 1)), 1e-6),
)


@dataclass(frozen=True)
class TightnessRow:
    """One case: the certificate, the strongest attack that was found, and their ratio (None where no attack works)."""

    randomizer: str
    tiers: str
    delta: float
    certified: float
    attack: float
    ratio: float | None
    method: str


def tightness_rows(seconds: float, cases: int | None = None) -> Iterator[TightnessRow]:
    """Yields the row of each case; `seconds` of search for each attack. cases: only the first so many."""
    from accountant import Budgets, certify, lower_bound, randomizer_from_name

    for name, parameters, tiers, delta in CASES[:cases]:
        randomizer, budgets = randomizer_from_name(name, **parameters), Budgets.from_tiers(tiers)
        certificate = certify(budgets, randomizer, delta=delta, attack=False, thorough=True)
        found = lower_bound(budgets, randomizer, delta=delta, seconds=seconds)
        ratio = certificate.epsilon / found.epsilon if found.epsilon > 0 else None
        text = ", ".join(f"{count:,} × {epsilon:g}" for epsilon, count in tiers)
        yield TightnessRow(randomizer.name, text, delta, certificate.epsilon, found.epsilon, ratio, certificate.method)


def markdown(rows: list[TightnessRow], seconds: float) -> str:
    """docs/tightness.md."""
    lines = [
        "# How tight the certificates are",
        "",
        f"Made by `croupier tightness --seconds {seconds:g} --out docs/tightness.md`. *certified* is proved (with",
        "`--thorough`, which enumerates the data sets of up to some 40,000 users of `rr` where it can);",
        "*attack* is a data set and a statistic that reach this ε (LOWER_BOUND): the truth lies between the two.",
        "",
        "| randomizer | users × local ε | δ | certified ε | attack ε ≥ | ratio | how it is certified |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.4f}"
        lines.append(
            f"| {row.randomizer} | {row.tiers} | {row.delta:.0e} | {row.certified:.6g} | {row.attack:.6g} | {ratio} | "
            f"{row.method} |"
        )
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------------ speed


@dataclass(frozen=True)
class TimedCase:
    """One certificate to time: tiers, or so many arbitrary budgets in [0.05, 2]; and the seconds to stay below."""

    name: str
    randomizer: str
    tiers: Tiers = ()
    arbitrary: int = 0
    target_s: float = 1.0


_TEN = tuple((round(0.2 * tier, 1), 10**7) for tier in range(1, 11))
TIMED_CASES = (
    TimedCase("rr, 10^4 users", "rr", _B, target_s=0.1),
    TimedCase("krr k=10, 10^4 users", "krr", _B, target_s=0.1),
    TimedCase("laplace, 10^4 users", "laplace", _B, target_s=0.1),
    TimedCase("rr, 10^6 arbitrary budgets", "rr", arbitrary=10**6, target_s=1.0),
    TimedCase("krr k=10, 10^6 arbitrary budgets", "krr", arbitrary=10**6, target_s=1.0),
    TimedCase("laplace, 10^6 arbitrary budgets", "laplace", arbitrary=10**6, target_s=5.0),
    TimedCase("rr, 10^8 users in 10 tiers", "rr", _TEN, target_s=10.0),
    TimedCase("krr k=10, 10^8 users in 10 tiers", "krr", _TEN, target_s=10.0),
    TimedCase("laplace, 10^8 users in 10 tiers", "laplace", _TEN, target_s=10.0),
)


def timings(report: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
    """Seconds and peak memory of each case, each warm in an interpreter of its own; report is called with each row."""
    rows = []
    for index in range(len(TIMED_CASES)):
        program = (
            "import json; from deploy.bench.tightness import TIMED_CASES, _time;"
            f"print(json.dumps(_time(TIMED_CASES[{index}])))"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout))
        report(rows[-1])
    return rows


def _time(case: TimedCase) -> dict[str, Any]:
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
