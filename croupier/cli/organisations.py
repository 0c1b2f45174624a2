"""Commands of organisations that do not trust each other: own keys, and versions of the deployment that all sign."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from croupier.cli.console import (
    HERE,
    NOT_NOW,
    SET_UP,
    Directory,
    Json,
    note,
    plain_errors,
    show,
)
from croupier.cli.option_groups import with_option_groups

if TYPE_CHECKING:
    from croupier.operator.versions import Signing
    from croupier.protocol.deployment import Deployment

AcceptLoss = Annotated[
    list[str] | None,
    typer.Option(
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


def add_commands(app: typer.Typer) -> None:
    """Adds the commands of this module to the command line."""
    org = typer.Typer(no_args_is_help=True, help="Make the keys of one organisation, on its own machine.")
    org.command("new")(new)
    org.command("show")(show_file)
    app.add_typer(org, name="org", rich_help_panel=SET_UP)
    deployment = typer.Typer(no_args_is_help=True, help="Make, check, sign and compare versions of a deployment.")
    for command in (assemble, sign, diff, log, fingerprint):
        deployment.command(command.__name__)(command)
    app.add_typer(deployment, name="deployment", rich_help_panel=SET_UP)


@dataclass(frozen=True)
class MachineOptions:
    """Where a service is reached."""

    host: Annotated[str, typer.Option(help="This machine, as the other organisations reach it.")] = ""
    public_host: Annotated[str, typer.Option(help="This machine, as clients reach it, if by another name.")] = ""
    port: Annotated[int, typer.Option(help="The first of four ports, 1024..65532.")] = 7100


@with_option_groups
def new(
    role: Annotated[Role, typer.Option(help="What this organisation runs; operator: who opens rounds.")],
    directory: Directory = HERE,
    *,
    machine: MachineOptions,
    hop: Annotated[int, typer.Option(help="The place of a shuffler in the chain, 1..32.")] = 1,
    organisation: Annotated[str, typer.Option(help="The name of the organisation, for people.")] = "",
    administrator: Annotated[str, typer.Option(help="Who has access to this machine, for people.")] = "",
    storage_key: Annotated[
        Path | None, typer.Option(help="A new file for the storage key, on another disk than what it protects.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make the keys and settings of one service, and a public file for the other organisations."""
    with plain_errors():
        from croupier.operator.organisations import Owner, new_operator, new_service
        from croupier.operator.public_file import public_file_path
        from croupier.protocol.deployment import OperatorEntry

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
    file: Annotated[Path, typer.Argument(help="NAME.public.toml, as its owner has sent it.")], as_json: Json = False
) -> None:
    """Check a public file, and show its fingerprint as words and as a QR code, to compare by telephone."""
    with plain_errors():
        _show_public(file, as_json)


def _show_public(file: Path, as_json: bool) -> None:
    from croupier.operator.public_file import read_public_file
    from croupier.protocol.words import fingerprint_words

    stated = read_public_file(file)
    words = fingerprint_words(stated.fingerprint)
    document = {"file": str(file), "owner": stated.owner, "fingerprint": stated.fingerprint.hex(), "words": words}
    show(as_json, document, f"{file}: {stated.owner}", words, *([] if as_json else [_qr(words)]))


def _qr(words: str) -> str:
    """Returns a QR code of the words for a terminal; nothing where the library is not installed."""
    import io

    try:
        import segno
    except ImportError:
        return "(a QR code needs segno: 'croupier[invitations]')"
    text = io.StringIO()
    segno.make_qr(words.upper(), error="l").terminal(text, compact=True)
    return text.getvalue()


def assemble(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="NAME.public.toml of organisations; or edited copies of deployment.toml."),
    ] = None,
    directory: Directory = HERE,
    name: Annotated[str, typer.Option(help="The name of a new deployment.")] = "",
    approvals: Annotated[
        int | None,
        typer.Option(help="How many organisations must sign what the operator opens, enrols and revokes; 0: none."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make the next version from what the owners state; changes by several owners are merged by name."""
    with plain_errors():
        from croupier.deploy.version_files import newest, write_deployment
        from croupier.operator.organisations import assemble as assemble_them
        from croupier.operator.versions import PROPOSAL_FILE
        from croupier.protocol.versions import differences

        before = newest(directory)
        proposal = assemble_them(directory, files or [], name, approvals=approvals)
        directory.mkdir(parents=True, exist_ok=True)
        write_deployment(directory, proposal, PROPOSAL_FILE)
        file = directory / PROPOSAL_FILE
        lines = _described(proposal, differences(before, proposal) if before else [], before)
        show(as_json, _document(proposal), *lines, f"{file}: every organisation signs it with 'deployment sign'")


def sign(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Copies of the proposal, each with some signatures; default: proposal.toml in --dir."),
    ] = None,
    directory: Directory = HERE,
    accept_loss: AcceptLoss = None,
    hand_over: Annotated[
        list[str] | None,
        typer.Option(help="A service of yours, or 'operator', that the proposal gives to somebody else's keys."),
    ] = None,
    instead_of: Annotated[
        str,
        typer.Option(help="The fingerprint, 16 digits or more, of another version with this number that you signed."),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Sign without asking.")] = False,
    printed: Annotated[
        bool,
        typer.Option("--print", help="Print the signed file and keep nothing: for a pod, which cannot write --dir."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a proposal, ask, and sign it with the keys that are here; the last signature makes it the deployment."""
    with plain_errors():
        from croupier.deploy.version_files import deployment_text
        from croupier.operator.versions import read_version
        from croupier.operator.versions import sign as sign_it

        proposed = read_version(directory, files or [])
        asks = not (yes or proposed.agreed)
        if asks and (as_json or printed):
            raise ValueError("--json and --print need --yes, because a program cannot be asked")
        if not as_json and not printed:
            show(False, {}, *_described(proposed.deployment, proposed.changed, proposed.before))
        proposed.require(hand_over or [], instead_of)
        if asks:
            typer.confirm("Sign this?", abort=True, err=True)
        signing = sign_it(directory, proposed, accept_loss=accept_loss or [], keep=not printed)
        if printed:
            typer.echo(deployment_text(signing.deployment), nl=False)
        elif as_json:
            show(True, _document(signing.deployment, signing))
        else:
            note(f"croupier: {_outcome(directory, signing)}")


def _outcome(directory: Path, signing: Signing) -> str:
    from croupier.operator.versions import PROPOSAL_FILE
    from croupier.protocol.deployment import DEPLOYMENT_FILE

    if signing.missing:
        return f"not signed yet by {', '.join(signing.missing)}; send {directory / PROPOSAL_FILE} on"
    return f"all have signed version {signing.deployment.version}; it is in {directory / DEPLOYMENT_FILE}"


def diff(
    file: Annotated[Path | None, typer.Argument(help="A file; default: proposal.toml in --dir.")] = None,
    newer: Annotated[Path | None, typer.Argument(help="A newer file to compare FILE with.")] = None,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Show what differs between the installed version and a file, or between two files."""
    with plain_errors():
        from croupier.deploy.version_files import last_signed
        from croupier.operator.versions import PROPOSAL_FILE
        from croupier.protocol.deployment import read_unchecked
        from croupier.protocol.versions import differences

        after = read_unchecked(newer or file or directory / PROPOSAL_FILE)
        before = read_unchecked(file) if file and newer else last_signed(directory)
        if before is None:
            raise ValueError(f"{directory} has no installed version to compare with; give two files")
        changed = differences(before, after)
        show(as_json, {"changed": changed}, "\n".join(changed) or "nothing differs")


def log(directory: Directory = HERE, as_json: Json = False) -> None:
    """Show all versions, what each changed, and whether it continues the one before with everybody's consent."""
    with plain_errors():
        from croupier.deploy.version_files import kept_versions
        from croupier.protocol.versions import check_continues, differences, without_consent
        from croupier.protocol.words import fingerprint_words

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
    file: Annotated[Path | None, typer.Argument(help="A file; default: deployment.toml in --dir.")] = None,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Show the fingerprint of a version as twelve words and as a QR code, and who has signed it."""
    with plain_errors():
        from croupier.protocol.deployment import DEPLOYMENT_FILE, read_unchecked
        from croupier.protocol.words import fingerprint_words

        version = read_unchecked(file or directory / DEPLOYMENT_FILE)
        missing = version.not_signed_by()
        said = f"version {version.version} of {version.name!r}, " + (
            f"not signed by {', '.join(missing)}" if missing else "signed by all"
        )
        words = fingerprint_words(version.fingerprint)
        show(as_json, _document(version), said, words, *([] if as_json else [_qr(words)]))
    if missing:
        raise typer.Exit(NOT_NOW)


def _document(version: Deployment, signing: Signing | None = None) -> dict[str, object]:
    from croupier.operator.organisations import shared
    from croupier.protocol.words import fingerprint_words

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
    from croupier.operator.organisations import shared
    from croupier.operator.public_file import entry_fingerprint
    from croupier.operator.versions import handed_over
    from croupier.protocol.deployment import OPERATOR
    from croupier.protocol.words import fingerprint_words

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
    from croupier.deploy.page.participants import page_hash

    return "the one of this installation" if page == page_hash() else "of another release than this installation"
