"""Many rounds: the privacy profile of one round, composed by dp-accounting's privacy loss distributions.

A profile bounds the hockey-stick divergence of one round in both directions. It is turned into a dominating pair
(pessimistic connect-the-dots), which the library composes. Cut and rounded mass is added. Proofs are in
docs/composition.md, section 5. `certify` takes the smaller of two composed guarantees; the ledger adds up a client's
spending over its life.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from croupier.accountant.numerics.binomial import UNIT, Floats
from croupier.accountant.numerics.fourier import STAGE
from croupier.accountant.numerics.inversion import smallest_epsilon
from croupier.accountant.privacy_curve import Bounded, PrivacyProfile, Proof
from croupier.accountant.ranges import check_count, check_epsilon, outside
from croupier.protocol.codes import Method, ProofStep
from croupier.protocol.rounding import round_up
from croupier.protocol.statements import Statement

LEAST_DELTA = 1e-12
"""Below it the library's tails are not reliable; rounds are then composed by basic composition."""
POINTS = 128
"""Evaluations of a one-round profile."""
MAX_POINTS = 1 << 19
"""About the most steps to the end of the largest loss. Rounds whose losses are very different share one grid."""
TRUNCATION = 1e-15
"""Mass that the library may cut per composition. It adds the mass to that at infinity once, and we do once more."""


@dataclass(frozen=True, eq=False)
class Round:
    """`count` rounds, each of this profile; ceiling is the local budget, at which its delta needs no proof."""

    profile: PrivacyProfile
    ceiling: float
    count: int = 1

    def __post_init__(self) -> None:
        """Raises ValueError for a ceiling or a count outside its range."""
        check_epsilon(self.ceiling, "ceiling")
        check_count(self.count, "count", 1)


def profile_nodes(
    profile: PrivacyProfile, step: float, points: int, stride: int = 1
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], Floats]:
    """Returns the nodes of a convex function of e^epsilon that bounds one round's divergences, for every real epsilon.

    The profile is evaluated at epsilon = 0, stride step, ..., points stride step; for negative epsilon by symmetry,
    H_{1/E} <= 1 - 1/E + u(E)/E where u bounds both directions. The true profile is convex, so it is below the greatest
    convex minorant of all these values. At e^epsilon = 0 it is 1.

    Args:
        profile: of one round.
        step: the step of the grid, > 0.
        points: the number of nodes above 0.
        stride: their distance, in steps.

    Returns:
        The nodes kept, as multiples of step, increasing; and the values there.
    """
    grid = stride * np.arange(points + 1, dtype=np.int64)
    above = np.array([profile.delta(float(j * step)).value for j in grid])
    above = np.minimum.accumulate(above)
    below = -np.expm1(-grid[1:] * step) + np.exp(-grid[1:] * step) * above[1:]
    multiples = np.concatenate([-grid[:0:-1], grid])
    values = np.minimum(1.0, np.concatenate([below[::-1], above]))
    hull: list[int] = []
    # The chain starts at e^epsilon = 0, where the profile is 1.
    points_at = [(-math.inf, 1.0), *zip((multiples * step).tolist(), values.tolist(), strict=True)]
    for index in range(len(points_at)):
        while len(hull) >= 2 and not _turns_up(points_at[hull[-2]], points_at[hull[-1]], points_at[index]):
            hull.pop()
        hull.append(index)
    kept = np.array([index - 1 for index in hull if index > 0])
    return multiples[kept], values[kept]


def _turns_up(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Returns whether delta is convex in e^epsilon at these points (epsilon, delta); e^epsilon may exceed a float."""
    to_b, to_c = -math.expm1(a[0] - b[0]), -math.expm1(b[0] - c[0])  # the part of e^b and e^c since the last point
    return (b[1] - a[1]) * to_c < (c[1] - b[1]) * math.exp(b[0] - c[0]) * to_b


@dataclass(frozen=True)
class PairProfile:
    """The profile of any (epsilon, delta)-DP release. See `PrivacyProfile`.

    For every pair of neighbours, such a release is a post-processing of a release that shows the value with probability
    delta and is randomised response of it otherwise (Kairouz, Oh, Viswanath 2015).
    """

    epsilon: float
    lost: float
    method: ClassVar[Proof] = (Statement.of(Method.WHOLE_RELEASE),)

    def delta(self, epsilon: float) -> Bounded:
        """Returns lost + (1 - lost) (e^v - e^epsilon)/(e^v + 1), rounded up; v the epsilon of the release."""
        check_epsilon(epsilon)
        rest = -math.expm1(min(0.0, epsilon - self.epsilon)) / (1 + math.exp(-self.epsilon))
        value = min(1.0, (self.lost + (1 - self.lost) * rest) * (1 + 8 * UNIT))
        return Bounded(value, min(value, 8 * UNIT * value))

    def guess(self, delta: float) -> float:
        """Returns its epsilon."""
        return self.epsilon

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """See `PrivacyProfile`."""
        return (Statement.of(ProofStep.ANY_RELEASE, epsilon=self.epsilon, delta=self.lost),)


@dataclass(frozen=True, eq=False)
class ComposedProfile:
    """The privacy profile of all rounds together, adaptively chosen or not. See `PrivacyProfile`.

    rounds: at least one. target: the smallest delta of interest; LEAST_DELTA <= target < 1. step: of the grid of
    losses; None: chosen for the rounds.
    Direction: never below. Source: dominating pairs compose (Zhu, Dong, Wang 2022, Theorem 10), connect-the-dots
    (Doroshenko et al. 2022).
    """

    rounds: Sequence[Round]
    target: float
    step: float | None = None
    _composed: Any = field(init=False, repr=False)
    _slack: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Composes. Raises ValueError for a target outside its range or no rounds."""
        if not LEAST_DELTA <= self.target < 1:
            raise outside("target", self.target, f"{LEAST_DELTA} <= target < 1")
        if not self.rounds:
            raise ValueError("rounds is empty; it must hold at least one round")
        total = sum(part.count for part in self.rounds)
        # Each profile is followed to where its delta is a small part of the target; the rest is mass at infinity.
        reach = [self._reach(part, 1e-3 * self.target / total) for part in self.rounds]
        longest = max(far * math.sqrt(part.count) for part, far in zip(self.rounds, reach, strict=True))
        step = max(min(reach) / POINTS, longest / MAX_POINTS) if self.step is None else self.step
        if longest / step > 16 * MAX_POINTS:
            raise outside("step", step, f"at least {round_up(longest / (16 * MAX_POINTS), 3)} for these rounds")
        slack = 0.0
        laws: list[tuple[int, int, Any]] = []  # the smallest are multiplied first, which takes the fewest steps
        for number, (part, far) in enumerate(zip(self.rounds, reach, strict=True)):
            stride = max(1, round(far / step / POINTS))
            pmf, lost = self._several(part, step, max(1, math.ceil(far / step / stride)), stride)
            slack += lost
            laws.append((pmf.size, number, pmf))
        heapq.heapify(laws)
        while len(laws) > 1:
            (_, _, smallest), (_, number, other) = heapq.heappop(laws), heapq.heappop(laws)
            composed = smallest.compose(other)
            slack += _round_off(2 * composed.size, 2 * min(_norm(smallest), _norm(other)) + _norm(composed))
            heapq.heappush(laws, (composed.size, number, composed))
        composed = laws[0][2]
        object.__setattr__(self, "_composed", composed)
        object.__setattr__(self, "_slack", slack)

    @staticmethod
    def _reach(part: Round, delta: float) -> float:
        inverse = smallest_epsilon(part.profile, delta, part.ceiling, tolerance=0.02)
        if inverse.reached is None and 0 < (lost := part.profile.delta(part.ceiling).value) < 1 - 2 * delta:
            # Mass lost with certainty is mass at infinity anyway: no node is needed where that is all the mass.
            inverse = smallest_epsilon(part.profile, lost + delta, part.ceiling, tolerance=0.02)
        return max(inverse.epsilon, 1e-9)

    @staticmethod
    def _several(part: Round, step: float, points: int, stride: int) -> tuple[Any, float]:
        from dp_accounting.pld.pld_pmf import DensePLDPmf, create_pmf_pessimistic_connect_dots
        from scipy.fft import fft, next_fast_len

        multiples, values = profile_nodes(part.profile, step, points, stride)
        with np.errstate(over="ignore"):  # e^(a gap of 710) is infinity, and quotients by it are 0
            sparse = create_pmf_pessimistic_connect_dots(step, multiples, values)
        # Like its to_dense_pmf, which looks up a dictionary for every one of up to a million points.
        first = min(sparse._loss_probs)
        dense = np.zeros(max(sparse._loss_probs) - first + 1)
        dense[np.array([*sparse._loss_probs]) - first] = [*sparse._loss_probs.values()]
        pmf = DensePLDPmf(step, first, dense, sparse._infinity_mass, pessimistic_estimate=True)
        if part.count == 1 or sparse._infinity_mass >= 1:  # at 1 all is lost in the first round
            return pmf, 0.0
        after = pmf.self_compose(part.count, TRUNCATION)
        length = next_fast_len(max(after.size, pmf.size))  # the library's, to which the powers are folded
        all_but_one = float(np.linalg.norm(np.abs(fft(dense, length)) ** (part.count - 1))) / math.sqrt(length)
        return after, TRUNCATION + _round_off(length, part.count * all_but_one + _norm(after))

    @property
    def losses(self) -> tuple[Any, float]:
        """The pessimistic law of the privacy loss, in dp-accounting's form, and the mass to add to every delta."""
        return self._composed, self._slack

    @property
    def method(self) -> Proof:
        """The methods of the rounds, and composition."""
        methods = dict.fromkeys(statement for part in self.rounds for statement in part.profile.method)
        total = sum(part.count for part in self.rounds)
        return (*methods, Statement.of(Method.COMPOSED_LOSSES, rounds=total))

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        value = float(self._composed.get_delta_for_epsilon(epsilon))
        return Bounded(min(1.0, max(0.0, value) + self._slack), min(1.0, self._slack))

    def guess(self, delta: float) -> float:
        """Returns the root of the sum of squares, which is right for Gaussian rounds."""
        return math.sqrt(sum(part.count * part.profile.guess(delta) ** 2 for part in self.rounds))

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """Returns the steps of every round, and the composition."""
        composed = Statement.of(
            ProofStep.ROUNDS_COMPOSED,
            rounds=sum(part.count for part in self.rounds),
            points=self._composed.size,
            infinity=self._composed._infinity_mass,
            rounding=self._slack,
        )
        return (*(step for part in self.rounds for step in part.profile.explain()), composed)


def _norm(pmf: Any) -> float:
    return float(np.linalg.norm(np.asarray(pmf._probs)))


def _round_off(length: int, norms: float) -> float:
    """Returns a bound on the 1-norm of the error of a product of laws by Fourier transforms of at most this length.

    norms: for every factor a bound on the 2-norm of all the others together, and the 2-norm of the product. scipy
    chooses lengths without prime factors above 11 (docs/numerics.md, sections 3.1 and 5).
    """
    return 1.001 * STAGE * math.log2(length + 1) * math.sqrt(length) * norms
