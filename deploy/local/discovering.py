"""A discovery of frequent texts: simulated, or with a deployment's rounds, among people played here or participants.

What a wave asks, and what is kept of it, is `deploy.discovery`'s. Here every wave is answered, and the certificates of
all waves are put together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from croupier.accountant.budgets import Budgets
from croupier.accountant.certificate import Certificate
from croupier.accountant.certification import certify
from croupier.accountant.composed_certificates import compose
from croupier.accountant.mechanisms.registry import randomizer_of
from croupier.accountant.privacy_filter import BASIC_SHARE
from croupier.accountant.ranges import DEFAULT_DELTA
from croupier.analyzer.estimators import estimate
from croupier.client.randomizers import randomize
from croupier.client.submission import Participant
from croupier.deploy.discovery import Discovery, DiscoverySettings, Level
from croupier.deploy.local.rounds import Play
from croupier.deploy.operator.round_settings import RoundSettings
from croupier.deploy.operator.rounds import Operator
from croupier.protocol.histograms import values_of
from croupier.protocol.manifest import state_name
from croupier.protocol.mechanisms import KaryResponse
from croupier.protocol.questions import Question
from croupier.protocol.randomness import RandomSource, SystemRandom
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.views.discovery import DiscoveryView

__all__ = ["Discovered", "discover", "discover_among_participants", "discover_deployed"]

Answered = tuple[Sequence[float], int, Certificate]
Ask = Callable[[Question, Mapping[str, str], float], Awaitable[Answered]]


@dataclass(frozen=True)
class Discovered:
    """The texts that were found, and what that cost.

    Attributes:
        texts: with the estimated number of their holders, the most frequent first; "abc…" is any longer text.
        levels: the waves.
        found: a text that this many people hold, or more, was found with probability 1 - `missed`, if they answered;
            None: no number is enough.
        epsilon: of one person over all waves, CERTIFIED where every wave is; see `deploy.discovery`.
        delta: of all waves.
        grade: of epsilon.
    """

    texts: tuple[tuple[str, float], ...]
    levels: tuple[Level, ...]
    found: int | None
    epsilon: float
    delta: float
    grade: str

    def document(self) -> DiscoveryView:
        """Returns everything as JSON."""
        return {
            "texts": [{"text": text, "holders": holders} for text, holders in self.texts],
            "found_from": self.found,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "grade": self.grade,
            "waves": [
                {
                    "categories": level.categories,
                    "reports": level.reports,
                    "threshold": level.threshold,
                    "found_from": level.found,
                    "kept": list(level.kept),
                }
                for level in self.levels
            ],
        }


def discover(
    texts: Sequence[str],
    settings: DiscoverySettings | None = None,
    *,
    local_epsilon: float = 4.0,
    delta: float = DEFAULT_DELTA,
    source: RandomSource | None = None,
) -> Discovered:
    """Finds the frequent texts of people who are all simulated here: nobody is protected by it.

    Args:
        texts: one for each person.
        settings: what is looked for; None: English letters, and the rest as `DiscoverySettings` has it.
        local_epsilon: of each report, 0 < local_epsilon <= 20.
        delta: of all waves together.
        source: of randomness; None for the operating system's.

    Raises:
        ValueError: no texts, or a number out of range.
    """
    randomness, sought = source or SystemRandom(), settings or DiscoverySettings()

    async def ask(question: Question, people: Mapping[str, str], wave_delta: float) -> Answered:
        parse = question.mechanism.parse_value
        reports = [randomize(question, parse(text), local_epsilon, randomness) for text in people.values()]
        shares = estimate(question, reports, [(local_epsilon, len(reports))]).values
        budgets = Budgets.from_tiers([(local_epsilon, len(reports))])
        return shares, len(reports), certify(budgets, randomizer_of(question.mechanism), delta=wave_delta)

    waves = _waves(dict(_people(texts)), sought, local_epsilon, delta, ask, randomness)
    try:
        waves.send(None)
    except StopIteration as done:
        result: Discovered = done.value
        return result
    raise RuntimeError("a simulated wave waits for no one")


async def discover_deployed(
    play: Play,
    texts: Sequence[str],
    settings: DiscoverySettings,
    *,
    name: str = "discover",
    local_epsilon: float = 4.0,
    delta: float = DEFAULT_DELTA,
    min_batch_size: int = 100,
) -> Discovered:
    """Finds the frequent texts of people who are played here and answer a deployment's rounds, one for each wave.

    Args:
        play: plays a round; see `deploy.local.rounds.players`.
        texts: one for each person.
        settings: what is looked for.
        name: of the question.
        local_epsilon: of each report.
        delta: of all waves together.
        min_batch_size: the fewest people of a wave.

    Raises:
        ValueError: no texts, or a number out of range.
        Refusal: a service refused a round, for example because the ledger's limit is reached.
    """

    async def ask(question: Question, people: Mapping[str, str], wave_delta: float) -> Answered:
        how = RoundSettings(
            question, (local_epsilon,), delta=wave_delta, epsilon_max=20.0, min_batch_size=min_batch_size
        )
        users = {
            person: Participant(question.mechanism.parse_value(text), local_epsilon) for person, text in people.items()
        }
        outcome = await play(how, users)
        shares = [value.estimate for value in values_of(outcome.publication)]
        return shares, outcome.publication.num_reports, Certificate.from_message(outcome.certificate)

    return await _waves(dict(_people(texts)), settings, local_epsilon, delta, ask, SystemRandom(), name)


async def discover_among_participants(
    operator: Operator,
    settings: DiscoverySettings,
    *,
    name: str = "discover",
    local_epsilon: float = 4.0,
    delta: float = DEFAULT_DELTA,
    min_batch_size: int = 100,
    answer_for_s: float = 3600.0,
    note: Callable[[str], None] = lambda line: None,
) -> Discovered:
    """Finds the frequent texts of a deployment's participants, who answer each wave with their own client.

    A client that is given its person's text finds the category itself (`croupier submit --value`, or `submit` of the
    library). Thresholds are those of the people who answered.

    Args:
        operator: opens and closes the rounds.
        settings: what is looked for; everybody is asked in every wave.
        name: of the question.
        local_epsilon: the budget that every report has.
        delta: of all waves together.
        min_batch_size: the fewest people of a wave.
        answer_for_s: how long each wave is open, in seconds.
        note: called with a line for each wave.

    Raises:
        ValueError: groups are asked for, or a number is out of range.
        RuntimeError: too few people answered a wave.
        Refusal: a service refused a round, for example because the ledger's limit is reached.
    """
    if settings.groups:
        raise ValueError("groups is True; it must be False where people answer with clients of their own")

    async def ask(question: Question, people: Mapping[str, str], wave_delta: float) -> Answered:
        how = RoundSettings(
            question, (local_epsilon,), delta=wave_delta, epsilon_max=20.0, min_batch_size=min_batch_size
        )
        terms = await operator.open_round(how)
        note(f"{terms.round_id}: {question.mechanism.categories[0]} and {len(question.mechanism.categories) - 1} more")
        await asyncio.sleep(answer_for_s)
        closed = await operator.close_round(terms.round_id)
        if closed.state != pb.ROUND_STATE_CLOSED:
            raise RuntimeError(
                f"{terms.round_id} is {state_name(closed.state)} with {closed.num_clients} people; it must have at "
                f"least {min_batch_size}"
            )
        publication, certificate = await operator.result(terms.round_id, 600.0)
        shares = [value.estimate for value in values_of(publication)]
        return shares, publication.num_reports, Certificate.from_message(certificate)

    return await _waves({"participants": ""}, settings, local_epsilon, delta, ask, SystemRandom(), name)


def _people(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Returns (name, text) of each person; raises ValueError for none."""
    if not texts:
        raise ValueError("texts is empty; there must be at least one person")
    return [(f"person-{number}", text) for number, text in enumerate(texts, 1)]


async def _waves(
    people: Mapping[str, str],
    settings: DiscoverySettings,
    local_epsilon: float,
    delta: float,
    ask: Ask,
    source: RandomSource,
    name: str = "discover",
) -> Discovered:
    discovery, certificates = Discovery(settings, local_epsilon), list[Certificate]()
    # In groups the person's own device draws its wave, once and without looking at the text.
    group = {person: source.below(settings.waves) if settings.groups else None for person in people}
    # The filter admits the waves by basic composition, too, for which it sets this share of delta aside.
    wave_delta = delta if settings.groups else 0.99 * float(BASIC_SHARE) * delta / settings.waves
    while not discovery.over:
        names, wave = discovery.categories(), len(discovery.levels)
        asked = {person: text for person, text in people.items() if group[person] in (None, wave)}
        if not asked:
            break
        shares, reports, certificate = await ask(Question(name, KaryResponse(len(names), names)), asked, wave_delta)
        certificates.append(certificate)
        discovery.learn(shares, reports)
    if settings.groups:
        worst = max(certificates, key=lambda certificate: certificate.epsilon)
        epsilon, spent, grade = worst.epsilon, worst.delta, worst.grade
    else:
        together = compose(certificates, delta=delta)
        epsilon, spent, grade = together.epsilon, together.delta, together.grade
    return Discovered(tuple(discovery.texts), tuple(discovery.levels), discovery.found, epsilon, spent, str(grade))
