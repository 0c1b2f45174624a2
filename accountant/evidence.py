"""The evidence beside a certificate: the strongest quick attack, and published figures, which it may refute."""

from __future__ import annotations

from dataclasses import replace

from croupier.accountant.budgets import Budgets
from croupier.accountant.guarantees import Comparison, Grade, LowerBound
from croupier.accountant.hop_fakes import HopFakes
from croupier.accountant.release import Release
from croupier.protocol.codes import Note
from croupier.protocol.statements import Statement


def attack_on_shuffle(release: Release, delta: float | None) -> LowerBound | None:
    """Returns the strongest quick attack on the shuffled reports, or None if no attack on the randomizer is known.

    delta: the certified delta; a local delta can make it larger than the requested one. None if epsilon is given.
    """
    from croupier.accountant.lower_bound import is_attackable, lower_bound

    if not is_attackable(release.randomizer) or (delta is not None and delta >= 1):
        return None
    attack = lower_bound(
        _present(release),
        release.randomizer,
        delta=delta,
        epsilon=release.epsilon,
        dishonest=release.conditions.dishonest,
        linkage=release.conditions.linkage,
    )
    return _in_one_round(attack, release.rounds)


def _present(release: Release) -> Budgets:
    """Returns the largest possible multiset of users.

    With budget privacy some more users of every budget may not be counted. An attack on all of them holds for fewer: a
    report whose value the observer knows hides others, and never helps.
    """
    budgets, uncounted = release.budgets, release.conditions.counted_by.most_uncounted
    return Budgets(budgets.local_epsilon, budgets.local_delta, budgets.count + uncounted)


def attack_on_one_hop(release: Release, fakes: HopFakes, delta: float | None) -> LowerBound | None:
    """Returns an attack on the fakes of one honest hop, where everybody else is not; see `attack_on_shuffle`."""
    if delta is not None and delta >= 1:
        return None
    attack = fakes.attack(float(release.budgets.local_epsilon[-1]), delta, release.epsilon)
    return None if attack is None else _in_one_round(attack, release.rounds)


def _in_one_round(attack: LowerBound, rounds: int) -> LowerBound:
    return attack if rounds == 1 else replace(attack, attack=f"in one of {rounds} rounds: {attack.attack}")


def published_bounds(
    release: Release, reached: float, delta: float | None, lower: LowerBound | None, *, everything: bool
) -> tuple[Comparison, ...]:
    """Returns the published bounds, which are about one round; a bound below an attack at the same delta is refuted.

    Args:
        release: the release; there is no published bound for several rounds or waves.
        reached: the certified delta.
        delta: the delta of the attack; None if epsilon is given.
        lower: the attack.
        everything: all of them, and not only the one for personal budgets.
    """
    from croupier.accountant.published import compare

    if release.rounds > 1 or release.series is not None or not 0 < reached < 1:
        return ()
    attack = lower.epsilon if lower is not None and not release.fakes and delta == reached else None
    rows = compare(
        release.budgets, release.randomizer, reached, attack=attack, only=None if everything else ("GSPA Thm 2",)
    )
    return tuple(_in_this_deployment(row, release) for row in rows)


def _in_this_deployment(row: Comparison, release: Release) -> Comparison:
    """Returns the bound, downgraded unless its assumptions hold: all users honest, no report linked to its budget."""
    separate = release.conditions.linkage == "separate"
    if row.grade is not Grade.CERTIFIED or (release.colluding == 0 and separate):
        return row
    missing = Statement.of(Note.IGNORES_SHOWN_BUDGETS)
    if separate:
        missing = Statement.of(Note.IGNORES_DISHONEST, dishonest=release.colluding)
    return replace(row, grade=Grade.HEURISTIC, notes=(*row.notes, missing))
