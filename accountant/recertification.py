"""The releases of a certificate, certified once more: at another delta, or with one condition changed."""

from __future__ import annotations

from typing import Unpack

from croupier.accountant.budgets import Budgets
from croupier.accountant.certificate import Certificate
from croupier.accountant.certification import certify
from croupier.accountant.hop_fakes import Fakes
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.registry import stated_randomizer
from croupier.accountant.release import RoundConditions, SettledConditions, conditions_of
from croupier.protocol.rounding import round_up
from croupier.protocol.tier_counts import EXACT


def certify_again(
    certificate: Certificate,
    randomizer: Randomizer,
    *,
    budgets: Budgets | None = None,
    delta: float | None = None,
    epsilon: float | None = None,
    seconds: float | None = None,
    **changed: Unpack[RoundConditions],
) -> Certificate:
    """Returns a certificate of the same releases, without an attack; None keeps the certificate's own value.

    Args:
        certificate: which states the number of people with each budget.
        randomizer: of the certificate.
        budgets: in place of the certificate's.
        delta: in place of the certificate's.
        epsilon: in place of a delta.
        seconds: as for `certify`.
        changed: conditions in place of the certificate's.

    Raises:
        ValueError: as `certify`.
    """
    return certify(
        certificate.budgets if budgets is None else budgets,
        randomizer,
        delta=certificate.delta if delta is None and epsilon is None else delta,
        epsilon=epsilon,
        rounds=certificate.rounds_certified,
        attack=False,
        seconds=seconds,
        **conditions_of(certificate) | changed,
    )


def why_not_again(certificate: Certificate) -> str:
    """Returns the reason why the same people cannot be certified once more; "" if they can."""
    if stated_randomizer(certificate.assumptions) is None:
        return "the certificate does not say all of what people's devices run"
    if any(tier.grouped for tier in certificate.tiers):
        return "the certificate puts budgets together, and does not say how many people have which"
    if not 0 < certificate.delta < 1:
        return f"δ is {round_up(certificate.delta)}"
    return ""


def can_be_repeated(certificate: Certificate) -> bool:
    """Says whether a certificate holds all inputs for certifying the same releases at another delta.

    It does not if it was read from a document, which may be of a round that lost messages; if it groups budgets or its
    counts are noised; or if it does not state the randomizer.
    """
    is_whole = certificate.counted_by == EXACT and all(tier.steps for tier in certificate.tiers)
    return is_whole and not why_not_again(certificate)


def at_other(
    certificate: Certificate, *, delta: float | None = None, epsilon: float | None = None
) -> Certificate | None:
    """Returns a certificate of the same releases at another delta, or epsilon, under no more assumptions.

    None if that is impossible (`can_be_repeated`) or would assume more. Exactly one of delta and epsilon is given.
    """
    randomizer = stated_randomizer(certificate.assumptions)
    if randomizer is None or not can_be_repeated(certificate) or (delta is not None and not 0 < delta < 1):
        return None
    again = certify_again(certificate, randomizer, delta=delta, epsilon=epsilon)
    return again if {*again.assumptions} <= {*certificate.assumptions} else None


def fakes_of(certificate: Certificate, randomizer: Randomizer) -> Fakes:
    """Returns the fakes that hops add to the reports of a certificate's randomizer."""
    return SettledConditions.of(conditions_of(certificate)).fakes(randomizer)
