"""The onion: every layer peeled by its own holder gives back what the client put in, at the stated sizes."""

from __future__ import annotations

import hashlib

import pytest

from croupier.protocol.envelope import HOP_ACCOUNTANT, HOP_ANALYZER, HOP_RELEASE, SUITES, open_many, open_sealed
from croupier.protocol.onion import (
    BudgetRecord,
    JointEnvelope,
    Onion,
    decode_budget,
    encode_budget,
    split_report,
    ticket_item,
)
from croupier.protocol.v1.messages_pb2 import Lane
from tests.support import RoundKit, encode_report, make_kit
from tests.support.messages import naming

SALT = bytes(range(16))


def wrapped(onion: Onion, report: int) -> JointEnvelope:
    record = BudgetRecord(encode_budget(1.0, 0.0), SALT)
    return onion.wrap(onion.seal_report(encode_report(report)), record, (bytes(64), bytes(64)))


def peel(kit: RoundKit, lane: Lane.ValueType, hop: int, owner: str, ciphertext: bytes) -> bytes:
    layer = Onion(kit.terms).layer(lane, hop)
    assert len(ciphertext) == layer.sealed_size
    plaintext = open_sealed(kit.terms.shared.hpke_suite, kit.keys[owner].private, layer.label, ciphertext)
    assert len(plaintext) == layer.plain_size
    return plaintext


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_the_chain_peels_an_envelope(hops: int, suite: str) -> None:
    kit = make_kit(hops=hops, suite=suite)
    onion = Onion(kit.terms)
    record, tickets = BudgetRecord(encode_budget(0.5, 0.0), SALT), (b"r" * 64, b"p" * 64)
    sealed = onion.seal_report(encode_report(1))
    envelope, hashes = onion.wrap(sealed, record, tickets)
    report, parameter = onion.split(peel(kit, Lane.LANE_JOINT, 1, "shuffler-1", envelope))
    passed_on = [report, parameter]
    for hop in range(2, hops + 1):
        assert len(report) == onion.arriving_size(Lane.LANE_REPORT, hop)
        assert len(parameter) == onion.arriving_size(Lane.LANE_PARAMETER, hop)
        report = peel(kit, Lane.LANE_REPORT, hop, f"shuffler-{hop}", report)
        parameter = peel(kit, Lane.LANE_PARAMETER, hop, f"shuffler-{hop}", parameter)
        passed_on += [report, parameter]
    assert hashes == b"".join(hashlib.sha256(sealed).digest() for sealed in passed_on)
    assert len(report) == onion.arriving_size(Lane.LANE_REPORT, HOP_ANALYZER)
    held = peel(kit, Lane.LANE_REPORT, HOP_ANALYZER, "analyzer", report)
    assert split_report(held) == (tickets[0], sealed)
    assert ticket_item(held) == hashlib.sha256(sealed).digest() + tickets[0]
    assert len(ticket_item(held)) == onion.arriving_size(Lane.LANE_TICKET, HOP_ACCOUNTANT)
    assert peel(kit, Lane.LANE_REPORT, HOP_RELEASE, "release", sealed) == encode_report(1)
    opened = peel(kit, Lane.LANE_PARAMETER, HOP_ACCOUNTANT, "accountant", parameter)
    assert BudgetRecord.split(opened) == (tickets[1], record)
    assert decode_budget(record.budget) == (0.5, 0.0)


def test_neither_the_analyzer_nor_the_accountant_alone_opens_a_report() -> None:
    kit = make_kit(hops=1)
    onion = Onion(kit.terms)
    joint = wrapped(onion, 0).envelope
    report, _ = onion.split(peel(kit, Lane.LANE_JOINT, 1, "shuffler-1", joint))
    _, sealed = split_report(peel(kit, Lane.LANE_REPORT, HOP_ANALYZER, "analyzer", report))
    release = onion.layer(Lane.LANE_REPORT, HOP_RELEASE).label
    assert open_many(kit.terms.shared.hpke_suite, kit.keys["release"].private, release, [report]) == [None]
    for name in ("analyzer", "accountant", "shuffler-1"):
        assert open_many(kit.terms.shared.hpke_suite, kit.keys[name].private, release, [sealed]) == [None]


def test_all_envelopes_of_a_round_have_one_size() -> None:
    onion = Onion(make_kit().terms)
    sizes = {len(wrapped(onion, report).envelope) for report in (0, 1, -5, 2**62)}
    assert sizes == {onion.joint.sealed_size}


def test_wrong_sizes_and_places_are_refused() -> None:
    onion = Onion(make_kit().terms)
    with pytest.raises(ValueError, match=naming("report", 7, 8)):
        onion.seal_report(b"1234567")
    with pytest.raises(ValueError, match=naming(15, 16)):
        BudgetRecord(bytes(15), SALT)
    record, sealed = BudgetRecord(bytes(16), SALT), onion.seal_report(bytes(8))
    with pytest.raises(ValueError, match=r"tickets have \[64, 63\] bytes"):
        onion.wrap(sealed, record, (bytes(64), bytes(63)))
    with pytest.raises(ValueError, match=naming("hop 7")):
        onion.layer(Lane.LANE_REPORT, 7)
