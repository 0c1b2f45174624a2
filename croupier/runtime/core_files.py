"""Keeps a process's memory, above all its keys, out of core files and away from other processes of its user."""

from __future__ import annotations

import contextlib
import ctypes
import sys

_PR_SET_DUMPABLE = 4


def forbid_core_files() -> None:
    """Forbids core files of this process, and files of its children too.

    A limit of 0 forbids files, and children inherit it. It does not keep the kernel from piping a core into a program
    such as systemd-coredump. On Linux a process that is not dumpable prevents that as well; a program that it starts is
    dumpable again, so worker processes call this themselves.
    """
    if sys.platform == "win32":  # for clients; there is no limit of this kind
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library, or a sandbox that forbids it
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
