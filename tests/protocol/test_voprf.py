"""The VOPRF against all vectors of RFC 9497, and what it must refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import rbcl

from croupier.protocol import voprf
from tests.support.messages import naming

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "rfc9497-voprf-ristretto255.json").read_text(encoding="utf-8")
)
CASES = pytest.mark.parametrize("case", VECTORS["cases"], ids=["A.1.2.1", "A.1.2.2", "A.1.2.3"])
ORDER = 2**252 + 27742317777372353535851937790883648493
FIELD = 2**255 - 19
IDENTITY = bytes(32)
NOT_CANONICAL = {
    "the field's prime, which is 0 again": FIELD.to_bytes(32, "little"),
    "larger than the field": b"\xff" * 32,
    "negative": (1).to_bytes(32, "little"),
    "not on the curve": bytes.fromhex("26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371"),
}


def raw(values: list[str]) -> list[bytes]:
    return [bytes.fromhex(value) for value in values]


def key_pair() -> tuple[bytes, bytes]:
    return voprf.derive_key_pair(bytes.fromhex(VECTORS["seed"]), bytes.fromhex(VECTORS["key_info"]))


def batch(size: int) -> tuple[list[bytes], list[bytes], list[bytes], list[bytes], bytes]:
    """Returns messages, scalars, blinded elements, evaluations and the proof."""
    messages, scalars = [bytes([index]) for index in range(size)], [voprf.random_scalar() for _ in range(size)]
    blinded = list(map(voprf.blind, messages, scalars))
    return messages, scalars, blinded, *voprf.blind_evaluate(*key_pair(), blinded)


def test_the_key_pair_is_that_of_the_rfc() -> None:
    secret, public = key_pair()
    assert (secret.hex(), public.hex()) == (VECTORS["secret_key"], VECTORS["public_key"])


@CASES
def test_every_value_is_that_of_the_rfc(case: dict[str, Any]) -> None:
    secret, public = key_pair()
    messages, scalars, blinded = raw(case["input"]), raw(case["blind"]), raw(case["blinded"])
    assert list(map(voprf.blind, messages, scalars)) == blinded
    evaluated, fresh_proof = voprf.blind_evaluate(secret, public, blinded)
    assert [element.hex() for element in evaluated] == case["evaluated"]
    proof = voprf.prove(secret, public, blinded, evaluated, bytes.fromhex(case["proof_random_scalar"]))
    assert proof.hex() == case["proof"]
    for valid in (proof, fresh_proof):
        voprf.verify(public, blinded, evaluated, valid)
    assert [output.hex() for output in voprf.finalize(messages, scalars, evaluated)] == case["output"]
    assert [voprf.evaluate(secret, message).hex() for message in messages] == case["output"]


def _integer(scalar: bytes) -> int:
    return int.from_bytes(scalar, "little")


def test_scalars_are_canonical_different_and_not_zero() -> None:
    scalars = {voprf.random_scalar() for _ in range(200)}
    assert len(scalars) == 200
    assert all(0 < _integer(scalar) < ORDER for scalar in scalars)


@pytest.mark.parametrize("wrong", [IDENTITY, *NOT_CANONICAL.values(), b"", bytes(31), bytes(33)])
def test_what_is_not_an_element_is_refused_wherever_it_stands(wrong: bytes) -> None:
    secret, public = key_pair()
    _, _, blinded, evaluated, proof = batch(2)
    assert not voprf.is_element(wrong)
    with pytest.raises(ValueError):
        voprf.blind_evaluate(secret, public, [blinded[0], wrong])
    with pytest.raises(ValueError):
        voprf.verify(wrong, blinded, evaluated, proof)
    with pytest.raises(ValueError):
        voprf.verify(public, [wrong, blinded[1]], evaluated, proof)
    with pytest.raises(ValueError):
        voprf.verify(public, blinded, [evaluated[0], wrong], proof)
    assert voprf.is_element(public)


def test_scalars_of_a_proof_are_canonical_ones() -> None:
    """A proof whose scalars are larger by the order of the group would hold, and be a second one for the same."""
    _, public = key_pair()
    _, _, blinded, evaluated, proof = batch(1)
    for place in (0, 1):
        parts = [proof[:32], proof[32:]]
        parts[place] = (_integer(parts[place]) + ORDER).to_bytes(32, "little")
        with pytest.raises(ValueError, match="canonical"):
            voprf.verify(public, blinded, evaluated, b"".join(parts))


@pytest.mark.parametrize("place", [0, 1])
def test_a_proof_with_a_zero_is_checked_and_does_not_hold(place: int) -> None:
    _, public = key_pair()
    _, _, blinded, evaluated, proof = batch(1)
    parts = [proof[:32], proof[32:]]
    parts[place] = bytes(32)
    with pytest.raises(ValueError, match=naming("proof")):
        voprf.verify(public, blinded, evaluated, b"".join(parts))


def test_a_proof_is_for_its_key_and_its_elements_in_their_order() -> None:
    _, public = key_pair()
    _, _, blinded, evaluated, proof = batch(3)
    _, other = voprf.derive_key_pair(bytes(32), b"")
    voprf.verify(public, blinded, evaluated, proof)
    changed = [*evaluated[:2], voprf.blind(b"another", voprf.random_scalar())]
    for wrong in (
        (other, blinded, evaluated, proof),
        (public, blinded[::-1], evaluated, proof),
        (public, blinded, evaluated[::-1], proof),
        (public, blinded, changed, proof),
        (public, blinded, evaluated, proof[:-1] + bytes([proof[-1] ^ 1])),
        (public, blinded, evaluated, proof[:-1]),
        (public, blinded, evaluated[:2], proof),
        (public, [], [], proof),
    ):
        with pytest.raises(ValueError):
            voprf.verify(*wrong)


def test_evaluations_under_two_keys_that_cancel_out_do_not_pass() -> None:
    """Each pair has its own weight: two errors that add up to nothing are noticed."""
    secret, public = key_pair()
    _, _, blinded, evaluated, _ = batch(2)
    error = voprf.blind(b"error", voprf.random_scalar())
    shifted = [voprf.add(evaluated[0], error), rbcl.crypto_core_ristretto255_sub(evaluated[1], error)]
    proof = voprf.prove(secret, public, blinded, shifted, voprf.random_scalar())
    with pytest.raises(ValueError, match=naming("proof")):
        voprf.verify(public, blinded, shifted, proof)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_inverses_of_a_batch_are_those_of_each(size: int) -> None:
    scalars = [voprf.random_scalar() for _ in range(size)]
    assert [_integer(inverse) for inverse in voprf.inverses(scalars)] == [
        pow(_integer(inverse), -1, ORDER) for inverse in scalars
    ]


def test_no_copy_of_the_library_is_left_among_the_temporary_files() -> None:
    assert not Path(rbcl._sodium._name).exists()
