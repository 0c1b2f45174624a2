"""What commands write for people: no text of others moves the cursor, hides anything or turns its direction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.table import Table
from rich.text import Text

from croupier.cli.console import fail, note, show, terminal
from croupier.operator.keys import make_deployment
from croupier.operator.public_file import PublicFile
from croupier.protocol.deployment import Deployment
from tests.support.command_line import croupier

MOVES = "\x1b[1A\u202eabandon"


def test_every_writer_to_a_terminal_sanitises(capsys: pytest.CaptureFixture[str]) -> None:
    """Reproduction: the name of an organisation wrote over the twelve words that `deployment sign` shows."""
    table = Table()
    table.add_column(MOVES)
    table.add_row(MOVES)
    show(False, {}, table, f"first{MOVES}\nsecond", Text(MOVES))
    note(MOVES)
    fail(2, MOVES)
    terminal(force_terminal=True).print(Text("words", style="bold"))
    said = capsys.readouterr()
    assert "\u202e" not in said.out + said.err
    assert "\x1b[1A" not in said.out + said.err
    assert said.out.count("\ufffd[1A\ufffdabandon") == 4
    assert said.err.count("\ufffd[1A\ufffdabandon") == 2
    assert "first\ufffd[1A\ufffdabandon\nsecond\n" in said.out  # lines stay
    assert said.out.endswith("\x1b[1mwords\x1b[0m\n")  # styles too


def test_names_that_cannot_be_shown_are_in_no_deployment_file(tmp_path: Path) -> None:
    made = make_deployment(tmp_path, "local", 1).model_dump()
    certificate = made["operator_tls_certificate"]
    bad: list[dict[str, Any]] = [
        {"gateway": f"https://a.example/{MOVES}"},
        {"operator_tls_certificate": certificate + MOVES},
    ]
    bad += [{"operator": {field: MOVES}} for field in ("organisation", "administrator", "host")]
    bad += [
        {"services": [{**made["services"][0], field: value}, *made["services"][1:]]}
        for field, value in (
            ("organisation", MOVES),
            ("administrator", "Ada\u200b"),
            ("address", f"a{MOVES}:7100"),
            ("public_address", "\u0430.example:7101"),
            ("tls_certificate", f"-----BEGIN CERTIFICATE-----{MOVES}"),
        )
    ]
    for change in bad:
        with pytest.raises(ValueError, match=r"must|match"):
            Deployment.model_validate(made | change)
    with pytest.raises(ValueError, match="match"):
        PublicFile(operator_tls_certificate=f"{certificate}{MOVES}")
    named = ("org", "new", "--role", "accountant", "--host", "b.example", "--dir", tmp_path / "b")
    said = croupier(*named, "--organisation", MOVES, expect=2).stderr
    assert "\x1b" not in said
