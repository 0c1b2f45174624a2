"""Changes the storage key of a service that is stopped: it encrypts the service's own keys, and those of its rounds.

The new key is in DIR/NAME/next-storage.key until everything is encrypted under it. The same command again continues
where an earlier one was cut short. The last step puts the new key where the settings take the storage key from; if that
place cannot be written (a container's secret, the environment), the file stays, and its owner moves it.

In a pod the service's own keys are mounted read-only, too: `storage_key_manifests` leaves them unchanged, and returns
the secrets that replace them. Files on the service's volume, and round keys, are encrypted again as elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from croupier.deploy.directory import read_deployment, store_url
from croupier.deploy.render.kubernetes import secret
from croupier.operator.keys import replace_secret, write_secret
from croupier.protocol.names import JsonObject, StorageKey
from croupier.runtime.database import DEFAULT_TIMEOUTS, open_database
from croupier.runtime.rows.keys import KeyRows
from croupier.runtime.schema import create_tables
from croupier.runtime.service_directory import PENDING, load_settings, seal_key, storage_key_of

NEXT_STORAGE_KEY = "next-storage.key"


def rotate_storage_key(directory: Path, name: str) -> Path | None:
    """Encrypts everything of a service under a new storage key; returns the key's file if it cannot be installed.

    Args:
        directory: of the deployment, on the machine of the service.
        name: of the service, which is stopped.

    Raises:
        ValueError: no such service, the service runs, or a file cannot be read or written.
    """
    own, (kind, _, where) = directory / name, _place(directory, name)
    new = _change(directory, name, ("", PENDING))[0]
    if kind == "file":
        try:
            replace_secret(own / where, new.hex() + "\n")
        except OSError:
            return own / NEXT_STORAGE_KEY
        (own / NEXT_STORAGE_KEY).unlink()
        return None
    return own / NEXT_STORAGE_KEY


def storage_key_manifests(directory: Path, name: str) -> JsonObject:
    """Encrypts a service's volume under a new storage key; returns the secrets with that key and the other keys.

    Args:
        directory: of the deployment, in the pod of the service.
        name: of the service, which is stopped.

    Raises:
        ValueError: no such service, the service runs, or a file cannot be read or written.
    """
    own, (_, _, where) = directory / name, _place(directory, name)
    new, sealed = _change(directory, name, (PENDING,))
    keys = {**sealed, "tls.crt": (own / "tls.crt").read_bytes()}
    stored = {Path(where).name: f"{new.hex()}\n".encode()}
    items = [secret(f"{name}-keys", keys), secret(f"{name}-storage-key", stored)]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _place(directory: Path, name: str) -> tuple[str, str, str]:
    """Returns the source of a service's storage key in its settings: the kind, a colon, and the place."""
    read_deployment(directory).service(name)
    return load_settings(directory / name).storage_key.partition(":")


def _change(directory: Path, name: str, replaced: Sequence[str]) -> tuple[bytes, dict[str, bytes]]:
    """Encrypts the keys of a service and of its rounds under the storage key in DIR/NAME/next-storage.key.

    Args:
        directory: of the deployment.
        name: of the service.
        replaced: beginnings of the names of the key files that are replaced; the others stay.

    Returns:
        The new storage key, and the new contents of the key files that stay.
    """
    own = directory / name
    old, fresh = storage_key_of(own), own / NEXT_STORAGE_KEY
    url = store_url(load_settings(own), own)
    database = open_database(url, DEFAULT_TIMEOUTS)  # and with its lock, against a service that runs
    sealed = {}
    try:
        if not fresh.exists():
            write_secret(fresh, os.urandom(32).hex() + "\n")
        new = bytes.fromhex(fresh.read_text(encoding="ascii").strip())
        for prefix in ("", PENDING):
            for file in (own / f"{prefix}identity.key", own / f"{prefix}tls.key"):
                if not file.exists():
                    continue
                content = _sealed_again(file, old, new)
                if prefix not in replaced:
                    sealed[file.name] = content
                elif content != file.read_bytes():
                    replace_secret(file, content.decode())
        with database.begin() as connection:
            create_tables(connection, sa.make_url(url).render_as_string())
            KeyRows(connection, old).wrap_again(StorageKey(new))
        database.shred()
    except OSError as error:
        raise ValueError(
            f"{error.filename}: {error.strerror}; the keys of {name} must lie on a volume that can be written. In a "
            "pod, --kubernetes prints them as manifests for 'kubectl apply'"
        ) from error
    finally:
        database.close()
    return new, sealed


def _sealed_again(file: Path, old: bytes, new: bytes) -> bytes:
    """Returns a key file's content under the new storage key: unchanged, if it is under that key already."""
    text = file.read_bytes()
    for opening in (new, old):
        try:
            key = load_pem_private_key(text, opening.hex().encode())
        except ValueError:
            continue
        if opening == old and isinstance(key, Ed25519PrivateKey | EllipticCurvePrivateKey):
            return seal_key(key, StorageKey(new))
        return text
    raise ValueError(f"{file} does not open with this storage key")
