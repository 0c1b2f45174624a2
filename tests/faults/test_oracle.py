"""The judge of the schedules: it has to see what it is there to see."""

from __future__ import annotations

import os

import pytest

from tests.faults.oracle import Violation, check_forgotten
from tests.support.messages import naming

SECRETS = [os.urandom(60) for _ in range(3)]
TESTIMONY = {"hop": ["chunk 1 2", *(f"secret report {secret.hex()}" for secret in SECRETS)]}


@pytest.mark.parametrize("at", [0, 1, 776, 777, 940])
@pytest.mark.parametrize("number", range(len(SECRETS)))
def test_a_secret_is_found_wherever_it_lies(at: int, number: int) -> None:
    content = bytearray(os.urandom(1000))
    check_forgotten(TESTIMONY, {"empty": b"", "one": b"1", "rounds.db": bytes(content)})
    content[at : at + 60] = SECRETS[number]
    with pytest.raises(Violation, match=naming("rounds.db", "hop")):
        check_forgotten(TESTIMONY, {"empty": b"", "one": b"1", "rounds.db": bytes(content)})


def test_a_witness_that_has_seen_nothing_is_no_witness() -> None:
    with pytest.raises(Violation, match=naming("no secret")):
        check_forgotten({"hop": ["chunk 1 2"]}, {})
