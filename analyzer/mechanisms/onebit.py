"""`onebit`: the mean from the number of ones."""

from __future__ import annotations

import numpy as np

from croupier.analyzer.base import Batch
from croupier.analyzer.laws import Laws, count_laws
from croupier.analyzer.scalars import ScalarEstimator
from croupier.protocol.mechanisms.onebit import OneBit


class _OneBit(ScalarEstimator[OneBit]):
    def laws(self, batch: Batch[OneBit]) -> Laws:
        hits = np.array([float(batch.reports.sum())])
        return count_laws(hits, 2, batch.epsilons, batch.counts, rounded=True)


ESTIMATOR = _OneBit()
