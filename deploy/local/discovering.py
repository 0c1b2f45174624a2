"""A discovery of frequent texts that is simulated: the same estimates and certificates, and nobody protected.

In a deployment the waves of a survey find such texts (`study.runs`, docs/discover.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
from croupier.analyzer.prefix_tree import Discovery
from croupier.client.randomizers import randomize
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.questions import Question
from croupier.protocol.randomness import RandomSource, SystemRandom
from croupier.protocol.rules import Prefixes
from croupier.runtime.noise import draw_fakes
from croupier.study.discovery import DiscoveryResult


@dataclass(frozen=True)
class _Waves:
    """The terms of all waves: see `discover`."""

    rule: Prefixes
    local_epsilon: float
    delta: float
    hop_noise: float | None
    hops: int

    def certify(self, categories: int, people: int, delta: float) -> Certificate:
        """Returns the certificate of a wave with this many categories and people."""
        return certify(
            Budgets.from_tiers([(self.local_epsilon, people)]),
            randomizer_of(KaryResponse(categories)),
            delta=delta,
            attack=False,
            hop_noise=HopNoise.chosen(self.hop_noise, None, delta),
            hops=self.hops,
        )

    def answer(
        self, question: Question, texts: Sequence[str], delta: float, source: RandomSource
    ) -> tuple[Sequence[float], Fakes | None]:
        """Returns the estimated share of each category among these people, and the fakes of the hops."""
        mechanism = question.mechanism
        reports = [randomize(question, mechanism.parse_value(text), self.local_epsilon, source) for text in texts]
        tiers, fakes = [(self.local_epsilon, len(reports))], None
        noise = HopNoise.chosen(self.hop_noise, None, delta)
        if noise is not None:
            law = noise.law(len(mechanism.categories))
            added = [value for _ in range(self.hops) for value, n in enumerate(draw_fakes(law)) for _ in range(n)]
            fakes = Fakes(law, self.hops, len(added), law.most)
            reports += added
        return estimate(question, reports, tiers, fakes=fakes).values, fakes


def discover(
    texts: Sequence[str],
    rule: Prefixes,
    *,
    local_epsilon: float = 4.0,
    groups: bool = False,
    delta: float = DEFAULT_DELTA,
    hop_noise: float | None = None,
    hops: int = 2,
    source: RandomSource | None = None,
) -> DiscoveryResult:
    """Finds the frequent texts of people who are all simulated here: nobody is protected by it.

    Args:
        texts: one for each person.
        rule: the texts that are looked for.
        local_epsilon: of each report, 0 < local_epsilon <= 20.
        groups: whether each person answers one wave, which their device draws; else everybody answers every wave.
        delta: of all waves together.
        hop_noise: the epsilon that the fakes of one honest hop guarantee in each wave; None: hops add no fakes.
        hops: how many hops add fakes.
        source: of people's randomness; None for the operating system's, from which fakes always are.

    Raises:
        ValueError: no texts, or a number out of range.
        RuntimeError: the waves have cost more than was fixed before the first result.
    """
    if not texts:
        raise ValueError("texts is empty; there must be at least one person")
    randomness, waves = source or SystemRandom(), _Waves(rule, local_epsilon, delta, hop_noise, hops)
    discovery, certificates = Discovery(rule, local_epsilon, groups=groups), list[Certificate]()
    # In groups the person's own device draws its wave, once and without looking at the text.
    group = [randomness.below(rule.waves) if groups else None for _ in texts]
    # The filter admits the waves by basic composition, too, for which it sets this share of delta aside.
    each = delta if groups else 0.99 * float(BASIC_SHARE) * delta / rule.waves
    total: Guarantee | None = None
    while not discovery.over:
        names, wave = discovery.categories(), len(discovery.levels)
        asked = [text for text, own in zip(texts, group, strict=True) if own in (None, wave)]
        if not asked:
            break
        certificates.append(waves.certify(len(names), len(asked), each))
        if not groups and total is None:
            total = _fixed_beforehand(waves, certificates[0], len(asked), each)
        shares, fakes = waves.answer(Question("discover", KaryResponse(len(names), names)), asked, each, randomness)
        discovery.learn(shares, len(asked), fakes)
    if total is None:
        return DiscoveryResult.of(discovery, of_disjoint_groups(certificates, rule.waves))
    if (reached := compose(certificates, delta=delta).epsilon) > total.epsilon:
        raise RuntimeError(
            f"the waves come to epsilon {reached:g}; they may reach {total.epsilon:g}, which was fixed before the "
            "first result: a smaller local_epsilon costs less"
        )
    return DiscoveryResult.of(discovery, total)


def _fixed_beforehand(waves: _Waves, first: Certificate, people: int, delta: float) -> Guarantee:
    """Returns the cost of as many waves as there may be, each with the dearest number of categories.

    It follows from the number of people and from settings, and not from answers.
    """
    certificates = [first, *(waves.certify(size, people, delta) for size in waves.rule.sizes)]
    dearest = max(certificates, key=lambda certificate: certificate.epsilon)
    return compose([dearest] * waves.rule.waves, delta=waves.delta)
