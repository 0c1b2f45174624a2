"""Commands of organisations that decide together: look at a proposal, approve of it, and have it carried out."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from croupier.cli.console import HERE, NOT_NOW, Argument, Directory, ExitCode, Json, agrees, fail, note, show
from croupier.deploy.directory import read_deployment
from croupier.operator.carry_out import carry_out, described_actions
from croupier.operator.proposals import ProposalFile, approve, read_copies, read_proposal, write_proposal
from croupier.protocol.approvals import expiry_objection
from croupier.protocol.deployment import Deployment
from croupier.show.documents import terms_json
from croupier.show.round_text import proposed_text

File = Annotated[Path, Argument(help="The proposal, as the operator has sent it.")]


def proposal_show(file: File, /, *, directory: Directory = HERE, as_json: Json = False) -> None:
    _show(read_proposal(file), read_deployment(directory), as_json)


def proposal_approve(
    file: File,
    /,
    *,
    directory: Directory = HERE,
    yes: Annotated[bool, Parameter(help="Sign without asking.")] = False,
    as_json: Json = False,
) -> None:
    deployment, proposal = read_deployment(directory), read_proposal(file)
    if as_json and not yes:
        raise ValueError("--json needs --yes, because a program cannot be asked")
    described_actions(proposal, deployment)  # what this version does not understand is not signed
    if not yes:
        _show(proposal, deployment, as_json)
        if not agrees("Sign this?"):
            raise fail(ExitCode.SOMETHING_WRONG, "not signed")
    signed = approve(directory, proposal, deployment)
    write_proposal(file, signed)
    if yes:
        _show(signed, deployment, as_json)
    if not as_json:
        note(f"croupier: {file} has your signature; send it back to the operator")


def proposal_merge(
    file: File,
    /,
    *copies: Annotated[Path, Argument("COPY", required=True, help="Copies of it that organisations have signed.")],
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    deployment, merged = read_deployment(directory), read_copies([file, *copies])
    write_proposal(file, merged)
    _show(merged, deployment, as_json)


def proposal_send(file: File, /, *, directory: Directory = HERE, as_json: Json = False) -> None:
    deployment, proposal = read_deployment(directory), read_proposal(file)
    approved_by = proposal.approved_by(deployment)
    if objection := expiry_objection(proposal.expires_unix_s, time.time()):
        raise ValueError(f"{file} cannot be carried out: {objection}")
    if len(approved_by) < deployment.approvals:
        have = ", ".join(approved_by) or "none"
        raise fail(
            NOT_NOW, f"{len(approved_by)} of {deployment.approvals} organisations have approved of {file} ({have})"
        )
    done = asyncio.run(carry_out(directory, file))
    show(as_json, {"done": done, "approved_by": approved_by}, "\n".join(done))


def _show(proposal: ProposalFile, deployment: Deployment, as_json: bool) -> None:
    approved_by = proposal.approved_by(deployment)
    actions = described_actions(proposal, deployment)
    have = ", ".join(approved_by) or "none"
    expires = proposal.expires_unix_s
    until = f"{datetime.fromtimestamp(expires, UTC):%Y-%m-%d %H:%M} UTC"
    state = f"approved by {len(approved_by)} of {deployment.approvals} organisations: {have}; expires {until}"
    document = {
        "actions": [action.document for action in actions],
        "approved_by": approved_by,
        "expires_unix_s": expires,
    }
    texts: list[str | Text] = []
    for action in actions:
        texts += [action.line, *([] if as_json else action.details)]
        if action.terms is not None and not as_json:
            texts.append(proposed_text(terms_json(action.terms), time.time()))
    show(as_json, document, *texts, state)
