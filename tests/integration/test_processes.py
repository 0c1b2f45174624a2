"""The command line as its user has it: real processes, files, exit codes, kill -9."""

from __future__ import annotations

import csv
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from croupier.deploy.directory import read_deployment
from croupier.deploy.local.processes import LocalDeployment
from tests.support.command_line import answer, as_process, croupier, running, stopped_with_us
from tests.support.messages import naming

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("processes")]


@pytest.fixture(scope="module")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 participants: a bit, a mood, hours in [0, 24], and a budget; two rows that cannot be used."""
    path = tmp_path_factory.mktemp("data") / "survey.csv"
    source = random.Random(7)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["smokes", "mood", "hours", "max_local_epsilon"])
        for _ in range(200):
            rows.writerow([int(source.random() < 0.4), source.choice("abc"), round(source.uniform(0, 24), 2), 1])
        rows.writerow(["yes", "d", "25", 1])
        rows.writerow([1, "a", "3", -1])
    return path


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("croupier") / "deployment"
    with stopped_with_us(directory):
        pids = answer("up", "--dir", directory, run=as_process)["pids"]
        assert sorted(pids) == ["accountant", "analyzer", "shuffler-1", "shuffler-2"]
        yield directory
        stopped = answer("down", "--dir", directory, run=as_process)["stopped"]
    assert sorted(stopped) == sorted(pids)
    assert "ERROR" not in "".join(log.read_text() for log in directory.glob("*/service.log"))


@contextmanager
def watched(*arguments: str | Path, **more: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Yields the address of the page that a command serves, and ends the command with Ctrl-C."""
    with running(sys.executable, "-m", "croupier.cli", *arguments, env={**os.environ, **more}) as process:
        assert process.stderr is not None
        said: list[str] = []
        while not said or not said[-1].startswith("page: "):
            said.append(process.stderr.readline())
            assert said[-1], "".join(said)
        yield said[-1].split()[1], process
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_a_round_from_the_command_line(up: Path, survey: Path) -> None:
    """Commands in processes of their own, as users have them; most others here run in this one."""
    answer_of = partial(answer, run=as_process)
    opened = answer("survey", "open", "smokes", "--dir", up, "--epsilon-max", "2", "--min-batch-size", "50")
    round_id = opened["survey_id"]
    fleet = answer_of(
        "submit",
        "--dir",
        up,
        "--csv",
        survey,
        "--value-column",
        "smokes",
        "--epsilon-column",
        "max_local_epsilon",
        expect=6,  # two rows are left out
    )
    assert (fleet["round_id"], fleet["accepted"], fleet["rejected"]) == (round_id, 200, 2)
    receipt = answer("submit", "--dir", up, "--round", round_id, "--value", "1", "--epsilon", "0.6", "--enrol")
    assert (receipt["code"], receipt["local_epsilon"]) == ("ACCEPTED", 0.5)
    rounds = answer("status", "--dir", up)["services"][0]["rounds"]
    assert (rounds[0]["state"], rounds[0]["num_items"]) == ("OPEN", 201)
    assert answer("survey", "close", round_id, "--dir", up)["rounds"][round_id]["state"] == "CLOSED"
    result = answer_of("survey", "results", round_id, "--dir", up)
    assert result["num_reports"] == result["certificate"]["num_users"] == 201
    (share,) = result["values"]
    assert abs(share["estimate"] - 0.4) < 6 * (share["standard_error"] + share["sampling_standard_error"])
    assert result["certificate"]["grade"] == "CERTIFIED"
    assert [tier["count"] for tier in result["certificate"]["tiers"]] == [1, 200]
    assert answer("verify", round_id, "--dir", up) == {
        "submitted": 201,
        "missing": {"shuffler-1": [], "shuffler-2": []},
    }
    for page in (as_process("survey", "results", round_id, "--dir", up), croupier("status", "--dir", up)):
        assert "CERTIFIED" in page.stdout or round_id[:8] in page.stdout


@pytest.mark.parametrize("most", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_kill_minus_nine_of_each_service_loses_nothing(up: Path, survey: Path, most: int) -> None:
    """All of them in one round, one after the other; of one alone where there is little time."""
    local = LocalDeployment(up)
    hours = ("hours", "--randomizer", "onebit", "--low", "0", "--high", "24", "--epsilon-max", "2")
    round_id = answer("survey", "open", *hours, "--dir", up)["survey_id"]
    arguments = ("submit", "--dir", up, "--round", round_id, "--csv", survey, "--value-column", "hours")
    assert answer(*arguments, expect=6)["accepted"] == 201
    for name in list(local.pids())[:most]:
        os.kill(local.pids()[name], signal.SIGKILL)
        while name in local.pids():
            pass
        address = read_deployment(up).service(name).address
        (problem,) = (
            service["problem"]
            for service in answer("status", "--dir", up, expect=4)["services"]
            if "problem" in service
        )
        assert problem.endswith(f" at {address}")  # refused, or on a busy machine what gRPC says until it has tried
        shown = croupier("status", "--dir", up, expect=4).stdout
        assert f"{name}  out of reach: {problem}\n" in re.sub("  +", "  ", shown)
        assert name in answer("up", "--dir", up, run=as_process)["pids"]
    croupier("survey", "close", round_id, "--dir", up)
    result = answer("survey", "results", round_id, "--dir", up)
    assert result["num_reports"] == result["certificate"]["num_users"] == 201


@pytest.mark.slow
def test_a_refused_round_has_no_result(up: Path, survey: Path) -> None:
    risky = ("--grid", "0.05,1", "--epsilon-max", "0.06", "--at-risk")  # of all who answer with 1 it is refused
    round_id = answer("survey", "open", "strict", "--dir", up, *risky)["survey_id"]
    arguments = ("--csv", survey, "--value-column", "smokes", "--limit", "150")
    said = croupier("submit", "--dir", up, "--round", round_id, *arguments)
    assert "of 150 rows 150 ACCEPTED" in said.stdout
    assert "smokes: 150 of 150 " in said.stderr
    croupier("survey", "close", round_id, "--dir", up, "--at-risk")
    said = croupier("survey", "results", round_id, "--dir", up, "--json", expect=5)
    assert "the accountant refused" in said.stderr
    refused = json.loads(said.stdout)  # it was empty
    assert (refused["round_id"], refused["values"], refused["certificate"]["granted"]) == (round_id, [], False)
    assert refused["certificate"]["refusals"][0]["text"] in said.stderr


@pytest.mark.slow
def test_errors_name_the_value_the_range_and_have_their_exit_code(up: Path, survey: Path, tmp_path: Path) -> None:
    letters = ("--choices", "a;b;c", "--grid", "0.1,0.2,0.4")
    round_id = answer("survey", "open", "letters", "--dir", up, *letters)["survey_id"]
    cases: list[tuple[int, str, tuple[str | Path, ...]]] = [
        (2, "--value-column is missing", ("submit", "--csv", survey)),
        (2, "must be one of the categories a, b, c", ("submit", "--value", "z", "--epsilon", "1")),
        (2, "max_local_epsilon is 0.01; it must be at least 0.1", ("submit", "--value", "a", "--epsilon", "0.01")),
        (2, "max_local_epsilon is -1.0", ("submit", "--value", "a", "--epsilon", "-1")),
        (2, "max_local_epsilon is nan", ("submit", "--value", "a", "--epsilon", "nan")),
        (6, "", ("submit", "--round", round_id, "--value", "a", "--epsilon", "1")),
        (3, "no such round", ("submit", "--round", "none", "--value", "a", "--epsilon", "1")),
        (3, "no such round", ("survey", "close", "none")),
        (3, "no such round", ("survey", "results", "none")),
        (4, "not published yet", ("survey", "results", round_id, "--wait-s", "0.1")),
        (2, "nothing was acknowledged here", ("verify", "none")),
    ]
    for code, message, arguments in cases:
        done = croupier(*arguments, "--dir", up, expect=code)
        assert message in done.stderr.replace("\n", " "), done.stderr
    assert "UNKNOWN_CLIENT" in croupier("submit", "--value", "a", "--epsilon", "1", "--dir", up, expect=6).stdout
    assert "makes a deployment" in croupier("down", "--dir", tmp_path / "nowhere", expect=2).stderr.replace("\n", " ")
    assert "makes a deployment" in croupier("status", "--dir", tmp_path / "nowhere", expect=2).stderr.replace("\n", " ")


@pytest.mark.slow
def test_every_row_of_every_file_is_counted_or_named(up: Path, tmp_path: Path) -> None:
    """Reproduction: a second file was merged by row number: 200 of 300 answers lost, exit code 0."""
    round_id = answer("survey", "open", "files", "--dir", up)["survey_id"]

    def submit(name: str, rows: list[str], *more: str, expect: int = 0) -> str:
        (tmp_path / name).write_text("\n".join(["who,bit", *rows]) + "\n")
        arguments = ("submit", "--dir", up, "--round", round_id, "--value-column", "bit", "--budgets", "1", *more)
        done = croupier(*arguments, "--csv", tmp_path / name, expect=expect)
        return " ".join((done.stderr + done.stdout).split())

    first, second = [f"p{i},0" for i in range(4)], [f"q{i},1" for i in range(6)]
    assert f"round {round_id}: of 4 rows 4 ACCEPTED" in submit("first.csv", first)
    assert f"round {round_id}: of 6 rows 6 ACCEPTED" in submit("second.csv", second)
    assert re.search(naming(f"round {round_id}", "6 rows 6 answered"), submit("again.csv", second))
    said = submit("bad.csv", ["a,x", "b,7"], expect=6)
    assert "line 2: value is 'x'; it must be 0 or 1" in said
    assert f"round {round_id}: of 2 rows 2 left out" in said
    assert "of 1 rows 1 left out" in submit("small.csv", ["a,0"], "--budgets", "0.01", expect=6)
    by_id = ("--id-column", "who")
    assert f"round {round_id}: of 2 rows 2 ACCEPTED" in submit("ids.csv", ["ann,0", "bob,1"], *by_id)
    said = submit("ids2.csv", ["bob,0", "eve,1", "eve,0", ",1"], *by_id, expect=6)
    assert re.search(naming("line 4", "'who'", "'eve'", "line 3"), said)
    assert "line 5: 'who' is empty" in said
    assert re.search(naming("4 rows 1 ACCEPTED", "1 answered", "2 left"), said)
    assert answer("status", "--dir", up)["services"][0]["rounds"][0]["num_items"] == 4 + 6 + 2 + 1


@pytest.mark.slow
def test_a_client_with_a_key_submits_once(up: Path, tmp_path: Path) -> None:
    round_id = answer("survey", "open", "keyed", "--dir", up, "--grid", "0.5,1")["survey_id"]
    key = tmp_path / "alice.key"
    public = answer("keygen", "--client", key)["client_key"]
    assert len(bytes.fromhex(public)) == 32
    assert key.stat().st_mode & 0o077 == 0
    assert "exists" in croupier("keygen", "--client", key, expect=2).stderr
    arguments = ("submit", "--dir", up, "--round", round_id, "--epsilon", "1", "--key", key, "--enrol")
    promised = {
        "alone_right_at_most": pytest.approx(1 / (1 + math.exp(-1)), rel=1e-9),
        "one_honest_right_at_most": None,
    }
    assert answer(*arguments, "--value-file", "-", typed="0\n") == {
        "round_id": round_id,
        "code": "ACCEPTED",
        "local_epsilon": 1.0,
        "local_delta": 0.0,
        **promised,
    }
    # Reproduction: "ACCEPTED … local ε 4", though nothing but the bytes made with 1 had ever been sent.
    again = ("submit", "--dir", up, "--round", round_id, "--epsilon", "4", "--key", key, "--value", "1")
    assert answer(*again, expect=6) == {
        "round_id": round_id,
        "code": "ALREADY_ANSWERED",
        "local_epsilon": 1.0,
        "local_delta": 0.0,
        **promised,
    }
    assert re.search(naming("ε 1"), croupier(*again, expect=6).stderr)
    key.unlink()
    lost = ("submit", "--dir", up, "--round", round_id, "--epsilon", "4", "--value", "1", "--enrol")
    assert answer(*lost, expect=6)["code"] == "ALREADY_ANSWERED"
    answer("keygen", "--client", key)
    said = " ".join(croupier(*lost, "--key", key, expect=2).stderr.split())
    assert re.search(naming("--another-person"), said)
    assert answer("status", "--dir", up)["services"][0]["rounds"][0]["num_items"] == 1


@pytest.mark.slow
def test_canaries_are_found_behind_every_hop(up: Path, survey: Path) -> None:
    round_id = answer("survey", "open", "birds", "--dir", up, "--epsilon-max", "2", "--dishonest", "3")["survey_id"]
    assert "of which 0 are canaries" in croupier("canary", round_id, "--count", "4", "--dir", up, expect=2).stderr
    assert answer("enrol", "--canaries", "2", "--dir", up) == {"enrolled": 2, "new": 2}
    assert answer("canary", round_id, "--count", "2", "--over", "1", "--dir", up)["canaries"] == 2
    assert answer("canary", round_id, "--over", "0", "--dir", up)["canaries"] == 3
    croupier("submit", "--dir", up, "--round", round_id, "--csv", survey, "--value-column", "smokes", expect=6)
    croupier("survey", "close", round_id, "--dir", up)
    assert answer("survey", "results", round_id, "--dir", up)["certificate"]["num_users"] == 204
    result = answer("canary", round_id, "--check", "--dir", up)
    assert result == {"canaries": 3, "missing": {"shuffler-1": 0, "shuffler-2": 0}}


@pytest.mark.slow
def test_up_serves_the_console_and_ends_it_alone(up: Path) -> None:
    round_id = answer("survey", "open", "watched", "--dir", up)["survey_id"]
    before = LocalDeployment(up).pids()
    with watched("up", "--console", "--dir", up) as (url, process):
        with urlopen(url) as page:
            shown = page.read().decode()
        assert (shown.count("SERVING"), round_id in shown) == (4, True)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("shuffler-1")
    assert LocalDeployment(up).pids() == before


@pytest.mark.slow
def test_demo_prints_what_others_script_against(survey: Path, tmp_path: Path) -> None:
    plot = tmp_path / "demo.png"
    demo = (
        "demo",
        "--open",
        "--json",
        "--csv",
        survey,
        "--value-column",
        "mood",
        "--group-by",
        "smokes",
        "--users",
        "200",
        "--hops",
        "1",
        "--plot",
        plot,
        "--delta",
        "1e-4",
    )
    opened = tmp_path / "opened"
    os.mkfifo(opened)
    with watched(*demo, BROWSER=f"sh -c 'echo $0 >{opened}' %s") as (url, process):
        with opened.open() as told:
            assert told.read() == f"{url}\n"
        assert process.stdout is not None
        result = json.loads(process.stdout.readline())
        with urlopen(url) as page:  # is there after the end, too
            assert "PUBLISHED" in page.read().decode()
    assert [(question["name"], question["group"]) for question in result["questions"]] == [
        ("mood, smokes=0", "0"),
        ("mood, smokes=1", "1"),
    ]
    assert sum(question["certificate"]["num_users"] for question in result["questions"]) == 200
    for question in result["questions"]:
        assert sum(question["truth"]) == pytest.approx(1.0)
        assert len(question["values"]) == 3
        assert question["certificate"]["grade"] == "CERTIFIED"
    together, epsilons = result["together"], [question["certificate"]["epsilon"] for question in result["questions"]]
    assert (together["group_by"], together["rounds"], together["ledger_rounds"]) == ("smokes", 1, 2)
    assert together["person"]["epsilon"] == pytest.approx(max(epsilons), rel=1e-6)
    assert max(epsilons) < together["ledger"]["epsilon"] <= sum(epsilons) * (1 + 1e-9)
    assert result["throughput_users_per_s"] > 0
    assert plot.read_bytes().startswith(b"\x89PNG")
    numbers = tmp_path / "numbers.csv"  # as many categories as a demonstration asks about, and one more
    numbers.write_text("\n".join(["hours", *(f"{number / 8}" for number in range(1025))]))
    wide = croupier("demo", "--csv", numbers, "--value-column", "hours", expect=2)
    assert re.search(naming("'hours'", "1,025", "1,024", "--low and --high"), wide.stderr.replace("\n", " "))


@pytest.mark.slow
def test_the_demonstration_with_hop_noise_is_as_exact_as_promised(tmp_path: Path) -> None:
    """With real processes, because a reader of the README runs it: the whole survey, local budgets 4, 6 and 8."""
    share, *others = answer("demo", "--hop-noise", "0.1", "--plot", tmp_path / "demo.png")["questions"]
    (number,) = share["values"]
    assert number["standard_error"] <= 0.006
    assert abs(number["estimate"] - share["truth"]) <= 5 * number["standard_error"]
    for question in (share, *others):
        certificate = question["certificate"]
        assert (certificate["granted"], certificate["grade"]) == (True, "CERTIFIED")
        assert certificate["epsilon"] <= certificate["one_honest_hop"]["epsilon"] <= 0.1
        assert [tier["local_epsilon"] for tier in certificate["tiers"]] == [4.0, 6.0, 8.0]
        assert question["hop_influence"] > 0
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_bench_measures_and_keeps_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.search(naming("least 2"), croupier("bench", "--users", "1", expect=2).stderr)
    measured = answer("bench", "--users", "20", "--hops", "1", "--times", "2", "--out", tmp_path)
    assert [row["users"] for row in measured["rows"]] == [20]
    for row in measured["rows"]:
        assert set(row["stages"]) == {"seal", "tickets", "admit", "mix, hop 1", "certify", "analyze"}
        assert row["ratio_to_floor"] == min(row["all_ratios_to_floor"]) > 0
    assert json.loads((tmp_path / "bench.json").read_text())["rows"] == measured["rows"]
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")

    def measures(sizes: list[int], hops: int, report: Any, *_: Any) -> None:
        assert (sizes, hops) == ([10], 1)  # the other is there
        report({**measured["rows"][0], "users": 10})

    monkeypatch.setattr("croupier.deploy.local.throughput.measure_throughput", measures)
    resumed = answer("bench", "--users", "10,20", "--hops", "1", "--resume", "--out", tmp_path)
    assert resumed["rows"][1] == measured["rows"][0]
    assert [row["users"] for row in json.loads((tmp_path / "bench.json").read_text())["rows"]] == [10, 20]
