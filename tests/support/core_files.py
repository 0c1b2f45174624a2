"""The limit that the kernel enforces on a process's core file."""

from __future__ import annotations

from pathlib import Path


def core_limit(pid: int) -> tuple[str, str]:
    """Returns the soft and the hard limit of a running process, "0" where it may write no core file."""
    lines = Path("/proc", str(pid), "limits").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("Max core file size"))
    soft, hard = line.split()[4:6]
    return soft, hard
