"""`croupier train` as its user has it."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from croupier.deploy.local.processes import LocalDeployment
from croupier.protocol.codes import Assumption
from croupier.training.datasets import Dataset, load_dataset
from tests.support.command_line import invoke
from tests.support.messages import naming
from tests.support.statements import codes


def train(*arguments: str | Path, expect: int = 0) -> Any:
    """Runs the command in this process, which has imported torch already; a deployment has processes of its own."""
    result = invoke("train", "--json", *arguments)
    assert result.exit_code == expect, f"{arguments}: {result.exit_code}\n{result.stdout}\n{result.stderr}"
    return json.loads(result.stdout) if expect == 0 else result.stdout + result.stderr


def shown(*arguments: str | Path) -> str:
    """Everything that a person sees."""
    result = invoke("train", *arguments)
    assert result.exit_code == 0, result.stderr
    return " ".join((result.stderr + result.stdout).split())


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalDeployment]:
    """A deployment of real processes, for every training that may have one that stays."""
    running = LocalDeployment(tmp_path_factory.mktemp("training") / "deployment")
    running.up(None, 1)
    yield running
    running.down()


def of_200_users(*_: Any) -> Dataset:
    """The digits of fewer users than there are: what each costs in a deployment is the same."""
    digits = load_dataset("digits")
    return replace(digits, train=digits.train.part(slice(0, 200)))


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.xdist_group("training processes")
def test_the_command_has_a_deployment_of_its_own(tmp_path: Path) -> None:
    """As its user has it: a process, which starts a deployment and ends it. Other tests share one, and play 200."""
    options = ("--unit", "record", "--clients", "2", "--hops", "1", "--epochs", "1", "--out", str(tmp_path))
    command = [sys.executable, "-m", "croupier.cli", "train", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [epoch["epoch"] for epoch in document["history"]] == [1]
    assert_certified(document)
    assert_kept(document, tmp_path)
    # Reproduction: a second run went on from a checkpoint whose deployment was gone.
    assert not (tmp_path / "checkpoint.pt").exists()


def assert_certified(document: Any) -> None:
    assert document["setting"]["mode"] == "deployed"
    assert document["certificate"]["grade"] == "CERTIFIED"
    assert document["history"][0]["epsilon"] == document["certificate"]["epsilon"]
    assert Assumption.SIMULATED not in codes(document["certificate"]["assumptions"])


def assert_kept(document: Any, out: Path) -> None:
    torch.nn.Linear(63, 10).load_state_dict(torch.load(out / "model.pt", weights_only=True))
    assert json.loads((out / "training.json").read_text()) == document
    assert (out / "training.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.xdist_group("training processes")
def test_the_same_command_twice_is_one_training(
    local: LocalDeployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 users, for an epoch and another. Reproduction: a run with nothing left to do ended with an IndexError."""
    monkeypatch.setattr("croupier.training.subject.load_dataset", of_200_users)
    same = ("--dir", local.directory, "--out", tmp_path / "stays")
    first = train("--epochs", "1", *same)
    assert_certified(first)
    assert first["certificate"]["epsilon"] < 2 == first["certificate"]["everyone_else_colludes"]
    (published,) = first["certificate"]["comparison"]
    assert published["epsilon"] > 0
    assert published["grade"] == "ASYMPTOTIC"
    assert_kept(first, tmp_path / "stays")
    assert train("--epochs", "1", *same) == first
    more = train("--epochs", "2", *same)
    assert more["history"][0] == first["history"][0]
    assert len(more["history"]) == 2
    assert more["history"][0]["epsilon"] < more["history"][1]["epsilon"] == more["certificate"]["epsilon"]
    message = train("--budgets", "4:1", *same, expect=2)
    assert "budgets is '4:1', but" in " ".join(message.split())
    # A limit is kept without a ledger, too: what the next epoch would cost is composed from who really answered.
    limit = more["certificate"]["epsilon"] * 1.01
    stopped = train("--epochs", "5", "--epsilon-limit", str(limit), *same)
    assert stopped["history"] == more["history"]
    assert "next one" in stopped["stopped"]


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.xdist_group("training processes")
def test_both_modes_are_measured_with_the_same_numbers() -> None:
    done = invoke("research", "bench-training", "--epochs", "1", "--hops", "1", "--users", "100", "--json")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["users"], document["dimension"], document["epochs"]) == (100, 640, 1)
    assert document["ratio"] == document["deployed_s_per_epoch"] / document["simulated_s_per_epoch"] > 0


@pytest.mark.slow
def test_a_simulation_stops_before_its_limit(tmp_path: Path) -> None:
    document = train("--simulate", "--budgets", "4:1", "--epochs", "9", "--epsilon-limit", "2.2", "--out", tmp_path)
    assert 1 <= len(document["history"]) < 9
    assert document["history"][-1]["epsilon"] <= 2.2
    assert "next one" in document["stopped"]
    assert "all clients" in document["stopped"]


@pytest.mark.slow
def test_a_simulation_says_that_no_one_was_protected(tmp_path: Path) -> None:
    certificate = train("--simulate", "--epochs", "2", "--budgets", "4:1", "--out", tmp_path)["certificate"]
    assert certificate["grade"] == "CERTIFIED"
    assert certificate["everyone_else_colludes"] == 8.0
    assert Assumption.SIMULATED in codes(certificate["assumptions"])
    assert Assumption.UNIFORM_ORDER in codes(certificate["assumptions"])
    text = shown("--simulate", "--epochs", "1", "--out", tmp_path)
    assert "1 epoch, 1 step: accuracy" in text
    for part in (
        "CERTIFIED, simulated",
        "central ε at δ = 1e-05",
        "(no guarantee)",
        "everyone else",
        "replace-one",
        "order secret",
    ):
        assert part in text


@pytest.mark.slow
def test_components_that_are_fitted_to_the_users_are_not_certified(tmp_path: Path) -> None:
    """Reproduction: principal components of private data came with a certificate that does not cover them."""
    document = train("--simulate", "--features", "pca", "--epochs", "1", "--out", tmp_path)
    assert document["certificate"]["grade"] == document["history"][0]["grade"] == "HEURISTIC"
    assert Assumption.FEATURES_FROM_USERS in codes(document["certificate"]["assumptions"])
    assert "CERTIFIED" not in shown("--simulate", "--features", "pca", "--epochs", "1", "--out", tmp_path)


@pytest.mark.slow
def test_the_code_of_a_model_file_is_an_assumption(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import torch\ndef model(inputs, classes): return torch.nn.Linear(inputs, classes)\n")
    document = train("--simulate", "--model", file, "--epochs", "1", "--out", tmp_path)
    assert Assumption.MODEL_FILE_BLIND in codes(document["certificate"]["assumptions"])
    assert len(document["setting"]["model_sha256"]) == 64


@pytest.mark.slow
def test_one_user_after_the_other_is_certified_like_all_at_once(tmp_path: Path) -> None:
    rule = ("--epochs", "1", "--learning-rate", "0.02", "--averaging", "0.01", "--budgets", "4:1")
    document = train("--simulate", "--no-baseline", "--order", "sequential", *rule, "--out", tmp_path / "a")
    assert [epoch["steps"] for epoch in document["history"]] == [1297]
    together = train("--simulate", *rule, "--out", tmp_path / "b")
    # All at once they have the exchange bound, too, which is no better for so few with so large budgets.
    assert document["certificate"]["epsilon"] == pytest.approx(together["certificate"]["epsilon"], rel=1e-5)
    assert document["history"][0]["accuracy"] > 0.16  # three standard deviations above guessing


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.xdist_group("training processes")
@pytest.mark.parametrize("order", ["batch", "sequential"])
def test_silos_train_through_a_deployment(local: LocalDeployment, tmp_path: Path, order: str) -> None:
    arguments = ("--unit", "record", "--clients", "2", "--budgets", "2:1", "--epochs", "2", "--order", order)
    # In real time, here alone: no client misses so long a period, on however busy a machine.
    document = train(*arguments, "--period-s", "2", "--out", tmp_path, "--dir", local.directory)
    assert [epoch["steps"] for epoch in document["history"]] == ([1, 2] if order == "batch" else [2, 4])
    first, second = (epoch["epsilon"] for epoch in document["history"])
    assert first == pytest.approx(2.0, rel=1e-6)
    assert 2.0 * math.sqrt(2) < second < 4.0
    assert Assumption.RECORD_LEVEL in codes(document["certificate"]["assumptions"])
    simulated = train("--simulate", "--no-baseline", *arguments, "--out", tmp_path)
    assert simulated["certificate"]["epsilon"] == document["certificate"]["epsilon"]


def test_without_noise_nothing_is_claimed(tmp_path: Path) -> None:
    document = train("--simulate", "--no-private", "--epochs", "2", "--batch-size", "400", "--out", tmp_path)
    assert document["certificate"] is None
    assert [epoch["epsilon"] for epoch in document["history"]] == [None, None]
    assert [epoch["steps"] for epoch in document["history"]] == [4, 8]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--delta", "2"), ("delta", "2", "1e-12..0.1")),  # said by the configuration
        (("--simulate", "--dir", "clinic"), ("dir", "clinic", "simulation")),
        (("--period-s", "0"), ("period_s", "0", "0.001..600 seconds")),
        (("--simulate", "--device", "abacus"), ("device", "'abacus'")),  # said by the runner
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_an_exit_code(
    tmp_path: Path, arguments: tuple[str, ...], named: tuple[str, ...]
) -> None:
    done = invoke("train", "--json", *arguments, "--out", tmp_path)
    assert done.exit_code == 2
    assert re.match(naming("croupier:", *named), done.stderr)


@pytest.mark.slow
def test_a_target_with_a_range_is_shown_with_its_error(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text("age,weight\n" + "\n".join(f"{20 + i},{50 + i / 2}" for i in range(60)), encoding="utf-8")
    arguments = ("--data", file, "--target", "weight:50:80", "--column", "age:20:80", "--simulate", "--epochs", "2")
    document = train(*arguments, "--out", tmp_path / "a")
    assert (document["setting"]["model"], document["setting"]["target_range"]) == ("linear", [50.0, 80.0])
    assert [epoch["accuracy"] for epoch in document["history"]] == [None, None]
    assert f"error {document['history'][-1]['error']:.4g}" in shown(*arguments, "--out", tmp_path / "b")
    refused = train(*arguments, "--model", "softmax", "--out", tmp_path / "c", expect=2)
    assert re.search(naming("softmax", "linear", "relu"), " ".join(refused.split()))
