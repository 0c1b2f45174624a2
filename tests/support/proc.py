"""What the kernel tells of a running process: the limit on its core file, and its memory."""

from __future__ import annotations

from pathlib import Path


def core_limit(pid: int) -> tuple[str, str]:
    """Returns the soft and the hard limit of a running process, "0" where it may write no core file."""
    lines = Path("/proc", str(pid), "limits").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("Max core file size"))
    soft, hard = line.split()[4:6]
    return soft, hard


def forget_peak(pid: int) -> int:
    """Counts the largest memory of a process (VmHWM) from here on, and returns what it has now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return resident_bytes(pid)


def resident_bytes(pid: int, kind: str = "VmRSS") -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(kind)).split()[1]) * 1024
