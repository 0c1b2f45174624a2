"""A forecast: the certificate and cost of a round with a number of people, for any of the grid's budgets.

It depends on the round's terms, on the numbers of tickets and reports and on the ledger, but on no person's budget, so
the operator and hop 1, who see these anyway, may see it. It decides nothing about privacy: the certificate is made from
the budgets that arrive, whatever the forecast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from croupier.accountant.budgets import Budgets
from croupier.accountant.mechanism_choice import standard_error
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.registry import randomizer_of
from croupier.accountant.rounds.round_certificate import reserved
from croupier.accountant.rounds.round_guarantee import certify_into, fakes_of_round
from croupier.accountant.spending import Entry
from croupier.accountant.victims import MAX_EXACT_TIERS
from croupier.protocol.codes import RefusalReason
from croupier.protocol.statements import Statement, read_messages
from croupier.protocol.surveys import QuestionTerms
from croupier.protocol.v1 import messages_pb2 as pb

_MOST_ALIKE = 6
"""The budgets of additive noise that are tried for everybody alike: each takes up to half a second."""
Mixture = tuple[tuple[float, int], ...]
"""(local epsilon, people), by ascending epsilon."""
AskLedger = Callable[[Sequence[Entry]], tuple[Sequence[Statement[RefusalReason]], float | None]]
"""From a round's cost for each tier to the ledger's refusals and the epsilon that remains afterwards."""


@dataclass(frozen=True)
class Outcome:
    """The forecast for one mixture of budgets.

    Attributes:
        budgets: the number of people for each local epsilon; empty: any mixture.
        epsilon: an upper bound on the certified epsilon, by the blanket bound; infinite if there is no bound.
        standard_error: of a share, or of a mean on a range of 1, from the noise of the randomizers and of hops; None
            if it is unknown.
        refusals: the reasons for refusing the round; empty if it is granted.
        remaining_epsilon: the rest of the ledger's limit; None without a limit or a bound.
        entries: the entries for the ledger.
    """

    budgets: Mixture
    epsilon: float
    standard_error: float | None
    refusals: tuple[Statement[RefusalReason], ...]
    remaining_epsilon: float | None = None
    entries: tuple[Entry, ...] = ()

    @property
    def is_granted(self) -> bool:
        """Whether there is no reason to refuse it."""
        return not self.refusals


@dataclass(frozen=True)
class Forecast:
    """The outcomes of the mixtures that were tried, in no order."""

    outcomes: tuple[Outcome, ...]

    @property
    def worst(self) -> Outcome:
        """A mixture that would be refused if there is one, else that of the largest epsilon."""
        return max(self.outcomes, key=lambda outcome: (not outcome.is_granted, outcome.epsilon))

    @property
    def best(self) -> Outcome:
        """A mixture that would be granted if there is one, else that of the smallest epsilon."""
        return min(self.outcomes, key=lambda outcome: (not outcome.is_granted, outcome.epsilon))


def mixtures(terms: QuestionTerms, num_people: int) -> list[Mixture]:
    """Returns the mixtures of budgets that are tried for this number of people; an empty one is any mixture.

    Why none is worse: where a smaller budget is a larger one mixed with noise that does not depend on the answer
    (`smaller_budgets_mix`: rr, krr, onebit, levels, hemisphere), every other person's blanket weight is least at the
    largest budget, and the blanket bound decreases with each weight. So for a person with any budget, the worst others
    all use the largest; and of all budgets under one limit, the largest one has the largest bound. The certificate of a
    mixture is the least of several bounds, so it is nowhere above the blanket bound, which the forecast uses.

    With budget privacy up to `most_uncounted` people of every budget in use are not counted. Each of these mixtures
    omits as many as the noise can, so that no certificate is above its forecast; if everybody uses the largest budget
    it omits as many for every budget of the grid, because no mixture loses more.

    Additive noise (laplace, gaussian) has no such order: a person with narrow noise is exposed among wide noise and the
    other way round, and neither extreme is the worst. The forecast for any mixture of two budgets or more is therefore
    each person's own budget: no certificate is above it, and one person of 0.8 among 999 of 1.6 has no less.
    """
    grid = terms.budget_grid
    places = np.unique(np.linspace(0, len(grid) - 1, min(len(grid), _MOST_ALIKE)).round().astype(int))
    mixing = randomizer_of(terms.question.mechanism).smaller_budgets_mix
    alike = {
        ((budget, num_people),) for budget in ((grid[0], grid[-1]) if mixing else [grid[place] for place in places])
    }
    return sorted(alike.union(_worst(terms, num_people)))


def _worst(terms: QuestionTerms, num_people: int) -> set[Mixture]:
    """Returns the mixtures that decide whether a round is at risk; see `mixtures`."""
    grid, limits = terms.budget_grid, terms.epsilon_max_of
    if not randomizer_of(terms.question.mechanism).smaller_budgets_mix:
        return {((grid[0], num_people),) if len(grid) == 1 else ()}
    largest_under = {limits[budget]: budget for budget in grid}  # ascending, so the largest of each limit stays
    others = (grid[-1], num_people - 1)
    ones: set[Mixture] = {((budget, 1), others) for budget in largest_under.values() if budget != grid[-1]}
    return {((grid[-1], num_people),)} | (ones if num_people > 1 else set())


def always_granted(terms: QuestionTerms, num_people: int) -> bool:
    """Says whether every mixture of budgets of this number of people would be granted, the ledger aside."""
    randomizer = randomizer_of(terms.question.mechanism)
    return all(
        _outcome(terms, mixture, num_people, num_people, randomizer, None).is_granted
        for mixture in _worst(terms, num_people)
    )


def highest_cost(terms: QuestionTerms, num_reports: int, num_tickets: int = 0) -> tuple[Entry, ...]:
    """Returns the largest cost of a round with this number of reports, for any of the grid's budgets.

    These are the entries of all mixtures that decide (`mixtures`): the ledger counts a round by the worst of its
    entries, so no mixture costs more. num_tickets: see `forecast`; at least the number of reports.
    """
    tickets = max(num_tickets, num_reports)
    randomizer = randomizer_of(terms.question.mechanism)
    worst = _worst(terms, num_reports)
    outcomes = [_outcome(terms, mixture, num_reports, tickets, randomizer, None) for mixture in sorted(worst)]
    return tuple(entry for outcome in outcomes for entry in outcome.entries)


def forecast(
    terms: QuestionTerms, num_reports: int, num_tickets: int | None = None, ledger: AskLedger | None = None
) -> Forecast:
    """Returns the forecast of a round with this number of reports, for any of the grid's budgets.

    Args:
        terms: of the round.
        num_reports: people whose report and budget arrive, at least 1.
        num_tickets: people with tickets; None: the same number.
        ledger: checks a cost against the ledger; without it, the ledger is ignored.
    """
    tickets = num_reports if num_tickets is None else max(num_tickets, num_reports)
    randomizer = randomizer_of(terms.question.mechanism)
    outcomes = [
        _outcome(terms, mixture, num_reports, tickets, randomizer, ledger) for mixture in mixtures(terms, num_reports)
    ]
    return Forecast(tuple(outcomes))


def could_be_granted(terms: QuestionTerms, num_people: int) -> bool:
    """Says whether the accountant's best bounds would grant the round if everybody used one and the same budget.

    With budget privacy: for noise that omits the mean number of people.
    """
    left_out = terms.counted_by.radius
    for mixture in mixtures(terms, num_people):
        if len(mixture) == 1:
            message = pb.Certificate(delta=terms.shared.delta, dishonest=terms.shared.dishonest)
            certify_into(message, terms, [(budget, max(0, count - left_out)) for budget, count in mixture])
            if not message.refusals:
                return True
    return False


def _least_counted(terms: QuestionTerms, mixture: Mixture, num_people: int) -> Mixture:
    """Returns as few of a mixture's people as budget privacy can count; all of them without it."""
    most, worst = terms.counted_by.most_uncounted, mixture in _worst(terms, num_people)
    uncounted = most * len(terms.budget_grid) if worst else most
    return tuple((budget, max(0, count - uncounted)) for budget, count in mixture)


def _outcome(
    terms: QuestionTerms,
    mixture: Mixture,
    num_reports: int,
    num_tickets: int,
    randomizer: Randomizer,
    ledger: AskLedger | None,
) -> Outcome:
    """Returns the largest outcome of `certify_round` for this mixture, if no sent message is lost."""
    sequential = terms.question.sequential is not None
    released = min(num_reports, terms.shared.min_batch_size) if sequential else num_reports
    coarse = len(terms.budget_grid) > MAX_EXACT_TIERS  # very many budgets are certified in groups, with a helper fewer
    counted = _least_counted(terms, mixture, num_reports)
    any_mixture = not mixture  # everybody is certified as if all others were dishonest
    mixture = mixture or tuple((budget, 1) for budget in terms.budget_grid)
    message = pb.Certificate(
        delta=terms.shared.delta,
        dishonest=num_tickets + len(mixture)
        if any_mixture
        else terms.shared.dishonest + num_tickets - released + coarse,
        num_tickets=num_tickets,
        num_reports=num_reports,
        unknown_budgets=num_tickets - num_reports,
    )
    entries = certify_into(message, terms, counted or mixture, as_forecast=True)
    refusals = read_messages(RefusalReason, message.refusals)
    remaining = None
    if sequential:
        entries = reserved(terms, message)
    if ledger is not None:
        told, remaining = ledger(entries)
        refusals += tuple(told)
    delta = terms.question.mechanism.budget_delta
    alike = mixture if not any_mixture else ((terms.budget_grid[0], num_reports),)  # nothing is noisier
    people = Budgets.from_tiers([(epsilon, count, delta) for epsilon, count in alike])
    try:
        error = standard_error(people, randomizer, fakes_of_round(terms).variance)
    except ValueError:
        error = None
    return Outcome(() if any_mixture else mixture, message.epsilon, error, refusals, remaining, tuple(entries))
