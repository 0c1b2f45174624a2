"""A quantile search through a running deployment: people of a table draw groups, and each group has one round."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from croupier.accountant.composed_certificates import of_disjoint_groups
from croupier.accountant.results import Grade, Guarantee
from croupier.analyzer.base import tiers_of_reports
from croupier.analyzer.estimates import Fakes, Noised
from croupier.analyzer.noised_tiers import TierErrors
from croupier.analyzer.quantile_search import QuantileEstimate, QuantileSearch, QuantileStep
from croupier.client.submission import Participant
from croupier.deploy.local.rounds import Play, RoundOutcome, players
from croupier.operator.round_settings import RoundSettings
from croupier.operator.rounds import Operator
from croupier.protocol.certificates import assumptions_of, method_of, refusals_of
from croupier.protocol.histograms import values_of
from croupier.protocol.manifest import parse_terms
from croupier.protocol.mechanisms import RandomizedResponse
from croupier.protocol.notes import certificate_notes
from croupier.protocol.questions import Question
from croupier.protocol.randomness import RandomSource, SystemRandom
from croupier.protocol.statements import joined
from croupier.runtime.workers import WorkerPool

__all__ = ["FoundQuantile", "drawn_groups", "search_quantile", "search_with"]

LEAST_PEOPLE = 20
"""The fewest people of a group: a smaller one has hardly anyone to hide among, and says next to nothing."""


@dataclass(frozen=True)
class FoundQuantile:
    """What a search has found, and what it costs each person.

    Attributes:
        quantile: the estimate with its interval and steps.
        guarantee: of all rounds together, for a person who was in one of them.
        rounds: the names of the rounds.
    """

    quantile: QuantileEstimate
    guarantee: Guarantee
    rounds: tuple[str, ...]


def drawn_groups(
    people: Mapping[str, Participant], groups: int, source: RandomSource | None = None
) -> list[dict[str, Participant]]:
    """Returns the people of each group: every person's device draws its own.

    Raises:
        ValueError: there are fewer than 20 people for each group.
    """
    if len(people) < LEAST_PEOPLE * groups:
        raise ValueError(
            f"{len(people):,} people in {groups} groups; there must be at least {LEAST_PEOPLE} for each: take fewer "
            "groups"
        )
    source = source or SystemRandom()
    drawn: list[dict[str, Participant]] = [{} for _ in range(groups)]
    for name, person in people.items():
        drawn[source.below(groups)][name] = person
    return drawn


async def search_quantile(
    directory: Path,
    search: QuantileSearch,
    people: Mapping[str, Participant],
    settings: RoundSettings,
    watch: Callable[[QuantileStep], None] = lambda _: None,
) -> FoundQuantile:
    """Searches a quantile through a running deployment, in whose directory the keys are; see `search_with`."""
    with closing(WorkerPool()) as pool:
        async with Operator(directory) as operator, players(operator, directory, pool) as play:
            return await search_with(play, search, people, settings, watch)


async def search_with(
    play: Play,
    search: QuantileSearch,
    people: Mapping[str, Participant],
    settings: RoundSettings,
    watch: Callable[[QuantileStep], None] = lambda _: None,
) -> FoundQuantile:
    """Searches a quantile, one round after the other.

    Args:
        play: plays a round with the people of a group.
        search: at its beginning.
        people: their numbers and budgets, by name.
        settings: of every round, but for its question and, in a small group, the least number of people.
        watch: called with the answer of each group.

    Raises:
        ValueError: too few people.
        RuntimeError, Refusal: a round did not come to its end.
    """
    guarantees: list[Guarantee] = []
    rounds: list[str] = []
    for place, group in enumerate(drawn_groups(people, search.groups), 1):
        threshold = search.threshold()
        question = Question(f"{settings.question.name}_{place}", RandomizedResponse())
        asked = replace(settings, question=question, min_batch_size=max(2, min(settings.min_batch_size, len(group))))
        outcome = await play(
            asked, {name: replace(person, value=float(person.value <= threshold)) for name, person in group.items()}
        )
        if not outcome.certificate.granted:
            raise RuntimeError(f"round refused: {joined(refusals_of(outcome.certificate))}")
        watch(_taken(search, threshold, outcome))
        guarantees.append(_guarantee(outcome))
        rounds.append(outcome.publication.round_id)
    return FoundQuantile(search.estimate(), of_disjoint_groups(guarantees), tuple(rounds))


def _taken(search: QuantileSearch, threshold: float, outcome: RoundOutcome) -> QuantileStep:
    publication, certificate = outcome.publication, outcome.certificate
    values = values_of(publication)
    if len(values) != 1 or not math.isfinite(values[0].estimate):
        raise RuntimeError(f"round {publication.round_id} has no estimate; a group needs more people")
    tiers, noised = [(tier.local_epsilon, tier.count) for tier in certificate.tiers], Noised.of(certificate)
    scaled, _ = tiers_of_reports(tiers, publication.num_reports, noised)
    fakes = Fakes.of(parse_terms(publication.manifest.payload), certificate)
    errors = TierErrors.of(noised, tiers, publication.num_reports)
    return search.add(threshold, values[0].estimate, scaled, fakes, errors)


def _guarantee(outcome: RoundOutcome) -> Guarantee:
    stated = outcome.certificate
    method, assumptions = method_of(stated), assumptions_of(stated)
    return Guarantee(stated.epsilon, stated.delta, Grade(stated.grade), method, assumptions, certificate_notes(stated))
