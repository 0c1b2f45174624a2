"""What stands around a certificate's number in the terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from accountant.mechanisms.hemisphere import HemisphereMechanism
from accountant.mechanisms.record_gaussian import RecordGaussian
from accountant.service.service import genuine_roster
from croupier import Budgets, certify
from deploy.show.tables import certificate_table


def shown(certificate: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(certificate_table(certificate))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("replaced", "expected"),
    [
        ("", "one shuffler's order secret, at most 3"),
        ("the first shuffler is honest: it", "an honest first shuffler, at most 3"),
        (genuine_roster(3), "a genuine roster, at most 3"),
    ],
)
def test_the_headline_says_which_parties_must_be_honest(replaced: str, expected: str) -> None:
    users = Budgets.from_tiers([(1.0, 100)])
    certificate = certify(users, HemisphereMechanism(dimension=3), delta=1e-3, dishonest=3).to_json()
    if replaced:
        certificate["assumptions"].append(replaced)
    assert expected in shown(certificate)


def test_the_headline_of_one_record_does_not_read_like_that_of_a_user() -> None:
    silos = Budgets.from_tiers([(1.0, 10, 1e-5)])
    text = shown(certify(silos, RecordGaussian(dimension=3, records=5), delta=1e-3).to_json())
    assert "one RECORD of one client" in text
    assert "shuffler" not in text
