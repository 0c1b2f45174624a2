"""`krr`: the share of every category, by matrix inversion with personal budgets."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from croupier.analyzer.base import Batch, Floats
from croupier.analyzer.laws import Laws, count_laws, weights_of
from croupier.analyzer.scalars import ScalarEstimator
from croupier.protocol.mechanisms.krr import KaryResponse

Category = TypeVar("Category", bound=KaryResponse)


class CategoryEstimator(ScalarEstimator[Category]):
    """Estimates the share of every category; sums of categories need what a report hits (`analyzer.tables`)."""

    def laws(self, batch: Batch[Category]) -> Laws:
        """See `ScalarEstimator.laws`."""
        hits = np.bincount(batch.reports, minlength=batch.mechanism.k).astype(np.float64)
        return count_laws(hits, batch.mechanism.k, batch.epsilons, batch.counts, rounded=False)

    def hit(self, mechanism: Category, epsilons: Floats) -> tuple[Floats, Floats]:
        """Returns how likely a report hits a category that is not the person's, and how much likelier the own. (T,)."""
        return weights_of(mechanism.k, epsilons)

    def kept(self, mechanism: Category, epsilons: Floats) -> Floats:
        """Returns how often a report shows the person's category and is not uniform. (T,)."""
        return self.hit(mechanism, epsilons)[1]

    def on_reports(self, mechanism: Category, weights: Floats) -> Floats:
        """Returns the sum of the weights of the categories that each report hits; weights: of the categories, (k,)."""
        return weights

    def of_categories(self, mechanism: Category, values: Floats) -> Floats:
        """Returns the mean of the values of the reports that hit each category, (k,); values: one for each report."""
        return values


ESTIMATOR = CategoryEstimator[KaryResponse]()
