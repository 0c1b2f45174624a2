"""Changes the identity and TLS key of a service while the deployment runs, in three steps.

    rotate     new keys beside the old ones; the deployment file names them as pending
    activate   the service signs with the new keys and shows them; the old identity is retired
    retire     the old identity is no longer trusted

After each step all services and clients get the deployment file. Between the steps each may have the older or the newer
one: both trust the keys in use. A key that may have leaked is not rotated but removed: activate, and retire at once.
Services notice new files by themselves (`deploy.node.reload`).
"""

from __future__ import annotations

from pathlib import Path

from deploy.directory import read_deployment
from deploy.operator.keys import write_deployment, write_keys
from protocol.deployment import Deployment, ServiceEntry
from runtime.service_directory import load_secrets

__all__ = ["activate", "retire", "rotate"]

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


def activate(directory: Path, name: str) -> Deployment:
    """Puts the pending keys of a service in the place of its old ones, and returns the new deployment.

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
    return _put(
        directory,
        entry,
        identity=entry.pending_identity,
        tls_certificate=entry.pending_tls_certificate,
        pending_identity=None,
        pending_tls_certificate=None,
        retired_identities=(*entry.retired_identities, entry.identity),
    )


def retire(directory: Path, name: str) -> Deployment:
    """Ends the trust in the old identities of a service, and returns the new deployment.

    Raises:
        ValueError: no such service, or it has no retired identities.
    """
    entry = read_deployment(directory).service(name)
    if not entry.retired_identities:
        raise ValueError(f"{name} has no retired identities")
    return _put(directory, entry, retired_identities=())


def _put(directory: Path, entry: ServiceEntry, **changes: object) -> Deployment:
    deployment = read_deployment(directory)
    changed = entry.model_copy(update=changes)
    services = tuple(changed if one.name == entry.name else one for one in deployment.services)
    deployment = deployment.model_copy(update={"services": services})
    write_deployment(directory, deployment)
    return deployment
