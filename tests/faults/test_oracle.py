"""The judge of the schedules: it has to see what it is there to see."""

from __future__ import annotations

import os

import pytest

from tests.faults.oracle import Violation, check_forgotten

SECRETS = [os.urandom(60) for _ in range(3)]
TESTIMONY = {"hop": ["chunk 1 2", *(f"secret report {secret.hex()}" for secret in SECRETS)]}


@pytest.mark.parametrize("at", [0, 1, 776, 777, 940])
@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_found_wherever_it_lies(at: int, secret: bytes) -> None:
    content = bytearray(os.urandom(1000))
    check_forgotten(TESTIMONY, {"empty": b"", "one": b"1", "rounds.db": bytes(content)})
    content[at : at + 60] = secret
    with pytest.raises(Violation, match=r"rounds\.db still holds a ciphertext or key that hop had stored"):
        check_forgotten(TESTIMONY, {"empty": b"", "one": b"1", "rounds.db": bytes(content)})


def test_a_witness_that_has_seen_nothing_is_no_witness() -> None:
    with pytest.raises(Violation, match="would prove nothing"):
        check_forgotten({"hop": ["chunk 1 2"]}, {})
