"""Changes the identity and TLS key of a service while the deployment runs, in two steps.

    rotate     new keys beside the old ones; the deployment file names them as pending
    activate   the service signs with the new keys and shows them; the old identity is retired, with the time

Each step is a new version of the deployment file, which every organisation signs (`operator.versions`); if all keys are
in one place, it is signed at once. Between the steps each service and client may have the older version or the newer
one: both trust the keys in use. A retired identity is accepted in rounds of its time, so that their results stay
readable. One that someone else may know is marked:

    mark_compromised   nothing signed by the last retired identity is accepted, results of its time included

Services notice new files by themselves (`deploy.node.reload`).

In a pod the deployment file and the keys are mounted read-only: only the cluster can replace them. There a step changes
neither. It keeps pending keys on the service's volume, and returns manifests with the new contents.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from croupier.deploy.directory import read_deployment
from croupier.deploy.render.kubernetes import rotated
from croupier.deploy.version_files import signed_text
from croupier.operator.keys import signed_here, write_keys
from croupier.operator.public_file import PublicFile, public_file_of, write_public_file
from croupier.operator.versions import propose
from croupier.protocol.deployment import Deployment, RetiredIdentity, ServiceEntry
from croupier.protocol.names import JsonObject
from croupier.protocol.versions import following
from croupier.runtime.service_directory import PENDING, load_secrets

_FILES = ("identity.key", "tls.key", "tls.crt")
_READ_ONLY = (errno.EROFS, errno.EBUSY)  # a mount point is busy


def rotate(directory: Path, name: str, *, host: str = "", in_pod: bool = False) -> Deployment:
    """Makes pending keys for a service, in its own directory, and returns the deployment that names them.

    Args:
        directory: of the deployment.
        name: of the service.
        host: that the service moves to, with the ports that it has; the pending certificate is made for it.
        in_pod: change no file but pending keys.

    Raises:
        ValueError: no such service, it has pending keys already, or the deployment file is mounted read-only.
    """
    deployment = read_deployment(directory)
    entry = deployment.service(name)
    if entry.pending_identity:
        raise ValueError(f"{name} has pending keys already; activate them first")
    stated = public_file_of(directory, name)
    if stated is not None and stated.pending_identity:
        raise ValueError(
            f"{name}.public.toml names pending keys already, which not all organisations have signed: have them sign "
            "the version with this file ('croupier proposal new' makes it)"
        )
    for file in _FILES:  # left over from a rotation that never reached the deployment file
        (directory / name / f"{PENDING}{file}").unlink(missing_ok=True)
    storage_key = load_secrets(directory / name).storage_key
    entry = _moved(entry, host) if host else entry
    identity, certificate = write_keys(directory / name, name, storage_key, PENDING, entry.hosts)
    return _put(directory, entry, in_pod, pending_identity=identity, pending_tls_certificate=certificate)


def activate(directory: Path, name: str, now: datetime | None = None, *, in_pod: bool = False) -> Deployment:
    """Replaces the keys of a service by its pending ones, and returns the new deployment.

    The old identity is retired: it is believed in rounds that were made before now.

    Raises:
        ValueError: no such service, it has no pending keys, or its files are mounted read-only.
    """
    entry = read_deployment(directory).service(name)
    if not entry.pending_identity or not entry.pending_tls_certificate:
        raise ValueError(f"{name} has no pending keys; rotate makes them")
    for file in _FILES:
        pending = directory / name / f"{PENDING}{file}"
        if pending.exists() and not in_pod:  # a crash half-way is made good by repeating the step
            with _mounts_named(directory / name / file):
                pending.replace(directory / name / file)
    until = (now or datetime.now(UTC)).replace(microsecond=0)
    return _put(
        directory,
        entry,
        in_pod,
        identity=entry.pending_identity,
        tls_certificate=entry.pending_tls_certificate,
        pending_identity=None,
        pending_tls_certificate=None,
        retired_identities=(*entry.retired_identities, RetiredIdentity(identity=entry.identity, valid_until=until)),
    )


def mark_compromised(directory: Path, name: str, *, in_pod: bool = False) -> Deployment:
    """Marks the identity that a service has retired last as compromised, and returns the new deployment.

    Raises:
        ValueError: no such service, it has no retired identity, or the deployment file is mounted read-only.
    """
    entry = read_deployment(directory).service(name)
    if not entry.retired_identities:
        raise ValueError(f"{name} has no retired identity; rotate and activate new keys first")
    *before, last = entry.retired_identities
    marked = last.model_copy(update={"compromised": True})
    return _put(directory, entry, in_pod, retired_identities=(*before, marked))


def manifests_of(directory: Path, name: str, deployment: Deployment) -> JsonObject:
    """Returns the manifests that bring a step, taken with `in_pod`, to the cluster.

    Raises:
        ValueError: the service's volume has no longer the pending keys that the deployment makes the active ones.
    """
    before = read_deployment(directory).service(name)
    keys = {}
    if before.pending_identity == deployment.service(name).identity:
        for file in _FILES:
            pending = directory / name / f"{PENDING}{file}"
            if not pending.exists():
                raise ValueError(f"{pending} is missing: it was on the service's volume; rotate makes new pending keys")
            keys[file] = pending.read_bytes()
    return rotated(name, signed_text(deployment), keys)


def _moved(entry: ServiceEntry, host: str) -> ServiceEntry:
    """Returns the entry with another host in its addresses."""
    places = {field: getattr(entry, field) for field in ("address", "public_address")}
    moved = {field: f"{host}:{place.rpartition(':')[2]}" for field, place in places.items() if place}
    return ServiceEntry.model_validate({**entry.model_dump(), **moved})


def _put(directory: Path, entry: ServiceEntry, in_pod: bool, **changes: object) -> Deployment:
    before = read_deployment(directory)
    changed = entry.model_copy(update=changes)
    services = tuple(changed if service.name == entry.name else service for service in before.services)
    deployment = following(before, before.model_copy(update={"services": services}))
    if in_pod:
        return signed_here(deployment, [directory], before)
    with _mounts_named(directory):
        if public_file_of(directory, entry.name) is not None:
            write_public_file(directory, PublicFile(service=changed))
        return propose(directory, deployment)


@contextmanager
def _mounts_named(path: Path) -> Iterator[None]:
    """Gives advice if a file is mounted read-only, as in a pod."""
    try:
        yield
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
        raise ValueError(
            f"{path} is mounted read-only, so the step is not taken; in a pod, --kubernetes prints the step as "
            "manifests for 'kubectl apply'"
        ) from error
