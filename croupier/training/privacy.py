"""What a training costs one client: epsilon after every epoch, with its grade and what it rests on.

User level, hemisphere: the curve of every batch that really answered, composed over the epochs. A training is one plan
of equal steps, so its terms are fixed before the first result. Record level, Gaussian: the local guarantee, composed
exactly; in high dimension a report shows its own noise scale, so that nothing is gained by shuffling (docs/sgd.md), and
GSPA's Theorem 5 is shown with it as ASYMPTOTIC.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from croupier.accountant.budgets import Budgets
from croupier.accountant.certification import tier_profiles
from croupier.accountant.composition import ComposedProfile, Round
from croupier.accountant.guarantees import Grade
from croupier.accountant.mechanisms.hemisphere import HemisphereMechanism
from croupier.accountant.numerics.decimals import sum_above, sum_as_decimals
from croupier.accountant.numerics.gaussian import gaussian_epsilon
from croupier.accountant.numerics.inversion import smallest_epsilon
from croupier.accountant.privacy_curve import Proof
from croupier.accountant.published import OutOfRangeError, gspa_mu
from croupier.accountant.recorded_profile import Profile, RecordedProfile, profile_of
from croupier.protocol.calibration import unit_epsilon, unit_sigma
from croupier.protocol.codes import Assumption, Method
from croupier.protocol.statements import Statement
from croupier.protocol.tier_counts import counts_of
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.training.config import FITTED_FEATURES


@dataclass(frozen=True)
class Conditions:
    """What is done to the data beside the randomizer, and so what an epsilon is worth and rests on.

    Attributes:
        features: the name of the data set's features; those of `FITTED_FEATURES` look at the users' data, and no
            certificate covers that.
        model_file: the model has code of its own, from a file or the caller.
        sequential: one user a step, in an order that hop 1 alone knows.
        simulated: all of the data lies with one party, so that no user is protected.
        chosen_on_users: the step size and the like were chosen by looking at some of the users' examples; epsilon is
            then about the training alone.
    """

    features: str = "pixels"
    model_file: bool = False
    sequential: bool = False
    simulated: bool = False
    chosen_on_users: bool = False

    @property
    def grade(self) -> Grade:
        """HEURISTIC where what is published tells something about the users' data that is not accounted for."""
        return Grade.HEURISTIC if self.features in FITTED_FEATURES else Grade.CERTIFIED

    @property
    def order(self) -> Assumption:
        """Which service must be honest so that no observer knows which answer is whose."""
        return Assumption.HONEST_FIRST_SHUFFLER if self.sequential else Assumption.UNIFORM_ORDER

    def assumptions(self) -> tuple[Statement[Assumption], ...]:
        """About the data, the model and the mode."""
        assumptions = [
            Statement.of(Assumption.FEATURES_FROM_USERS)
            if self.features in FITTED_FEATURES
            else Statement.of(Assumption.FEATURES_WITHOUT_USERS, features=self.features),
            Statement.of(Assumption.CHOSEN_ON_USERS if self.chosen_on_users else Assumption.CHOSEN_WITHOUT_USERS),
            Statement.of(Assumption.MEASURED_ON_OTHERS),
        ]
        if self.model_file:
            assumptions.append(Statement.of(Assumption.MODEL_FILE_BLIND))
        if self.simulated:
            assumptions.append(Statement.of(Assumption.SIMULATED))
        return tuple(assumptions)


@dataclass(frozen=True)
class Batch:
    """The clients that answered a step.

    Attributes:
        tiers: (local epsilon, how many), ascending.
        dishonest: how many of the others may be dishonest.
        unknown: the most that a client may have spent whose report was released and whose budget did not arrive; 0
            where there is none.
    """

    tiers: tuple[tuple[float, int], ...]
    dishonest: int = 0
    unknown: float = 0.0

    @classmethod
    def of(cls, certificate: pb.Certificate) -> Batch:
        """Returns what a step's certificate says.

        Where counts are noised a user of every tier is added, who need not be there and so counts as dishonest for the
        others, as in the certificate (docs/accounting.md, 7.2).
        """
        added = counts_of(certificate).victims
        tiers = sorted((tier.local_epsilon, int(tier.count) + added) for tier in certificate.tiers)
        unknown = certificate.everyone_else_colludes_epsilon if certificate.unknown_budgets else 0.0
        return cls(tuple(tiers), int(certificate.dishonest) + added * len(tiers), unknown)

    @property
    def budgets(self) -> Budgets:
        """As the accountant takes them."""
        return Budgets.from_tiers(list(self.tiers))


@dataclass(frozen=True)
class Spending:
    """Epsilon at delta after some epochs, of the client that loses most, and by local budget.

    Attributes:
        epsilon: of the client that loses most.
        delta: that all of these epsilons are at.
        grade: of all of these epsilons.
        method: how they were found.
        tiers: (local epsilon, epsilon) of the clients by their local budget.
        local_delta: of the local budgets; 0 where the randomizer spends none.
        everyone_else_colludes: epsilon of the client that loses most if no other party is honest.
        assumptions: what the epsilons rest on.
        asymptotic: GSPA's Theorem 5 at the same delta, which guarantees nothing; None where it says nothing.
    """

    epsilon: float
    delta: float
    grade: Grade
    method: Proof
    tiers: tuple[tuple[float, float], ...]
    everyone_else_colludes: float
    assumptions: tuple[Statement[Assumption], ...]
    asymptotic: float | None
    local_delta: float = 0.0


class TrainingCost(ABC):
    """What the epochs of a training cost together, and how many of them a limit allows."""

    conditions: Conditions
    delta: float

    @abstractmethod
    def after(self, epochs: Sequence[Collection[Batch]], unreleased: int = 0) -> Spending:
        """Returns what is spent after these epochs, at least one, and that many answers that were never opened."""

    def epochs_within(self, epoch: Collection[Batch], epsilon: float, most: int) -> int:
        """Returns how many epochs like this one, at most `most`, spend at most epsilon; 0 if not even one does."""
        low, high = 0, most + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self.after([epoch] * middle).epsilon <= epsilon:
                low = middle
            else:
                high = middle
        return low


class UserSpending(TrainingCost):
    """The cost for users that answer at most once an epoch with a hemisphere vector, among those of their batch.

    An epoch is the collection of its batches; a user is taken to be in the worst of those that have its local budget.
    What was computed for a batch is kept: epochs that are alike cost one computation.
    """

    def __init__(self, dimension: int, delta: float, conditions: Conditions = Conditions()) -> None:
        """Takes the dimension of the vectors, the delta of the whole training (at least 1e-12), and the conditions."""
        self.delta = delta
        self.conditions = conditions
        self._randomizer = HemisphereMechanism(dimension=dimension)
        self._known: dict[Batch, dict[float, Profile]] = {}

    def after(self, epochs: Sequence[Collection[Batch]], unreleased: int = 0) -> Spending:
        """Returns what is spent after these epochs, at least one.

        Args:
            epochs: the batches of each.
            unreleased: how many more answers each client may have made that were never opened. They cost nothing as
                long as the accountant and the analyzer do not collude.
        """
        alike = Counter(frozenset(epoch) for epoch in epochs)
        batches = [batch for epoch in alike for batch in epoch]
        known = {local for batch in batches for local, _ in batch.tiers}
        locals_ = sorted(known | {batch.unknown for batch in batches if batch.unknown})
        tiers = tuple((local, self._composed(local, alike)) for local in locals_)
        return Spending(
            epsilon=max(epsilon for _, epsilon in tiers),
            delta=self.delta,
            grade=self.conditions.grade,
            method=(Statement.of(Method.TRAINING_HEMISPHERE, dimension=self._randomizer.dimension),),
            tiers=tiers,
            everyone_else_colludes=sum_as_decimals([locals_[-1]] * (len(epochs) + unreleased)),
            assumptions=self._assumptions(max(batch.dishonest for batch in batches)),
            asymptotic=self._asymptotic(alike),
        )

    def _assumptions(self, dishonest: int) -> tuple[Statement[Assumption], ...]:
        return (
            Statement.of(Assumption.REPLACE_ONE),
            self._randomizer.statement,
            Statement.of(self.conditions.order),
            *(
                (Statement.of(Assumption.INDEPENDENT_ABSENCE), Statement.of(Assumption.UNWATCHED))
                if self.conditions.sequential
                else ()
            ),
            Statement.of(Assumption.STEP_DISHONEST_USERS, dishonest=dishonest),
            Statement.of(Assumption.DIFFERENT_USERS),
            Statement.of(Assumption.HONEST_ACCOUNTANT),
            Statement.of(Assumption.ONE_ANSWER_AN_EPOCH),
            Statement.of(Assumption.FIXED_TERMS),
            Statement.of(Assumption.BUDGETS_PUBLIC),
            *self.conditions.assumptions(),
        )

    def _composed(self, local: float, alike: Counter[frozenset[Batch]]) -> float:
        rounds: Counter[frozenset[Profile]] = Counter()
        for epoch, count in alike.items():
            # Users with this budget lose nothing in epochs that none of them answered, as far as budgets are known.
            profiles = frozenset(
                self._profile(batch, local)
                for batch in epoch
                if batch.unknown >= local or any(tier == local for tier, _ in batch.tiers)
            )
            if profiles:
                rounds[profiles] += count
        # A profile ends at the largest local budget that it speaks for, where its delta is 0.
        parts = [
            Round(RecordedProfile(tuple(profiles)), max(profile[-1][0] for profile in profiles), count)
            for profiles, count in rounds.items()
        ]
        # Never more than every local budget together.
        most = sum_above([local] * rounds.total())
        return smallest_epsilon(ComposedProfile(parts, self.delta), self.delta, most).epsilon

    def _asymptotic(self, alike: Counter[frozenset[Batch]]) -> float | None:
        try:
            mus = [(max(gspa_mu(batch.budgets) for batch in epoch), count) for epoch, count in alike.items()]
        except OutOfRangeError:  # a batch of one user
            return None
        return gaussian_epsilon(math.sqrt(sum(count * mu**2 for mu, count in mus)), self.delta)

    def _profile(self, batch: Batch, local: float) -> Profile:
        """Returns the profile of a budget in a batch, or beside it: of one more user, whom all of it helps."""
        if all(tier != local for tier, _ in batch.tiers):
            batch = replace(batch, tiers=tuple(sorted((*batch.tiers, (local, 1)))))
        return self._profiles(batch)[local]

    def _profiles(self, batch: Batch) -> dict[float, Profile]:
        """Returns the certified profile of every local budget in a batch."""
        if batch not in self._known:
            profiles: list[Profile] = []
            # Where users answer one after the other, a gradient depends on the answers before it.
            curves = tier_profiles(
                batch.budgets,
                self._randomizer,
                self.delta,
                batch.dishonest,
                adaptive_order=self.conditions.sequential,
            )
            for victim, curve in curves:
                most = victim.local_epsilon
                if curve is None:
                    profiles.append(((most, 0.0),))
                else:
                    reach = smallest_epsilon(curve, 1e-3 * self.delta, most, tolerance=0.02).epsilon
                    profiles.append(profile_of(curve, reach, most))
            profiles.sort(key=lambda profile: profile[-1][0])
            # Very many budgets are answered in groups, each at the largest budget in it.
            self._known[batch] = {
                local: next(profile for profile in profiles if profile[-1][0] >= local) for local, _ in batch.tiers
            }
        return self._known[batch]


class SiloSpending(TrainingCost):
    """Clients with many records each, which answer once an epoch with a mean of clipped gradients and Gaussian noise.

    The guarantee is for one record (replace-one).
    """

    def __init__(
        self, local: Sequence[tuple[float, float]], delta: float, conditions: Conditions = Conditions()
    ) -> None:
        """Takes (epsilon, delta) of every client for one answer, the training's delta, and the conditions."""
        self.delta = delta
        self.conditions = conditions
        self._sigma = {pair: unit_sigma(*pair) for pair in dict.fromkeys(local)}
        self._gspa = gspa_mu(Budgets.from_tiers([(epsilon, 1, local_delta) for epsilon, local_delta in local]))

    def noise(self, epsilon: float, delta: float) -> float:
        """Returns sigma for sensitivity 1, by analytic calibration."""
        return self._sigma[epsilon, delta]

    def after(self, epochs: Sequence[Collection[Batch]], unreleased: int = 0) -> Spending:
        """Returns what is spent after that many epochs, at least one; sigma falls with the root of their number.

        Args:
            epochs: counted only: the guarantee does not depend on the other clients.
            unreleased: further answers that were never opened; no other party is trusted, so they cost the same.
        """
        root = math.sqrt(len(epochs) + unreleased)
        # Lowered by more than the quotient is rounded by.
        noise = {pair: sigma / root * (1 - 1e-15) for pair, sigma in self._sigma.items()}
        tiers = tuple((pair[0], unit_epsilon(sigma, self.delta)) for pair, sigma in sorted(noise.items()))
        headline = max(epsilon for _, epsilon in tiers)
        return Spending(
            epsilon=headline,
            delta=self.delta,
            grade=self.conditions.grade,
            method=(Statement.of(Method.TRAINING_GAUSSIAN),),
            tiers=tiers,
            everyone_else_colludes=headline,
            assumptions=(
                Statement.of(Assumption.RECORD_LEVEL),
                Statement.of(Assumption.CLIPPED_GRADIENTS),
                Statement.of(Assumption.ONE_ANSWER_AN_EPOCH),
                Statement.of(Assumption.NO_ONE_ELSE_TRUSTED),
                *self.conditions.assumptions(),
            ),
            asymptotic=gaussian_epsilon(self._gspa * root, self.delta),
            local_delta=max(local_delta for _, local_delta in noise),
        )
