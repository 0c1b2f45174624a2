"""Estimators: from the shuffled multiset of reports and the public multiset of budgets to numbers with their errors.

`ESTIMATORS` has one for each kind of mechanism (`analyzer.mechanisms`): of shares, means or vectors
(docs/estimators.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from croupier.analyzer.base import Batch, Estimator, Tiers
from croupier.analyzer.estimates import Fakes, Noised
from croupier.protocol.kinds import of_every_kind
from croupier.protocol.questions import Question

ESTIMATORS: dict[str, Estimator[Any]] = of_every_kind("croupier.analyzer.mechanisms", "ESTIMATOR")
"""How reports are read and counted, for every kind of mechanism."""


def decoder(question: Question, least_epsilon: float) -> Callable[[bytes], Any]:
    """Returns a function from opened bytes to a report; see `Estimator.decoder`."""
    return ESTIMATORS[question.mechanism.kind].decoder(question.mechanism, least_epsilon)


def estimate(
    question: Question,
    reports: Any,
    tiers: Tiers,
    confidence: float = 0.95,
    *,
    least_epsilon: float | None = None,
    fakes: Fakes | None = None,
    noised: Noised | None = None,
) -> Any:
    """Answers a question.

    The arguments are those of a `Batch`; `least_epsilon` is by default the smallest of the tiers.

    Returns:
        An `Estimate`, or, for a question about vectors, a `VectorEstimate`. Derivations: docs/estimators.md.

    Raises:
        ValueError: no reports, no budgets, or a level out of range.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must be in (0, 1)")
    num_values = question.mechanism.num_report_values
    if fakes is not None and fakes.law.num_values != num_values:
        raise ValueError(f"fakes have {fakes.law.num_values} values; {question.mechanism.kind} has {num_values}")
    least = least_epsilon or min((epsilon for epsilon, _ in tiers), default=1.0)
    batch = Batch(question.mechanism, reports, tiers, least, confidence, fakes, noised)
    return ESTIMATORS[question.mechanism.kind].estimate(batch)
