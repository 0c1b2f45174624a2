"""Any randomizer with finitely many outputs, given as a table."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from flint import arb

from croupier.accountant.bounds.density_blanket import MAX_RATES, Cells, LossPair, RateBins, best_blanket
from croupier.accountant.bounds.exchange_finite import table_exchange
from croupier.accountant.bounds.hop_noise import REPORT_ITSELF
from croupier.accountant.bounds.profile import Curve, NoAmplification, Others, Victim
from croupier.accountant.budgets import Tier
from croupier.accountant.hop_kernel import coupled
from croupier.accountant.kernel import Classes
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.finite import LEAST_BLANKET
from croupier.accountant.numerics.binomial import UNIT, Floats
from croupier.accountant.ranges import outside
from croupier.protocol.codes import Assumption, ProofStep
from croupier.protocol.statements import Statement

TABLE_ROUNDING = 16 * UNIT
"""What rounding may add to the budget of a table, times 1 + epsilon; a table with more is refused."""
MOST_PAIRS = 200
"""Pairs of inputs, times classes of outputs, of which each is evaluated for hop noise."""
TABLE_SUM = 5e-14
"""How far the masses of a row may be from adding up to 1: half of what the bounds add for rounding."""


@dataclass(frozen=True, eq=False)
class TableMechanism(Randomizer):
    """Any randomizer with finitely many outputs: one table of probabilities for every local budget that is in use.

    tables: local epsilon -> (inputs, outputs), an array or nested lists, rows adding up to 1. A density is a table once
    its outputs are cut into cells by a post-processing (rounding a report, for instance).
    No floats have a ratio of exactly e^epsilon: a table may show more than its budget by TABLE_ROUNDING. What is
    certified is never more than what it shows. Rows stand for themselves divided by their sums.
    Raises ValueError for tables of different shapes, rows that do not add up to 1, or a larger ratio.
    """

    kind: ClassVar[str] = "table"
    tables: Mapping[float, Any]
    label: str = "table"

    def __post_init__(self) -> None:
        if not isinstance(self.tables, Mapping):
            raise outside("tables", self.tables, "a mapping from local epsilon to a table")
        try:
            tables = {epsilon: np.asarray(table, dtype=np.float64) for epsilon, table in self.tables.items()}
        except (TypeError, ValueError) as error:
            raise ValueError(f"a table cannot be read ({error}); it must be numbers, one row for each input") from error
        object.__setattr__(self, "tables", tables)
        if not self.tables:
            raise ValueError("tables is empty; it must hold one for every local budget")
        shapes = {np.shape(table) for table in self.tables.values()}
        if len(shapes) != 1 or len(min(shapes)) != 2 or min(min(shapes)) < 2:
            raise ValueError(
                f"tables have shapes {sorted(shapes)}; they must have one shape (inputs >= 2, outputs >= 2)"
            )
        for epsilon, table in self.tables.items():
            Tier(epsilon, 1)
            if not ((table >= 0).all() and np.allclose(table.sum(axis=1), 1, atol=TABLE_SUM, rtol=0)):
                raise ValueError(
                    f"table {epsilon!r} has rows that add up to {table.sum(axis=1).tolist()}; each must add up to 1"
                )
            if self._shown[epsilon] > epsilon + TABLE_ROUNDING * (1 + epsilon):
                raise ValueError(
                    f"table {epsilon!r} has a ratio above e^epsilon, e^{self._shown[epsilon]!r}; "
                    "it must be declared for that budget"
                )

    @cached_property
    def _shown(self) -> dict[float, float]:
        return {epsilon: _log_ratio(table) for epsilon, table in self.tables.items()}

    def effective_epsilon(self, local_epsilon: float) -> float:
        """The largest of the tables' own ratios: of one that shows nothing it is 0, whatever the declared budget is."""
        return max((shown for epsilon, shown in self._shown.items() if epsilon <= local_epsilon), default=local_epsilon)

    @property
    def name(self) -> str:
        """The declared label."""
        return self.label

    @property
    def statement(self) -> Statement[Assumption]:
        """See `Randomizer.statement`; with the label."""
        return Statement.of(Assumption.RUNS_TABLE, label=self.label)

    def profile(self, victim: Victim, others: Others, delta: float | None) -> Curve:
        """See `Randomizer.profile`; the worst of all pairs of inputs."""
        missing = sorted({victim.local_epsilon, *others.local_epsilon.tolist()} - set(self.tables))
        if missing:
            raise ValueError(f"local epsilon {missing[0]!r} has no table; it must be one of {sorted(self.tables)}")
        if others.local_epsilon.size > MAX_RATES:
            raise ValueError(
                f"{others.local_epsilon.size} local budgets; with tables there must be at most {MAX_RATES}"
            )
        cells = self._cells(victim.local_epsilon)
        bins = RateBins.of(others.local_epsilon, others.count, others.dishonest)
        blanket = Statement.of(ProofStep.TABLE_BLANKET, label=self.label)
        return best_blanket(victim.local_epsilon, cells, cells, bins, blanket)

    def exchange_profile(self, victim: Victim, others: Others, delta: float | None) -> Curve:
        """See `Randomizer.exchange_profile`: f users of every budget are left out, whichever f are dishonest."""
        count = np.maximum(others.count - others.dishonest, 0)
        used = count > 0
        tables = [self.tables[epsilon] for epsilon in others.local_epsilon[used].tolist()]
        blanket = float(count[used] @ [table.min(axis=0).sum() for table in tables]) if tables else 0.0
        if victim.span is not None or blanket < LEAST_BLANKET:
            return NoAmplification(Statement.of(ProofStep.EXCHANGE_NEEDS_BLANKET, least=LEAST_BLANKET))
        own = self.tables[victim.local_epsilon]
        shown = self.effective_epsilon(victim.local_epsilon)
        return table_exchange(own, tables, count[used], shown, delta) or super().exchange_profile(victim, others, delta)

    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """Unknown: a table does not say how it is read. Raises ValueError."""
        raise ValueError(
            f"randomizer is the table {self.label!r}, of unknown accuracy; it must be a mechanism with a name"
        )

    @property
    def num_report_values(self) -> int:
        """The number of outputs."""
        return int(min(np.shape(table) for table in self.tables.values())[1])

    def report_pairs(self, local_epsilon: float) -> Sequence[Classes]:
        """Every pair of inputs in both orders, or what shows more where they are many; a report itself without a table.

        Outputs of equal columns are one class.
        """
        if local_epsilon not in self.tables:
            return (REPORT_ITSELF,)
        rows = [[arb(mass) / sum(map(arb, row)) for mass in row] for row in self.tables[local_epsilon].tolist()]
        columns = Counter(zip(*self.tables[local_epsilon].tolist(), strict=True))
        firsts = [self.tables[local_epsilon].T.tolist().index([*column]) for column in columns]
        pairs = [
            tuple((number, one[at], other[at]) for at, number in zip(firsts, columns.values(), strict=True))
            for one, other in itertools.permutations(rows, 2)
        ]
        if len(pairs) * len(columns) <= MOST_PAIRS:
            return pairs
        return (max((coupled(pair) for pair in pairs), key=lambda classes: float(classes[0][1].upper())),)

    def least_mass(self, local_epsilon: float) -> float | None:
        """The sum of the least masses; None without a table."""
        if local_epsilon not in self.tables:
            return None
        table = self.tables[local_epsilon]
        return float(table.min(axis=0).sum()) * (1 - (8 + len(table[0])) * UNIT - 2 * TABLE_SUM)

    def _cells(self, local_epsilon: float) -> Cells:
        known = np.array(sorted(self.tables))
        with np.errstate(divide="ignore"):
            floors = np.log(np.stack([self.tables[float(epsilon)].min(axis=0) for epsilon in known]))

        def log_floor(rates: Floats) -> Floats:
            # Rates in between are only asked for while searching; they take the nearest table.
            nearest = np.abs(np.log(known)[None, :] - np.log(rates)[:, None]).argmin(axis=1)
            return np.asarray(floors[nearest])

        table = self.tables[local_epsilon]
        outputs, width = np.arange(table.shape[1]), np.ones(table.shape[1])
        pairs = tuple(
            LossPair(outputs, width, p0, p0, p0, p1, p1, p1)
            for first, p0 in enumerate(table)
            for second, p1 in enumerate(table)
            if first != second
        )
        return Cells(width, log_floor, pairs, shape=lambda omega: omega, pool=lambda values: values)


def _log_ratio(table: Floats) -> float:
    """Returns ln of the largest ratio of two masses of one output, rows divided by their sums, rounded up."""
    rows = [[Fraction(mass) for mass in row] for row in table.tolist()]
    shares = [[mass / total for mass in row] for row, total in ((row, sum(row)) for row in rows)]
    worst = Fraction(1)
    for column in zip(*shares, strict=True):
        if max(column) > 0 == min(column):
            return math.inf
        worst = max(worst, max(column) / min(column) if max(column) > 0 else worst)
    with localcontext() as context:
        context.prec = 100  # sums of floats differ by more than 1e-40 of themselves, or not at all
        logarithm = float((Decimal(worst.numerator) / Decimal(worst.denominator)).ln())
    return math.nextafter(logarithm, math.inf) if logarithm > 0 else 0.0
