"""What a training costs one client: epsilon after every epoch, with its grade and what it rests on.

User level, hemisphere: the certified curve of one epoch, composed as the ledger composes it. Record level, Gaussian:
the local guarantee, composed exactly; in high dimension a report shows its own noise scale, so that nothing is gained
by shuffling (docs/sgd.md), and GSPA's Theorem 5 stands beside it as ASYMPTOTIC.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from accountant.budgets import Budgets
from accountant.certification import tier_curves
from accountant.composition import ComposedCurve, Round
from accountant.curves import smallest_epsilon
from accountant.gaussian import gaussian_epsilon, gaussian_sigma
from accountant.ledger import ProfileCurve, profile_of
from accountant.published import gspa_mu
from accountant.randomizers import HemisphereMechanism
from accountant.results import Grade

__all__ = ["SiloSpending", "Spending", "UserSpending"]


@dataclass(frozen=True)
class Spending:
    """epsilon at delta after some epochs, of the client who loses most, and by local budget.

    asymptotic: GSPA's Theorem 5 at the same delta, which guarantees nothing; None where it says nothing.
    """

    epsilon: float
    delta: float
    grade: Grade
    method: str
    tiers: tuple[tuple[float, float], ...]
    asymptotic: float | None


class UserSpending:
    """Users who answer once an epoch with a hemisphere vector, among the users of their batch.

    Args:
        batches: the budgets of every different batch of an epoch; a user is taken to be in the worst.
        dimension: of the vectors. delta: of the whole training, at least 1e-12.
        dishonest: how many of a batch may be anything.
    """

    def __init__(self, batches: Sequence[Budgets], dimension: int, delta: float, dishonest: int = 0) -> None:
        self.delta = delta
        self._method = f"hemisphere in {dimension} dimensions, privacy loss distributions composed over the epochs"
        profiles: dict[float, list[tuple[tuple[float, float], ...]]] = {}
        self._mu = max(gspa_mu(batch) for batch in batches)
        for batch in batches:
            for victim, curve in tier_curves(batch, HemisphereMechanism(dimension=dimension), delta, dishonest):
                local = victim.local_epsilon
                profile: tuple[tuple[float, float], ...] = ((local, 0.0),)
                if curve is not None:
                    reach = smallest_epsilon(curve, 1e-3 * delta, local, tolerance=0.02).epsilon
                    profile = profile_of(curve, reach, local)
                profiles.setdefault(local, []).append(profile)
        self._profiles = profiles

    def after(self, epochs: int) -> Spending:
        """Returns what is spent after that many epochs, at least one."""
        tiers = tuple((local, self._composed(local, epochs)) for local in sorted(self._profiles))
        asymptotic = gaussian_epsilon(self._mu * math.sqrt(epochs), self.delta)
        headline = max(epsilon for _, epsilon in tiers)
        return Spending(headline, self.delta, Grade.CERTIFIED, self._method, tiers, asymptotic)

    def _composed(self, local: float, epochs: int) -> float:
        # Never more than every local budget together.
        curve = ComposedCurve([Round(ProfileCurve(self._profiles[local]), local, epochs)], self.delta)
        return smallest_epsilon(curve, self.delta, local * epochs).epsilon

    def epochs_within(self, epsilon: float, most: int) -> int:
        """Returns how many epochs, at most `most`, spend at most epsilon; 0 if not even one does."""
        low, high = 0, most + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self.after(middle).epsilon <= epsilon:
                low = middle
            else:
                high = middle
        return low


class SiloSpending:
    """Clients with many records each, who answer once an epoch with a mean of clipped gradients and Gaussian noise.

    The guarantee is for one record (replace-one). local: (epsilon, delta) of every client for one answer.
    """

    def __init__(self, local: Sequence[tuple[float, float]], delta: float) -> None:
        self.delta = delta
        self._mu = {pair: 1 / gaussian_sigma(*pair) for pair in dict.fromkeys(local)}
        self._gspa = gspa_mu(Budgets.from_tiers([(epsilon, 1, local_delta) for epsilon, local_delta in local]))

    def noise(self, epsilon: float, delta: float) -> float:
        """Returns sigma for sensitivity 1, by analytic calibration."""
        return 1 / self._mu[epsilon, delta]

    def after(self, epochs: int) -> Spending:
        """Returns what is spent after that many epochs, at least one; mu grows with the root of their number."""
        root = math.sqrt(epochs)
        tiers = tuple((pair[0], gaussian_epsilon(mu * root, self.delta)) for pair, mu in sorted(self._mu.items()))
        return Spending(
            max(epsilon for _, epsilon in tiers),
            self.delta,
            Grade.CERTIFIED,
            "local Gaussian mechanism, composed exactly; no amplification is proved in high dimension",
            tiers,
            gaussian_epsilon(self._gspa * root, self.delta),
        )
