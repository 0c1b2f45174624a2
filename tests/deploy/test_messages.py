"""What the command line says when something cannot be used: a sentence that names it, exit code 2, no traceback."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest

from croupier.cli.console import plain_errors, progress_bar, show
from croupier.cli.question_options import QuestionOptions
from croupier.deploy.local.processes import LocalDeployment
from croupier.deploy.node.serve import serve
from croupier.operator.keys import make_deployment
from croupier.operator.operator import Operator
from croupier.protocol.errors import SignatureError
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from tests.support.command_line import answer, croupier, invoke, refused
from tests.support.messages import naming


def test_a_document_is_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reproduction: 'demo --open --json' kept a short result from the pipe for as long as its page was served."""
    pipe = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(pipe)))
    show(True, {"a": 1})
    assert pipe.getvalue() == b'{"a": 1}\n'


def test_square_brackets_in_what_was_typed_are_not_markup(tmp_path: Path) -> None:
    """Reproduction: a file called [/x].csv ended the command with a MarkupError instead of the message."""
    file = tmp_path / "[" / "x].csv"
    assert refused("certify", file, "--delta", "1e-6") == f"croupier: {file} does not exist"
    assert "grid is '[red]a'" in refused("survey", "open", "x", "--dir", tmp_path, "--grid", "[red]a")


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    """Reproduction: a directory instead of a file ended the command with a traceback."""
    assert f"{tmp_path} cannot be read" in refused("certify", tmp_path, "--delta", "1e-6")
    missing = tmp_path / "missing.csv"
    assert refused("audit", missing) == f"croupier: {missing} does not exist"
    budgets = tmp_path / "budgets.csv"
    budgets.write_text("epsilon,count\n1,100\n")
    assert refused("curve", budgets, "--out", budgets / "curve.png").endswith(f"{budgets}: Not a directory")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        # Reproduction: a round with a deadline in the past was opened.
        (("--close-after-s", "-5"), "close_after_s.*-5.*> 0.*0"),
        (
            ("--randomizer", "hemisphere"),
            "randomizer.*'hemisphere'.*rr.*krr.*onebit.*laplace.*levels",
        ),
        # Reproduction: krr(k=3), as certify and plan take it, was no randomizer here.
        (("--randomizer", "krr(k=3)"), r"deployment\.toml does not exist"),
        (("--randomizer", "laplace(lattice=100)", "--low", "0", "--high", "1"), r"deployment\.toml does not exist"),
        (("--randomizer", "krr(k=3)", "--choices", "a;b"), "labels are a, b; they must be 3 different names"),
        (("--randomizer", "krr", "--low", "0", "--high", "1"), "randomizer is 'krr', for a question of another form"),
        (("--randomizer", "krr(k=x)"), "k.*'x'"),
        (("--randomizer", "rr(k=3)"), "k is 3, but rr has no k"),
        (("--randomizer", "hemisphere(d=3)"), r"randomizer.*'hemisphere\(d=3\)'.*rr.*krr.*onebit"),
        (("--randomizer", "gaussian(d=2)"), "d is 2, but gaussian has no d"),
        # Reproduction: "Value out of range: -1" did not say of what.
        (("--dishonest", "-1"), r"dishonest: it is -1; it must be greater than or equal to 0"),
    ],
)
def test_a_round_that_cannot_be_is_not_opened(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    assert re.search(message, refused("survey", "open", "x", "--dir", tmp_path, *arguments))


@pytest.mark.parametrize(("clients", "said"), [(0, "0 answers"), (1, "1 answer"), (1000, "1,000 answers")])
def test_how_many_have_answered_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clients: int, said: str
) -> None:
    """Reproduction: '1 clients'."""

    async def close(*_: object, **_how: object) -> rpc.CloseResponse:
        return rpc.CloseResponse(state=pb.ROUND_STATE_OPEN, num_clients=clients)

    make_deployment(tmp_path, "local", 1)
    monkeypatch.setattr(Operator, "close_round", close)
    closed = invoke("survey", "close", "x", "--dir", tmp_path)
    assert closed.stdout == f"x: OPEN (too few people: held), {said}\n"


def test_services_that_are_started_again_stand_in_the_order_of_the_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They came last, whatever they were."""
    local = LocalDeployment(tmp_path, 2)
    monkeypatch.setattr(local, "pids", lambda: {"shuffler-2": 2, "analyzer": 4})
    monkeypatch.setattr(local, "spawn", lambda *_: SimpleNamespace(pid=1, poll=lambda: 0, stdout=None))
    monkeypatch.setattr(local, "wait_ready", lambda _: None)
    assert list(local.up()) == ["shuffler-1", "shuffler-2", "accountant", "analyzer"]
    assert list(local.up(["accountant"])) == ["shuffler-2", "accountant", "analyzer"]


def test_a_randomizer_of_a_round_is_written_as_elsewhere() -> None:
    unlabelled, labelled = KaryResponse(3), KaryResponse(3, ("a", "b", "c"))
    ends: dict[str, Any] = {"low": 0.0, "high": 1.0}
    for options, mechanism in (
        (QuestionOptions(randomizer="krr(k=3)"), unlabelled),
        (QuestionOptions(randomizer="krr(k=3)", choices="a;b;c"), labelled),
        (QuestionOptions(choices="a; b;c"), labelled),
        (QuestionOptions(randomizer="laplace(lattice=10)", **ends), Laplace(0.0, 1.0, lattice=10)),
        (QuestionOptions(randomizer="laplace", **ends), Laplace(0.0, 1.0)),
    ):
        assert options.file("mood", "mood").asked()[0].mechanism == mechanism


def test_a_file_that_is_no_table_of_budgets_is_named(tmp_path: Path) -> None:
    budgets = tmp_path / "budgets.csv"
    budgets.write_bytes(b"\xff\xfe\xe7")
    assert re.search(naming(f"{budgets} cannot", "CSV", "(.xlsx)"), refused("certify", budgets, "--delta", "1e-6"))
    budgets.write_bytes(b"")
    assert f"{budgets}: line 1 is empty" in refused("certify", budgets, "--delta", "1e-6")
    budgets.write_bytes(b"epsilon\n1\n")
    assert "neither --delta nor --epsilon is given; give exactly one, such as --delta 1e-06" in refused(
        "certify", budgets
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        # Reproduction: --low without --high was ignored, and the numbers were taken for categories.
        (("--value-column", "x", "--low", "0"), "low and high"),
        (("--value-column", "x:0"), "'x:0'"),
        (("--value-column", "x", "--users", "-1"), "-1.*1"),
        (("--value-column", "x", "--budgets", "much"), r"0\.5:54"),
        # Reproductions: all services were started, and asked, before these were refused, or their plot was.
        (("--value-column", "x", "--hops", "0"), r"hops.*0.*1\.\.32"),
        (("--value-column", "x", "--hops", "-1"), r"hops.*-1.*1\.\.32"),
        (("--value-column", "x", "--delta", "5"), r"croupier: delta is 5\.0; it must be 0 < delta ≤ 0\.1"),
        (("--value-column", "x", "--budgets", "1e9:1"), r"croupier: a budget's epsilon is 1000000000\.0; it must be"),
        (("--value-column", "x", "--users", "1", "--low", "0", "--high", "1"), "1 rows of "),
        (("--value-column", "x", "--group-by", "y"), "has no column 'y'; its columns are x"),
        (("--value-column", "x", "--plot", "x.foo"), r"x\.foo.*\.png.*\.svg.*\.pdf"),
    ],
)
def test_a_demonstration_that_cannot_be_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.setattr("croupier.deploy.local.processes.temporary_deployment", lambda *_: pytest.fail("it was begun"))
    people = tmp_path / "people.csv"
    people.write_text("x\n0\n1\n7\n")
    said = refused("demo", "--csv", people, *arguments)
    assert re.search(message, said)
    assert "starting" not in said


def test_the_terms_of_a_round_that_cannot_be_are_bad_input(tmp_path: Path) -> None:
    """Reproduction: they ended with 3, which is a service's refusal; none was asked, or is there."""
    croupier("keygen", "--dir", tmp_path, "--hops", "1")
    here = ("survey", "open", "x", "--dir", tmp_path)
    assert refused(*here, "--delta", "5") == "croupier: delta is 5.0; it must be 0 < delta ≤ 0.1"
    assert "a budget's epsilon is 50.0; it must be" in refused(*here, "--grid", "1,50")


def test_options_beside_a_file_are_refused(tmp_path: Path) -> None:
    """Reproduction: they were read and ignored."""
    file = tmp_path / "survey.toml"
    for command in ("open", "check"):
        said = refused("survey", command, file, "--dir", tmp_path, "--epsilon-max", "0.1")
        assert re.search(naming("survey.toml", "without a file"), said)


@pytest.mark.slow
def test_a_deployment_that_cannot_be_is_not_started(tmp_path: Path) -> None:
    for arguments in (("up",), ("keygen",), ("bench", "--users", "10", "--out", tmp_path), ("train", "--epochs", "1")):
        where = ("--dir", tmp_path / "d") if arguments[0] in ("up", "keygen") else ()
        assert re.search(naming(33, "1..32"), refused(*arguments, *where, "--hops", "33"))
    assert not (tmp_path / "d").exists()


def test_a_plot_that_cannot_be_drawn_is_refused_before_it_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reproduction: the curve was computed first."""
    monkeypatch.setattr("croupier.accountant.privacy_profile", lambda *_, **__: pytest.fail("it was computed"))
    budgets = tmp_path / "budgets.csv"
    budgets.write_text("epsilon,count\n1,100\n")
    for name in ("curve.foo", "curve"):
        said = refused("curve", budgets, "--out", tmp_path / name)
        assert re.search(naming(f"{tmp_path / name} cannot", ".png", ".svg", ".pdf"), said)
    with monkeypatch.context() as patch:
        patch.setattr("os.access", lambda file, _: Path(file) != tmp_path)
        assert refused("curve", budgets, "--out", tmp_path / "x.png") == f"croupier: {tmp_path}: Permission denied"
    (tmp_path / "curve.png").mkdir()
    assert refused("curve", budgets, "--out", tmp_path / "curve.png").endswith("curve.png: Is a directory")


@pytest.mark.slow
def test_what_a_randomizer_needs_is_shown(tmp_path: Path) -> None:
    """Reproductions: a randomizer was named that could not be written so, and a column that the file had not."""
    budgets = tmp_path / "budgets.csv"
    budgets.write_text("epsilon,count\n1,100\n")
    said = refused("certify", budgets, "--delta", "1e-6", "--randomizer", "foo")
    kinds = said.partition("it must be one of ")[2].split(", ")
    assert re.search(naming("'foo'", "gaussian", "gaussian_vector"), said)
    assert {"rr", "krr(k=5)", "laplace"} < set(kinds)
    said = refused("certify", budgets, "--delta", "1e-6", "--randomizer", "gaussian_vector")
    assert said.endswith("gaussian_vector needs it, as in 'gaussian_vector(d=10, records=10)'")
    for command in (("certify", "--delta", "1e-6"), ("curve",), ("audit",), ("plan", "--budgets")):
        said = refused(*command, budgets, "--randomizer", "gaussian")
        assert re.search(naming("local_delta", 0, "gaussian"), said)
    # Reproductions: options were called by the library's names, and a file that was not given had a delta of 0.
    assert re.search(naming("--users", "--budgets"), refused("plan"))
    assert re.search(naming("--epsilon", "epsilon", "--budgets"), refused("plan", "--users", "9"))
    said = refused("plan", "--users", "9000", "--epsilon", "0.1", "--randomizer", "gaussian")
    assert re.search(naming("--budgets FILE"), said)
    budgets.write_text("epsilon,delta,count\n0.5,1e-8,9000\n")
    croupier("certify", budgets, "--delta", "1e-6", "--randomizer", "gaussian")
    croupier("certify", budgets, "--delta", "1e-6", "--randomizer", "gaussian_vector(d=10, records=10)")


@pytest.mark.slow
def test_what_would_be_ignored_is_refused(tmp_path: Path) -> None:
    here = ("--dir", tmp_path)
    said = refused("keygen", "--client", tmp_path / "a", "--collector", tmp_path / "b")
    assert said == "croupier: client and collector are two keys; give one at a time"
    for command in ("console", "gateway"):
        said = refused(command, "--tls-certificate", tmp_path / "tls.crt", *here)
        assert re.search(naming("127.0.0.1", "TLS", "--tls-certificate", "--tls-key"), said)
    # Reproductions: --value beside --csv, and options of a fleet without it, were ignored.
    for option in ("--value=1", "--epsilon=1", "--enrol", "--gateway=https://gateway.example"):
        said = refused("submit", "--csv", tmp_path / "people.csv", "--value-column", "x", option, *here)
        assert re.search(naming(option.partition("=")[0], "--csv"), said)
    for option in ("--value-column=x", "--budgets=1:1", "--limit=3", "--clamp"):
        said = refused("submit", "--value", "1", "--epsilon", "1", option, *here)
        assert said == f"croupier: {option.partition('=')[0]} is for a fleet, which needs --csv"
    (tmp_path / "value").write_text("1")
    said = refused("submit", "--value", "1", "--value-file", tmp_path / "value", "--epsilon", "1", *here)
    assert re.search(naming("--value", "--value-file"), said)
    said = refused("submit", "--csv", "x", "--value-column", "x", "--budgets", "1:1", "--epsilon-column", "e", *here)
    assert re.search(naming("--budgets", "--epsilon-column"), said)
    # Reproduction: a cost was shown as CERTIFIED at delta = 5.
    assert refused("ledger", "--delta", "5", *here) == "croupier: delta is 5; it must be 0 < delta < 1"


def test_what_is_missing_of_an_answer_is_named(tmp_path: Path) -> None:
    """Reproduction: 'value or epsilon is missing' read as if --value did not count."""
    needs = "missing; one user needs a value and --epsilon, a fleet --csv"
    here = ("submit", "--dir", tmp_path)
    assert refused(*here, "--value", "1") == f"croupier: --epsilon is {needs}"
    assert refused(*here, "--epsilon", "1") == f"croupier: --value-file is {needs}"
    assert refused(*here) == f"croupier: --value-file and --epsilon are {needs}"


def test_the_file_of_a_fleet_is_looked_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reproduction: a bar without end was drawn, and the deployment was complained of."""
    monkeypatch.setattr("croupier.deploy.local.fleet.submit_file", lambda *_, **__: pytest.fail("it was begun"))
    people = tmp_path / "people.csv"
    here = ("submit", "--csv", people, "--value-column", "smokes", "--dir", tmp_path / "none")
    assert refused(*here) == f"croupier: {people} does not exist"
    people.write_text("smokes\n1\n")
    assert refused(*here, "--where", "site=north").endswith("has no column 'site'; its columns are smokes")
    assert refused(*here).startswith(f"croupier: {tmp_path}/none/deployment.toml does not exist")


def test_a_bar_that_never_moved_is_not_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), progress_bar():
        raise KeyError
    assert capsys.readouterr().err == ""
    with progress_bar() as move:
        move(1, 2, "half of it")
    assert "half of it" in capsys.readouterr().err


def test_what_only_the_operator_can_do_is_said_to_a_participant(tmp_path: Path) -> None:
    """Reproduction: a participant was told to make the secrets of a service, and had spent a budget with --enrol."""
    croupier("keygen", "--dir", tmp_path / "theirs", "--hops", "1")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "deployment.toml").write_bytes((tmp_path / "theirs" / "deployment.toml").read_bytes())
    said = f"croupier: {mine}/operator has no keys; this needs the operator's, and can only be done where they are"
    assert refused("status", "--dir", mine) == said.replace("operator's", "operator's or those of a service")
    assert refused("submit", "--value", "1", "--epsilon", "1", "--enrol", "--dir", mine) == said
    nothing = {"local_epsilon": 0.0, "local_delta": 0.0, "rounds": 0}
    assert answer("limits", "--dir", mine)["spent"] == nothing
    missing = refused("submit", "--value", "1", "--epsilon", "1", "--dir", tmp_path / "none")
    assert re.search(naming("none/deployment.toml", "--dir"), missing)
    assert re.search(naming("'croupier init'"), missing)
    assert "none/deployment.toml does not exist" in refused("canary", "x", "--dir", tmp_path / "none")
    assert not (tmp_path / "none").exists()  # reproduction: canaries had a file there


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
    with pytest.raises(SystemExit), plain_errors():
        raise error
    assert said in " ".join(capsys.readouterr().err.split())


def test_nothing_of_an_answer_needs_to_stand_in_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other users of the machine read it there; of the budget there was no other way."""
    make_deployment(tmp_path, "local", 1)
    for name, value in (("VALUE", "1"), ("EPSILON", "nothing")):
        monkeypatch.setenv(f"CROUPIER_{name}", value)
    assert re.search(naming("CROUPIER_EPSILON", "nothing"), refused("submit", "--dir", tmp_path))
    monkeypatch.setenv("CROUPIER_EPSILON", "")
    assert "--epsilon is missing" in refused("submit", "--dir", tmp_path)
    monkeypatch.setenv("CROUPIER_EPSILON", "nothing")


def test_a_key_that_cannot_be_read_is_named_and_not_shown(tmp_path: Path) -> None:
    """Its bytes were shown, or the library's words for them, or a traceback."""
    make_deployment(tmp_path, "local", 1)
    here = ("submit", "--value", "1", "--epsilon", "1", "--dir", tmp_path)
    for number, content in enumerate((b"zz", b"abcd", b"\xff" * 32)):
        file = tmp_path / f"key-{number}"
        file.write_bytes(content)
        said = refused(*here, "--key", file)
        assert re.search(naming(file), said)
        assert content.decode("latin-1") not in said.removeprefix(f"croupier: {file}")
    refused_value = refused("submit", "--value-file", tmp_path / "key-2", *here[3:])
    assert refused_value == f"croupier: {tmp_path}/key-2 is not a text file; it must be UTF-8"


def test_a_service_names_the_file_that_it_cannot_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file of another user's ended it with a traceback and 1; a storage key of any bytes was not named."""
    make_deployment(tmp_path, "local", 1)
    own = tmp_path / "accountant"
    monkeypatch.setattr("croupier.deploy.node.serve.log_as_json", lambda *_: None)
    monkeypatch.setattr(os, "umask", lambda _: 0)

    def last_words() -> str:
        with pytest.raises(SystemExit) as ended:
            serve("accountant", tmp_path)
        assert ended.value.code == 2
        return caplog.messages[-1]

    (own / "storage.key").write_bytes(b"\xff" * 32)
    assert re.search(naming("'file:storage.key'"), last_words())
    (own / "storage.key").unlink()
    (own / "storage.key").mkdir()  # as unreadable to root as to others
    assert re.search(naming(f"{own}/storage.key"), last_words())


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
    for name in (
        "croupier.deploy.listening",
        "croupier.console.server",
        "croupier.deploy.gateway.server",
    ):  # they are imported again
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    said = croupier(*arguments, "--dir", tmp_path / "d", expect=2)
    assert re.search(naming(missing, f"'croupier[{extra}]'"), said.stderr)
    assert not (tmp_path / "d").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "extra", "arguments"),
    [("torch", "sgd", ("train", "--simulate", "--epochs", "1")), ("numpy", "accountant", ("certify", "budgets.csv"))],
)
def test_a_missing_library_is_named_with_its_extra(library: str, extra: str, arguments: tuple[str, ...]) -> None:
    """Reproduction: 'croupier train' after 'make demo', which installs no torch, ended with a traceback."""
    program = f"import sys; sys.modules[{library!r}] = None; from croupier.cli import main; main()"
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert re.search(naming(f"'croupier[{extra}]'"), done.stderr)


def test_a_command_whose_output_nobody_reads_and_one_that_gets_no_answer_end_quietly(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "croupier.cli", "docs"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as command:
        assert command.stdout is not None
        command.stdout.close()
        assert (command.communicate()[1], command.returncode) == (b"", 1)
    assert invoke("survey", "new", tmp_path / "survey.toml") == ("", "Title: croupier: aborted\n", 1)


def test_the_steps_of_a_rotation_say_what_comes_then(tmp_path: Path) -> None:
    """Reproduction: the last of three steps had made every earlier result one of a wrong signature."""
    make_deployment(tmp_path, "local", 1)
    steps: tuple[list[str], ...] = ([], ["--activate"], ["--compromised"])
    done = [invoke("rotate", "analyzer", "--dir", tmp_path, *step) for step in steps]
    first, second, third = (
        " ".join(process.stdout.split()).split("services and clients fetch it")[1].strip() for process in done
    )
    assert first == ""
    assert re.search(naming("--compromised"), second)
    assert third == "rounds and results that only this identity has signed are not believed any more"
