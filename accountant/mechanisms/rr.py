"""Binary randomised response of a bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from croupier.accountant.mechanisms.base import variances_of_hits
from croupier.accountant.mechanisms.binary import BitReports
from croupier.accountant.numerics.binomial import Floats


@dataclass(frozen=True)
class BinaryRandomizedResponse(BitReports):
    """One bit, kept with probability e^v/(1+e^v) and flipped otherwise; v is the local epsilon.

    Certificate: common blanket, docs/exchange-bound.md, exact worst case.
    Attack: count of ones.
    """

    kind: ClassVar[str] = "rr"

    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """tanh(v/2), and e^v/(1+e^v)^2: the share of ones; for a rounded number at most 1/4."""
        gain = np.tanh(local_epsilon / 2)
        return gain, (1 - gain * gain) / 4

    def variances(self, local_epsilon: Floats, local_delta: Floats, count: Floats) -> tuple[float, float]:
        """See `Randomizer.variances`."""
        return variances_of_hits(np.tanh(local_epsilon / 2), 1 / (np.expm1(local_epsilon) + 2), count)


RANDOMIZER = BinaryRandomizedResponse
