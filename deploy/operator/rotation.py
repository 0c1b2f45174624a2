"""Changes the identity and TLS key of a service while the deployment runs, in two steps.

    rotate     new keys beside the old ones; the deployment file names them as pending
    activate   the service signs with the new keys and shows them; the old identity is retired, with the time

After each step all services and clients get the deployment file. Between the steps each may have the older or the newer
one: both trust the keys in use. A retired identity is believed in rounds that were made before it was retired, so that
their results stay readable. One that someone else may know is marked:

    mark_compromised   nothing that the last retired identity has signed is believed, results of its time included

Services notice new files by themselves (`deploy.node.reload`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from deploy.directory import read_deployment
from deploy.operator.keys import write_deployment, write_keys
from protocol.deployment import Deployment, RetiredIdentity, ServiceEntry
from runtime.service_directory import load_secrets

__all__ = ["activate", "mark_compromised", "rotate"]

_PENDING = "pending-"
_FILES = ("identity.key", "tls.key", "tls.crt")


def rotate(directory: Path, name: str) -> Deployment:
    """Makes pending keys for a service, in its own directory, and returns the deployment that names them.

    Raises:
        ValueError: no such service, or it has pending keys already.
    """
    deployment = read_deployment(directory)
    entry = deployment.service(name)
    if entry.pending_identity:
        raise ValueError(f"{name} has pending keys already; activate them first")
    for file in _FILES:  # left over from a rotation that never reached the deployment file
        (directory / name / f"{_PENDING}{file}").unlink(missing_ok=True)
    storage_key = load_secrets(directory / name).storage_key
    identity, certificate = write_keys(directory / name, name, storage_key, _PENDING, entry.hosts)
    return _put(directory, entry, pending_identity=identity, pending_tls_certificate=certificate)


def activate(directory: Path, name: str, now: datetime | None = None) -> Deployment:
    """Puts the pending keys of a service in the place of its old ones, and returns the new deployment.

    The old identity is retired: it is believed in rounds that were made before now.

    Raises:
        ValueError: no such service, or it has no pending keys.
    """
    entry = read_deployment(directory).service(name)
    if not entry.pending_identity or not entry.pending_tls_certificate:
        raise ValueError(f"{name} has no pending keys; rotate makes them")
    for file in _FILES:
        pending = directory / name / f"{_PENDING}{file}"
        if pending.exists():  # a crash half-way is made good by repeating the step
            pending.replace(directory / name / file)
    until = (now or datetime.now(UTC)).replace(microsecond=0)
    return _put(
        directory,
        entry,
        identity=entry.pending_identity,
        tls_certificate=entry.pending_tls_certificate,
        pending_identity=None,
        pending_tls_certificate=None,
        retired_identities=(*entry.retired_identities, RetiredIdentity(identity=entry.identity, valid_until=until)),
    )


def mark_compromised(directory: Path, name: str) -> Deployment:
    """Marks the identity that a service has retired last as compromised, and returns the new deployment.

    Raises:
        ValueError: no such service, or it has no retired identity.
    """
    entry = read_deployment(directory).service(name)
    if not entry.retired_identities:
        raise ValueError(f"{name} has no retired identity; rotate and activate new keys first")
    *before, last = entry.retired_identities
    marked = last.model_copy(update={"compromised": True})
    return _put(directory, entry, retired_identities=(*before, marked))


def _put(directory: Path, entry: ServiceEntry, **changes: object) -> Deployment:
    deployment = read_deployment(directory)
    changed = entry.model_copy(update=changes)
    services = tuple(changed if one.name == entry.name else one for one in deployment.services)
    deployment = deployment.model_copy(update={"services": services})
    write_deployment(directory, deployment)
    return deployment
