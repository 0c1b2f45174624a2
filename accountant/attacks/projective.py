"""Attacks on projective geometry response: the others at a category on one line with the victim's two.

Three points on a line have hyperplanes that share the same points. So reports of the others' own category miss the
points that belong to only one of the victim's two hyperplanes, and the reports there are the blanket's alone, as in
`two_counts`. All other reports look the same for both of the victim's categories.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from croupier.accountant.attacks.event_tests import CountTest, Population, Probability, Target, Witness
from croupier.accountant.attacks.two_counts import TwoCountTest
from croupier.accountant.numerics.poisson_binomial import poisson_binomial
from croupier.protocol.projective import ProjectiveSpace


@dataclass(frozen=True, eq=False)
class ProjectiveAttacks:
    """One data set, None: the categories 0 and 1 are the victim's, and everybody else has category 2, on their line."""

    population: Population
    space: ProjectiveSpace

    def defaults(self) -> Iterator[None]:
        """Yields the data set."""
        yield None

    def vary(self, data: None, generator: np.random.Generator) -> None:
        """Returns the data set: there is no other."""
        return data

    def test(self, data: None, target: Target) -> Witness:
        """Returns the best event by the counts of the points in only one of the victim's hyperplanes."""
        population, space = self.population, self.space
        decay = np.exp(-population.others_epsilon)
        each = space.apart * decay / (space.block + (space.num_points - space.block) * decay)
        own = math.exp(-population.local_epsilon)
        # The victim's reports outside the two sets, in units of the smaller probability of one of them.
        elsewhere = (space.common / own + space.num_points - 2 * space.block + space.common) / space.apart
        pair, _ = poisson_binomial(2 * each, population.others_count)
        witness = TwoCountTest(pair, None, population.local_epsilon, elsewhere + 2).best(target)
        if witness.score == -math.inf:  # too many users for it: one of the two counts alone
            counted, constant = poisson_binomial(each, population.others_count)
            whole = 1 + own + elsewhere * own
            keep = Probability(1 / whole, (1 + elsewhere) * own / whole)
            flip = Probability(own / whole, (1 + elsewhere * own) / whole)
            witness = CountTest(counted, constant, keep, flip).best_of_both(target)
        return Witness(
            witness.score,
            f"{population} all at a category on the line of the victim's two; points of one hyperplane but not of the "
            f"other: {witness.event}",
        )
