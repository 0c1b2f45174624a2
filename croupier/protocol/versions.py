"""Which version of a deployment file follows another one, and what differs between two versions.

A holder of one version follows the next by itself only if every service of its own version has signed that one: as long
as one organisation is honest, nobody is led to a deployment that this organisation has not agreed to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256

from pydantic import BaseModel

from croupier.protocol.deployment import Deployment, ServiceEntry


def check_continues(newer: Deployment, older: Deployment) -> None:
    """Checks that a version continues another one; signatures are not checked.

    Raises:
        ValueError: it is not the next version, it adds, removes or renames a service, it forgets an identity, or it
            retires one that the service did not have.
    """
    if (newer.name, newer.version, newer.previous) != (older.name, older.version + 1, older.fingerprint.hex()):
        raise ValueError(
            f"version {newer.version} of {newer.name!r} does not continue version {older.version} of {older.name!r}: "
            "it was made from another version; assemble it again from the newest one"
        )
    if newer.chain != older.chain:
        raise ValueError(
            f"the services are {', '.join(newer.chain)}, and were {', '.join(older.chain)}: earlier rounds name them, "
            "so a service can be handed over, but not added, removed or renamed; make a new deployment for another "
            "chain"
        )
    for before in older.services:
        _check_identities(newer.service(before.name), before)


def _check_identities(entry: ServiceEntry, before: ServiceEntry) -> None:
    retired = {retired_identity.identity: retired_identity for retired_identity in entry.retired_identities}
    if before.identity not in (*entry.live_identities, *retired):
        raise ValueError(
            f"the identity {before.identity[:8]}… of {entry.name} is gone: rounds of its time are signed with it, so "
            "it has to stay among the retired ones"
        )
    known = {key.hex() for key in before.identities}
    if foreign := [identity for identity in retired if identity not in known]:
        raise ValueError(
            f"the retired identity {foreign[0][:8]}… of {entry.name} was not an identity of it in the version before: "
            "the holder of its key could sign for the service"
        )
    for retired_identity in before.retired_identities:
        kept = retired.get(retired_identity.identity)
        if (
            kept is None
            or kept.valid_until != retired_identity.valid_until
            or (retired_identity.compromised and not kept.compromised)
        ):
            raise ValueError(
                f"the retired identity {retired_identity.identity[:8]}… of {entry.name} is gone or is believed "
                "for longer: what has been retired stays as it is"
            )


def following(before: Deployment, changed: Deployment) -> Deployment:
    """Returns a changed deployment as the version that follows another one; nobody has signed it."""
    update = {"version": before.version + 1, "previous": before.fingerprint.hex(), "signatures": ()}
    return changed.model_copy(update=update)


def another_with_this_number(number: int, fingerprint: bytes, deployment: Deployment) -> bool:
    """Returns whether a service goes by another version with the number of the one in hand.

    Where one organisation has signed two, each complete, a participant could be led to one and services to the other.
    """
    return number == deployment.version and fingerprint != deployment.fingerprint


def follow(older: Deployment, newer: Iterable[Deployment]) -> Deployment:
    """Returns the newest version to which all services have agreed, one after the other; the older one if none is.

    Raises:
        ValueError: a version does not continue the one before, or lacks a signature.
    """
    current = older
    for version in newer:
        check_continues(version, current)
        if missing := version.not_signed_by(current):
            raise ValueError(
                f"version {version.version} of {version.name!r} lacks the signature of {', '.join(missing)}; nobody "
                "follows it by itself. If it is right, its fingerprint is confirmed by the other organisations, and "
                "the file is replaced by hand"
            )
        current = version
    return current


def differences(older: Deployment, newer: Deployment) -> list[str]:
    """Returns a line for every field that differs, keys and certificates by the beginning of their hashes."""
    lines = list(_fields("", older, newer, {"signatures", "services", "version", "previous"}))
    before = {entry.name: entry for entry in older.services}
    for entry in newer.services:
        if entry.name in before:
            lines += _fields(f"{entry.name}: ", before[entry.name], entry, set())
        else:
            lines.append(f"{entry.name}: new")
    return lines + [f"{name}: removed" for name in before if name not in {entry.name for entry in newer.services}]


def _fields(prefix: str, older: BaseModel, newer: BaseModel, without: set[str]) -> Iterator[str]:
    for field in type(older).model_fields:
        before, after = getattr(older, field), getattr(newer, field)
        if field not in without and before != after:
            yield f"{prefix}{field.replace('_', ' ')}: {_shown(before)} → {_shown(after)}"


def _shown(value: object) -> str:
    if value is None or value == () or value == "":
        return "nothing"
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value))
    if isinstance(value, BaseModel):
        return "(" + ", ".join(f"{name} {_shown(field)}" for name, field in value if field is not None) + ")"
    text = str(value)
    if text.startswith("-----BEGIN"):
        return f"certificate {sha256(text.encode()).hexdigest()[:16]}…"
    return f"{text[:16]}…" if len(text) == 64 else text
