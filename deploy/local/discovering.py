"""A discovery of frequent texts: simulated, or with a deployment's rounds, among people played here or participants.

What a wave asks, and what is kept of it, is `study.discovery`'s. Here every wave is answered, and the
certificates of all waves are put together.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from croupier.accountant.budgets import Budgets
from croupier.accountant.certificate import Certificate
from croupier.accountant.certification import certify
from croupier.accountant.composed_certificates import compose, of_disjoint_groups
from croupier.accountant.guarantees import Guarantee
from croupier.accountant.mechanisms.registry import randomizer_of
from croupier.accountant.privacy_filter import BASIC_SHARE
from croupier.accountant.ranges import DEFAULT_DELTA
from croupier.analyzer.estimates import Fakes
from croupier.analyzer.estimators import estimate
from croupier.client.randomizers import randomize
from croupier.client.submission import Participant
from croupier.deploy.local.whole_round import Play
from croupier.operator.operator import Operator
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.certificates import refusals_of
from croupier.protocol.histograms import values_of
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.manifest import RoundTerms, parse_terms
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.names import JsonObject
from croupier.protocol.questions import Question
from croupier.protocol.randomness import RandomSource, SystemRandom
from croupier.protocol.statements import joined, written_json
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.noise import draw_fakes
from croupier.study.discovery import Discovery, DiscoverySettings, Level
from croupier.study.discovery_waves import KeptWaves, WaitUntil

LEAST_TO_RETURN = 0.9
"""The part of the first wave's people whom each later wave of participants needs: with fewer it would cost more than
was fixed beforehand, and is refused. A tenth fewer people cost about 5 % of epsilon in every discovery."""


@dataclass(frozen=True)
class WaveTerms:
    """What every wave has in common.

    Attributes:
        name: of the question.
        local_epsilon: of each report, 0 < local_epsilon <= 20.
        delta: of all waves together.
        min_batch_size: the fewest people of a wave; a simulation has no such limit.
        hop_noise: the epsilon that the fakes of one honest hop guarantee in each wave; None: hops add no fakes.
    """

    name: str = "discover"
    local_epsilon: float = 4.0
    delta: float = DEFAULT_DELTA
    min_batch_size: int = 100
    hop_noise: float | None = None

    def round_settings(self, question: Question, delta: float, epsilon_max: float) -> RoundSettings:
        """Returns the settings of the round of a wave, which is certified at this delta, or else refused."""
        return RoundSettings(
            question,
            (self.local_epsilon,),
            delta=delta,
            epsilon_max=epsilon_max,
            min_batch_size=self.min_batch_size,
            hop_noise=self.hop_noise,
        )


class WaveResult(NamedTuple):
    """The result of a wave: the estimated shares, the number of reports, the certificate, and the fakes of the hops."""

    shares: Sequence[float]
    reports: int
    certificate: Certificate
    fakes: Fakes | None

    @classmethod
    def of(cls, publication: pb.Publication, certificate: pb.Certificate) -> WaveResult:
        """Reads the result of a round; RuntimeError, with the reason, if the round was refused."""
        if not certificate.granted:
            raise RuntimeError(f"{publication.round_id} is refused: {joined(refusals_of(certificate))}")
        return cls(
            [value.estimate for value in values_of(publication)],
            publication.num_reports,
            Certificate.from_message(certificate),
            Fakes.of(parse_terms(publication.round), certificate),
        )


Ask = Callable[[int, RoundSettings, Iterable[tuple[str, str]]], Awaitable[WaveResult]]
"""Asks a wave, given by its number from 1 and the settings of its round, of people with their texts."""


@dataclass(frozen=True)
class DiscoveryResult:
    """The texts found, and their cost in privacy.

    Attributes:
        texts: with the estimated number of their holders, the most frequent first; "abc…" is any longer text.
        levels: the waves.
        found: a text in the alphabet that this many people hold, or more, was found with probability 1 - `missed`, if
            they answered; None: no number is enough.
        guarantee: of one person over all waves, CERTIFIED if every wave is, with its assumptions; docs/discover.md.
    """

    texts: tuple[tuple[str, float], ...]
    levels: tuple[Level, ...]
    found: int | None
    guarantee: Guarantee

    @property
    def others(self) -> float:
        """The estimated number of people whose text does not begin with a letter of the alphabet."""
        return self.levels[0].others if self.levels else 0.0

    def document(self) -> JsonObject:
        """Returns everything as JSON: the most frequent text first, and the waves that found them.

        A text that "found_from" of its people hold passed with the promised probability.
        """
        return {
            "texts": [{"text": text, "holders": holders} for text, holders in self.texts],
            "found_from": self.found,
            "others": self.others,
            "epsilon": self.guarantee.epsilon,
            "delta": self.guarantee.delta,
            "grade": str(self.guarantee.grade),
            "assumptions": written_json(self.guarantee.assumptions),
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
    settings: DiscoverySettings,
    *,
    local_epsilon: float = 4.0,
    delta: float = DEFAULT_DELTA,
    hop_noise: float | None = None,
    hops: int = 2,
    source: RandomSource | None = None,
) -> DiscoveryResult:
    """Finds the frequent texts of people who are all simulated here: nobody is protected by it.

    Args:
        texts: one for each person.
        settings: what is looked for.
        local_epsilon: of each report, 0 < local_epsilon <= 20.
        delta: of all waves together.
        hop_noise: the epsilon that the fakes of one honest hop guarantee in each wave; None: hops add no fakes.
        hops: how many hops add fakes.
        source: of people's randomness; None for the operating system's, from which fakes always are.

    Raises:
        ValueError: no texts, or a number out of range.
    """
    randomness = source or SystemRandom()

    async def ask(_: int, how: RoundSettings, people: Iterable[tuple[str, str]]) -> WaveResult:
        mechanism = how.question.mechanism
        reports = [
            randomize(how.question, mechanism.parse_value(text), local_epsilon, randomness) for _, text in people
        ]
        tiers, num_reports, fakes = [(local_epsilon, len(reports))], len(reports), None
        noise = HopNoise.chosen(hop_noise, None, how.delta)
        if noise is not None:
            law = noise.law(len(mechanism.categories))
            added = [value for _ in range(hops) for value, count in enumerate(draw_fakes(law)) for _ in range(count)]
            fakes = Fakes(law, hops, len(added), law.most)
            reports += added
        shares = estimate(how.question, reports, tiers, fakes=fakes).values
        certificate = certify(
            Budgets.from_tiers(tiers), randomizer_of(mechanism), delta=how.delta, hop_noise=noise, hops=hops
        )
        return WaveResult(shares, num_reports, certificate, fakes)

    terms = WaveTerms(local_epsilon=local_epsilon, delta=delta, hop_noise=hop_noise)
    waves = _waves(_people(texts), settings, terms, ask, randomness)
    try:
        waves.send(None)
    except StopIteration as done:
        result: DiscoveryResult = done.value
        return result
    raise RuntimeError("a simulated wave waits for no one")


async def discover_deployed(
    play: Play, texts: Sequence[str], settings: DiscoverySettings, terms: WaveTerms
) -> DiscoveryResult:
    """Finds the frequent texts of people who are played here and answer a deployment's rounds, one for each wave.

    Args:
        play: plays a round; see `deploy.local.whole_round.players`.
        texts: one for each person.
        settings: what is looked for.
        terms: of every wave.

    Raises:
        ValueError: no texts, or a number out of range.
        RuntimeError: too few people answered a wave, or its certificate was refused.
        Refusal: a service refused a round, for example because the ledger's limit is reached.
    """

    async def ask(_: int, how: RoundSettings, people: Iterable[tuple[str, str]]) -> WaveResult:
        parse = how.question.mechanism.parse_value
        users = {person: Participant(parse(text), terms.local_epsilon) for person, text in people}
        outcome = await play(how, users)
        return WaveResult.of(outcome.publication, outcome.certificate)

    return await _waves(_people(texts), settings, terms, ask, SystemRandom())


async def discover_among_participants(
    operator: Operator,
    directory: Path,
    settings: DiscoverySettings,
    terms: WaveTerms,
    *,
    answer_for_s: float = 3600.0,
    note: Callable[[str], None] = lambda line: None,
    wait_until: WaitUntil | None = None,
) -> DiscoveryResult:
    """Finds the frequent texts of a deployment's participants, who answer each wave with their own client.

    A client that is given its person's text finds the category itself (`croupier submit --value`, or `submit` of the
    library). Thresholds are those of the people who answered. The same call goes on where an earlier one ended, and
    after the last wave returns the result again.

    Args:
        operator: opens and closes the rounds.
        directory: of the deployment, in which the waves are kept (`study.discovery_waves`).
        settings: what is looked for; everybody is asked in every wave.
        terms: of every wave.
        answer_for_s: how long each wave is open, in seconds.
        note: called with a line for each wave that is open.
        wait_until: waits while people answer; None: by the machine's clock.

    Raises:
        ValueError: groups are asked for, a number is out of range, or the discovery was begun with other terms.
        RuntimeError: another process runs the discovery, too few people answered a wave, or its certificate was
            refused.
        Refusal: a service refused a round, for example because the ledger's limit is reached.
    """
    if settings.groups:
        raise ValueError(
            "groups is True; it must be False where participants answer: a client draws no wave for its person and "
            "would answer all of them, which the certificate of groups excludes"
        )

    async def wait(manifest: RoundTerms, closes_unix_s: float) -> None:
        names = manifest.question.mechanism.categories
        note(f"{manifest.round_id} is open: {names[0]} and {len(names) - 1} more")
        await asyncio.sleep(max(0.0, closes_unix_s - time.time()))

    fixed = asdict(settings) | asdict(terms)
    with KeptWaves.of(operator, directory, terms.name, fixed) as kept:

        async def ask(wave: int, how: RoundSettings, _: Iterable[tuple[str, str]]) -> WaveResult:
            return WaveResult.of(*await kept.result(wave, how, answer_for_s, wait_until or wait))

        return await _waves([("participants", "")], settings, terms, ask, SystemRandom())


def _people(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Returns (name, text) of each person; raises ValueError for none."""
    if not texts:
        raise ValueError("texts is empty; there must be at least one person")
    return [(f"person-{number}", text) for number, text in enumerate(texts, 1)]


@dataclass(frozen=True)
class WavePlan:
    """What all waves may cost, fixed when the first has been answered and before anything is read from it.

    It follows from the number of people who answered and from settings, and not from what they answered.

    Attributes:
        wave: what each wave is certified at most, at its delta.
        together: all waves, by the privacy filter; what the discovery guarantees.
    """

    wave: float
    together: Guarantee

    @classmethod
    def of(cls, first: WaveResult, settings: DiscoverySettings, terms: WaveTerms, delta: float) -> WavePlan:
        """Returns the cost of as many waves as there may be, each with the dearest number of categories.

        Which number of categories is the dearest need not be exact: what exceeds the plan is refused.
        """
        noise = HopNoise.chosen(terms.hop_noise, None, delta)
        hops = 1 if first.fakes is None else first.fakes.hops
        is_round = first.certificate.tiers[0].privacy_profile is None  # read from a message, without its curve
        people = math.floor(first.reports * LEAST_TO_RETURN) if is_round else first.reports

        def planned(categories: int) -> Certificate:
            return certify(
                {terms.local_epsilon: max(1, people)},
                randomizer_of(KaryResponse(categories, tuple(map(str, range(categories))))),
                delta=delta,
                attack=False,
                hop_noise=noise,
                hops=hops,
            )

        # The last wave has three categories or more, every other one those of the alphabet or more.
        level = len(settings.alphabet) + 1
        waves = map(planned, {3, 6, 12, level, 2 * level, 4 * level})
        # The first wave itself may be dearer: of a round lost tickets count as dishonest people.
        dearest = max([first.certificate, *waves], key=lambda wave: wave.epsilon)
        if is_round:  # of which only the (epsilon, delta) is known, and compared with its limit
            dearest = Certificate.from_message(dearest.to_message())
        return cls(dearest.epsilon, compose([dearest] * settings.waves, delta=terms.delta))

    def check(self, certificates: Sequence[Certificate], delta: float) -> None:
        """Raises RuntimeError where the waves have cost more than was fixed: the texts are then not told.

        It cannot happen with a deployment, whose accountant refuses a wave that costs more than `wave`.
        """
        reached = compose(certificates, delta=delta).epsilon
        if reached > self.together.epsilon:
            raise RuntimeError(
                f"the waves come to epsilon {reached:g}; they may reach {self.together.epsilon:g}, which was fixed "
                "before the first result: a smaller --local-epsilon costs less"
            )


async def _waves(
    people: Sequence[tuple[str, str]], settings: DiscoverySettings, terms: WaveTerms, ask: Ask, source: RandomSource
) -> DiscoveryResult:
    discovery, certificates = Discovery(settings, terms.local_epsilon), list[Certificate]()
    # In groups the person's own device draws its wave, once and without looking at the text.
    group = [source.below(settings.waves) if settings.groups else None for _ in people]
    # The filter admits the waves by basic composition, too, for which it sets this share of delta aside.
    delta = terms.delta if settings.groups else 0.99 * float(BASIC_SHARE) * terms.delta / settings.waves
    plan: WavePlan | None = None
    while not discovery.over:
        names, wave = discovery.categories(), len(discovery.levels)
        asked = [person for person, own in zip(people, group, strict=True) if own in (None, wave)]
        if not asked:
            break
        question = Question(terms.name, KaryResponse(len(names), names))
        answer = await ask(wave + 1, terms.round_settings(question, delta, 20.0 if plan is None else plan.wave), asked)
        certificates.append(answer.certificate)
        if not settings.groups:
            plan = plan or WavePlan.of(answer, settings, terms, delta)
        discovery.learn(answer.shares, answer.reports, answer.fakes)
    if plan is not None:
        plan.check(certificates, terms.delta)
    together = of_disjoint_groups(certificates, settings.waves) if plan is None else plan.together
    return DiscoveryResult(tuple(discovery.texts), tuple(discovery.levels), discovery.found, together)
