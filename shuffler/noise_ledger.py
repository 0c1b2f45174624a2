"""A hop's own ledger: what the rounds that it has signed can show of one person if this hop is the only honest party.

The accountant's ledger is worth nothing against a dishonest accountant. So every hop keeps the hop noise of the rounds
for which it has signed a manifest, and with a `noise_limit` in its settings it signs none beyond that: then everybody
else together learns at most that much of anyone in the life of the deployment, if this hop is honest. Epsilons and
deltas add up, which is valid however rounds are chosen by earlier results. A round without hop noise counts with its
largest local budget, because nothing else is certain there, or is refused (`hop_noise_only`). docs/hop-noise.md.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import RoundId
from croupier.protocol.rounding import round_down, round_up
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.database_tables import ROUNDS
from croupier.runtime.service_directory import NoiseLimit
from croupier.runtime.tables import table

_metadata = sa.MetaData()
_entries = table(_metadata, "noise_ledger", {"round_id": str}, epsilon=float, delta=float, has_left=bool)


class NoiseLedger:
    """The entries of one hop, on its store's connection."""

    def __init__(self, connection: sa.Connection) -> None:
        self._db = connection
        _metadata.create_all(self._db)

    def sign(self, terms: RoundTerms, limit: NoiseLimit | None) -> None:
        """Enters a round that is about to be signed; the same round again counts once.

        Raises:
            Refusal: BAD_MANIFEST if the rounds would come to more than the limit, or if the round has no hop noise and
                the limit allows no such round.
        """
        if limit is not None and limit.hop_noise_only and terms.fakes is None:
            raise Refusal(
                Code.BAD_MANIFEST,
                "the round has no hop noise; this hop's noise_limit has hop_noise_only = true, so it signs only rounds "
                "with hop noise",
            )
        known = self._db.execute(sa.select(_entries.c.round_id).where(_entries.c.round_id == terms.round_id)).first()
        if known is not None:
            return
        epsilon, delta = terms.shown_of_one
        spent_epsilon, spent_delta, rounds = self.spent()
        if limit is not None:
            for name, requested, before, most in (
                ("epsilon", epsilon, spent_epsilon, limit.epsilon),
                ("delta", delta, spent_delta, limit.delta),
            ):
                if before + _written(requested) > _written(most):
                    raise Refusal(
                        Code.BAD_MANIFEST,
                        f"this hop's noise_limit is {name} {round_down(most)}: requested {round_up(requested)}, spent "
                        f"{round_up(float(before))} in {rounds:,} rounds; it signs no round beyond that",
                    )
        row = {"round_id": terms.round_id, "epsilon": epsilon, "delta": delta, "has_left": False}
        self._db.execute(_entries.insert().values(**row))

    def leave(self, round_id: RoundId) -> None:
        """Notes that something of a round may have left this hop: from now on it counts for ever."""
        self._db.execute(_entries.update().where(_entries.c.round_id == round_id).values(has_left=True))

    def rounds(self) -> set[RoundId]:
        """Returns all rounds that have been entered."""
        return set(self._db.execute(sa.select(_entries.c.round_id)).scalars())

    def spent(self) -> tuple[Decimal, Decimal, int]:
        """Returns the sums of epsilon and delta, as the decimals that people wrote, and the number of rounds.

        Rounds that were withdrawn before anything had left do not count.
        """
        withdrawn = sa.select(ROUNDS.c.round_id).where(ROUNDS.c.state == int(pb.ROUND_STATE_DISPOSED))
        counts = _entries.c.has_left | _entries.c.round_id.not_in(withdrawn)
        rows: list[Any] = list(self._db.execute(sa.select(_entries.c.epsilon, _entries.c.delta).where(counts)))
        epsilon, delta = (sum((_written(row[place]) for row in rows), Decimal(0)) for place in (0, 1))
        return epsilon, delta, len(rows)

    def stated(self, limit: NoiseLimit | None) -> rpc.NoiseSpent:
        """Returns the sums and the limit, for the status."""
        epsilon, delta, rounds = self.spent()
        stated = rpc.NoiseSpent(epsilon=float(epsilon), delta=float(delta), rounds=rounds)
        if limit is not None:
            stated.most_epsilon, stated.most_delta = limit.epsilon, limit.delta
        return stated


def kept_noise(connection: sa.Connection, limit: NoiseLimit | None) -> rpc.NoiseSpent:
    """Returns what a hop's ledger comes to, and its limit, without a change of its store; 0 where it has no ledger."""
    has_ledger = sa.inspect(connection).has_table(_entries.name)
    return NoiseLedger(connection).stated(limit) if has_ledger else rpc.NoiseSpent()


def _written(value: float) -> Decimal:
    """The decimal that a person wrote for a float."""
    return Decimal(repr(value))
