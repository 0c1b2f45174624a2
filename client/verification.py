"""Was my submission mixed? The maker of an envelope looks for its ciphertexts in the lists that hops publish.

A hop's list is accepted only if it matches the hop's commitment in the chain that the accountant has checked: a hop
that replaced a report would have to show a list without it. The whole list is downloaded, so that no request names
a client.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import grpc.aio

from croupier.net.retrying import retrying
from croupier.protocol.batches import read_commitments
from croupier.protocol.deployment import Deployment
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Lane
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs

_HASH_BYTES = 32
"""The length of a SHA-256 hash."""
_LANES: tuple[Lane, ...] = (pb.LANE_REPORT, pb.LANE_PARAMETER)
Chain = Mapping[Lane, list[pb.Commitment]]


def certified_chain(certificate: pb.Certificate, terms: RoundTerms, deployment: Deployment) -> Chain:
    """Returns every hop's commitments by lane, from a certificate whose signature has been checked.

    Raises:
        Refusal: BAD_BATCH if they do not form a chain, or do not end in the certified batch.
    """
    chain = read_commitments(
        certificate.commitments, terms, deployment.pinned(terms.created_unix_s), terms.shared.num_hops
    )
    if chain[pb.LANE_REPORT][-1].digest_out != certificate.batch_digest:
        raise Refusal(Code.BAD_BATCH, "the commitments do not lead to the batch that was certified")
    return chain


async def missing_at_hop(
    channel: grpc.aio.Channel, terms: RoundTerms, chain: Chain, hop: int, hashes_of: Mapping[str, bytes]
) -> list[str]:
    """Returns the users whose report or budget the hop (1..k) has not passed on.

    Args:
        terms: the round's.
        chain: see `certified_chain`.
        hop: 1..k.
        channel: to hop 1, which fetches the lists of the others, or to that hop. The service that shows a list need not
            be trusted: the list is compared with the hop's commitment.
        hashes_of: by user, see `protocol.onion.JointEnvelope`.

    Raises:
        ValueError: there is no such hop.
        Refusal: BAD_BATCH if the hop shows another list than it has committed to, or one of another length.
    """
    if not 1 <= hop <= len(chain[_LANES[0]]):
        raise ValueError(f"hop is {hop}; it must be in 1..{len(chain[_LANES[0]])}")
    start = 2 * _HASH_BYTES * (hop - 1)
    missing = set[str]()
    for lane, at in zip(_LANES, (start, start + _HASH_BYTES), strict=True):
        own = {user: hashes[at : at + _HASH_BYTES] for user, hashes in hashes_of.items()}
        passed_on = await _passed_on(channel, terms, chain, hop, lane, set(own.values()))
        missing |= {user for user, digest in own.items() if digest not in passed_on}
    return [user for user in hashes_of if user in missing]


async def missing_by_hop(
    channel: grpc.aio.Channel,
    terms: RoundTerms,
    certificate: pb.Certificate,
    deployment: Deployment,
    hashes_of: Mapping[str, bytes],
) -> dict[str, list[str]]:
    """Returns, for every hop by name, the users whose submissions it has not passed on.

    Arguments and errors are those of `certified_chain` and `missing_at_hop`; the channel is to hop 1.
    """
    chain = certified_chain(certificate, terms, deployment)
    hops = enumerate(deployment.shufflers, start=1)
    return {entry.name: await missing_at_hop(channel, terms, chain, hop, hashes_of) for hop, entry in hops}


async def _passed_on(
    channel: grpc.aio.Channel,
    terms: RoundTerms,
    chain: Chain,
    hop: int,
    lane: Lane,
    own: set[bytes],
) -> set[bytes]:
    """Returns which of these hashes are in a hop's list; reads no further than the hop's signed number."""
    stub, commitment, name = stubs.ShufflerStub(channel), chain[lane][hop - 1], pb.Lane.Name(lane)
    listed, whole, read = set[bytes](), hashlib.sha256(), 0
    while read < commitment.num_out:
        request = rpc.GetInclusionRequest(round_id=terms.round_id, offset=read, lane=lane, hop=hop)
        page = await retrying(lambda: stub.GetInclusion(request, timeout=20.0), give_up_after_s=30.0)  # noqa: B023
        more, rest = divmod(len(page.hashes), _HASH_BYTES)
        if not more or rest or read + more > commitment.num_out:
            raise Refusal(
                Code.BAD_BATCH,
                f"hop {hop} shows {len(page.hashes)} bytes of {name} behind {read} of the {commitment.num_out} hashes "
                f"that it has committed to; each has {_HASH_BYTES} bytes",
            )
        whole.update(page.hashes)
        listed |= {page.hashes[at : at + _HASH_BYTES] for at in range(0, len(page.hashes), _HASH_BYTES)} & own
        read += more
    if whole.digest() != commitment.digest_out:
        raise Refusal(Code.BAD_BATCH, f"hop {hop} shows another list of {name} than the one it has committed to")
    return listed
