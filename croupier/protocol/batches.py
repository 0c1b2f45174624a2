"""Batches of ciphertexts: packing, digests, and the chain of commitments that the hops sign.

A lane's digest is SHA-256 over the sorted SHA-256 hashes of its ciphertexts: it says which ones, not in which order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import Kind, Pinned, read_signed
from croupier.protocol.names import Digest, Lane
from croupier.protocol.v1 import messages_pb2 as pb

if TYPE_CHECKING:  # a worker process has no use for it
    from croupier.protocol.manifest import RoundTerms


def unpack(packed: bytes, size: int) -> list[bytes]:
    """Returns the ciphertexts of a chunk.

    Raises:
        Refusal: BAD_REQUEST if the length is not a multiple of the lane's exact size.
    """
    if not packed or len(packed) % size:
        raise Refusal(Code.BAD_REQUEST, f"a chunk of {len(packed)} bytes; every ciphertext here has {size}")
    return [packed[start : start + size] for start in range(0, len(packed), size)]


def ciphertext_hashes(ciphertexts: Sequence[bytes]) -> list[Digest]:
    """Returns the SHA-256 of each ciphertext, sorted."""
    return sorted(Digest(hashlib.sha256(ciphertext).digest()) for ciphertext in ciphertexts)


def digest(ciphertexts: Sequence[bytes]) -> Digest:
    """Returns the name of a batch, whatever its order."""
    return digest_of_hashes(ciphertext_hashes(ciphertexts))


def digest_of_hashes(hashes: Sequence[bytes]) -> Digest:
    """Returns the name of a batch from the sorted hashes of its ciphertexts."""
    return Digest(hashlib.sha256(b"".join(hashes)).digest())


def drop_counts(drops: Mapping[str, int]) -> list[pb.Drop]:
    """Returns the messages for a count of drops by reason, without the zeros."""
    return [pb.Drop(reason=reason, count=count) for reason, count in sorted(drops.items()) if count]


def _check_commitment(commitment: pb.Commitment, terms: RoundTerms, hop: int, lane: Lane) -> None:
    place = f"commitment of hop {hop}, {pb.Lane.Name(lane)}"
    if (commitment.round_id, commitment.manifest_hash) != (terms.round_id, terms.hash):
        raise Refusal(Code.BAD_BATCH, f"{place}: it is about another round or manifest")
    if (commitment.hop, commitment.lane) != (hop, lane):
        raise Refusal(Code.BAD_BATCH, f"{place}: it says hop {commitment.hop}, lane {commitment.lane}")
    dropped = sum(drop.count for drop in commitment.drops)
    if commitment.num_in + commitment.num_fakes != commitment.num_out + dropped:
        fakes = f", {commitment.num_fakes} fakes" if commitment.num_fakes else ""
        raise Refusal(
            Code.BAD_BATCH,
            f"{place}: {commitment.num_in} in{fakes}, {commitment.num_out} out, {dropped} drops explained",
        )
    if lane == pb.LANE_REPORT and terms.fakes is not None:
        try:
            terms.fakes.law.check_total(commitment.num_fakes)
        except ValueError as error:
            raise Refusal(Code.BAD_BATCH, f"{place}: {error}") from error
    elif commitment.num_fakes:
        raise Refusal(Code.BAD_BATCH, f"{place}: {commitment.num_fakes} fake reports; the hop must add none")


def check_joint(report: pb.Commitment, parameter: pb.Commitment) -> None:
    """Hop 1 opens, drops and passes on whole joint envelopes: nothing can differ between its lanes but what they hold.

    Budgets without their reports would count as a crowd, in the certificate, around the remaining reports.
    """
    if (report.num_in, report.digest_in) != (parameter.num_in, parameter.digest_in):
        raise Refusal(Code.BAD_BATCH, "hop 1 says that its two lanes come from different joint envelopes")
    passed_on = report.num_out - report.num_fakes
    if (passed_on, list(report.drops)) != (parameter.num_out, list(parameter.drops)):
        raise Refusal(
            Code.BAD_BATCH,
            f"hop 1 passed on {passed_on} reports and {parameter.num_out} budgets, or dropped them"
            " for different reasons; it opens both together",
        )


def num_fakes(chain: Mapping[Lane, Sequence[pb.Commitment]]) -> int:
    """Returns how many fake reports the hops of a chain of commitments have added."""
    return sum(commitment.num_fakes for commitment in chain[pb.LANE_REPORT])


def read_commitments(
    signed: Sequence[pb.Signed], terms: RoundTerms, pinned: Pinned, hops: int
) -> dict[Lane, list[pb.Commitment]]:
    """Returns the commitments of the first `hops` hops by lane, after checking every link of the chain.

    Expected are, hop by hop, the report lane's and then the parameter lane's, each signed by that hop.

    Raises:
        Refusal: BAD_BATCH with the first thing that does not fit.
        SignatureError: a signature does not fit, or what is signed is not a commitment.
    """
    if len(signed) != 2 * hops:
        raise Refusal(Code.BAD_BATCH, f"{len(signed)} commitments; {hops} hops sign {2 * hops}")
    lanes: tuple[Lane, Lane] = (pb.LANE_REPORT, pb.LANE_PARAMETER)
    chain: dict[Lane, list[pb.Commitment]] = {lane: [] for lane in lanes}
    for index, document in enumerate(signed):
        hop, lane = index // 2 + 1, lanes[index % 2]
        signer = terms.hops[hop - 1].service
        commitment = read_signed(Kind.COMMITMENT, pb.Commitment, document, {signer: pinned[signer]}, [signer])
        _check_commitment(commitment, terms, hop, lane)
        if chain[lane]:
            before = chain[lane][-1]
            if (before.num_out, before.digest_out) != (commitment.num_in, commitment.digest_in):
                raise Refusal(
                    Code.BAD_BATCH, f"hop {hop} received another {pb.Lane.Name(lane)} than hop {hop - 1} sent"
                )
        chain[lane].append(commitment)
    check_joint(chain[pb.LANE_REPORT][0], chain[pb.LANE_PARAMETER][0])
    return chain
