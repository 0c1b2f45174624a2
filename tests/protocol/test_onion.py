"""The onion: every layer peeled by its own holder gives back what the client put in, at the stated sizes."""

from __future__ import annotations

import hashlib

import pytest

from protocol.envelope import HOP_ACCOUNTANT, HOP_ANALYZER, HOP_RELEASE, SUITES, open_many, open_sealed
from protocol.onion import Onion, decode_budget, encode_budget
from protocol.v1.messages_pb2 import Lane
from tests.support import RoundKit, encode_report, make_kit


def peel(kit: RoundKit, lane: Lane.ValueType, hop: int, owner: str, ciphertext: bytes) -> bytes:
    layer = Onion(kit.terms).layer(lane, hop)
    assert len(ciphertext) == layer.sealed_size
    plaintext = open_sealed(kit.terms.suite, kit.keys[owner].private, layer.label, ciphertext)
    assert len(plaintext) == layer.plain_size
    return plaintext


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_the_chain_peels_an_envelope(hops: int, suite: str) -> None:
    kit = make_kit(hops=hops, suite=suite)
    onion = Onion(kit.terms)
    envelope, trail = onion.wrap(encode_report(1), encode_budget(0.5, 0.0))
    report, parameter = onion.split(peel(kit, Lane.LANE_JOINT, 1, "shuffler-1", envelope))
    passed_on = [report, parameter]
    for hop in range(2, hops + 1):
        assert len(report) == onion.arriving_size(Lane.LANE_REPORT, hop)
        assert len(parameter) == onion.arriving_size(Lane.LANE_PARAMETER, hop)
        report = peel(kit, Lane.LANE_REPORT, hop, f"shuffler-{hop}", report)
        parameter = peel(kit, Lane.LANE_PARAMETER, hop, f"shuffler-{hop}", parameter)
        passed_on += [report, parameter]
    assert trail == b"".join(hashlib.sha256(one).digest() for one in passed_on)
    assert len(report) == onion.arriving_size(Lane.LANE_REPORT, HOP_ANALYZER)
    inner = peel(kit, Lane.LANE_REPORT, HOP_RELEASE, "release", report)
    assert peel(kit, Lane.LANE_REPORT, HOP_ANALYZER, "analyzer", inner) == encode_report(1)
    assert decode_budget(peel(kit, Lane.LANE_PARAMETER, HOP_ACCOUNTANT, "accountant", parameter)) == (0.5, 0.0)


def test_the_analyzer_alone_opens_nothing_and_neither_does_the_accountant() -> None:
    kit = make_kit(hops=1)
    onion = Onion(kit.terms)
    joint = onion.wrap(encode_report(0), encode_budget(1.0, 0.0)).envelope
    report, _ = onion.split(peel(kit, Lane.LANE_JOINT, 1, "shuffler-1", joint))
    own = onion.layer(Lane.LANE_REPORT, HOP_ANALYZER).label
    assert open_many(kit.terms.suite, kit.keys["analyzer"].private, own, [report]) == [None]
    inner = peel(kit, Lane.LANE_REPORT, HOP_RELEASE, "release", report)
    for name in ("accountant", "release", "shuffler-1"):
        assert open_many(kit.terms.suite, kit.keys[name].private, own, [inner]) == [None]


def test_all_envelopes_of_a_round_have_one_size() -> None:
    onion = Onion(make_kit().terms)
    sizes = {len(onion.wrap(encode_report(report), encode_budget(2.0, 0.0)).envelope) for report in (0, 1, -5, 2**62)}
    assert sizes == {onion.joint.sealed_size}


def test_wrong_sizes_and_places_are_refused() -> None:
    onion = Onion(make_kit().terms)
    with pytest.raises(ValueError, match="have 7 and 16 bytes, not 8 and 16"):
        onion.wrap(b"1234567", encode_budget(1.0, 0.0))
    with pytest.raises(ValueError, match="hop 7 has no layer"):
        onion.layer(Lane.LANE_REPORT, 7)
