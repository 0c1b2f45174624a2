"""Commands of organisations that do not trust each other: own keys, and words to compare by telephone."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from croupier.cli.console import HERE, Argument, Directory, Json, note, show
from croupier.deploy.directory import read_deployment
from croupier.deploy.version_files import kept_versions
from croupier.operator.organisations import new_operator, new_service
from croupier.operator.public_file import public_file_path, read_public_file
from croupier.protocol.deployment import OperatorEntry
from croupier.protocol.versions import check_continues, differences
from croupier.protocol.words import fingerprint_words


@Parameter(name="*")
@dataclass(frozen=True)
class MachineOptions:
    """Where a service is reached."""

    host: Annotated[str, Parameter(help="This machine, as the other organisations reach it.")] = ""
    public_host: Annotated[str, Parameter(help="This machine, as clients reach it, if by another name.")] = ""
    port: Annotated[int, Parameter(help="The first of four ports, 1024..65532.")] = 7100


def new(
    *,
    role: Annotated[
        Literal["shuffler", "accountant", "analyzer", "operator"],
        Parameter(help="What this organisation runs; operator: who opens rounds."),
    ],
    directory: Directory = HERE,
    machine: MachineOptions = MachineOptions(),
    hop: Annotated[int, Parameter(help="The place of a shuffler in the chain, 1..32.")] = 1,
    organisation: Annotated[str, Parameter(help="The name of the organisation, for people.")] = "",
    administrator: Annotated[str, Parameter(help="Who has access to this machine, for people.")] = "",
    storage_key: Annotated[
        Path | None, Parameter(help="A new file for the storage key, on another disk than what it protects.")
    ] = None,
    as_json: Json = False,
) -> None:
    if role == "operator":
        who = OperatorEntry(organisation=organisation, administrator=administrator, host=machine.host)
        stated = new_operator(directory, who if who != OperatorEntry() else None)
    else:
        if not machine.host:
            raise ValueError("host is missing; give the name by which the others reach this machine, with --host")
        stated = new_service(
            directory,
            role,
            hop,
            machine.host,
            organisation=organisation,
            administrator=administrator,
            public_host=machine.public_host,
            first_port=machine.port,
            storage_key_file=storage_key,
        )
    file = public_file_path(directory, stated.owner)
    _show_public(file, as_json)
    if not as_json:
        note(f"croupier: give {file} to the other organisations; everything else stays on this machine")


def show_files(
    file: Annotated[
        Path | None, Argument(help="NAME.public.toml, as its owner has sent it; default: deployment.toml in --dir.")
    ] = None,
    /,
    *,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    if file is not None:
        _show_public(file, as_json)
        return
    newest = read_deployment(directory)
    entries, lines, before = [], [], None
    for version in kept_versions(directory):
        changed: list[str] = []
        objected: list[str] = []
        if before:
            check_continues(version, before)
            changed = differences(before, version)
            objected = version.not_signed_by(before)
        words = fingerprint_words(version.fingerprint)
        entries.append({"version": version.version, "words": words, "changed": changed, "objected": objected})
        lines.append(f"version {version.version}: {words}")
        lines += [f"    {line}" for line in changed]
        lines += [f"    without the agreement of {', '.join(objected)}"] if objected else []
        before = version
    words = fingerprint_words(newest.fingerprint)
    document = {"fingerprint": newest.fingerprint.hex(), "words": words, "versions": entries}
    said = f"version {newest.version} of {newest.name!r}, signed by all"
    show(as_json, document, "\n".join(lines), said, words, *([] if as_json else [_qr(words)]))


def _show_public(file: Path, as_json: bool) -> None:
    stated = read_public_file(file)
    words = fingerprint_words(stated.fingerprint)
    document = {"file": str(file), "owner": stated.owner, "fingerprint": stated.fingerprint.hex(), "words": words}
    show(as_json, document, f"{file}: {stated.owner}", words, *([] if as_json else [_qr(words)]))


def _qr(words: str) -> str:
    """Returns a QR code of the words for a terminal; nothing where the library is not installed."""
    try:
        import segno
    except ImportError:
        return "(a QR code needs segno: 'croupier[invitations]')"
    text = io.StringIO()
    segno.make_qr(words.upper(), error="l").terminal(text, compact=True)
    return text.getvalue()
