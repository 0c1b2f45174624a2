"""Organisations that do not trust each other: each makes its own keys, and together they make the deployment file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from croupier.deploy.page.participants import page_hash
from croupier.deploy.render.layout import Place, together
from croupier.deploy.render.settings import settings_of
from croupier.deploy.version_files import newest
from croupier.operator.keys import new_keys
from croupier.operator.public_file import PublicFile, public_file_path, read_public_file, write_public_file
from croupier.protocol.deployment import (
    OPERATOR,
    Deployment,
    OperatorEntry,
    RetiredIdentity,
    ServiceEntry,
    read_unchecked,
)
from croupier.protocol.versions import differences, following
from croupier.runtime.service_directory import SETTINGS_FILE

_ORDER = ("shuffler", "accountant", "analyzer")


def new_service(
    directory: Path,
    role: Literal["shuffler", "accountant", "analyzer"],
    hop: int,
    host: str,
    *,
    organisation: str = "",
    administrator: str = "",
    public_host: str = "",
    first_port: int = 7100,
    storage_key_file: Path | None = None,
) -> PublicFile:
    """Makes the keys and settings of one service on its machine, and returns the public part.

    Args:
        directory: of the deployment, on that machine.
        role: of the service.
        hop: the position of a shuffler in the chain, from 1.
        host: of the service, for peers and the operator.
        organisation: that runs it, as it names itself.
        administrator: the person or team with access to its machine.
        public_host: for clients, if that is another name.
        first_port: for peers; the next three are for clients, for health, and for metrics.
        storage_key_file: for the storage key, apart from its files; by default storage.key beside the keys.

    Raises:
        ValueError: a host or port is invalid, or there are keys already.
    """
    name = f"shuffler-{hop}" if role == "shuffler" else role
    place = Place(
        service=name,
        role=role,
        host=host,
        public_host=public_host or None,
        takes_clients=role != "shuffler" or hop == 1,
        first_port=first_port,
    )
    own = directory / name
    _check_no_keys(own)
    identity, certificate, _ = new_keys(own, name, place.hosts, storage_key_file)
    where = storage_key_file.resolve() if storage_key_file else "storage.key"
    settings = settings_of(place, "systemd").splitlines()[1:]
    (own / SETTINGS_FILE).write_text("\n".join([f'storage_key = "file:{where}"', *settings]) + "\n", encoding="utf-8")
    entry = ServiceEntry(
        name=name,
        role=role,
        address=place.address,
        public_address=place.public_address,
        identity=identity,
        tls_certificate=certificate,
        organisation=organisation,
        administrator=administrator,
    )
    return write_public_file(directory, PublicFile(service=entry))


def new_operator(directory: Path, who: OperatorEntry | None = None) -> PublicFile:
    """Makes the keys of the operator, and returns the public part.

    Args:
        directory: of the deployment, on the machine where rounds will be opened.
        who: runs it.

    Raises:
        ValueError: there are keys already.
    """
    own = directory / OPERATOR
    _check_no_keys(own)
    _, certificate, _ = new_keys(own, OPERATOR)
    return write_public_file(directory, PublicFile(operator_tls_certificate=certificate, operator=who))


def _check_no_keys(own: Path) -> None:
    if (own / "identity.key").exists():
        raise ValueError(f"{own} has keys already; 'croupier rotate' changes them")


def assemble(
    directory: Path,
    files: Sequence[Path],
    name: str = "",
    now: datetime | None = None,
    *,
    approvals: int | None = None,
) -> Deployment:
    """Returns the first or next version, from the owners' statements; nobody has signed it yet.

    It names the participants' page of this release, and the previous first page, because gateways are upgraded one
    after the other.

    Args:
        directory: of one organisation, with the installed version if there is one.
        files: public files of organisations, and changed copies of the installed version.
        name: of a new deployment.
        now: the time of a service's hand-over.
        approvals: the number of organisations that must approve the operator's actions; None: as before.

    Raises:
        ValueError: a file cannot be used, two files state different things about one name, or services are missing.
    """
    current = newest(directory)
    stated: dict[str, tuple[Path, Any]] = {}
    for file in files:
        for subject, value in _stated(file, current).items():
            before, other = stated.setdefault(subject, (file, value))
            if other != value:
                what = _difference(other, value)
                raise ValueError(f"{before} and {file} state different things about {subject}: {what}. Choose one")
    entries = {subject: value for subject, (_, value) in stated.items() if isinstance(value, ServiceEntry)}
    fields = {subject: value for subject, (_, value) in stated.items() if subject not in entries}
    if approvals is not None:
        fields["approvals"] = approvals
    if current is None:
        if not name:
            raise ValueError("name is missing; a new deployment needs --name")
        ordered = sorted(entries.values(), key=lambda entry: (_ORDER.index(entry.role), len(entry.name), entry.name))
        if "operator_tls_certificate" not in fields:
            raise ValueError(
                "operator.public.toml is missing; 'croupier org new --role operator' makes it where rounds are opened"
            )
        own = {"name": name, "services": ordered, "participant_pages": [page_hash()]}
        return Deployment.model_validate(own | fields)
    if unknown := set(entries) - set(current.chain):
        current.service(sorted(unknown)[0])  # raises an error that lists the services
    time = (now or datetime.now(UTC)).replace(microsecond=0)
    services = tuple(_next(service, entries.get(service.name, service), time) for service in current.services)
    pages = current.participant_pages
    if page_hash() not in pages:
        pages = (page_hash(), *pages[:1])
    changed = current.model_copy(update={"participant_pages": pages, **fields, "services": services})
    if not differences(current, changed):
        raise ValueError("the files state nothing new; there is nothing to sign")
    return Deployment.model_validate(following(current, changed).model_dump())


def shared(deployment: Deployment) -> list[str]:
    """Returns a sentence for every machine, organisation and administrator that two services or the operator share."""
    roles = {entry.name: entry.role for entry in deployment.services} | {OPERATOR: OPERATOR}
    operator = deployment.operator or OperatorEntry()
    machines = {entry.name: entry.hosts[0] for entry in deployment.services} | {OPERATOR: operator.host}
    parties = [(entry.name, entry) for entry in deployment.services] + [(OPERATOR, operator)]
    organisations = {name: party.organisation for name, party in parties}
    administrators = {name: party.administrator for name, party in parties}
    sentences = []
    for who, named in (
        ("its administrator", machines),
        ("it", organisations),
        ("this administrator", administrators),
    ):
        for shared_name in dict.fromkeys(filter(None, named.values())):
            those = {name: roles[name] for name, value in named.items() if value == shared_name}
            if len(those) > 1:
                sentences.append(together(those, shared_name, who))
    return sentences


def _stated(file: Path, current: Deployment | None) -> Mapping[str, Any]:
    """Returns a file's statements, by name of the service or field: of a copy of the deployment file, its changes."""
    if file.name.endswith(public_file_path(Path(), "").name):
        stated = read_public_file(file)
        if stated.service is not None:
            return {stated.owner: stated.service}
        return {"operator_tls_certificate": stated.operator_tls_certificate, "operator": stated.operator}
    if current is None:
        raise ValueError(f"{file} is not named NAME.public.toml; the first version is made of such files alone")
    copy = read_unchecked(file)
    if copy.chain != current.chain:
        raise ValueError(f"{file} has the services {', '.join(copy.chain)}; it must have {', '.join(current.chain)}")
    entries = {service.name: service for service in copy.services if service != current.service(service.name)}
    kept = {"services", "signatures", "version", "previous", "name"}
    fields = {field: value for field, value in copy if field not in kept and value != getattr(current, field)}
    return entries | fields


def _difference(first: Any, other: Any) -> str:
    if not isinstance(first, ServiceEntry) or not isinstance(other, ServiceEntry):
        return f"{first} and {other}"
    return ", ".join(
        field.replace("_", " ") for field in type(first).model_fields if getattr(first, field) != getattr(other, field)
    )


def _next(before: ServiceEntry, stated: ServiceEntry, now: datetime) -> ServiceEntry:
    """Returns the entry of a service: with all identities of its past, if it is handed to another organisation."""
    if stated.role != before.role:
        raise ValueError(f"{before.name} is stated as {stated.role}; it is {before.role}, and a role does not change")
    if stated.identity in before.live_identities or before.identity in {
        retired_identity.identity for retired_identity in stated.retired_identities
    }:
        return stated
    former = RetiredIdentity(identity=before.identity, valid_until=now)
    return stated.model_copy(update={"retired_identities": (*before.retired_identities, former)})
