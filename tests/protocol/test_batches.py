"""Commitments: an honest chain is accepted, and every way of bending it is noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from croupier.protocol.batches import digest, read_commitments, unpack
from croupier.protocol.errors import Code, Refusal, SignatureError
from croupier.protocol.identity import Identity, Kind, Pinned, canonical
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import PrivateKey
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import make_kit
from tests.support.messages import naming, refuses

HOPS = {f"shuffler-{hop}": Identity(f"shuffler-{hop}", PrivateKey(bytes([hop]) * 32)) for hop in (1, 2)}
PINNED: Pinned = {name: {identity.public_key: None} for name, identity in HOPS.items()}
TERMS = make_kit().terms


def honest(terms: RoundTerms) -> list[pb.Commitment]:
    chain = []
    for hop in (1, 2):
        for lane in (pb.LANE_REPORT, pb.LANE_PARAMETER):
            joint = b"joint" if hop == 1 else bytes([lane, hop])
            chain.append(
                pb.Commitment(
                    round_id=terms.round_id,
                    manifest_hash=terms.hash,
                    hop=hop,
                    lane=lane,
                    num_in=11 - hop,
                    num_out=10 - hop,
                    drops=[pb.Drop(reason="does-not-open", count=1)],
                    digest_in=joint,
                    digest_out=bytes([lane, hop + 1]),
                )
            )
    return chain


def one_report_less(chain: list[pb.Commitment]) -> None:
    chain[0].num_out -= 1
    chain[0].drops[0].count += 1
    chain[2].num_in -= 1
    chain[2].num_out -= 1


def sign(chain: list[pb.Commitment]) -> list[pb.Signed]:
    return [
        HOPS[f"shuffler-{1 + i // 2}"].signed(Kind.COMMITMENT, canonical(commitment))
        for i, commitment in enumerate(chain)
    ]


def test_an_honest_chain_is_accepted() -> None:
    chain = read_commitments(sign(honest(TERMS)), TERMS, PINNED, 2)
    assert [commitment.num_out for commitment in chain[pb.LANE_REPORT]] == [9, 8]
    assert read_commitments(sign(honest(TERMS))[:2], TERMS, PINNED, 1)[pb.LANE_PARAMETER][0].hop == 1


@pytest.mark.parametrize(
    ("bend", "message"),
    [
        (lambda c: c.pop(), "3 commitments; 2 hops sign 4"),
        (lambda c: setattr(c[2], "num_in", 8), "8 in, 8 out, 1 drops explained"),
        (lambda c: c[2].MergeFrom(pb.Commitment(num_in=7, num_out=6)), "hop 2 received another LANE_REPORT"),
        (lambda c: setattr(c[3], "digest_in", b"swapped"), "hop 2 received another LANE_PARAMETER"),
        (lambda c: setattr(c[1], "digest_in", b"other joint"), "different joint envelopes"),
        (lambda c: one_report_less(c), "hop 1 passed on 8 reports and 9 budgets"),
        (lambda c: setattr(c[0].drops[0], "reason", "repeated"), "for different reasons"),
        (lambda c: setattr(c[0], "round_id", "other"), "another round"),
        (lambda c: setattr(c[0], "manifest_hash", b"other"), "another round"),
        (lambda c: setattr(c[0], "lane", pb.LANE_PARAMETER), "it says hop 1, lane 3"),
        (lambda c: setattr(c[2], "hop", 1), "it says hop 1"),
    ],
)
def test_a_bent_chain_is_refused(bend: Callable[[list[pb.Commitment]], object], message: str) -> None:
    chain = honest(TERMS)
    bend(chain)
    with refuses(Code.BAD_BATCH, message):
        read_commitments(sign(chain), TERMS, PINNED, 2)


def test_each_hop_signs_its_own() -> None:
    chain = honest(TERMS)
    forged = [HOPS["shuffler-1"].signed(Kind.COMMITMENT, canonical(commitment)) for commitment in chain]
    with pytest.raises(SignatureError):
        read_commitments(forged, TERMS, PINNED, 2)


def test_digests_name_the_set_and_not_the_order() -> None:
    assert digest([b"a", b"b"]) == digest([b"b", b"a"]) != digest([b"a", b"a"])


@pytest.mark.parametrize("packed", [b"", b"123", b"12345"])
def test_chunks_have_whole_ciphertexts(packed: bytes) -> None:
    assert unpack(b"1234", 2) == [b"12", b"34"]
    with pytest.raises(Refusal, match=naming(2)):
        unpack(packed, 2)
