"""The table: every published bound beside every other, with its grade for these budgets and this randomizer.

The grade is that of the argument, not of the number: a bound whose conditions the deployment meets is CERTIFIED, one
whose proof has a gap HEURISTIC. None of them opens a gate, since `certify` is below every CERTIFIED one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from croupier.accountant.budgets import AnyBudgets, Budgets, as_budgets
from croupier.accountant.guarantees import Comparison, Grade, Status
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.registry import as_randomizer
from croupier.accountant.published.clones import fmt22_closed_form, fmt22_numeric, leftover_clones
from croupier.accountant.published.equal_budgets import bbgn_bennett, efmrtt, optimal_decomposition
from croupier.accountant.published.likelihood_tests import likelihood_test_clones
from croupier.accountant.published.personalised import echo, gspa_asymptotic, gspa_numeric, gspa_positions
from croupier.accountant.published.validity import OutOfRangeError, need
from croupier.accountant.ranges import check_target_delta
from croupier.protocol.codes import Note
from croupier.protocol.statements import Statement

_Bound = Callable[[Budgets, Randomizer, float], float]
_Judgement = Callable[[Budgets, Randomizer], Grade]
_GSPA = "Chen, Cao, Ge: A Generalized Shuffle Framework for Privacy Amplification, AAAI 2024"
_FMT = "Feldman, McMillan, Talwar: Hiding Among the Clones, FOCS 2021, Theorem 3.1"


def _always(grade: Grade) -> _Judgement:
    return lambda budgets, randomizer: grade


def _one_family(budgets: Budgets, randomizer: Randomizer) -> Grade:
    # With different budgets a clone is drawn from its user's own randomizer. Where a smaller budget is a mixture of a
    # larger one with the blanket that is as good as a clone of the victim; for noise of different widths it is not.
    same = budgets.num_tiers == 1 or randomizer.smaller_budgets_mix
    return Grade.CERTIFIED if same else Grade.HEURISTIC


def _bits_only(budgets: Budgets, randomizer: Randomizer) -> Grade:
    return Grade.CERTIFIED if randomizer.clones_are_fair_bits else Grade.HEURISTIC


def _pure(bound: Callable[[Budgets, float], float]) -> _Bound:
    def checked(budgets: Budgets, randomizer: Randomizer, delta: float) -> float:
        need(not randomizer.spends_local_delta, f"randomizer {randomizer.name}", "a pure randomizer")
        return bound(budgets, delta)

    return checked


def _leftover(budgets: Budgets, randomizer: Randomizer, delta: float) -> float:
    return _pure(lambda b, d: leftover_clones(b, randomizer, d))(budgets, randomizer, delta)


def _positions(budgets: Budgets, randomizer: Randomizer, delta: float) -> float:
    raise OutOfRangeError(
        "it permutes the data and keeps the randomizers in place, so that budgets belong to positions, not to people: "
        f"a person's own guarantee is the largest, {gspa_positions(budgets, delta):g}; valid: budgets of positions"
    )


def _private_number(budgets: Budgets, randomizer: Randomizer, delta: float) -> float:
    raise OutOfRangeError(
        "it needs the private number of users with x0, and looks at the count of x0 only; valid: k-RR of data that "
        "are public"
    )


@dataclass(frozen=True)
class _Row:
    name: str
    reference: str
    epsilon: _Bound
    grade: _Judgement
    notes: tuple[Note, ...] = ()


_ROWS = (
    _Row(
        "EFMRTT19",
        "Erlingsson et al.: Amplification by Shuffling, SODA 2019, Theorem 7",
        _pure(efmrtt),
        _always(Grade.CERTIFIED),
        (Note.EQUAL_BUDGETS,),
    ),
    _Row(
        "BBGN19 Bennett",
        "Balle, Bell, Gascon, Nissim: The Privacy Blanket of the Shuffle Model, CRYPTO 2019",
        bbgn_bennett,
        _always(Grade.CERTIFIED),
        (Note.EQUAL_BUDGETS,),
    ),
    _Row(
        "Optimal decomposition",
        "Su, Cheng, Wang: Decomposition-Based Optimal Bounds for Privacy Amplification via Shuffling, arXiv 2504.07414",
        optimal_decomposition,
        _always(Grade.CERTIFIED),
        (Note.EQUAL_BUDGETS,),
    ),
    _Row(
        "FMT22 closed form",
        _FMT,
        _pure(fmt22_closed_form),
        _one_family,
        (Note.LARGEST_BUDGET,),
    ),
    _Row("FMT22 numeric", _FMT, _pure(fmt22_numeric), _one_family, (Note.LARGEST_BUDGET,)),
    _Row(
        "FMT23 leftover clones",
        "Feldman, McMillan, Talwar: Stronger Privacy Amplification by Shuffling, SODA 2023, and its erratum, arXiv "
        "2208.04591; "
        "Wang et al.: Privacy Amplification via Shuffling: Unified, Simplified, and Tightened, arXiv 2304.05007",
        _leftover,
        _always(Grade.HEURISTIC),
        (Note.LEFTOVER_REFUTED, Note.LARGEST_BUDGET),
    ),
    _Row(
        "GSPA Thm 1",
        f"{_GSPA}, Theorem 1",
        lambda b, r, d: gspa_numeric(b, d),
        _bits_only,
        (Note.FAIR_BIT_CLONES,),
    ),
    _Row(
        "GSPA Thm 2",
        f"{_GSPA}, Theorem 2",
        lambda b, r, d: gspa_asymptotic(b, d),
        _always(Grade.ASYMPTOTIC),
        (Note.ERROR_UNBOUNDED,),
    ),
    _Row(
        "GSPA Def. 6",
        f"{_GSPA}, Definition 6",
        _positions,
        _always(Grade.HEURISTIC),
    ),
    _Row(
        "Echo",
        "Liu, Zhao, Xiong, Liu, Chen: Echo of Neighbors, AAAI 2023",
        _pure(echo),
        _always(Grade.HEURISTIC),
        (Note.CLIP_LAPLACE,),
    ),
    _Row(
        "Liu 2024",
        "Liu et al.: Enhanced Privacy Bound for Shuffle Model with Personalized Privacy, 2024, Theorem 2",
        likelihood_test_clones,
        _always(Grade.HEURISTIC),
        (Note.TESTING_ERROR,),
    ),
    _Row(
        "Biswas k-RR",
        "Biswas, Jung, Palamidessi: Tight Differential Privacy Guarantees for the Shuffle Model with k-RR, Eq. (6)",
        _private_number,
        _always(Grade.HEURISTIC),
    ),
)


def compare(
    budgets: AnyBudgets,
    randomizer: Randomizer | str,
    delta: float,
    *,
    attack: float | None = None,
    only: Sequence[str] | None = None,
) -> tuple[Comparison, ...]:
    """Every published bound at this delta, in the order of the table in the specification; replace-one neighbours.

    Args:
        budgets: the public multiset, as for `certify`; declared local deltas are not counted where the randomizer is
            pure.
        randomizer: what every client runs, or its name, as for `certify`.
        delta: the target, 0 < delta < 1.
        attack: the best known lower bound on epsilon at this delta, if there is one, which refutes smaller epsilons.
        only: names of rows; None for all.

    All of them are about one round, in which every user is honest and nothing links a report to its budget.

    Raises:
        ValueError: anything outside these ranges.
    """
    budgets, randomizer = as_budgets(budgets), as_randomizer(randomizer)
    check_target_delta(delta)
    if not randomizer.spends_local_delta and bool((budgets.local_delta > 0).any()):
        budgets = Budgets(budgets.local_epsilon, np.zeros(budgets.num_tiers), budgets.count)
    rows = [row for row in _ROWS if only is None or row.name in only]
    return tuple(_compared(row, budgets, randomizer, delta, attack) for row in rows)


def _compared(row: _Row, budgets: Budgets, randomizer: Randomizer, delta: float, attack: float | None) -> Comparison:
    grade = row.grade(budgets, randomizer)
    try:
        epsilon = row.epsilon(budgets, randomizer, delta)
    except OutOfRangeError as error:
        why = Statement.of(Note.FORMULA_INVALID, why=str(error))
        return Comparison(row.name, None, grade, Status.OUT_OF_RANGE, row.reference, (why,))
    # Attacks and bounds are both rounded: a difference within rounding refutes nothing.
    refuted = attack is not None and epsilon < attack * (1 - 1e-6)
    status = Status.NOT_CHECKED if attack is None else Status.REFUTED if refuted else Status.VALID
    return Comparison(row.name, epsilon, grade, status, row.reference, tuple(map(Statement.of, row.notes)))
