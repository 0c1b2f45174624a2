"""Commands of organisations that do not trust each other: own keys, and versions of the deployment that all sign."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, cast

from cyclopts import Parameter

from croupier.cli.console import HERE, NOT_NOW, Argument, Directory, ExitCode, Json, agrees, fail, note, show
from croupier.deploy.page.participants import page_hash
from croupier.deploy.version_files import deployment_text, kept_versions, last_signed, newest, write_deployment
from croupier.operator.organisations import Owner, new_operator, new_service, shared
from croupier.operator.organisations import assemble as assemble_them
from croupier.operator.public_file import entry_fingerprint, public_file_path, read_public_file
from croupier.operator.versions import PROPOSAL_FILE, Signing, handed_over, read_version
from croupier.operator.versions import sign as sign_it
from croupier.protocol.deployment import DEPLOYMENT_FILE, OPERATOR, Deployment, OperatorEntry, read_unchecked
from croupier.protocol.versions import check_continues, differences, without_consent
from croupier.protocol.words import fingerprint_words

AcceptLoss = Annotated[
    list[str] | None,
    Parameter(
        help="A service whose former holder has not agreed, because its keys are lost or it refuses. Nobody follows "
        "such a version by itself: everybody replaces the file by hand."
    ),
]


class Role(StrEnum):
    """What an organisation runs."""

    shuffler = "shuffler"
    accountant = "accountant"
    analyzer = "analyzer"
    operator = "operator"


@Parameter(name="*")
@dataclass(frozen=True)
class MachineOptions:
    """Where a service is reached."""

    host: Annotated[str, Parameter(help="This machine, as the other organisations reach it.")] = ""
    public_host: Annotated[str, Parameter(help="This machine, as clients reach it, if by another name.")] = ""
    port: Annotated[int, Parameter(help="The first of four ports, 1024..65532.")] = 7100


def new(
    *,
    role: Annotated[Role, Parameter(help="What this organisation runs; operator: who opens rounds.")],
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
    if role is Role.operator:
        who = OperatorEntry(organisation=organisation, administrator=administrator, host=machine.host)
        stated = new_operator(directory, who if who != OperatorEntry() else None)
    else:
        name = cast('Literal["shuffler", "accountant", "analyzer"]', role.value)
        if not machine.host:
            raise ValueError("host is missing; give the name by which the others reach this machine, with --host")
        stated = new_service(
            directory,
            name,
            hop,
            machine.host,
            Owner(organisation, administrator),
            public_host=machine.public_host,
            first_port=machine.port,
            storage_key_file=storage_key,
        )
    file = public_file_path(directory, stated.owner)
    _show_public(file, as_json)
    if not as_json:
        note(f"croupier: give {file} to the other organisations; everything else stays on this machine")


def show_file(
    file: Annotated[Path, Argument(help="NAME.public.toml, as its owner has sent it.")], /, *, as_json: Json = False
) -> None:
    _show_public(file, as_json)


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


def assemble(
    *files: Annotated[
        Path, Argument("FILE", help="NAME.public.toml of organisations; or edited copies of deployment.toml.")
    ],
    directory: Directory = HERE,
    name: Annotated[str, Parameter(help="The name of a new deployment.")] = "",
    approvals: Annotated[
        int | None,
        Parameter(help="How many organisations must sign what the operator opens, enrols and revokes; 0: none."),
    ] = None,
    as_json: Json = False,
) -> None:
    before = newest(directory)
    proposal = assemble_them(directory, [*files], name, approvals=approvals)
    directory.mkdir(parents=True, exist_ok=True)
    write_deployment(directory, proposal, PROPOSAL_FILE)
    file = directory / PROPOSAL_FILE
    lines = _described(proposal, differences(before, proposal) if before else [], before)
    show(as_json, _document(proposal), *lines, f"{file}: every organisation signs it with 'deployment sign'")


def sign(
    *files: Annotated[
        Path,
        Argument("FILE", help="Copies of the proposal, each with some signatures; default: proposal.toml in --dir."),
    ],
    directory: Directory = HERE,
    accept_loss: AcceptLoss = None,
    hand_over: Annotated[
        list[str] | None,
        Parameter(help="A service of yours, or 'operator', that the proposal gives to somebody else's keys."),
    ] = None,
    instead_of: Annotated[
        str, Parameter(help="The fingerprint, 16 digits or more, of another version with this number that you signed.")
    ] = "",
    yes: Annotated[bool, Parameter(help="Sign without asking.")] = False,
    printed: Annotated[
        bool, Parameter("--print", help="Print the signed file and keep nothing: for a pod, which cannot write --dir.")
    ] = False,
    as_json: Json = False,
) -> None:
    proposed = read_version(directory, [*files])
    asks = not (yes or proposed.agreed)
    if asks and (as_json or printed):
        raise ValueError("--json and --print need --yes, because a program cannot be asked")
    if not as_json and not printed:
        show(False, {}, *_described(proposed.deployment, proposed.changed, proposed.before))
    proposed.require(hand_over or [], instead_of)
    if asks and not agrees("Sign this?"):
        raise fail(ExitCode.SOMETHING_WRONG, "not signed")
    signing = sign_it(directory, proposed, accept_loss=accept_loss or [], keep=not printed)
    if printed:
        sys.stdout.write(deployment_text(signing.deployment))
    elif as_json:
        show(True, _document(signing.deployment, signing))
    else:
        note(f"croupier: {_outcome(directory, signing)}")


def _outcome(directory: Path, signing: Signing) -> str:
    if signing.missing:
        return f"not signed yet by {', '.join(signing.missing)}; send {directory / PROPOSAL_FILE} on"
    return f"all have signed version {signing.deployment.version}; it is in {directory / DEPLOYMENT_FILE}"


def diff(
    file: Annotated[Path | None, Argument(help="A file; default: proposal.toml in --dir.")] = None,
    newer: Annotated[Path | None, Argument(help="A newer file to compare FILE with.")] = None,
    /,
    *,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    after = read_unchecked(newer or file or directory / PROPOSAL_FILE)
    before = read_unchecked(file) if file and newer else last_signed(directory)
    if before is None:
        raise ValueError(f"{directory} has no installed version to compare with; give two files")
    changed = differences(before, after)
    show(as_json, {"changed": changed}, "\n".join(changed) or "nothing differs")


def log(*, directory: Directory = HERE, as_json: Json = False) -> None:
    versions = kept_versions(directory)
    if not versions:
        raise ValueError(f"{directory} has no version of a deployment")
    entries, lines, before = [], [], None
    for version in versions:
        changed: list[str] = differences(before, version) if before else []
        objected: list[str] = []
        if before:
            check_continues(version, before)
            objected = without_consent(version, before)
        words = fingerprint_words(version.fingerprint)
        entries.append({"version": version.version, "words": words, "changed": changed, "objected": objected})
        lines.append(f"version {version.version}: {words}")
        lines += [f"    {line}" for line in changed]
        lines += [f"    without the agreement of {', '.join(objected)}"] if objected else []
        before = version
    show(as_json, {"versions": entries}, "\n".join(lines))


def fingerprint(
    file: Annotated[Path | None, Argument(help="A file; default: deployment.toml in --dir.")] = None,
    /,
    *,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    version = read_unchecked(file or directory / DEPLOYMENT_FILE)
    missing = version.not_signed_by()
    said = f"version {version.version} of {version.name!r}, " + (
        f"not signed by {', '.join(missing)}" if missing else "signed by all"
    )
    words = fingerprint_words(version.fingerprint)
    show(as_json, _document(version), said, words, *([] if as_json else [_qr(words)]))
    if missing:
        raise SystemExit(NOT_NOW)


def _document(version: Deployment, signing: Signing | None = None) -> dict[str, object]:
    return {
        "version": version.version,
        "fingerprint": version.fingerprint.hex(),
        "words": fingerprint_words(version.fingerprint),
        "not_signed_by": signing.missing if signing else version.not_signed_by(),
        "shared": shared(version),
        "changed": signing.changed if signing else [],
    }


def _described(version: Deployment, changed: list[str], before: Deployment | None) -> list[str]:
    """Returns what an organisation looks at before it signs."""
    services = [
        f"{entry.name} at {entry.address}: {entry.organisation or 'no organisation named'}\n"
        f"    {fingerprint_words(entry_fingerprint(entry))}"
        for entry in version.services
    ]
    operator = version.operator.organisation if version.operator else ""
    services.append(f"operator: {operator or 'no organisation named'}")
    pages = [f"page for participants {page}: {_whose(page)}" for page in version.participant_pages]
    organisations = {entry.name: entry.organisation for entry in version.services} | {OPERATOR: operator}
    holders = [
        f"{name} is handed over to new keys, of {organisations[name] or 'no organisation named'}, whose words must be:"
        f"\n    {words}"
        for name, words in handed_over(version, before).items()
    ]
    parts = [f"version {version.version} of {version.name!r}", *services, *shared(version), *pages, *holders]
    return ["\n".join([*parts, *changed]), fingerprint_words(version.fingerprint)]


def _whose(page: str) -> str:
    return "the one of this installation" if page == page_hash() else "of another release than this installation"
