"""`croupier train` as its user has it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch


def train(*arguments: str | Path, expect: int = 0) -> Any:
    command = [sys.executable, "-m", "deploy.cli", "train", "--json", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == expect, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout) if expect == 0 else done.stderr


@pytest.mark.processes
@pytest.mark.xdist_group("processes")
def test_two_epochs_of_digits_through_a_deployment(tmp_path: Path) -> None:
    found = train("--epochs", "2", "--out", tmp_path)
    assert [epoch["epoch"] for epoch in found["history"]] == [1, 2]
    assert found["setting"]["mode"] == "deployed"
    assert found["certificate"]["grade"] == "CERTIFIED"
    assert found["history"][0]["epsilon"] < found["history"][1]["epsilon"] == found["certificate"]["epsilon"] < 4
    assert found["certificate"]["comparison"][0]["grade"] == "ASYMPTOTIC"
    assert torch.load(tmp_path / "model.pt", weights_only=True).shape == (640,)
    assert json.loads((tmp_path / "training.json").read_text()) == found
    assert (tmp_path / "training.png").read_bytes()[:4] == b"\x89PNG"


def test_a_simulation_stops_before_its_limit(tmp_path: Path) -> None:
    found = train("--simulate", "--budgets", "4:1", "--epochs", "9", "--epsilon-limit", "2.2", "--out", tmp_path)
    assert 1 <= len(found["history"]) < 9
    assert found["history"][-1]["epsilon"] <= 2.2
    assert "the next one would cost" in found["stopped"]


def test_one_user_after_the_other_is_certified_like_all_at_once(tmp_path: Path) -> None:
    rule = ("--epochs", "2", "--learning-rate", "0.02", "--averaging", "0.01", "--budgets", "4:1")
    found = train("--simulate", "--order", "sequential", *rule, "--out", tmp_path / "a")
    assert [epoch["steps"] for epoch in found["history"]] == [1297, 2594]
    together = train("--simulate", *rule, "--out", tmp_path / "b")
    assert found["certificate"]["epsilon"] == together["certificate"]["epsilon"]
    assert found["history"][1]["accuracy"] > 0.3


def test_without_noise_nothing_is_claimed(tmp_path: Path) -> None:
    found = train("--simulate", "--no-private", "--epochs", "2", "--batch-size", "400", "--out", tmp_path)
    assert found["certificate"] is None
    assert [epoch["epsilon"] for epoch in found["history"]] == [None, None]
    assert [epoch["steps"] for epoch in found["history"]] == [4, 8]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--simulate", "--epsilon-limit", "0.01"), "epsilon_limit is 0.01; one epoch costs"),
        (("--budgets", "0:1"), "a group's epsilon is 0.0"),
        (("--budgets", "30:1"), "allowed is 0 < epsilon"),
        (("--dataset", "cifar"), "allowed are digits, mnist"),
        (("--device", "abacus"), "device is 'abacus', which is not here"),
        (("--epochs", "0"), "epochs is 0"),
        (("--order", "random"), "order is 'random'; allowed are batch and sequential"),
        (("--order", "sequential"), "there is only --simulate for it"),
        (("--watch", "luck"), "watch is 'luck'"),
        (("--no-private",), "a deployed run has noise"),
        (("--simulate", "--learning-rate", "-1"), "learning_rate is -1"),
        (("--simulate", "--batch-size", "100", "--budgets", "1:1,2:1"), "batch_size is 100 with 2 different budgets"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in " ".join(train(*arguments, "--out", tmp_path, expect=2).split())
