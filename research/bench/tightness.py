"""How close the certificates are to the attacks: the table of docs/tightness.md.

Cases are those of the specification. A ratio of 1 means that the certificate is the truth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from croupier.protocol.rounding import round_down, round_up
from croupier.protocol.statements import joined

Tiers = tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class Even:
    """A number of users, each with a budget of its own, spread evenly from the lowest to the highest."""

    low: float
    high: float
    users: int

    def __str__(self) -> str:
        """For the table."""
        return f"{self.users:,} different ones, evenly on [{self.low:g}, {self.high:g}]"


_A1, _A2, _B, _C = ((0.5, 1000),), ((0.5, 10_000),), ((1.0, 10_000),), ((4.0, 100_000),)
_SURVEY = ((0.1, 5400), (0.5, 3700), (1.0, 900))
_FOUR = ((0.5, 2500), (1.0, 2500), (1.5, 2500), (2.0, 2500))

CASES: tuple[tuple[str, dict[str, int], Tiers | Even, float], ...] = (
    *(("rr", {}, tiers, delta) for tiers, delta in ((_A1, 1e-4), (_A2, 1e-4), (_B, 1e-6), (_C, 1e-6))),
    ("rr", {}, ((4.0, 1000),), 1e-6),
    ("rr", {}, ((0.5, 9000), (2.0, 1000)), 1e-6),
    ("rr", {}, ((0.5, 3438), (1.0, 2355), (2.0, 573)), 1e-6),
    ("rr", {}, ((0.1, 9999), (4.0, 1)), 1e-6),
    ("rr", {}, ((2.0, 99), (8.0, 1)), 1e-6),
    ("rr", {}, _SURVEY, 1e-6),
    *(("krr", {"k": 10}, tiers, delta) for tiers, delta in ((_A1, 1e-4), (_A2, 1e-4), (_B, 1e-6), (_C, 1e-6))),
    ("krr", {"k": 4}, _SURVEY, 1e-6),
    ("hemisphere", {"dimension": 60}, _SURVEY, 1e-6),
    *(
        ("pgr", {"k": 50, "q": 3}, ((epsilon, users),), 1e-6)
        for epsilon, users in ((2.0, 300), (4.0, 1000), (2.0, 10_000))
    ),
    *(("choices", {"k": 10}, ((epsilon, users),), 1e-6) for epsilon, users in ((2.0, 300), (4.0, 1000))),
    ("laplace", {}, _B, 1e-6),
    ("laplace", {}, _A1, 1e-4),
    ("laplace", {}, ((4.0, 1000),), 1e-4),
    ("laplace", {}, _SURVEY, 1e-6),
    ("laplace", {}, _FOUR, 1e-6),
    ("laplace", {}, ((0.1, 9000), (3.0, 1000)), 1e-6),
    ("laplace", {}, ((0.01, 999), (8.0, 1)), 1e-6),
    ("laplace", {}, Even(0.1, 1.0, 10_000), 1e-6),
    ("laplace", {}, Even(0.05, 2.0, 1_000_000), 1e-6),
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
    """Yields the row of each case.

    Args:
        seconds: of search for each attack.
        cases: how many to run, from the first; None for all.
    """
    from croupier.accountant import Budgets, certify, lower_bound, randomizer_from_name

    for name, parameters, tiers, delta in CASES[:cases]:
        randomizer = randomizer_from_name(name, **parameters)
        if isinstance(tiers, Even):
            budgets = Budgets.from_epsilons(np.linspace(tiers.low, tiers.high, tiers.users))
            text = str(tiers)
        else:
            budgets = Budgets.from_tiers(tiers)
            text = ", ".join(f"{count:,} × {epsilon:g}" for epsilon, count in tiers)
        certificate = certify(budgets, randomizer, delta=delta, attack=False)
        attack = lower_bound(budgets, randomizer, delta=delta, seconds=seconds)
        ratio = certificate.epsilon / attack.epsilon if attack.epsilon > 0 else None
        yield TightnessRow(
            randomizer.name, text, delta, certificate.epsilon, attack.epsilon, ratio, joined(certificate.method)
        )


def tightness_page(rows: Sequence[TightnessRow], seconds: float) -> str:
    """Returns docs/tightness.md."""
    lines = [
        "# How tight the certificates are",
        "",
        "This page compares certified ε with attacks. It is for readers who want to know how much a certificate",
        "overstates.",
        "",
        f"Made by `croupier research tightness --seconds {seconds:g} --out docs/tightness.md`. *certified* is proved;",
        "*attack* is a data set and a statistic that reach this ε (LOWER_BOUND): the truth lies between the two.",
        "",
        "| randomizer | users × local ε | δ | certified ε | attack ε ≥ | ratio | how it is certified |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.4f}"
        lines.append(
            f"| {row.randomizer} | {row.tiers} | {row.delta:.0e} | {round_up(row.certified)} | "
            f"{round_down(row.attack)} | {ratio} | {row.method} |"
        )
    return "\n".join(lines) + "\n"
