"""The guarantee of all results of a survey together."""

from __future__ import annotations

from collections.abc import Sequence

from croupier.accountant.certificate import Certificate
from croupier.accountant.composed_certificates import compose
from croupier.accountant.guarantees import Guarantee
from croupier.operator.published_result import PublishedResult


def together(results: Sequence[PublishedResult]) -> Guarantee | None:
    """Returns the guarantee for a person who answered every question with the largest budget; None without results.

    The survey fixes all terms before the first round opens.
    """
    granted = [Certificate.from_message(each.certificate) for each in results if each.certificate.granted]
    return compose(granted, fixed_terms=True) if granted else None
