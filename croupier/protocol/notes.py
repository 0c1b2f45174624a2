"""What a reader has to know beside a certificate or another guarantee: codes, from its numbers alone."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Protocol

from croupier.protocol.codes import Note
from croupier.protocol.statements import MOST, Statement

_ROUNDING = 1e-12
"""A sum of budgets may be this much above or below their product, relatively."""


class _Tier(Protocol):
    @property
    def local_epsilon(self) -> float: ...
    @property
    def local_delta(self) -> float: ...
    @property
    def epsilon(self) -> float: ...
    @property
    def delta(self) -> float: ...


class _Certificate(Protocol):
    """What a certificate has in both of its forms: the message, and the accountant's `Certificate`."""

    @property
    def delta(self) -> float: ...
    @property
    def num_users(self) -> int: ...
    @property
    def rounds(self) -> int: ...
    @property
    def tiers(self) -> Iterable[_Tier]: ...


def large_delta_notes(delta: float, people: int) -> tuple[Statement[Note], ...]:
    """Returns a note on a delta of one in the number of people, or more; nothing for a smaller one."""
    if Fraction(delta) * people < 1:
        return ()
    return (Statement.of(Note.LARGE_DELTA, delta=delta, people=min(people, MOST)),)


def certificate_notes(certificate: _Certificate) -> tuple[Statement[Note], ...]:
    """Returns the notes of a certificate: a delta that protects nobody, tiers that are not amplified."""
    tiers, rounds = list(certificate.tiers), certificate.rounds * (1 - _ROUNDING)
    local = [
        tier
        for tier in tiers
        if tier.epsilon >= tier.local_epsilon * rounds and tier.delta >= tier.local_delta * rounds
    ]
    notes = large_delta_notes(certificate.delta, certificate.num_users)
    if local:
        notes = (*notes, Statement.of(Note.TIERS_NOT_AMPLIFIED, tiers=len(local), of=len(tiers)))
    return notes
