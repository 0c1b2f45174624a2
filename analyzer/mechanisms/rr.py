"""`rr`: the share from the number of ones (GSPA, Algorithm 2)."""

from __future__ import annotations

import numpy as np

from croupier.analyzer.base import Floats
from croupier.analyzer.laws import Laws, count_laws
from croupier.analyzer.scalars import Reports, ScalarEstimator
from croupier.protocol.mechanisms.rr import RandomizedResponse


class _Bit(ScalarEstimator[RandomizedResponse]):
    def laws(self, mechanism: RandomizedResponse, reports: Reports, epsilons: Floats, counts: Floats) -> Laws:
        return count_laws(np.array([float(reports.sum())]), 2, epsilons, counts, rounded=False)


ESTIMATOR = _Bit()
