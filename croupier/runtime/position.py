"""The position of a role in the chain of a round, and the layer of the onion that is its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from croupier.protocol.envelope import KeyPair
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Lane
from croupier.protocol.onion import onion_of
from croupier.runtime.kinds import KeyPurpose
from croupier.runtime.tasks import LaneWork, open_layer


class Position(Protocol):
    """The position of a role in the chain of a round."""

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes that the predecessor hands over together."""

    def hop(self, terms: RoundTerms) -> int:
        """Returns the number of this role's layer in the onion: 1..k for a hop."""

    def predecessor(self, terms: RoundTerms) -> str:
        """Returns the only service that may hand over lanes to this one."""


@dataclass(frozen=True)
class BehindTheChain:
    """The position of a role that the last hop delivers to.

    Attributes:
        layer: the number of the role's layer in the onion.
        lanes: the lanes that the last hop hands over to it.
    """

    layer: int
    lanes: tuple[Lane, ...]

    def hop(self, terms: RoundTerms) -> int:
        """Returns the number of the role's layer."""
        return self.layer

    def predecessor(self, terms: RoundTerms) -> str:
        """Returns the last hop."""
        return terms.hops[-1].service


def own_layer(position: Position, terms: RoundTerms, keys: Mapping[KeyPurpose, KeyPair], lane: Lane) -> LaneWork:
    """Returns how a role opens its own layer of a lane."""
    layer = onion_of(terms).layer(lane, position.hop(terms))
    work = partial(
        open_layer, terms.shared.hpke_suite, keys[KeyPurpose.ENVELOPE].private, layer.label, layer.plain_size
    )
    return LaneWork(layer.sealed_size, layer.plain_size, work)
