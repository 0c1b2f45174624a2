"""Commands of organisations that decide together: a version of the deployment, or what the operator wants to do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from croupier.cli.console import HERE, NOT_NOW, Argument, Directory, ExitCode, Json, agrees, fail, note, show
from croupier.deploy.directory import read_deployment
from croupier.deploy.version_files import signed_text, write_deployment
from croupier.operator.carry_out import actions_proposal
from croupier.operator.organisations import assemble
from croupier.operator.proposals import PROPOSAL_FILE, Actions, Proposal, read_copies
from croupier.operator.versions import version_proposal

Files = Annotated[
    Path, Argument("FILE", help="Copies of the proposal, each with some signatures; default: proposal.toml in --dir.")
]
AcceptLoss = Annotated[
    list[str] | None,
    Parameter(
        help="A service whose former holder has not agreed, because its keys are lost or it refuses. Nobody follows "
        "such a version by itself: everybody replaces the file by hand."
    ),
]


def proposal_new(
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
    version = assemble(directory, [*files], name, approvals=approvals)
    directory.mkdir(parents=True, exist_ok=True)
    write_deployment(directory, version, PROPOSAL_FILE)
    _show(_read(directory, []), as_json)
    if not as_json:
        note(f"croupier: every organisation signs {directory / PROPOSAL_FILE} with 'proposal sign'")


def proposal_show(*files: Files, directory: Directory = HERE, as_json: Json = False) -> None:
    _show(_read(directory, files), as_json)


def proposal_sign(
    *files: Files,
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
    proposal = _read(directory, files, accept_loss)
    asks = not (yes or proposal.agreed)
    if asks and (as_json or printed):
        raise ValueError("--json and --print need --yes, because a program cannot be asked")
    if not as_json and not printed:
        _show(proposal, False)
    proposal.check(hand_over or [], instead_of)
    if asks and not agrees("Sign this?"):
        raise fail(ExitCode.SOMETHING_WRONG, "not signed")
    signed = proposal.sign()
    if printed:
        sys.stdout.write(signed_text(signed.file))
        return
    said = signed.keep()
    if as_json:
        _show(signed, True)
    else:
        note(f"croupier: {said}")


def proposal_send(
    *files: Files, directory: Directory = HERE, accept_loss: AcceptLoss = None, as_json: Json = False
) -> None:
    proposal = _read(directory, files, accept_loss)
    proposal.check()
    document, texts = proposal.shown()
    if proposal.missing:
        raise fail(NOT_NOW, f"{proposal.place} lacks signatures: {texts[-1]}")
    done = proposal.carry_out()
    show(as_json, document | {"done": done}, "\n".join(done))


def _read(directory: Path, files: Sequence[Path], accept_loss: Sequence[str] | None = None) -> Proposal:
    files = files or [directory / PROPOSAL_FILE]
    file = read_copies(files)
    if isinstance(file, Actions):
        return actions_proposal(directory, file, read_deployment(directory), files[0])
    return version_proposal(directory, file, accept_loss or [])


def _show(proposal: Proposal, as_json: bool) -> None:
    document, texts = proposal.shown()
    show(as_json, document, *texts)
