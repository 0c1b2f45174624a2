"""`choices`: the share of people who choose each option, from one bit of every person.

Given how many people drew an option, its ones are those of `rr` among as many people, drawn at random from all, with
the mean of all budgets (docs/estimators.md, Several choices).
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from croupier.analyzer.base import Batch
from croupier.analyzer.intervals import SumLaw
from croupier.analyzer.laws import Laws, weights_of
from croupier.analyzer.noised_tiers import TierErrors, TierNoise
from croupier.analyzer.scalars import ScalarEstimator
from croupier.protocol.mechanisms.choices import MultipleChoice


class _Choices(ScalarEstimator[MultipleChoice]):
    """Estimates the share of people who choose each option; the shares need not add up to 1."""

    shares_add_up: ClassVar[bool] = False

    def laws(self, batch: Batch[MultipleChoice]) -> Laws:
        """Returns the number of ones of every option, and its law given how many people drew the option.

        Of the reports of an option the mean number of fakes is taken away. An option that nobody drew counts as drawn
        by one person, so that its interval is the whole range.
        """
        k, counts = batch.mechanism.k, batch.counts
        people = float(counts.sum())
        bits = np.bincount(batch.reports, minlength=2 * k).astype(np.float64).reshape(k, 2)
        drawn = np.maximum(bits.sum(axis=1) - (batch.reports.size - people) / k, 1.0)
        flips, weights = (float(np.dot(each, counts)) / people for each in weights_of(2, batch.epsilons))
        keeps = flips + weights
        population = SumLaw(
            offset=drawn * flips,
            weight=drawn * weights,
            variance_at_0=drawn * flips * (1 - flips),
            variance_at_1=drawn * keeps * (1 - keeps),
            spread=drawn * weights**2,
        )
        others = np.clip(people - drawn, 0.0, None) / max(people - 1, 1.0)  # drawn without replacement
        return Laws(bits[:, 1], replace(population, spread=population.spread * others), population)

    def with_noised_tiers(self, batch: Batch[MultipleChoice], laws: Laws, errors: TierErrors) -> Laws:
        """An option has the part of the errors that it has of the people."""
        weights = weights_of(2, batch.epsilons)[1]
        unit = laws.participants.weight / float(np.dot(weights, batch.counts))
        return TierNoise.of(errors, weights, batch.counts, 1 / 2).on(laws, unit)


ESTIMATOR = _Choices()
