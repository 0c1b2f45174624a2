"""What the command line says when something cannot be used: a sentence that names it, exit code 2, no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import grpc.aio
import pytest
import typer
from typer.testing import CliRunner

from deploy.cli import app
from deploy.cli.console import plain_errors
from protocol.errors import SignatureError
from tests.support.command_line import answer, croupier


def refused(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 2, result.output
    return " ".join(result.stderr.split())


def test_square_brackets_in_what_was_typed_are_not_markup(tmp_path: Path) -> None:
    """Reproduction: a file called [/x].csv ended the command with a MarkupError instead of the message."""
    file = tmp_path / "[" / "x].csv"
    assert refused("certify", file, "--delta", "1e-6") == f"croupier: {file} does not exist"
    assert "grid is '[red]a'" in refused("round", "open", "x", "--dir", tmp_path, "--grid", "[red]a")


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    """Reproduction: a directory in the place of a file ended the command with a traceback."""
    assert refused("certify", tmp_path, "--delta", "1e-6") == f"croupier: {tmp_path}: Is a directory"
    missing = tmp_path / "missing.csv"
    assert refused("audit", missing) == f"croupier: {missing} does not exist"
    budgets = tmp_path / "budgets.csv"
    budgets.write_text("epsilon,count\n1,100\n")
    assert refused("curve", budgets, "--out", budgets / "curve.png").endswith(f"{budgets}: File exists")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        # Reproduction: a round with a deadline in the past was opened.
        (("--close-after-s", "-5"), "close_after_s is -5; it must be a finite number > 0, or 0"),
        (
            ("--randomizer", "hemisphere"),
            "randomizer is 'hemisphere'; it must be one of rr, krr, onebit, laplace",
        ),
        (("--short-batch", "keep"), "short_batch is 'keep'; it must be one of hold, dispose"),
        (("--small-tiers", "hide"), "small_tiers is 'hide'; it must be one of refuse, merge"),
    ],
)
def test_a_round_that_cannot_be_is_not_opened(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused("round", "open", "x", "--dir", tmp_path, *arguments)


def test_what_only_the_operator_can_do_is_said_to_a_participant(tmp_path: Path) -> None:
    """Reproduction: a participant was told to make the secrets of a service, and had spent a budget with --enrol."""
    croupier("keygen", "--dir", tmp_path / "theirs", "--hops", "1")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "deployment.toml").write_bytes((tmp_path / "theirs" / "deployment.toml").read_bytes())
    said = f"croupier: {mine}/operator has no keys; this needs the operator's, and can only be done where they are"
    assert refused("status", "--dir", mine) == said
    assert refused("round", "list", "--dir", mine) == said
    assert refused("submit", "--value", "1", "--epsilon", "1", "--enrol", "--dir", mine) == said
    assert answer("limits", "--dir", mine)["spent"] == {"local_epsilon": 0.0, "rounds": 0}
    missing = refused("submit", "--value", "1", "--epsilon", "1", "--dir", tmp_path / "none")
    assert "none/deployment.toml does not exist; participants get it from the operator" in missing


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata()),
            "are you online, and is the deployment up? Its operator sees that in 'croupier status'",
        ),
        (
            SignatureError("manifest lacks the signature of analyzer"),
            "manifest lacks the signature of analyzer; get the newest deployment.toml from the operator; if you have "
            "it, do not trust that server",
        ),
    ],
    ids=["unreachable", "not signed"],
)
def test_what_a_participant_can_do_is_said(error: Exception, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), plain_errors():
        raise error
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        ("scipy", ["up"], "accountant"),
        ("grpc_health", ["up"], "accountant"),
        ("uvicorn", ["up", "--console"], "console"),
        ("numpy", ["up", "--console"], "console"),
        ("uvicorn", ["gateway"], "gateway"),
        ("uvicorn", ["console"], "console"),
    ],
)
def test_the_one_extra_that_a_command_needs_is_named_before_it_begins(
    missing: str, arguments: list[str], extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("deploy.listening", "deploy.console.server", "deploy.gateway.server"):  # they are imported anew
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    said = croupier(*arguments, "--dir", tmp_path / "d", expect=2)
    assert said.stderr == f"croupier: {missing} is not installed; it comes with 'croupier[{extra}]'\n"
    assert not (tmp_path / "d").exists()


def test_a_missing_library_is_named_with_its_extra() -> None:
    """Reproduction: 'croupier train' after 'make demo', which installs no torch, ended with a traceback."""
    program = "import sys; sys.modules['torch'] = None; from deploy.cli import main; main()"
    command = [sys.executable, "-c", program, "train", "--simulate", "--epochs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr == "croupier: torch is not installed; it comes with 'croupier[sgd]'\n"
