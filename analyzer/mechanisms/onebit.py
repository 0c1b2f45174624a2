"""`onebit`: the mean from the number of ones."""

from __future__ import annotations

import numpy as np

from croupier.analyzer.base import Floats
from croupier.analyzer.laws import Laws, count_laws
from croupier.analyzer.scalars import Reports, ScalarEstimator
from croupier.protocol.mechanisms.onebit import OneBit


class _OneBit(ScalarEstimator[OneBit]):
    def laws(self, mechanism: OneBit, reports: Reports, epsilons: Floats, counts: Floats) -> Laws:
        return count_laws(np.array([float(reports.sum())]), 2, epsilons, counts, rounded=True)


ESTIMATOR = _OneBit()
