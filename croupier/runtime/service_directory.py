"""A service's own directory: its settings, and its secrets, which are encrypted at rest.

DIR/<service>/service.toml    settings; every line may be missing
DIR/<service>/identity.key    Ed25519, and tls.key: PKCS #8, encrypted under the storage key
DIR/<service>/tls.crt         public
DIR/<service>/storage.key     the storage key, unless the settings say that it comes from elsewhere
DIR/<service>/cluster/        the certificates of its Dask cluster, if it has one

The storage key also wraps round keys in the store. Keep it away from the disk that it protects: on another volume
(`storage_key = "file:/run/secrets/croupier"`) or in the environment (`storage_key = "env:CROUPIER_STORAGE_KEY"`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from croupier.net.http_channel import is_loopback
from croupier.protocol.deployment import ServiceEntry, Strict
from croupier.protocol.names import NOT_ENCRYPTED, PrivateKey, StorageKey
from croupier.protocol.toml_file import Address, TlsAddress, read_toml
from croupier.runtime.rules import Rules

SETTINGS_FILE = "service.toml"
CLUSTER_DIRECTORY = "cluster"
PENDING = "pending-"
"""Begins the names of the files of keys that a rotation has made and that are not in use yet."""


class NoiseLimit(Strict):
    """The most that all rounds which a hop signs may show of one person if it is the only honest party.

    Attributes:
        epsilon: of all rounds together.
        delta: of all rounds together.
        hop_noise_only: whether the hop signs no round without hop noise; if not, such a round counts with its largest
            local budget.
    """

    epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    hop_noise_only: bool = False


class ServiceSettings(Strict):
    """The settings of one service on its machine. Nothing here is shown to other services or agreed with them.

    Attributes:
        store: "sqlite" for the file `rounds.db` in the service's directory, or the URL of a PostgreSQL database.
        storage_key: "file:PATH" (relative to the directory) or "env:NAME"; 32 bytes, hexadecimal.
        listen: the address for peers and the operator, if it is not the `address` in the deployment file.
        public_listen: the address for clients, if it is not the `public_address` in the deployment file.
        workers: processes for the cryptography; all cores by default.
        scheduler: "tls://HOST:PORT" of a Dask cluster for work that no client waits for (docs/cluster.md); none by
            default. Its certificates are in `cluster/` in the service's directory.
        max_concurrent_calls: the number of calls that the service works on at once: three quarters are for clients, and
            one address gets at most a quarter of those. Further calls get RESOURCE_EXHAUSTED with `retry-after-ms`,
            after which clients try again.
        max_connections_per_address: further connections of the same address, or IPv6 network of 64 bits, are ended.
        admin_listen: the address for gRPC health and reflection, in plaintext; none by default.
        metrics_listen: the address for Prometheus metrics over HTTP, in plaintext; none by default.
        keep_days: the time after its end for which a round's manifest, participants, inclusion lists, commitments and
            costs are kept; clients can run `croupier verify` until then. Its name, result, certificate and the ledger
            stay. A round that is not certified this long after its deadline is withdrawn, and a round that was prepared
            and never opened after a day.
        noise_limit: the largest total of a shuffler's own ledger; it signs no round beyond it (docs/hop-noise.md). By
            default it signs all rounds.
        rules: the rounds that this service signs, whatever the operator asks. Without its signature a round does not
            begin, and the refusal names the rule and the allowed range.
        insecure_admin_anywhere: allows `admin_listen` and `metrics_listen` outside loopback. They serve no round, but
            every reader learns how many people take part, and when.
    """

    store: Annotated[str, StringConstraints(pattern=r"^(sqlite|postgresql\+psycopg://.*)$")] = "sqlite"
    storage_key: Annotated[str, StringConstraints(pattern=r"^(file|env):.+$")] = "file:storage.key"
    listen: Address | None = None
    public_listen: Address | None = None
    workers: Annotated[int, Field(ge=1, le=1024)] | None = None
    scheduler: TlsAddress | None = None
    max_concurrent_calls: Annotated[int, Field(ge=8, le=65536)] = 256
    max_connections_per_address: Annotated[int, Field(ge=1, le=65536)] = 1000
    admin_listen: Address | None = None
    metrics_listen: Address | None = None
    keep_days: Annotated[int, Field(ge=1, le=36500)] = 30
    noise_limit: NoiseLimit | None = None
    rules: Rules = Rules()
    insecure_admin_anywhere: bool = False

    @model_validator(mode="after")
    def _check(self) -> ServiceSettings:
        for name in ("admin_listen", "metrics_listen"):
            address = getattr(self, name)
            if address is not None and not self.insecure_admin_anywhere and not is_loopback(address.rpartition(":")[0]):
                raise ValueError(
                    f"{name} is {address!r}, which is not loopback; plaintext elsewhere needs insecure_admin_anywhere"
                )
        return self


class Secrets(BaseModel):
    """The secrets of one service (or the operator). Never printed, never sent."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
    identity_key: PrivateKey
    storage_key: StorageKey
    tls_key: PrivateKey
    tls_certificate: bytes

    def __repr__(self) -> str:
        return "Secrets(…)"

    __str__ = __repr__


def load_settings(directory: Path) -> ServiceSettings:
    """Reads the settings of a service; without a file, the defaults.

    Raises:
        ValueError: naming the file and every field that is unknown or out of range.
    """
    file = directory / SETTINGS_FILE
    try:
        return read_toml(file, ServiceSettings, "settings file")
    except FileNotFoundError:
        return ServiceSettings()


def seal_key(key: Ed25519PrivateKey | EllipticCurvePrivateKey, storage_key: StorageKey) -> bytes:
    """Returns a private key as PEM, encrypted under the storage key."""
    encryption = serialization.BestAvailableEncryption(storage_key.hex().encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def _storage_key(directory: Path, source: str, environment: Mapping[str, str]) -> StorageKey:
    kind, _, where = source.partition(":")
    if kind == "env":
        if where not in environment:
            raise ValueError(
                f"the environment has no {where!r}; the settings of {directory} take the storage key there"
            )
        text = environment[where]
    else:
        text = (directory / where).read_text(encoding="ascii", errors="replace")
    try:
        key = StorageKey(bytes.fromhex(text.strip()))
    except ValueError:
        key = NOT_ENCRYPTED
    if len(key) != 32:
        raise ValueError(f"the storage key in {source!r} is not what it must be: 64 hexadecimal digits")
    return key


def storage_key_of(directory: Path, environment: Mapping[str, str] = os.environ) -> StorageKey:
    """Returns the storage key of a service.

    Raises:
        ValueError: it is missing, or is not a key.
    """
    try:
        return _storage_key(directory, load_settings(directory).storage_key, environment)
    except FileNotFoundError as error:
        raise ValueError(f"{error.filename} is missing; without it the keys in {directory} do not open") from error


def load_secrets(directory: Path, environment: Mapping[str, str] = os.environ) -> Secrets:
    """Reads and decrypts the secrets of one service from its directory.

    Raises:
        ValueError: a file is missing or is encrypted under another storage key, or the certificate is of another key.
    """
    try:
        storage_key = _storage_key(directory, load_settings(directory).storage_key, environment)
        identity = _open_key(directory / "identity.key", storage_key)
        tls = _open_key(directory / "tls.key", storage_key)
        certificate = (directory / "tls.crt").read_bytes()
    except FileNotFoundError as error:
        raise ValueError(
            f"{error.filename} is missing; a service's secrets lie on its own machine, and are put back from a copy: "
            "'croupier init' and 'keygen' make those of a new deployment"
        ) from error
    if not isinstance(identity, Ed25519PrivateKey) or not isinstance(tls, EllipticCurvePrivateKey):
        raise ValueError(f"the keys in {directory} are not Ed25519 (identity) and ECDSA (TLS)")
    _check_certificate(directory / "tls.crt", certificate, tls)
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Secrets(
        identity_key=identity.private_bytes_raw(),
        storage_key=storage_key,
        tls_key=tls.private_bytes(*plain),
        tls_certificate=certificate,
    )


def identity_keys(directory: Path, storage_key: StorageKey = NOT_ENCRYPTED) -> list[PrivateKey]:
    """Returns the identity keys in the directory of a service: the one in use and the pending one.

    Args:
        directory: of the service.
        storage_key: opens them; by default the one in the settings.

    Raises:
        ValueError: a key does not open with the storage key, or the storage key is missing.
    """
    opening = storage_key or storage_key_of(directory)
    files = (directory / f"{prefix}identity.key" for prefix in ("", PENDING))
    keys = [_open_key(file, opening) for file in files if file.exists()]
    return [PrivateKey(key.private_bytes_raw()) for key in keys if isinstance(key, Ed25519PrivateKey)]


def _check_certificate(file: Path, certificate: bytes, key: EllipticCurvePrivateKey) -> None:
    try:
        public_key = x509.load_pem_x509_certificate(certificate).public_key()
    except ValueError as error:
        raise ValueError(f"{file} holds no certificate in PEM") from error
    if public_key != key.public_key():
        raise ValueError(
            f"{file} is not the certificate of tls.key beside it: one is from before a rotation. Repeat "
            f"'croupier rotate {file.parent.name} --activate' if that was cut short, or put both back from one copy"
        )


def not_pinned(entry: ServiceEntry, secrets: Secrets) -> str | None:
    """Returns which of a service's own files differs from the deployment file's pins; None if none does."""
    if secrets.tls_certificate.decode() not in entry.tls_certificates:
        return "tls.crt"
    identity = Ed25519PrivateKey.from_private_bytes(secrets.identity_key).public_key().public_bytes_raw().hex()
    return None if identity in (entry.identity, entry.pending_identity) else "identity.key"


def _open_key(file: Path, storage_key: StorageKey) -> object:
    try:
        return serialization.load_pem_private_key(file.read_bytes(), storage_key.hex().encode())
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file} does not open with this storage key") from error
