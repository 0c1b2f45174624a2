"""Commands of organisations that decide together: look at a proposal, approve of it, and have it carried out."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from croupier.cli.console import (
    HERE,
    NOT_NOW,
    SET_UP,
    Directory,
    Json,
    fail,
    note,
    plain_errors,
    show,
)

if TYPE_CHECKING:
    from rich.text import Text

    from croupier.operator.proposals import ProposalFile
    from croupier.protocol.deployment import Deployment

File = Annotated[Path, typer.Argument(help="The proposal, as the operator has sent it.")]


def add_commands(app: typer.Typer) -> None:
    """Adds the group `proposal` to the command line."""
    group = typer.Typer(
        no_args_is_help=True, help="Approve of what the operator wants to do, where a deployment asks for that."
    )
    for name, command in (
        ("show", proposal_show),
        ("approve", proposal_approve),
        ("merge", proposal_merge),
        ("send", proposal_send),
    ):
        group.command(name)(command)
    app.add_typer(group, name="proposal", rich_help_panel=SET_UP)


def proposal_show(file: File, directory: Directory = HERE, as_json: Json = False) -> None:
    """Show what a proposal would do, and which organisations have approved of it."""
    with plain_errors():
        from croupier.deploy.directory import read_deployment
        from croupier.operator.proposals import read_proposal

        _show(read_proposal(file), read_deployment(directory), as_json)


def proposal_approve(
    file: File,
    directory: Directory = HERE,
    yes: Annotated[bool, typer.Option("--yes", help="Sign without asking.")] = False,
    as_json: Json = False,
) -> None:
    """Show a proposal, and sign it with the keys of the services that are here; the file then goes back."""
    with plain_errors():
        from croupier.deploy.directory import read_deployment
        from croupier.operator.carry_out import described_actions
        from croupier.operator.proposals import approve, read_proposal, write_proposal

        deployment, proposal = read_deployment(directory), read_proposal(file)
        if as_json and not yes:
            raise ValueError("--json needs --yes, because a program cannot be asked")
        described_actions(proposal, deployment)  # what this version does not understand is not signed
        if not yes:
            _show(proposal, deployment, as_json)
            typer.confirm("Sign this?", abort=True, err=True)
        signed = approve(directory, proposal, deployment)
        write_proposal(file, signed)
        if yes:
            _show(signed, deployment, as_json)
        if not as_json:
            note(f"croupier: {file} has your signature; send it back to the operator")


def proposal_merge(
    file: File,
    copies: Annotated[list[Path], typer.Argument(help="Copies of it that organisations have signed.")],
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Write the signatures of all copies into the first file."""
    with plain_errors():
        from croupier.deploy.directory import read_deployment
        from croupier.operator.proposals import read_copies, write_proposal

        deployment, merged = read_deployment(directory), read_copies([file, *copies])
        write_proposal(file, merged)
        _show(merged, deployment, as_json)


def proposal_send(file: File, directory: Directory = HERE, as_json: Json = False) -> None:
    """Carry out a proposal that enough organisations have signed. The same command again is harmless."""
    with plain_errors():
        import asyncio

        from croupier.deploy.directory import read_deployment
        from croupier.operator.carry_out import carry_out
        from croupier.operator.proposals import read_proposal
        from croupier.protocol.approvals import expiry_objection

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
    from croupier.operator.carry_out import described_actions

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
            from croupier.show.documents import terms_json
            from croupier.show.round_text import proposed_text

            texts.append(proposed_text(terms_json(action.terms), time.time()))
    show(as_json, document, *texts, state)
