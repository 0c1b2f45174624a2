"""Changes the storage key of a service, which is stopped meanwhile: under it are its own keys, and those of its rounds.

The new key lies in DIR/NAME/next-storage.key until everything is encrypted under it. The same command again goes on
where an earlier one was cut short. The last step puts the new key where the settings take the storage key from; where
that place cannot be written (a container's secret, the environment), the file stays, and its owner brings it there.
"""

from __future__ import annotations

import os
from pathlib import Path

import sqlalchemy as sa
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from croupier.deploy.directory import read_deployment, store_url
from croupier.deploy.operator.keys import replace_secret, write_secret
from croupier.runtime.database import DEFAULT_TIMEOUTS, open_database
from croupier.runtime.rows.keys import KeyRows
from croupier.runtime.schema import bring_up_to_date
from croupier.runtime.service_directory import PENDING, load_settings, seal_key, storage_key_of

__all__ = ["NEXT_STORAGE_KEY", "rotate_storage_key"]

NEXT_STORAGE_KEY = "next-storage.key"


def rotate_storage_key(directory: Path, name: str) -> Path | None:
    """Encrypts everything of a service under a new storage key; returns its file if it is not where it belongs.

    Args:
        directory: of the deployment, on the machine of the service.
        name: of the service, which is stopped.

    Raises:
        ValueError: no such service, the service runs, or a file cannot be read or written.
    """
    read_deployment(directory).service(name)
    own = directory / name
    settings = load_settings(own)
    old, fresh = storage_key_of(own), own / NEXT_STORAGE_KEY
    url = store_url(settings, own)
    database = open_database(url, DEFAULT_TIMEOUTS)  # and with its lock, against a service that runs
    try:
        if not fresh.exists():
            write_secret(fresh, os.urandom(32).hex() + "\n")
        new = bytes.fromhex(fresh.read_text(encoding="ascii").strip())
        for file in (own / f"{prefix}{key}.key" for prefix in ("", PENDING) for key in ("identity", "tls")):
            if file.exists():
                _seal_again(file, old, new)
        with database.begin() as connection:
            bring_up_to_date(connection, sa.make_url(url).render_as_string())
            KeyRows(connection, old).wrap_again(new)
        database.shred()
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
        raise ValueError(f"{why}; the keys of {name} must lie on a volume that can be written") from error
    finally:
        database.close()
    kind, _, where = settings.storage_key.partition(":")
    if kind == "file":
        try:
            replace_secret(own / where, new.hex() + "\n")
        except OSError:
            return fresh
        fresh.unlink()
        return None
    return fresh


def _seal_again(file: Path, old: bytes, new: bytes) -> None:
    """Encrypts a key file under the new storage key, unless it is already."""
    text = file.read_bytes()
    for opening in (new, old):
        try:
            key = load_pem_private_key(text, opening.hex().encode())
        except ValueError:
            continue
        if opening == old and isinstance(key, Ed25519PrivateKey | EllipticCurvePrivateKey):
            replace_secret(file, seal_key(key, new).decode())
        return
    raise ValueError(f"{file} does not open with this storage key")
