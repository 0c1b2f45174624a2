"""What the accountant has to know of a local randomizer; the mechanisms, one in a file, say it.

A randomizer states its blanket, everything else follows; see docs/accounting.md, section 2. The classes describe
mechanisms for accounting, and name the attacks on them; sampling from them is the client's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from croupier.accountant.attacks.event_tests import Attacks, Population, Target
from croupier.accountant.bounds.profile import Curve, NoAmplification, Others, Victim
from croupier.accountant.kernel import Classes
from croupier.accountant.numerics.binomial import Floats
from croupier.protocol.codes import Assumption, ProofStep
from croupier.protocol.mechanisms import MECHANISMS
from croupier.protocol.statements import Statement

SHORT = {"dimension": "d"}
"""Parameters that `Randomizer.name` abbreviates."""
_SHARES = 101
"""The largest variance is looked for among this many shares from 0 to 1: to a hundredth of a per cent."""


@dataclass(frozen=True)
class Randomizer(ABC):
    """A family of local randomizers, one member for every local budget."""

    kind: ClassVar[str]
    """As in `protocol.mechanisms`, for what a question can ask for; registries are keyed by it."""

    spends_local_delta: ClassVar[bool] = False
    """Whether a report is only (epsilon, delta)-private by itself, and not epsilon-private."""
    unit: ClassVar[str] = "user"
    """Whose data the guarantee is for: that of a user, or only a record of one."""
    smaller_budgets_mix: ClassVar[bool] = False
    """Whether a report at a smaller local epsilon is one at a larger one, mixed with the blanket."""

    no_attack: ClassVar[str | None] = "no attack on it is known"
    """Why there is no attack; None where `attacks` has some."""

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that a certificate states: all that have a value."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def name(self) -> str:
        """The short name with its parameters, as printed in certificates; a lattice is left out."""
        values = {SHORT.get(name, name): value for name, value in self.parameters.items() if name != "lattice"}
        written = [
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in values.items()
        ]
        return f"{self.kind}({', '.join(written)})" if written else self.kind

    @property
    def statement(self) -> Statement[Assumption]:
        """What every client is assumed to run: of the kind's sentences the one that names these parameters."""
        for runs in MECHANISMS[self.kind].runs if self.kind in MECHANISMS else ():
            code = Assumption(runs.code)
            if set(code.parameters) == set(self.parameters):
                return Statement.of(code, **self.parameters)
        raise ValueError(f"no sentence of {self.kind} names {sorted(self.parameters)}; its class must have a statement")

    @property
    def local_assumptions(self) -> tuple[Statement[Assumption], ...]:
        """All that a certificate rests on where shuffling adds nothing by design; empty where it may add something."""
        return ()

    @property
    def clones_are_fair_bits(self) -> bool:
        """Whether the blanket is uniform on two outcomes, which are all that reports show."""
        return False

    @property
    def num_report_values(self) -> int | None:
        """How many different reports there are, if hops can add fakes of each; None for noise and vectors."""
        return None

    @property
    def fakes_weight(self) -> float:
        """The variance that fakes add to what reports are read for, per unit of variance of the fakes of one value.

        1 - 1/k for the count of one of k >= 3 values, because the total of the fakes is known; 1 for two values, of
        whose fakes the difference is drawn.
        """
        values = self.num_report_values or 2
        return 1.0 if values == 2 else 1 - 1 / values

    def report_pairs(self, local_epsilon: float) -> Sequence[Classes]:
        """Returns the report values in classes of equal probabilities, for every pair of values that may be the worst.

        For hop noise, and for budgets up to this one; empty without finitely many report values.
        """
        return ()

    def least_mass(self, local_epsilon: float) -> float | None:
        """The mass of the least density over all values, rounded down; None where it is not known or there is none."""
        return None

    def local_profile(self, local_epsilon: float, local_delta: float, points: int) -> tuple[tuple[float, float], ...]:
        """Points (epsilon, delta) of the local guarantee, rounded up, where they are the certificate; else none."""
        return ()

    @classmethod
    def candidates(cls, k: int) -> tuple[Self, ...]:
        """Returns the members for one of k categories, of which the first begins a search for the best."""
        return ()

    @classmethod
    def of(cls, mechanism: Any) -> Self:
        """Returns the description of what the clients of a question run, from their mechanism's parameters."""
        return cls(**{field.name: getattr(mechanism, field.name) for field in fields(cls)})

    @abstractmethod
    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """What a report is worth to the analyzer: (gain, variance), each (T,), for each local budget.

        The mean of a report moves by `gain` when the value moves by the whole range (1), and has that variance at most.
        The estimate of a mean or a share from all reports has the standard error sqrt(sum variance) / sum gain.
        """

    def variances(self, local_epsilon: Floats, local_delta: Floats, count: Floats) -> tuple[float, float] | None:
        """The largest variances of the sum of reports: for given values, and also over the values of a population.

        count: users of each budget, (T,). None where reports are read neither for a share nor for a mean of numbers.
        """
        return None

    def attacks(self, population: Population, target: Target) -> Attacks:
        """Returns the attacks on a victim among others. Raises ValueError where there are none."""
        raise ValueError(f"randomizer is {self.name!r}; {self.no_attack}")

    def rates(self, local_epsilon: Floats, local_delta: Floats) -> Floats:
        """How much a report shows for each local budget, increasing with it. Shape (T,): the local epsilon, if pure."""
        return local_epsilon

    def effective_epsilon(self, local_epsilon: float) -> float:
        """What reports of budgets up to this one show at most: the budget itself, or less where that is known."""
        return local_epsilon

    @abstractmethod
    def profile(self, victim: Victim, others: Others, delta: float | None) -> Curve:
        """The blanket bound of the victim among the others, or the reason why nothing is amplified.

        delta is the target, if there is one: it only decides how finely to compute. It holds where an answer may depend
        on earlier answers.
        """

    def worst_case(self, victim: Victim, others: Others) -> Curve | None:
        """The exact divergence over all data of the others, where it is quickly computed; not in an adaptive order."""
        return None

    def exchange_profile(self, victim: Victim, others: Others, delta: float | None) -> Curve:
        """The exchange bound of the victim among the others, or the reason why there is none.

        As `profile`, and slower. It does not hold where an answer may depend on earlier answers.
        """
        return NoAmplification(Statement.of(ProofStep.NO_EXCHANGE_BOUND, randomizer=self.name))


def uneven(gain: Floats, count: Floats) -> float:
    """Returns what uneven gains add to the variance of a sum, per unit of variance between values.

    Reports of larger budgets weigh more, and whose values these are is not known (analyzer.scalars).
    """
    return float(np.square(gain - float(gain @ count) / count.sum()) @ count)


def variances_of_hits(gain: Floats, other: Floats, count: Floats) -> tuple[float, float]:
    """Returns `Randomizer.variances` for reports that hit a category that is not the person's with probability `other`.

    gain: how much likelier a report hits the person's own category. Shapes (T,).
    """
    held, share = gain + other, np.linspace(0.0, 1.0, _SHARES)
    own = share * float(held * (1 - held) @ count) + (1 - share) * float(other * (1 - other) @ count)
    hits = other + np.outer(share, gain)
    return float((own + uneven(gain, count) * share * (1 - share)).max()), float((hits * (1 - hits) @ count).max())
