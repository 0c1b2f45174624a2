"""The proofs of a certificate are repeated with its witnesses, and only what they prove is believed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import croupier
from croupier import Certificate
from croupier.accountant.repetition import repeat
from croupier.accountant.witness import Witness
from croupier.protocol.codes import Method
from tests.support.command_line import invoke

CERTIFIED: list[tuple[list[tuple[float, int]], str, dict[str, Any]]] = [
    ([(0.5, 300), (1.0, 200)], "krr(k=4)", {}),
    ([(1.0, 2000)], "rr", {"dishonest": 10}),
    ([(1.0, 60)], "rr", {}),
    ([(1.0, 6)], "krr(k=3)", {"delta": 0.05}),
    ([(1.0, 300)], "levels(k=9)", {"hop_noise": (0.1, 1e-7)}),
    ([(1.0, 300)], "krr(k=4)", {"rounds": 2, "delta": 1e-13}),
    ([(0.1, 2)], "krr(k=4)", {}),
]


def _read(tiers: list[tuple[float, int]], kind: str, conditions: dict[str, Any]) -> Certificate:
    certificate = croupier.certify(tiers, kind, attack=False, **{"delta": 1e-6, **conditions})
    return Certificate.from_json(json.dumps(certificate.to_json()))


@pytest.mark.parametrize(("tiers", "kind", "conditions"), CERTIFIED)
def test_a_witness_proves_its_tier_and_nothing_less(
    tiers: list[tuple[float, int]], kind: str, conditions: dict[str, Any]
) -> None:
    certificate = _read(tiers, kind, conditions)
    for tier, delta in repeat(certificate):
        assert delta is not None
        assert delta <= tier.delta
    less = tuple(replace(tier, epsilon=tier.epsilon * 0.99) for tier in certificate.tiers)
    for tier, delta in repeat(replace(certificate, tiers=less)):
        assert delta is not None
        assert delta > tier.delta


def test_composed_rounds_are_not_repeated() -> None:
    ((tier, delta),) = repeat(_read([(1.0, 500)], "krr(k=4)", {"rounds": 5}))
    assert (tier.witness, delta) == (Witness(Method.COMPOSED_LOSSES), None)


@pytest.mark.parametrize("name", ["theta", "sigma", "step", "strip", "end"])
@pytest.mark.parametrize("factor", [-1.0, 0.5, 2.0, 1e9])
def test_other_numbers_prove_nothing_less(name: str, factor: float) -> None:
    certificate = _read([(1.0, 300)], "krr(k=4)", {})
    (tier,) = certificate.tiers
    assert tier.witness is not None
    numbers = dict(tier.witness.numbers) | {name: (factor * tier.witness[name][0],)}
    changed = replace(tier, epsilon=tier.epsilon * 0.99, witness=Witness.of(tier.witness.theorem, numbers))
    try:
        ((_, delta),) = repeat(replace(certificate, tiers=(changed,)))
    except ValueError as error:
        assert "witness" in str(error) or "numbers" in str(error)  # noqa: PT017
    else:
        assert delta is not None
        assert delta > tier.delta


def test_a_witness_has_each_name_once_and_finite_numbers() -> None:
    with pytest.raises(ValueError, match="once"):
        Witness(Method.EXCHANGE, (("theta", (1.0,)), ("theta", (2.0,))))
    with pytest.raises(ValueError, match="finite"):
        Witness(Method.EXCHANGE, (("theta", (float("inf"),)),))
    assert Witness.of(Method.EXCHANGE, {"theta": [1.0], "end": [float("nan")]}).numbers == (("theta", (1.0,)),)


def test_the_command_says_what_is_proved(tmp_path: Path) -> None:
    document = _read([(1.0, 300)], "krr(k=4)", {}).to_json()
    file = tmp_path / "certificate.json"
    file.write_text(json.dumps(document))
    result = invoke("explain", str(file), "--check", "--json")
    assert result.exit_code == 0
    (tier,) = json.loads(result.stdout)["tiers"]
    assert 0.99 * tier["delta"] < tier["proved"] <= tier["delta"]
    document["tiers"][0]["epsilon"] *= 0.999
    file.write_text(json.dumps({"questions": [{"result": {"certificate": document}}]}))
    assert invoke("explain", str(file), "--check").exit_code == 5
