"""No process of a service leaves its memory in a core file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from croupier.deploy.local.processes import LocalDeployment
from tests.support.core_files import core_limit

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("processes")]

ASKS = """
import ctypes
from croupier.runtime.core_files import forbid_core_files
before = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)  # PR_GET_DUMPABLE
forbid_core_files()
print(before, ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""


@pytest.mark.slow
def test_the_limit_of_services_and_their_workers_is_0(local: LocalDeployment) -> None:
    """Needs processes, because it reads their limits. Only systemd and compose forbade core files."""
    for pid in local.pids().values():
        workers = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        assert workers
        assert {core_limit(process) for process in (pid, *workers)} == {("0", "0")}


def test_no_core_is_piped_into_a_program_either() -> None:
    """systemd-coredump and its like get the memory of dumpable processes whatever the limit is."""
    said = subprocess.run([sys.executable, "-c", ASKS], check=True, capture_output=True, text=True).stdout
    assert said.split() == ["1", "0"]
