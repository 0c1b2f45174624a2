"""What a reader has to know beside a certificate or another guarantee: codes, from its numbers alone."""

from __future__ import annotations

from fractions import Fraction

from croupier.protocol.codes import Note
from croupier.protocol.statements import MOST, Statement
from croupier.protocol.v1 import messages_pb2 as pb

_ROUNDING = 1e-12
"""A sum of budgets may be this much above or below their product, relatively."""


def large_delta_notes(delta: float, people: int) -> tuple[Statement[Note], ...]:
    """Returns a note on a delta of one in the number of people, or more; nothing for a smaller one."""
    if Fraction(delta) * people < 1:
        return ()
    return (Statement.of(Note.LARGE_DELTA, delta=delta, people=min(people, MOST)),)


def certificate_notes(certificate: pb.Certificate) -> tuple[Statement[Note], ...]:
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
