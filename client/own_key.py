"""The client's own key: a file that is made when the key is first needed, and never again."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from croupier.client.key_file import PRIVATE, key_text, read_private_key
from croupier.client.submission import new_client_key
from croupier.protocol.names import PrivateKey

_NO_HARD_LINKS = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""Where a file system has none (FAT, many network shares), or a system allows none (Android)."""


def read_or_make_key(file: Path) -> PrivateKey:
    """Returns the private key in a file, which is made with a new key if it does not exist; see `read_private_key`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        _make_key(file)
    return read_private_key(file)


def _make_key(file: Path) -> None:
    """Makes a key in a single step, unless another process has: half a key is never read, not even after a crash."""
    with NamedTemporaryFile("w", dir=file.parent, prefix=f"{file.name}.", encoding="ascii", delete=False) as made:
        try:  # it has mode 0600
            made.write(key_text(PRIVATE, new_client_key()))
            made.flush()
            os.fsync(made.fileno())
            _name_it(Path(made.name), file)
        finally:
            Path(made.name).unlink(missing_ok=True)


def _name_it(made: Path, file: Path) -> None:
    """Gives a complete file its name, unless there is one of that name already."""
    try:
        os.link(made, file)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # A plain renaming would replace a key that another process has named since it was looked for.
        with _locked(file.parent):
            if not file.exists():
                made.rename(file)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Waits until no other process has the lock; the kernel releases the lock of a process that dies."""
    import fcntl  # not on Windows, which has hard links where programs keep their files

    lock = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
