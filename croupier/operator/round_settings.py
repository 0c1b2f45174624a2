"""An operator's choices for the questions of a survey, checked; the survey, and the manifests of its rounds."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from croupier.accountant.ranges import DEFAULT_DELTA
from croupier.protocol.deployment import Deployment
from croupier.protocol.envelope import PROTOCOL_VERSION, SuiteName
from croupier.protocol.errors import Refusal
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.identity import canonical
from croupier.protocol.names import PublicKey, RoundId
from croupier.protocol.questions import Question
from croupier.protocol.rules import Rule, write_rule
from croupier.protocol.schedules import Schedule, Wave
from croupier.protocol.surveys import (
    WAVE_NAME,
    LeftOut,
    QuestionTerms,
    Survey,
    SurveyWording,
    read_survey,
)
from croupier.protocol.tier_counts import TierCounts, chosen_counts
from croupier.protocol.v1 import messages_pb2 as pb

_NO_COLLECTOR = PublicKey(b"")
"""The round has no collector: its result is published."""
_CHECKED = RoundId("checked")
"""The name of a round that is only checked."""
_SHORT_BATCH = {"hold": pb.SHORT_BATCH_POLICY_HOLD, "dispose": pb.SHORT_BATCH_POLICY_DISPOSE}


@dataclass(frozen=True)
class RoundSettings:
    """The operator's choices for a round; `protocol.manifest` checks them.

    Attributes:
        question: of the round.
        rule: how the question goes on by results; None where it stays the same.
        budget_grid: the local epsilons that clients may use, ascending.
        delta: the central delta of the certificate.
        epsilon_max: the round is refused if the certified central epsilon of any client is above it.
        epsilon_max_of: for clients with this local epsilon, instead of epsilon_max.
        dishonest: f, the number of dishonest clients to certify against.
        min_batch_size: the fewest clients whose reports are mixed.
        max_batch_size: further clients are refused; 0: all registered clients may take part.
        short_batch_policy: with fewer than `min_batch_size`: "hold" the round open, or "dispose" of it.
        close_deadline_unix_s: the time at which the round closes by itself; from then on clients get no tickets, so
            that a held round waits for those that have them. 0: only the operator closes it.
        hpke_suite: of all envelopes.
        collector_public_key: of that suite: the result is published sealed to it; empty: the result is public.
        hop_noise: the epsilon that the fake reports of one honest hop guarantee; None: hops add no reports.
        hop_noise_delta: its delta; None: `delta`.
        budget_privacy: the epsilon with which tier counts hide one person's budget; 0: they are exact. None: 1, where
            there are several budgets and `min_batch_size` is at least `LEAST_PEOPLE` times the number of people that
            such counts leave out; else 0. See `protocol.tier_counts.chosen_counts`.
        budget_privacy_delta: its delta; None: 1e-6.
    """

    question: Question
    budget_grid: tuple[float, ...]
    delta: float = DEFAULT_DELTA
    epsilon_max: float = 1.0
    epsilon_max_of: Mapping[float, float] = field(default_factory=dict)
    dishonest: int = 0
    min_batch_size: int = 100
    max_batch_size: int = 0
    short_batch_policy: Literal["hold", "dispose"] = "hold"
    close_deadline_unix_s: int = 0
    hpke_suite: SuiteName = "x25519-sha256-chacha20poly1305"
    collector_public_key: PublicKey = _NO_COLLECTOR
    hop_noise: float | None = None
    hop_noise_delta: float | None = None
    budget_privacy: float | None = None
    budget_privacy_delta: float | None = None
    rule: Rule | None = None

    @property
    def counted_by(self) -> TierCounts:
        """How the people of each budget are counted."""
        chosen = self.budget_privacy, self.budget_privacy_delta
        return chosen_counts(*chosen, len(self.budget_grid), self.min_batch_size)


def check_settings(
    settings: RoundSettings, deployment: Deployment | None = None, round_id: RoundId = _CHECKED
) -> QuestionTerms:
    """Returns the terms of a round that is a survey of its own, before any service has made its keys, or exists.

    Args:
        settings: to check.
        deployment: of the round; without one, the terms that depend on the deployment are not checked.
        round_id: the round's name.

    Raises:
        ValueError: names the term, its value and the allowed values.
    """
    return survey_of([settings], round_id, deployment).questions[0]


def fresh_name(name: str) -> RoundId:
    """Returns a new name for a survey of one question, and for its round: the question's with a random end."""
    name = re.sub(WAVE_NAME, "-", re.sub(r"[^A-Za-z0-9_-]", "", name)[:40])
    return RoundId(f"{name or 'round'}-{secrets.token_hex(6)}")


def survey_of(
    questions: Sequence[RoundSettings],
    survey_id: str,
    deployment: Deployment | None,
    wordings: Sequence[SurveyWording] = (),
    left_out: LeftOut = "missing",
    schedule: Schedule | None = None,
) -> Survey:
    """Returns the survey of these questions; the terms that all questions share are those of the first.

    Raises:
        ValueError: names the term, its value and the allowed values.
    """
    shared = questions[0]
    limit = deployment.privacy_limit if deployment else None
    noise = HopNoise.chosen(shared.hop_noise, shared.hop_noise_delta, shared.delta)
    message = pb.Survey(
        protocol_version=PROTOCOL_VERSION,
        deployment=deployment.name if deployment else "any",
        survey_id=survey_id,
        wordings=[pb.SurveyWording(**asdict(wording)) for wording in wordings],
        questions=[
            pb.SurveyQuestion(
                question=settings.question.message(),
                budget_grid=[
                    pb.LocalBudget(
                        epsilon=epsilon,
                        delta=settings.question.mechanism.budget_delta,
                        epsilon_max=settings.epsilon_max_of.get(epsilon),
                    )
                    for epsilon in settings.budget_grid
                ],
            )
            for settings in questions
        ],
        left_out=pb.LeftOut.Value(f"LEFT_OUT_{left_out.upper()}"),
        min_batch_size=shared.min_batch_size,
        max_batch_size=shared.max_batch_size,
        short_batch_policy=_SHORT_BATCH[shared.short_batch_policy],
        dishonest=shared.dishonest,
        delta=shared.delta,
        epsilon_max=shared.epsilon_max,
        hpke_suite=shared.hpke_suite,
        privacy_limit=None if limit is None else pb.PrivacyLimit(**limit.model_dump()),
        collector_public_key=shared.collector_public_key,
        hop_noise=None if noise is None else pb.HopNoise(epsilon=noise.epsilon, delta=noise.delta),
        close_deadline_unix_s=shared.close_deadline_unix_s,
        schedule=None if schedule is None else schedule.message(),
        num_hops=len(deployment.shufflers) if deployment else 1,
    )
    for settings, question in zip(questions, message.questions, strict=True):
        if settings.rule is not None:
            write_rule(settings.rule, question)
    shared.counted_by.write_into(message)
    try:
        return read_survey(canonical(message))
    except Refusal as refusal:
        raise ValueError(refusal.hint) from refusal


def manifest_of(
    survey: Survey,
    place: int,
    wave: Wave | None,
    keys: Mapping[str, pb.RoundKeys],
    chain: Sequence[str],
    state: pb.RuleState | None = None,
) -> bytes:
    """Returns the canonical manifest of a round: a question of a survey in a wave, with the keys of all services.

    state: of the question's rule; None without a rule, and in the first wave of one that states none there.
    """
    *hops, accountant, analyzer = chain
    manifest = pb.Manifest(
        survey_hash=survey.hash,
        question=place,
        hops=[keys[name] for name in hops],
        accountant=keys[accountant],
        analyzer=keys[analyzer],
        rule_state=state,
    )
    if wave is not None:
        manifest.wave, manifest.opens_unix_s, manifest.closes_unix_s = (
            wave.number,
            wave.opens_unix_s,
            wave.closes_unix_s,
        )
    return canonical(manifest)
