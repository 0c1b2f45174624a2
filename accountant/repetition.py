"""The proof of a certificate, repeated with its witnesses: no epsilon is searched for."""

from __future__ import annotations

from croupier.accountant.certificate import Certificate
from croupier.accountant.group_guarantees import repeated
from croupier.accountant.guarantees import TierCertificate
from croupier.accountant.mechanisms.registry import stated_randomizer
from croupier.accountant.recertification import why_not_again
from croupier.accountant.release import Release, SettledConditions, conditions_of
from croupier.accountant.victims import groups_of_victims


def repeat(certificate: Certificate) -> list[tuple[TierCertificate, float | None]]:
    """Returns the tiers of a certificate, each with the delta that its witness proves at its epsilon.

    The delta is None where the tier has no witness of a single round.

    Raises:
        ValueError: the certificate does not say what people run, or how many of them have which budget; or a witness
            has numbers for which nothing is proved.
    """
    randomizer, reason = stated_randomizer(certificate.assumptions), why_not_again(certificate)
    if randomizer is None or reason:
        raise ValueError(f"the proof cannot be repeated: {reason}")
    conditions, rounds = SettledConditions.of(conditions_of(certificate)), certificate.rounds_certified
    release = Release.of(certificate.budgets, randomizer, certificate.delta, None, rounds, conditions)
    groups = groups_of_victims(release.budgets, randomizer, release.colluding, conditions.linkage)
    return [
        (tier, repeated(group, randomizer, release.fakes, tier, release.rounds))
        for group, tier in zip(groups, certificate.tiers, strict=True)
    ]
