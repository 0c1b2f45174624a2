"""The certified guarantee of one group of victims: (epsilon, delta) over all rounds, and the curve behind it.

The randomizer gives the group's curves. They are inverted if a delta is given, the local budget replaces any larger
epsilon, and rounds are composed. The groups, and the certificate of all of them, are in `certification`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from croupier.accountant.bounds.least import least_of
from croupier.accountant.bounds.profile import BoundKind, Curve, NoAmplification, Victim
from croupier.accountant.guarantees import TierCertificate
from croupier.accountant.hop_fakes import NO_FAKES, Fakes, HopFakes
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.numerics.inversion import smallest_epsilon
from croupier.accountant.privacy_curve import PrivacyProfile, Proof
from croupier.accountant.victims import Group
from croupier.accountant.waves import WavesProfile
from croupier.accountant.witness import Witness
from croupier.protocol.codes import NOT_AMPLIFIED, Method, ProofStep
from croupier.protocol.statements import Statement

LOCAL: Proof = (Statement.of(Method.LOCAL_BUDGET),)
MAX_COMPOSED_TIERS = 8
"""With more budgets the exchange bound is only used for the number of one round, and the blanket's curve is
composed."""
LOWEST = 0.8
"""With many budgets, the search for a group's epsilon does not go below this fraction of another group's epsilon."""
_LEAST_ASKED = 1e-9
"""The least delta for which waves are composed if an epsilon is given, because their delta is not known yet."""
MAX_COMPOSED_ROUNDS = 1_000_000
"""More rounds are only added up, because their loss distribution would take gigabytes."""


@dataclass(frozen=True)
class GroupGuarantee:
    """The group's guarantee over all rounds, with the curve behind it."""

    tier: TierCertificate
    one_round: float
    """The epsilon or delta in one round, whichever is not given."""
    slack: float
    method: Proof
    one_honest_hop: GroupGuarantee | None = None
    """The guarantee of one honest hop by its fakes; None without hop noise."""

    @property
    def rests_on_one_hop(self) -> bool:
        """Whether the guarantee needs only one honest hop: it uses no bound of the shuffle."""
        return self.one_honest_hop is not None and self.tier is self.one_honest_hop.tier


@dataclass(frozen=True)
class _RoundGuarantee:
    """(epsilon, delta) of one round for one victim, and the proof."""

    epsilon: float
    delta: float
    slack: float
    method: Proof
    steps: tuple[Statement[ProofStep], ...]
    witness: Witness


@dataclass(frozen=True, eq=False)
class BoundPolicy:
    """The bounds to try, and the deadline."""

    blanket_only: bool = False
    deadline: float = math.inf
    """By time.monotonic()."""
    composed_only: bool = False
    """Several rounds are composed, and what one of them comes to is not looked for on slow bounds: the result may be
    larger, and is only a step towards one."""
    fakes: Fakes = NO_FAKES
    """The fake reports that hops add as hop noise."""
    waves: int = 0
    """The number of waves in which clients send the same report, certified together; 0: fresh reports each round."""


def group_guarantee(
    group: Group,
    randomizer: Randomizer,
    delta: float | None,
    epsilon: float | None,
    rounds: int,
    policy: BoundPolicy,
    good_enough_epsilon: float,
    about: float | None = None,
) -> GroupGuarantee:
    """Returns a group's guarantee: epsilon at delta, or delta at epsilon, for which the delta of a round is `about`.

    It is the least of the local budget, the bounds of the shuffle and, with hop noise, the guarantee of one honest hop;
    if the last two are equal it is the last, whose assumptions are weaker. The curve is that of the chosen bound.
    good_enough_epsilon: another group's epsilon in one round; with many budgets, no slow bound is tried below it.
    """
    # The group's victim with the budget that reports show, which for a table may be a little larger or far smaller.
    victim = replace(group.victim, local_epsilon=randomizer.effective_epsilon(group.victim.local_epsilon))
    if policy.waves:
        shuffled = _report_kept(group, victim, randomizer, delta, epsilon, policy)
    else:
        shuffled = _shuffled(group, victim, randomizer, delta, epsilon, rounds, policy, good_enough_epsilon, about)
    if not policy.fakes:
        return shuffled
    hop = _one_honest_hop(group, victim, randomizer, delta, epsilon, rounds, policy.fakes, policy.waves)
    hidden = () if policy.waves else (policy.fakes.hides_losses,)
    steps = (*hidden, *shuffled.tier.steps, *hop.tier.steps)
    if (hop.tier.epsilon, hop.tier.delta) <= (shuffled.tier.epsilon, shuffled.tier.delta):
        hop = replace(hop, tier=replace(hop.tier, steps=steps))
        return replace(hop, one_honest_hop=hop)
    return replace(shuffled, tier=replace(shuffled.tier, steps=steps), one_honest_hop=hop)


def _report_kept(
    group: Group,
    victim: Victim,
    randomizer: Randomizer,
    delta: float | None,
    epsilon: float | None,
    policy: BoundPolicy,
) -> GroupGuarantee:
    """Returns the guarantee of a group whose reports are drawn once for several waves: its local budget.

    A bound of the shuffle needs fresh randomness of everybody in every wave (docs/permanent.md).
    """
    attained = _local(victim, delta, epsilon or 0.0, randomizer.spends_local_delta)
    attained = replace(attained, steps=(Statement.of(ProofStep.REPORTS_KEPT, waves=policy.waves),))
    return _over_rounds(group, victim, attained, None, delta, epsilon, 1)


def _one_honest_hop(
    group: Group,
    victim: Victim,
    randomizer: Randomizer,
    delta: float | None,
    epsilon: float | None,
    rounds: int,
    fakes: HopFakes,
    waves: int = 0,
) -> GroupGuarantee:
    """Returns a group's guarantee if one hop is honest and nobody else is: docs/hop-noise.md."""
    started = time.perf_counter()
    per_round = None if delta is None else _share(delta, rounds)
    at = _share(epsilon or 0.0, rounds)
    attained = _local(victim, per_round, at, randomizer.spends_local_delta)
    fresh = fakes.curve(group.victim.local_epsilon)
    curve: Curve = fresh
    if waves:
        curve = WavesProfile(
            fakes.law, fresh.total_variation, waves, per_round or max(_LEAST_ASKED, waves * fakes.law.delta)
        )
    better = _better(curve, attained, delta=per_round, epsilon=at, floor=0.0)
    if better is None:
        attained = replace(attained, steps=(Statement.of(ProofStep.NO_LESS, bound=curve.kind.value),))
    else:
        attained = replace(better, steps=(*better.steps, _found_step(curve.kind, better, delta, started)))
    composable = curve.to_compose(per_round or _target(attained.delta), group.victim.local_epsilon)
    return _over_rounds(group, victim, attained, composable, delta, epsilon, rounds)


def _shuffled(
    group: Group,
    victim: Victim,
    randomizer: Randomizer,
    delta: float | None,
    epsilon: float | None,
    rounds: int,
    policy: BoundPolicy,
    good_enough_epsilon: float,
    about: float | None,
) -> GroupGuarantee:
    """Returns the guarantee of a group's local budget and the bounds of the shuffle; see `group_guarantee`.

    victim: the group's, with the budget that its reports show.
    """
    per_round = None if delta is None else _share(delta, rounds)
    at = _share(epsilon or 0.0, rounds)
    attained = _local(victim, per_round, at, randomizer.spends_local_delta)
    curves: list[Curve] = []
    tried: list[Statement[ProofStep]] = []
    if group.others.honest == 0 and (delta is not None or group.others.count.size == 0):
        attained = replace(attained, steps=(Statement.of(ProofStep.NO_OTHERS),))
    else:
        # Bits have closed forms; for noise with many budgets every evaluation of the exchange bound takes long.
        few = group.others.count.size <= MAX_COMPOSED_TIERS
        slow = not randomizer.clones_are_fair_bits and not few
        bounds = _bounds(group, randomizer, policy)
        if slow and delta is not None and good_enough_epsilon == 0:
            # The blanket bound need not be computed above the exchange bound.
            bounds = iter(sorted(bounds, key=lambda bound: bound[0] is not BoundKind.EXCHANGE))
        for kind, make in bounds:
            started = time.perf_counter()
            least = good_enough_epsilon if slow and kind is BoundKind.EXCHANGE else 0.0
            if kind is BoundKind.EXCHANGE and (attained.delta if per_round is None else attained.epsilon) <= least:
                tried.append(Statement.of(ProofStep.NOTHING_TO_GAIN, bound=kind.value))
                continue
            aim = per_round or (None if about is None else _target(about))
            curve = make(_target(attained.delta) if aim is None and kind is BoundKind.EXCHANGE else aim)
            if curve.no_bound is not None:
                tried.append(curve.no_bound)
                continue
            if kind is BoundKind.EXCHANGE and policy.composed_only and rounds > 1:
                curves.append(curve)
                continue
            better = _better(curve, attained, delta=per_round, epsilon=at, floor=LOWEST * least)
            if (few or kind is not BoundKind.EXCHANGE) and (better is not None or not curves):
                curves = [curve] if rounds == 1 or not policy.composed_only else [*curves, curve]
            if better is None:
                tried.append(Statement.of(ProofStep.NO_LESS, bound=kind.value))
            else:
                attained = better
                tried.append(_found_step(kind, attained, delta, started))
        if attained.method == LOCAL and not any(step.code in NOT_AMPLIFIED for step in tried):
            tried.append(Statement.of(ProofStep.LOCAL_IS_LEAST))
        attained = replace(attained, steps=(*attained.steps, *tried))
    return _over_rounds(
        group,
        victim,
        attained,
        _least_to_compose(curves, group, per_round or _target(about or attained.delta)),
        delta,
        epsilon,
        rounds,
    )


Make = Callable[[float | None], Curve]
"""Returns a curve for a target delta, or for None."""


def _bounds(group: Group, randomizer: Randomizer, policy: BoundPolicy) -> Iterator[tuple[BoundKind, Make]]:
    """Yields the bounds to try, by their kinds; the deadline is checked when each one's turn comes."""
    victim, others = group.victim, group.others

    def late() -> bool:
        return time.monotonic() > policy.deadline

    if not (policy.blanket_only or late()):
        worst = randomizer.worst_case(victim, others)
        if worst is not None:
            yield worst.kind, lambda delta: worst
    yield BoundKind.BLANKET, lambda delta: randomizer.profile(victim, others, delta)
    if policy.blanket_only:
        yield (
            BoundKind.EXCHANGE,
            lambda delta: NoAmplification(Statement.of(ProofStep.NOT_ASKED_FOR, bound=BoundKind.EXCHANGE.value)),
        )
    elif late():
        yield (
            BoundKind.EXCHANGE,
            lambda delta: NoAmplification(Statement.of(ProofStep.TIME_OVER, bound=BoundKind.EXCHANGE.value)),
        )
    else:
        yield BoundKind.EXCHANGE, lambda delta: randomizer.exchange_profile(victim, others, delta)


def composed_curve(group: Group, randomizer: Randomizer, delta: float, policy: BoundPolicy) -> Curve | None:
    """Returns the curve of a round at about this delta, to compose and to record, or None."""
    if group.others.honest == 0:
        return None
    curves = [curve for _, make in _bounds(group, randomizer, policy) if (curve := make(delta)).no_bound is None]
    if randomizer.clones_are_fair_bits and group.others.count.size <= MAX_COMPOSED_TIERS:
        # The worst case comes first where there is one, and the exchange bound last.
        curves = curves[:1] if curves and curves[0].kind is BoundKind.WORST_CASE else curves[-1:]
    return _least_to_compose(curves, group, delta)


def _least_to_compose(curves: list[Curve], group: Group, delta: float) -> Curve | None:
    """Returns the least of the curves in their forms for composition, or None if the blanket's curve has none.

    For many budgets the exchange bound would take long.
    """
    most, few = group.victim.local_epsilon, group.others.count.size <= MAX_COMPOSED_TIERS
    forms = [curve.to_compose(delta, most) for curve in curves if few or curve.kind is not BoundKind.EXCHANGE]
    return None if None in forms else least_of([form for form in forms if form is not None])


def _over_rounds(
    group: Group,
    victim: Victim,
    attained: _RoundGuarantee,
    composable: Curve | None,
    delta: float | None,
    epsilon: float | None,
    rounds: int,
) -> GroupGuarantee:
    """Returns the group's guarantee over all rounds: the sum over rounds, or the composed curve if that is less."""
    one_round = attained.delta if delta is None else attained.epsilon
    attained = _basic(attained, rounds)
    attained = replace(attained, epsilon=max(attained.epsilon, epsilon or 0.0), delta=max(attained.delta, delta or 0.0))
    more = attained.delta if delta is None else attained.epsilon
    if rounds > 1 and composable is not None and more > 0:
        other = _composed(composable, victim, delta, epsilon, rounds, attained)
        attained = min(attained, other, key=lambda reached: reached.delta if delta is None else reached.epsilon)
    tier = TierCertificate(
        local_epsilon=group.victim.local_epsilon,
        local_delta=victim.local_delta,
        count=group.count,
        epsilon=attained.epsilon,
        delta=attained.delta,
        grouped=group.several,
        witness=attained.witness,
        privacy_profile=composable,
        steps=attained.steps,
    )
    return GroupGuarantee(tier, one_round, attained.slack, attained.method)


def _local(victim: Victim, delta: float | None, epsilon: float, spends: bool) -> _RoundGuarantee:
    """Returns the guarantee of the local budget in one round."""
    local, alone = victim.local_delta if spends else 0.0, Witness(Method.LOCAL_BUDGET)
    if delta is not None:
        # Without amplification a victim has its local budget, whose delta may be larger than the target.
        return _RoundGuarantee(victim.local_epsilon, max(delta, local), 0.0, LOCAL, (), alone)
    if epsilon < victim.local_epsilon:  # the hockey-stick divergence of the local budget
        local = min(1.0, (local + (1 - local) * _pure_delta(victim.local_epsilon, epsilon)) * (1 + 1e-15))
    return _RoundGuarantee(epsilon, min(1.0, local), 0.0, LOCAL, (), alone)


def _better(
    curve: Curve, attained: _RoundGuarantee, *, delta: float | None, epsilon: float, floor: float
) -> _RoundGuarantee | None:
    """Returns the curve's guarantee in one round if it is less than the best so far, else None.

    floor: a slow curve is not searched for an epsilon below this.
    """
    if delta is None:
        bound = curve.delta(epsilon)
        if bound.value >= attained.delta:
            return None
        steps = (*attained.steps, *curve.explain())
        return _RoundGuarantee(epsilon, bound.value, bound.slack, curve.method, steps, curve.witness(epsilon))
    inverse = curve.smallest_epsilon(delta, attained.epsilon, floor=floor)
    if inverse.reached is None or inverse.epsilon >= attained.epsilon:
        return None
    value, slack = inverse.reached.value, inverse.reached.slack
    line = Statement.of(
        ProofStep.REACHED, epsilon=inverse.epsilon, delta=value, slack=slack, evaluations=inverse.evaluations
    )
    steps, witness = (*attained.steps, *curve.explain(), line), curve.witness(inverse.epsilon)
    return _RoundGuarantee(inverse.epsilon, delta, slack, curve.method, steps, witness)


def _target(delta: float) -> float:
    """Returns the nearest delta for which bounds can be computed."""
    return min(max(delta, 1e-250), 0.5)


def _found_step(
    bound: BoundKind, attained: _RoundGuarantee, delta: float | None, started: float
) -> Statement[ProofStep]:
    seconds = time.perf_counter() - started
    if delta is None:
        return Statement.of(ProofStep.FOUND_DELTA, bound=bound.value, delta=attained.delta, seconds=seconds)
    return Statement.of(ProofStep.FOUND_EPSILON, bound=bound.value, epsilon=attained.epsilon, seconds=seconds)


def repeated(group: Group, randomizer: Randomizer, fakes: Fakes, tier: TierCertificate, rounds: int) -> float | None:
    """Returns the delta over all rounds that a tier's witness proves at the tier's epsilon, without a search.

    None if the tier has no witness, or one of composed rounds. Raises ValueError as `Curve.repeat`.
    """
    if tier.witness is None:
        return None
    victim, theorem, at = group.victim, tier.witness.theorem, _share(tier.epsilon, rounds)
    curve: Curve | None = None
    if theorem is Method.LOCAL_BUDGET:
        shown = replace(victim, local_epsilon=randomizer.effective_epsilon(victim.local_epsilon))
        return min(1.0, times(_local(shown, None, at, randomizer.spends_local_delta).delta, rounds))
    if theorem is Method.HOP_NOISE and fakes:
        curve = fakes.curve(victim.local_epsilon)
    elif theorem is Method.WORST_CASE:
        curve = randomizer.worst_case(victim, group.others)
    elif theorem in {Method.BLANKET_CLOSED_FORM, Method.BLANKET_DENSITY}:
        curve = randomizer.profile(victim, group.others, _target(_share(tier.delta, rounds)))
    elif theorem is Method.EXCHANGE:
        curve = randomizer.exchange_profile(victim, group.others, _target(_share(tier.delta, rounds)))
    return None if curve is None else min(1.0, times(curve.repeat(at, tier.witness).value, rounds))


def _basic(attained: _RoundGuarantee, rounds: int) -> _RoundGuarantee:
    """Applies basic composition: the epsilons and the deltas add up."""
    if rounds == 1:
        return attained
    return replace(
        attained,
        epsilon=times(attained.epsilon, rounds),
        delta=min(1.0, times(attained.delta, rounds)),
        slack=min(1.0, attained.slack * rounds),
        method=(*attained.method, Statement.of(Method.BASIC_COMPOSITION, rounds=rounds)),
    )


def _share(total: float, rounds: int) -> float:
    """Returns one round's share, rounded down, so that all rounds together have at most the total."""
    part = total / rounds
    return part if Fraction(part) * rounds <= Fraction(total) else math.nextafter(part, 0.0)


def times(value: float, rounds: int) -> float:
    """Returns the product, rounded up."""
    product = value * rounds
    return product if Fraction(product) >= Fraction(value) * rounds else math.nextafter(product, math.inf)


def _composed(
    curve: PrivacyProfile,
    victim: Victim,
    delta: float | None,
    epsilon: float | None,
    rounds: int,
    basic: _RoundGuarantee,
) -> _RoundGuarantee:
    """Returns the composition of privacy loss distributions, or `basic` if it is not possible."""
    from croupier.accountant.composition import LEAST_DELTA, ComposedProfile, Round

    target = basic.delta if delta is None else delta
    if rounds > MAX_COMPOSED_ROUNDS:
        return replace(basic, steps=(*basic.steps, Statement.of(ProofStep.ROUNDS_ONLY_ADDED, most=MAX_COMPOSED_ROUNDS)))
    if not LEAST_DELTA <= target < 1:
        return replace(basic, steps=(*basic.steps, Statement.of(ProofStep.DELTAS_ONLY_ADDED, least=LEAST_DELTA)))
    together = ComposedProfile([Round(curve, victim.local_epsilon, rounds)], target)
    witness = Witness(together.method[-1].code)
    if delta is None:
        bound = together.delta(epsilon or 0.0)
        while target > LEAST_DELTA and bound.value < target / 10:  # far below the delta of the truncation
            target = max(LEAST_DELTA, bound.value / 2)
            together = ComposedProfile([Round(curve, victim.local_epsilon, rounds)], target)
            bound = together.delta(epsilon or 0.0)
        steps = together.explain()
        return _RoundGuarantee(epsilon or 0.0, bound.value, bound.slack, together.method, steps, witness)
    inverse = smallest_epsilon(together, delta, basic.epsilon)
    if inverse.reached is None:
        return basic
    reached = inverse.reached.value
    line = Statement.of(ProofStep.REACHED_OVER_ROUNDS, epsilon=inverse.epsilon, delta=reached, rounds=rounds)
    steps = (*together.explain(), line)
    return _RoundGuarantee(inverse.epsilon, delta, inverse.reached.slack, together.method, steps, witness)


def _pure_delta(local_epsilon: float, epsilon: float) -> float:
    """Returns the largest H_{e^epsilon} of any local_epsilon-DP pair: (e^v - e^epsilon)/(e^v + 1), attained by RR."""
    decay = np.exp(-local_epsilon)
    return float(-np.expm1(epsilon - local_epsilon) / (1 + decay)) * (1 + 1e-14)
