"""What a certificate is about, certified once more: at another delta, or with one thing changed."""

from __future__ import annotations

from croupier.accountant.budgets import Budgets
from croupier.accountant.certificate import Certificate
from croupier.accountant.certification import certify
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.registry import stated_randomizer
from croupier.accountant.release import RoundConditions
from croupier.protocol.codes import Assumption
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.rounding import round_up


def certify_again(
    certificate: Certificate,
    randomizer: Randomizer,
    *,
    budgets: Budgets | None = None,
    delta: float | None = None,
    epsilon: float | None = None,
    dishonest: int | None = None,
    noise: HopNoise | None = None,
    seconds: float | None = None,
) -> Certificate:
    """Returns a certificate of the same releases, without an attack; what is None is as the certificate has it.

    Args:
        certificate: which says how many people have which budget.
        randomizer: that of the certificate.
        budgets: in place of the certificate's.
        delta: in place of the certificate's.
        epsilon: in place of a delta.
        dishonest: in place of the certificate's.
        noise: in place of the certificate's.
        seconds: as for `certify`.

    Raises:
        ValueError: as `certify`.
    """
    conditions = conditions_of(certificate)
    if dishonest is not None:
        conditions["dishonest"] = dishonest
    if noise is not None:
        conditions["hop_noise"] = noise
    return certify(
        certificate.budgets if budgets is None else budgets,
        randomizer,
        delta=certificate.delta if delta is None and epsilon is None else delta,
        epsilon=epsilon,
        rounds=certificate.rounds_certified,
        attack=False,
        seconds=seconds,
        **conditions,
    )


def conditions_of(certificate: Certificate) -> RoundConditions:
    """Returns the conditions of the releases of a certificate, as `certify` takes them."""
    noise, hops = hop_noise_of(certificate)
    return {
        "dishonest": certificate.dishonest,
        "linkage": certificate.linkage,
        "adaptive_order": any(line.code is Assumption.ADAPTIVE_ORDER for line in certificate.assumptions),
        "hop_noise": noise,
        "hops": hops,
        "counted_by": certificate.budget_privacy,
    }


def why_not_again(certificate: Certificate) -> str:
    """Returns why nothing can be certified once more of the same people; "" where it can."""
    if stated_randomizer(certificate.assumptions) is None:
        return "the certificate does not say all of what people's devices run"
    if any(tier.grouped for tier in certificate.tiers):
        return "the certificate puts budgets together, and does not say how many people have which"
    if not 0 < certificate.delta < 1:
        return f"δ is {round_up(certificate.delta)}"
    return ""


def can_be_repeated(certificate: Certificate) -> bool:
    """Whether a certificate holds all that it takes to certify the same releases at another delta.

    Not so where it was read from a document, which may be of a round that lost messages; where it puts budgets together
    or its counts are noised; and where it does not say what people run.
    """
    unsaid = certificate.budget_privacy is not None or any(not tier.steps for tier in certificate.tiers)
    return not unsaid and not why_not_again(certificate)


def at_other(
    certificate: Certificate, *, delta: float | None = None, epsilon: float | None = None
) -> Certificate | None:
    """Returns a certificate of the same releases at another delta, or epsilon, under no more assumptions.

    None where it cannot be had (`can_be_repeated`), or would assume more. Exactly one of delta and epsilon is given.
    """
    randomizer = stated_randomizer(certificate.assumptions)
    if randomizer is None or not can_be_repeated(certificate) or (delta is not None and not 0 < delta < 1):
        return None
    again = certify_again(certificate, randomizer, delta=delta, epsilon=epsilon)
    return again if {*again.assumptions} <= {*certificate.assumptions} else None


def hop_noise_of(certificate: Certificate) -> tuple[HopNoise | None, int]:
    """Returns the hop noise that a certificate was made with, and of how many hops; (None, 1) without hop noise."""
    hop = certificate.one_honest_hop
    for assumption in () if hop is None else hop.assumptions:
        if assumption.code is Assumption.ONE_HONEST_HOP:
            stated = dict(assumption.parameters)
            return HopNoise(float(stated["epsilon"]), float(stated["delta"])), int(stated["hops"])
    return None, 1
