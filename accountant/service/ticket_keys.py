"""The keys that the accountant makes for a round, and the layers that they open."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from croupier.accountant.service.checking import check_reports, open_budgets
from croupier.protocol.envelope import HOP_ACCOUNTANT, KeyPair, generate_key_pair
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Lane, PrivateKey
from croupier.protocol.onion import BUDGET_RECORD_BYTES, UNOPENED, onion_of
from croupier.protocol.randomness import SystemRandom
from croupier.protocol.tickets import TicketIssuer
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.kinds import KeyPurpose
from croupier.runtime.round_control import envelope_keys
from croupier.runtime.tasks import HASH_BYTES, LaneWork

TICKET_KEYS = {pb.LANE_REPORT: KeyPurpose.REPORT_TICKETS, pb.LANE_PARAMETER: KeyPurpose.PARAMETER_TICKETS}
"""The purposes of the keys that sign the tickets of each lane."""


def make_keys(suite: str) -> dict[KeyPurpose, KeyPair]:
    """Returns the round's envelope and release keys, and of its two ticket keys the seeds.

    Raises:
        ValueError: there is no such HPKE suite.
    """
    keys = envelope_keys(suite) | {KeyPurpose.RELEASE: generate_key_pair(suite)}
    for lane, purpose in TICKET_KEYS.items():
        seed = SystemRandom().block(32)
        keys[purpose] = KeyPair(TicketIssuer(seed, lane).public_key, PrivateKey(seed))
    return keys


def put_public_keys(public: pb.RoundKeys, keys: Mapping[KeyPurpose, KeyPair]) -> None:
    """Writes the public halves of the release key and the ticket keys."""
    public.release_public_key = keys[KeyPurpose.RELEASE].public
    public.report_ticket_key = keys[TICKET_KEYS[pb.LANE_REPORT]].public
    public.parameter_ticket_key = keys[TICKET_KEYS[pb.LANE_PARAMETER]].public


def ticket_lane_work(terms: RoundTerms, keys: Mapping[KeyPurpose, KeyPair], lane: Lane) -> LaneWork:
    """Opens the budgets, and checks the tickets of both lanes."""
    if lane == pb.LANE_TICKET:
        check = partial(check_reports, keys[TICKET_KEYS[pb.LANE_REPORT]].private, terms.hash)
        return LaneWork(len(UNOPENED), HASH_BYTES, check)
    layer = onion_of(terms).layer(pb.LANE_PARAMETER, HOP_ACCOUNTANT)
    seed = keys[TICKET_KEYS[pb.LANE_PARAMETER]].private
    work = partial(
        open_budgets,
        terms.shared.hpke_suite,
        keys[KeyPurpose.ENVELOPE].private,
        layer.label,
        layer.plain_size,
        seed,
        terms.hash,
    )
    return LaneWork(layer.sealed_size, BUDGET_RECORD_BYTES, work)
