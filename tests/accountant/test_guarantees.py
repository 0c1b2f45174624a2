"""Result types: what they refuse to hold, the JSON that others read, and the package's front door."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import croupier
from croupier import Certificate, Comparison, Grade, Guarantee, Status, TierCertificate, certify, compose
from croupier.accountant.composed_certificates import of_disjoint_groups
from croupier.accountant.group_guarantees import LOCAL
from croupier.accountant.numerics.decimals import as_decimal, difference
from croupier.protocol.certificates import NOT_READ, alone_in
from croupier.protocol.codes import Note
from croupier.protocol.rounding import round_down, round_up
from croupier.protocol.statements import read_statements
from tests.support.messages import naming
from tests.support.statements import parameters


def test_the_json_says_what_the_certificate_says() -> None:
    """Its keys are those of the published schema: tests/protocol/test_certificates.py."""
    certificate = certify([1.0] * 50 + [0.5] * 50, "rr", delta=1e-3, dishonest=2).to_json()
    assert alone_in(certificate) == {"epsilon": 1.0, "delta": 0.0}
    assert certificate["grade"] == "CERTIFIED"
    assert (certificate["num_users"], certificate["dishonest"], certificate["delta"]) == (100, 2, 1e-3)
    assert 0 < certificate["numerical_slack"] < 1e-9
    assert parameters(certificate["assumptions"], croupier.Assumption.DISHONEST_CLIENTS) == {"dishonest": 2}


def test_a_certificate_is_read_back_from_its_json() -> None:
    """A dict, a text or bytes; certificates of every kind are in tests/protocol/test_certificates.py."""
    budgets = [(1.0, 9, 0.01), (0.5, 20, 0.02)]
    certificate = certify(budgets, "gaussian", delta=0.1, linkage="stratified", compare_all=True)
    text = json.dumps(certificate.to_json())
    assert Certificate.from_json(json.loads(text)) == certificate
    assert Certificate.from_json(text) == Certificate.from_json(text.encode()) == certificate
    for missing in certificate.to_json().keys() - {*NOT_READ}:
        document = json.loads(text)
        del document[missing]
        with pytest.raises(ValueError, match=missing):
            Certificate.from_json(document)
    with pytest.raises(ValueError, match=naming("CERTIFIED")):
        Certificate.from_json({**json.loads(text), "grade": "HEURISTIC"})


@pytest.mark.parametrize("document", ["{}", "certificate.json", "[1]", "", b"\xff", [], None, {"epsilon": 1.0}])
def test_what_is_no_certificate_is_not_read(document: Any) -> None:
    """Reproduction: of a text it was said that string indices must be integers."""
    with pytest.raises(ValueError, match=naming("'croupier certify --json'")):
        Certificate.from_json(document)


def test_a_certificate_is_a_sentence() -> None:
    certificate = certify([1.0] * 1000, "rr", delta=1e-6, dishonest=3)
    assert str(certificate).startswith(
        f"CERTIFIED ε = {round_up(certificate.epsilon)} at δ = 1e-06 for 1,000 users of rr, of the"
    )
    assert certificate.lower_bound is not None
    assert f"LOWER_BOUND ε ≥ {round_down(certificate.lower_bound.epsilon)}; if everyone else colludes ε = 1 (" in str(
        certificate
    )


def test_certificates_are_frozen_and_checked() -> None:
    certificate = certify([1.0, 2.0], "rr", delta=0.1)
    with pytest.raises(FrozenInstanceError):
        certificate.epsilon = 0.0  # type: ignore[misc]
    changes: list[tuple[dict[str, Any], str]] = [
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epsilon": certificate.epsilon / 2}, "at least that of every tier"),
        ({"delta": 1.5}, "delta"),
        ({"grade": Grade.ASYMPTOTIC}, "CERTIFIED"),
        ({"num_users": 3}, "tiers hold 2 users"),
        ({"tiers": ()}, "tiers is empty"),
        ({"rounds": 0}, "rounds"),
        ({"method": ()}, "method"),
    ]
    for change, message in changes:
        with pytest.raises(ValueError, match=message):
            replace(certificate, **change)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Guarantee(1.0, -0.1, Grade.CERTIFIED, LOCAL),
        lambda: Guarantee(1.0, 0.1, "CERTAIN", LOCAL),  # type: ignore[arg-type]
        lambda: TierCertificate(1.0, 0.0, -1, 1.0, 0.1),
        lambda: TierCertificate(1.0, 0.0, True, 1.0, 0.1),
        lambda: Comparison("a", None, Grade.HEURISTIC, Status.OUT_OF_RANGE, "paper"),
        lambda: Comparison("", 1.0, Grade.HEURISTIC, Status.VALID, "paper"),
    ],
)
def test_nonsense_cannot_be_built(build: Any) -> None:
    with pytest.raises(ValueError, match="must"):
        build()


def test_all_is_sorted_and_complete() -> None:
    public = dir(croupier)
    assert public == sorted(public)
    assert all(getattr(croupier, name) is not None for name in public)
    assert croupier.Certificate is Certificate
    with pytest.raises(AttributeError):
        getattr(croupier, "nothing")  # noqa: B009 (the type checker knows that it is missing)


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = (
        "import sys, croupier.accountant, croupier; print({'numpy', 'scipy', 'grpc', 'sqlalchemy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_certifying_loads_neither_rpc_nor_storage() -> None:
    program = (
        "import sys; from croupier.accountant import certify; certify([1.0, 1.0], 'rr', delta=.1);"
        "print({'grpc', 'sqlalchemy', 'scipy.stats'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@given(st.floats(0.0, 1e300), st.integers(1, 9))
def test_what_is_shown_of_a_certified_number_is_never_below_it(value: float, digits: int) -> None:
    assert float(round_down(value, digits)) <= value <= float(round_up(value, digits))
    assert float(round_up(value, digits)) <= value * (1 + 10.0 ** (1 - digits)) + 5e-324
    assert len(round_up(value, digits).split("e")[0].replace(".", "").strip("0")) <= digits


def test_numbers_that_need_no_rounding_are_shown_as_they_are() -> None:
    for value in (0.0, 0.1, 1e-6, 0.5, 20.0, 123456.0):
        assert round_up(value) == round_down(value) == f"{value:g}"
    assert (round_up(0.03566412), round_down(0.03566472)) == ("0.0356642", "0.0356647")
    assert round_up(math.inf) == "inf"


def test_an_attack_says_nothing_of_epsilon_at_a_larger_delta_than_its_own() -> None:
    """Reproduction: beside a delta that was certified at ε = 600 stood LOWER_BOUND ε ≥ 600, where ε = 1 is enough."""
    certificate = certify([1.0] * 50, "rr", epsilon=0.05, dishonest=3)
    assert certificate.lower_bound is not None
    assert certificate.lower_bound.delta < certificate.delta
    said = f"LOWER_BOUND δ ≥ {round_down(certificate.lower_bound.delta)} at ε = 0.05;"
    assert said in str(certificate)
    assert f"δ ≥ {round_down(certificate.lower_bound.delta, 3)} at ε = 0.05," in certificate._repr_html_()
    assert re.search(naming("3 dishonest"), str(certificate))
    assert "LOWER_BOUND δ ≥ 0 at ε = 600" in str(certify([1.0] * 50, "rr", epsilon=600.0))


def test_a_document_that_contradicts_itself_is_not_read() -> None:
    """Reproduction: an edited ε of .001 was read and printed as CERTIFIED, beside an attack that reaches .13."""
    document = certify([1.0] * 1000, "rr", delta=1e-6).to_json()
    (tier,) = document["tiers"]
    with pytest.raises(ValueError, match=r"contradicts itself: it certifies ε = 0\.001"):
        Certificate.from_json({**document, "epsilon": 0.001, "tiers": [{**tier, "epsilon": 0.001}]})
    with pytest.raises(ValueError, match=naming("delta", "1e-06")):
        Certificate.from_json({**document, "tiers": [{**tier, "delta": 0.5}]})


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a JSON document."""
    children = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in children if isinstance(document, dict | list) else ():
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


WRONG = [None, True, -1, -0.5, 1e308, math.nan, math.inf, 10**400, "", "x", [], ["x", 3], {}, {"a": 1}]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_whatever_stands_in_a_document_it_is_refused_or_can_be_used(wrong: Any) -> None:
    """Reproduction: a method that is a number, or an assumption that is a list, was read, and ended in a TypeError."""
    document = certify({0.5: 9, 1.0: 3}, "rr", delta=1e-3, dishonest=1).to_json()
    for path in places(document):
        changed: Any = copy.deepcopy(document)
        place = changed
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = wrong
        try:
            certificate = Certificate.from_json(changed)
        except ValueError:
            continue
        assert isinstance(str(certificate) + certificate._repr_html_(), str)
        assert Certificate.from_json(json.dumps(certificate.to_json())) == certificate
        with contextlib.suppress(ValueError):  # more may be lost than delta allows
            compose([certificate], delta=0.1)


def test_a_local_budget_that_is_smaller_than_its_parts_is_not_read() -> None:
    """Reproduction: with an edited local budget the document was composed to epsilon 0, CERTIFIED."""
    document = certify({1.0: 50}, "rr", delta=1e-6, rounds=3).to_json()
    with pytest.raises(ValueError, match=naming("ε = 2.9", 3, 1)):
        Certificate.from_json({**document, "everyone_else_colludes_epsilon": 2.9})
    with pytest.raises(ValueError, match=naming("JSON")):
        Certificate.from_json("[" * 100_000)


def test_floats_are_what_was_written() -> None:
    """Reproduction: 0.1 three times was more than 0.3, and 0.8 was 0.101 above 0.7 in a refusal."""
    assert as_decimal(0.1) == Fraction(1, 10)
    assert 3 * as_decimal(0.1) == as_decimal(0.3)
    assert [as_decimal(value) for value in (1e-8, 500.0, 0.0)] == [Fraction(1, 10**8), 500, 0]
    assert abs(as_decimal(2**-0.5) - Fraction(2**-0.5)) <= Fraction(2**-0.5) / 2**53
    assert (difference(0.8, 0.7), difference(0.3, 0.2), difference(0.1, 0.3)) == (0.1, 0.1, -0.2)
    assert round_up(difference(0.8, 0.7), 3) == "0.1"


def test_a_certificate_notes_what_protects_nobody() -> None:
    # Reproduction: only the command line said so.
    large = certify([1.0] * 3, "rr", delta=0.5, attack=False)
    assert Note.LARGE_DELTA in [note.code for note in large.notes]
    alone = certify([1.0], "rr", delta=1e-6, attack=False)
    assert [note.code for note in alone.notes] == [Note.TIERS_NOT_AMPLIFIED]
    assert not certify([1.0] * 1000, "rr", delta=1e-6, attack=False).notes
    thrice = certify([0.1], "rr", delta=1e-6, rounds=3, attack=False)  # 3 * 0.1 is a float above 0.3
    assert [note.code for note in thrice.notes] == [Note.TIERS_NOT_AMPLIFIED]
    asked = certify([(1.0, 3000, 1e-6)], "gaussian", epsilon=1.0, attack=False)
    assert asked.delta < 1e-6
    assert not asked.notes  # Reproduction: an amplified delta was noted as not amplified.


def test_the_documents_of_certificates_and_guarantees_have_their_notes() -> None:
    large = certify([1.0] * 3, "rr", delta=0.5, attack=False)
    document = large.to_json()
    assert read_statements(Note, document["notes"]) == large.notes != ()
    assert Certificate.from_json(document) == large
    assert Certificate.from_json({**document, "notes": []}).notes == large.notes  # made from the numbers
    composed = compose([large] * 2, delta=0.5)
    assert read_statements(Note, composed.to_json()["notes"]) == composed.notes
    assert [note.code for note in composed.notes] == [Note.LARGE_DELTA]
    assert not compose([large] * 2, delta=0.3).notes
    assert [note.code for note in of_disjoint_groups([composed, large]).notes] == [Note.LARGE_DELTA]
