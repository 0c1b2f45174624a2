"""An operator's choices for a round, checked, and its manifest before services have signed it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from croupier.accountant.ranges import DEFAULT_DELTA
from croupier.protocol.deployment import Deployment
from croupier.protocol.envelope import PROTOCOL_VERSION, SuiteName
from croupier.protocol.errors import Refusal
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.manifest import RoundTerms, canonical, parse_terms
from croupier.protocol.names import PublicKey, RoundId
from croupier.protocol.questions import Question
from croupier.protocol.surveys import Survey
from croupier.protocol.tier_counts import TierCounts, chosen_counts
from croupier.protocol.v1 import messages_pb2 as pb

_ANY_CHAIN = ("shuffler-1", "accountant", "analyzer")
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
        survey: the survey of the round's question; see `operator.opened_surveys`.
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
    survey: Survey | None = None
    hop_noise: float | None = None
    hop_noise_delta: float | None = None
    budget_privacy: float | None = None
    budget_privacy_delta: float | None = None

    @property
    def counted_by(self) -> TierCounts:
        """How the people of each budget are counted."""
        chosen = self.budget_privacy, self.budget_privacy_delta
        return chosen_counts(*chosen, len(self.budget_grid), self.min_batch_size)


def check_settings(
    settings: RoundSettings, deployment: Deployment | None = None, round_id: RoundId = _CHECKED
) -> RoundTerms:
    """Returns the terms of a round with placeholder keys, before any service has made its own, or exists.

    Args:
        settings: to check.
        deployment: of the round; without one, the terms that depend on the deployment are not checked.
        round_id: the round's name.

    Raises:
        ValueError: names the term, its value and the allowed values.
    """
    try:
        return parse_terms(draft_manifest(settings, deployment, round_id))
    except Refusal as refusal:
        raise ValueError(refusal.hint) from refusal


def draft_manifest(settings: RoundSettings, deployment: Deployment | None, round_id: RoundId) -> bytes:
    """Returns the manifest that these settings would give, with keys that no service has made."""
    chain = deployment.chain if deployment else _ANY_CHAIN
    return with_drawn_keys(terms_of(settings, round_id, deployment), chain)


def with_drawn_keys(terms: pb.Manifest, chain: Sequence[str]) -> bytes:
    """Returns a manifest for terms without keys, with keys that no service has made: enough to check the terms."""
    round_id = terms.round_id
    keys = {
        name: pb.RoundKeys(
            round_id=round_id,
            service=name,
            public_key=secrets.token_bytes(32),
            release_public_key=secrets.token_bytes(32),
            report_ticket_key=secrets.token_bytes(32),
            parameter_ticket_key=secrets.token_bytes(32),
        )
        for name in chain
    }
    return with_keys(terms, keys, chain)


def new_round_id(settings: RoundSettings) -> RoundId:
    """Returns a fresh name for a round: that of its question with a random end."""
    return RoundId(f"{settings.question.name}-{secrets.token_hex(6)}")


def with_keys(terms: pb.Manifest, keys: Mapping[str, pb.RoundKeys], chain: Sequence[str]) -> bytes:
    """Returns the canonical manifest of a round, from its terms and the keys of all services."""
    *hops, accountant, analyzer = chain
    manifest = pb.Manifest(hops=[keys[name] for name in hops], accountant=keys[accountant], analyzer=keys[analyzer])
    manifest.MergeFrom(terms)
    return canonical(manifest)


def terms_of(settings: RoundSettings, round_id: RoundId, deployment: Deployment | None) -> pb.Manifest:
    """Returns the manifest of a round without the keys of services."""
    limit = deployment.privacy_limit if deployment else None
    noise = HopNoise.chosen(settings.hop_noise, settings.hop_noise_delta, settings.delta)
    manifest = pb.Manifest(
        protocol_version=PROTOCOL_VERSION,
        deployment=deployment.name if deployment else "any",
        round_id=round_id,
        question=settings.question.message(),
        budget_grid=[
            pb.LocalBudget(
                epsilon=epsilon,
                delta=settings.question.mechanism.budget_delta,
                epsilon_max=settings.epsilon_max_of.get(epsilon),
            )
            for epsilon in settings.budget_grid
        ],
        min_batch_size=settings.min_batch_size,
        short_batch_policy=_SHORT_BATCH[settings.short_batch_policy],
        close_deadline_unix_s=settings.close_deadline_unix_s,
        dishonest=settings.dishonest,
        delta=settings.delta,
        epsilon_max=settings.epsilon_max,
        hpke_suite=settings.hpke_suite,
        max_batch_size=settings.max_batch_size,
        collector_public_key=settings.collector_public_key,
        privacy_limit=None if limit is None else pb.PrivacyLimit(**limit.model_dump()),
        survey=None if settings.survey is None else settings.survey.message(),
        hop_noise=None if noise is None else pb.HopNoise(epsilon=noise.epsilon, delta=noise.delta),
    )
    settings.counted_by.write_into(manifest)
    return manifest
