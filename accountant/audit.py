"""An audit: the certificate of a batch of budgets beside the strongest attack that a search finds.

The two enclose the truth. An attack above the certificate would be a defect of this library, and is reported as one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from croupier.accountant.budgets import Budgets
from croupier.accountant.certificate import Certificate
from croupier.accountant.certification import certify
from croupier.accountant.guarantees import LowerBound
from croupier.accountant.lower_bound import lower_bound
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.ranges import Linkage
from croupier.protocol.documents import document_of
from croupier.protocol.names import JsonObject


@dataclass(frozen=True)
class Audit:
    """A certified epsilon and the epsilon of an attack, at the same delta."""

    certificate: Certificate
    attack: LowerBound

    @property
    def ratio(self) -> float | None:
        """The certified epsilon over the attack's, at least 1; None if the attack proves nothing."""
        return self.certificate.epsilon / self.attack.epsilon if self.attack.epsilon > 0 else None

    def document(self) -> JsonObject:
        """Returns the JSON document of `croupier audit`; "ratio" is None if the attack proves nothing."""
        parts = {"lower_bound": self.attack, "certificate": self.certificate.guarantee, "ratio": self.ratio}
        document: JsonObject = document_of(parts)
        return document


def audit(
    budgets: Budgets,
    randomizer: Randomizer,
    *,
    delta: float,
    dishonest: int,
    linkage: Linkage,
    seconds: float,
    progress: Callable[[LowerBound, int], None] | None = None,
) -> Audit:
    """Certifies the budgets, and searches for an attack.

    Args:
        budgets: the local budgets of the batch.
        randomizer: of all its users.
        delta: of certificate and attack; a certified local budget keeps its own delta if that is larger.
        dishonest: the number of other clients who may be dishonest.
        linkage: "separate", or "stratified": a report shows its tier.
        seconds: the time of the search.
        progress: called with the best attack so far and the number of attacks tried.

    Raises:
        ValueError: an argument is out of its range.
        RuntimeError: an attack is above the certificate.
    """
    certificate = certify(budgets, randomizer, delta=delta, dishonest=dishonest, linkage=linkage, attack=False)
    attack = lower_bound(
        budgets,
        randomizer,
        delta=certificate.delta,
        dishonest=dishonest,
        linkage=linkage,
        seconds=seconds,
        progress=progress,
    )
    certificate.check_attack(attack)
    return Audit(certificate, attack)
