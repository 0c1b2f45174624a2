"""Commands about participants who answer in a browser: invite them, and keep the page that they answer on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from croupier.deploy.cli.console import HERE, OPERATE, TAKE_PART, Directory, Json, plain_errors, show, text_of

__all__ = ["add_commands"]


def add_commands(app: typer.Typer) -> None:
    """Adds the commands of this module to the command line."""
    app.command(rich_help_panel=OPERATE)(invite)
    app.command("participant-page", rich_help_panel=TAKE_PART)(participant_page)


def invite(
    file: Annotated[Path, typer.Argument(help="A new file for the links: LABEL,LINK on each line.")],
    directory: Directory = HERE,
    people: Annotated[
        typer.FileText | None, typer.Option(help="Whom to invite: a CSV file with a label in its first column.")
    ] = None,
    count: Annotated[int, typer.Option(help="Instead of --people: how many links, numbered.")] = 0,
    gateway: Annotated[str, typer.Option(help="Its address; default: the one in deployment.toml.")] = "",
    round_id: Annotated[str, typer.Option("--round", help="The round to open; default: the newest open one.")] = "",
    as_json: Json = False,
) -> None:
    """Make a link for each participant; it holds a key that is enrolled, so it admits whoever has it."""
    with plain_errors():
        import asyncio

        from croupier.deploy.operator.invitations import invite as make
        from croupier.deploy.operator.invitations import read_labels
        from croupier.show.tables import counted

        if (people is None) == (count == 0):
            raise ValueError("give --people, a file, or --count, a number of links")
        labels = read_labels(text_of(people)) if people else [str(number) for number in range(1, count + 1)]
        made = asyncio.run(make(directory, labels, file, gateway, round_id))
        show(
            as_json, {"invitations": made}, f"{counted(made, 'invitation')} in {file}; each link admits whoever has it"
        )


def participant_page(
    file: Annotated[Path | None, typer.Argument(help="Write the page into this new file.")] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Also print the fingerprint of this deployment.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the SHA-256 of the page on which participants answer, for publishing; and keep the page as a file."""
    with plain_errors():
        from croupier.deploy.directory import read_deployment
        from croupier.deploy.page.participants import fingerprint, page_hash
        from croupier.deploy.page.participants import participant_page as page

        document = {"page_sha256": page_hash()}
        if directory is not None:
            document["deployment_fingerprint"] = fingerprint(read_deployment(directory)).hex()
        if file is not None:
            with file.open("xb") as written:
                written.write(page())
    show(as_json, document, *(f"{name.replace('_', ' ')}: {value}" for name, value in document.items()))
