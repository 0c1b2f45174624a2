"""What a raw read of a disk finds, also in blocks that no file has any more.

As root on Linux, a directory on an ext4 image of its own. Where loop devices are not to be had, as in most containers:
every byte that SQLite gives back to the file system, taken at its own system calls (`sqlite3_vfs.xSetSystemCall`).
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_SIZE = 32 << 20
_FTRUNCATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int64, use_errno=True)
_UNLINK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, use_errno=True)
_SET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class _Vfs(ctypes.Structure):
    """`sqlite3_vfs`, version 3, up to the field that is used."""

    _fields_ = (
        ("iVersion", ctypes.c_int),
        ("szOsFile", ctypes.c_int),
        ("mxPathname", ctypes.c_int),
        ("pNext", ctypes.c_void_p),
        ("zName", ctypes.c_char_p),
        ("pAppData", ctypes.c_void_p),
        ("methods", ctypes.c_void_p * 13),  # xOpen to xCurrentTimeInt64
        ("xSetSystemCall", _SET),
    )


@contextmanager
def raw_disk(scratch: Path) -> Iterator[tuple[Path, Callable[[], bytes]]]:
    """Yields a directory, and what returns all that can be read of its disk."""
    image, directory = scratch / "disk.img", scratch / "disk"
    directory.mkdir()
    try:
        with image.open("wb") as file:
            file.truncate(_SIZE)
        _run("mkfs.ext4", "-q", "-F", str(image))
        _run("mount", "-o", "loop", str(image), str(directory))
    except (OSError, subprocess.CalledProcessError):
        with freed_by_sqlite() as freed:
            yield directory, lambda: b"".join([*freed, *_files(directory)])
        return
    try:

        def read() -> bytes:
            _run("sync", "--file-system", str(directory))
            return image.read_bytes()

        yield directory, read
    finally:
        _run("umount", str(directory))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _files(directory: Path) -> Iterator[bytes]:
    return (file.read_bytes() for file in directory.rglob("*") if file.is_file())


@contextmanager
def freed_by_sqlite() -> Iterator[list[bytes]]:
    """Yields what SQLite truncates or unlinks in this process from now on, as it was right before."""
    import _sqlite3

    freed: list[bytes] = []

    def take(content: bytes) -> None:
        if content:
            freed.append(content)

    def ftruncate(descriptor: int, size: int) -> int:
        take(os.pread(descriptor, _SIZE, size))
        return _answer(lambda: os.ftruncate(descriptor, size))

    def unlink(path: bytes) -> int:
        file = Path(os.fsdecode(path))
        take(file.read_bytes() if file.exists() else b"")
        return _answer(file.unlink)

    library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
    vfs = library.sqlite3_vfs_find(None)
    ours = {b"ftruncate": _FTRUNCATE(ftruncate), b"unlink": _UNLINK(unlink)}
    try:
        for name, function in ours.items():
            assert vfs.contents.xSetSystemCall(vfs, name, ctypes.cast(function, ctypes.c_void_p)) == 0
        yield freed
    finally:
        for name in ours:
            vfs.contents.xSetSystemCall(vfs, name, None)


def _answer(call: Callable[[], None]) -> int:
    try:
        call()
    except OSError as error:
        ctypes.set_errno(error.errno or 0)
        return -1
    return 0
