"""`rr`: the share from the number of ones (GSPA, Algorithm 2)."""

from __future__ import annotations

import numpy as np

from croupier.analyzer.base import Batch
from croupier.analyzer.laws import Laws, count_laws
from croupier.analyzer.scalars import ScalarEstimator
from croupier.protocol.mechanisms.rr import RandomizedResponse


class _Bit(ScalarEstimator[RandomizedResponse]):
    def laws(self, batch: Batch[RandomizedResponse]) -> Laws:
        hits = np.array([float(batch.reports.sum())])
        return count_laws(hits, 2, batch.epsilons, batch.counts, rounded=False)


ESTIMATOR = _Bit()
