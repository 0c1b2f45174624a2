"""The assumptions of a certificate: for the bounds of the shuffle, and for the fakes of one honest hop."""

from __future__ import annotations

from croupier.accountant.hop_fakes import HopFakes
from croupier.accountant.release import Release
from croupier.protocol.codes import Assumption
from croupier.protocol.statements import Statement

EVERYONE_ELSE_DISHONEST = Statement.of(Assumption.EVERYONE_ELSE_DISHONEST)
_FIXED_TERMS = Statement.of(Assumption.FIXED_TERMS)


def same_report(release: Release) -> tuple[Statement[Assumption], ...]:
    """Returns the assumption that people send the same report in several waves; empty without a series."""
    if release.series is None:
        return ()
    return (Statement.of(Assumption.SAME_REPORT, waves=release.series.waves, series=release.series.name),)


def assumptions_of_shuffle(release: Release) -> tuple[Statement[Assumption], ...]:
    """Returns the assumptions of the bounds of the shuffle or, for kept reports, of the local budget."""
    randomizer, rounds, conditions = release.randomizer, release.rounds, release.conditions
    if release.series is not None:
        replaced = Statement.of(Assumption.REPLACE_ONE)
        return (replaced, randomizer.statement, EVERYONE_ELSE_DISHONEST, *same_report(release))
    if randomizer.local_assumptions:
        together = (Statement.of(Assumption.FRESH_NOISE, rounds=rounds), _FIXED_TERMS)
        return (*randomizer.local_assumptions, *(together if rounds > 1 else ()))
    separate = conditions.linkage == "separate"
    assumptions = [
        Statement.of(Assumption.REPLACE_ONE),
        randomizer.statement,
        Statement.of(Assumption.UNIFORM_ORDER),
        Statement.of(Assumption.DISHONEST_CLIENTS, dishonest=conditions.dishonest),
        conditions.counted_by.assumption,
        Statement.of(Assumption.ADAPTIVE_ORDER if conditions.adaptive_order else Assumption.INDEPENDENT_REPORTS),
        Statement.of(Assumption.BUDGETS_UNLINKED if separate else Assumption.BUDGETS_SHOWN),
    ]
    if rounds > 1:
        assumptions += [Statement.of(Assumption.FRESH_SHUFFLES, rounds=rounds), _FIXED_TERMS]
    if release.leaves_local_deltas:
        assumptions.append(Statement.of(Assumption.LOCAL_DELTAS_UNSPENT))
    return tuple(assumptions)


def assumptions_of_one_hop(release: Release, fakes: HopFakes) -> tuple[Statement[Assumption], ...]:
    """Returns the assumptions of the guarantee that one honest hop gives."""
    assumptions = [Statement.of(Assumption.REPLACE_ONE), fakes.randomizer.statement, fakes.noise.assumption(fakes.hops)]
    if release.rounds > 1:
        assumptions += [Statement.of(Assumption.FRESH_NOISE, rounds=release.rounds), _FIXED_TERMS]
    if release.leaves_local_deltas:
        assumptions.append(Statement.of(Assumption.LOCAL_DELTAS_UNSPENT))
    if release.series is not None:
        assumptions += [*same_report(release), _FIXED_TERMS]
    return tuple(assumptions)
