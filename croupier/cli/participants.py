"""Commands about participants who answer in a browser: invite them, and keep the page that they answer on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from croupier.cli.console import (
    ASK,
    HERE,
    TAKE_PART,
    Directory,
    Json,
    lines_of,
    note,
    plain_errors,
    show,
)
from croupier.protocol.names import RoundId

if TYPE_CHECKING:
    from croupier.operator.invitations import People
    from croupier.show.views.survey_documents import InvitationsView

Id = Annotated[str, typer.Argument(metavar="SURVEY", help="A survey that is open, or a study that was begun.")]
Labels = Annotated[list[str], typer.Argument(help="The labels of the people.")]
OutFolder = Annotated[
    Path | None,
    typer.Option(help="A new folder for links.csv, cards.html and the QR codes; default: SURVEY-invitations."),
]
Expires = Annotated[
    datetime | None, typer.Option(help="The last moment for a first answer, UTC; default: the deadline.")
]
GatewayOfLinks = Annotated[
    str, typer.Option("--gateway", help="The gateway's address; default: the one in deployment.toml.")
]
PeopleFile = Annotated[
    typer.FileText | None,
    typer.Option(
        help="Whom to invite: a CSV or Excel file with a header, a label in its first column; its columns are kept."
    ),
]
QrCodes = Annotated[bool, typer.Option("--qr/--no-qr", help="Draw QR codes and cards.")]


def add_commands(app: typer.Typer) -> None:
    """Adds the commands of this module to the command line."""
    group = typer.Typer(
        cls=_Invite, no_args_is_help=True, help="Invite people: 'croupier invite SURVEY' makes a link for each."
    )
    for name, command in (
        ("make", invite_make),
        ("status", invite_status),
        ("reissue", invite_reissue),
        ("revoke", invite_revoke),
        ("restore", invite_restore),
        ("rounds", invite_rounds),
    ):
        group.command(name)(command)
    app.add_typer(group, name="invite", rich_help_panel=ASK)
    app.command("participant-page", rich_help_panel=TAKE_PART)(participant_page)


class _Invite(TyperGroup):
    """`croupier invite SURVEY` is `croupier invite make SURVEY`."""

    unnamed = "make"

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the command that is meant."""
        return super().resolve_command(ctx, args if args[0] in self.commands else [self.unnamed, *args])


def invite_make(
    survey_id: Id,
    people: PeopleFile = None,
    count: Annotated[int, typer.Option(help="Instead of --people: how many invitations, numbered.")] = 0,
    out: OutFolder = None,
    expires: Expires = None,
    gateway: GatewayOfLinks = "",
    qr_codes: QrCodes = True,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Make a link with a secret for each person: it admits anyone who has it, once, to every question.

    The link of a study admits to all of its waves.
    """
    with plain_errors("invitations"):
        import asyncio

        from croupier.operator.invitations import invite_people

        invited = _people(people, count)
        folder = out or Path(f"{survey_id}-invitations")
        made = invite_people(
            directory, survey_id, invited, folder, gateway=gateway, until=_unix(expires), qr_codes=qr_codes
        )
        with _said_where(folder):
            _show_made(as_json, asyncio.run(made), folder, qr_codes)


def _people(file: typer.FileText | None, count: int) -> People:
    """Returns the people in a file, with a note on how it was read, or `count` people who are numbered."""
    from croupier.operator.invitations import People, read_people

    if (file is None) == (count == 0):
        raise ValueError("give --people, a file, or --count, a number of people")
    if file is None:
        return People.labelled(str(number + 1) for number in range(count))
    people = read_people(lines_of(file))
    note(
        f"the first row of {file.name} is its header: the columns {', '.join(people.columns)} are kept; the first of "
        f"{len(people.rows):,} people is {people.labels[0]!r}"
    )
    return people


def invite_reissue(
    survey_id: Id,
    labels: Labels,
    out: OutFolder = None,
    expires: Expires = None,
    gateway: GatewayOfLinks = "",
    qr_codes: QrCodes = True,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Revoke the invitations of people who have not answered, and make new ones, for links that were lost or seen."""
    with plain_errors("invitations"):
        import asyncio

        from croupier.operator.invitations import reissue

        folder = out or Path(f"{survey_id}-reissued")
        made = reissue(directory, survey_id, labels, folder, gateway=gateway, until=_unix(expires), qr_codes=qr_codes)
        with _said_where(folder):
            _show_made(as_json, asyncio.run(made), folder, qr_codes)


@contextmanager
def _said_where(folder: Path) -> Iterator[None]:
    """Says where the links are that organisations have to approve of."""
    from croupier.protocol.errors import Code, Refusal

    try:
        yield
    except Refusal as refusal:
        if refusal.code is Code.NOT_APPROVED and folder.exists():
            note(f"the links are in {folder / 'links.csv'}; they are good once the proposal is approved and sent")
        raise


def invite_revoke(survey_id: Id, labels: Labels, directory: Directory = HERE, as_json: Json = False) -> None:
    """Revoke invitations for good; what was answered with them stays and is counted."""
    with plain_errors():
        import asyncio

        from croupier.operator.invitations import revoke_invitations
        from croupier.show.certificate_tables import counted

        gone = asyncio.run(revoke_invitations(directory, survey_id, labels))
        show(as_json, {"revoked": gone}, f"{counted(gone, 'invitation')} revoked")


def invite_status(
    survey_id: Id,
    remind: Annotated[
        bool, typer.Option("--remind", help="Also list the labels of those who have not answered; hop 1 is asked.")
    ] = False,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Count the invitations, and how many have been used; what was answered nobody can say."""
    with plain_errors():
        import asyncio

        from croupier.operator.invitations import invited_people, num_answered, who_has_not_answered

        listed = invited_people(directory, survey_id)
        if not listed:
            raise ValueError(f"nobody is invited to {survey_id!r} from {directory}; 'croupier invite {survey_id}' does")
        document: InvitationsView = {
            "survey_id": survey_id,
            "made": len(listed),
            "good": sum(person.is_good for person in listed),
            "revoked": sum(bool(person.revoked_at) for person in listed),
            "answered": asyncio.run(num_answered(directory, survey_id)),
        }
        lines = [
            "{made:,} invitations made, {good:,} of them good, {revoked:,} revoked; at least one question "
            "was answered with {answered:,} of them".format(**document)
        ]
        if remind:
            document["remind"] = asyncio.run(who_has_not_answered(directory, survey_id))
            lines += document["remind"]
        show(as_json, document, *lines)


def invite_restore(survey_id: Id, directory: Directory = HERE, as_json: Json = False) -> None:
    """Register the invitations once more, after hop 1 or the accountant has lost its store."""
    with plain_errors():
        import asyncio

        from croupier.operator.invitations import register_again
        from croupier.show.certificate_tables import counted

        good = asyncio.run(register_again(directory, survey_id))
        show(as_json, {"good": good}, f"{counted(good, 'invitation')} registered")


def _show_made(as_json: bool, made: int, folder: Path, qr_codes: bool) -> None:
    from croupier.show.certificate_tables import counted

    cards = "; cards.html there is for printing" if qr_codes else ""
    show(
        as_json,
        {"invitations": made, "folder": str(folder)},
        f"{counted(made, 'invitation')} in {folder / 'links.csv'}; each link admits anyone who has it{cards}",
    )


def _unix(when: datetime | None) -> int:
    """Returns Unix seconds of a time as the option gives it, in UTC; 0 for none."""
    return 0 if when is None else int(when.replace(tzinfo=UTC).timestamp())


def invite_rounds(
    file: Annotated[Path, typer.Argument(help="A new file for the links: the columns of the people, and the link.")],
    directory: Directory = HERE,
    people: PeopleFile = None,
    count: Annotated[int, typer.Option(help="Instead of --people: how many links, numbered.")] = 0,
    gateway: GatewayOfLinks = "",
    round_id: Annotated[str, typer.Option("--round", help="The round to open; default: the newest open one.")] = "",
    as_json: Json = False,
) -> None:
    """Make links for rounds that are not of a survey: each holds a key that is enrolled, and admits to every round."""
    with plain_errors():
        import asyncio

        from croupier.operator.invitations import invite as make
        from croupier.show.certificate_tables import counted

        made = asyncio.run(make(directory, _people(people, count), file, gateway, RoundId(round_id)))
        show(
            as_json,
            {"invitations": made},
            f"{counted(made, 'invitation')} in {file}; each link admits anyone who has it",
        )


def participant_page(
    file: Annotated[Path | None, typer.Argument(help="Write the page into this new file.")] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", help="Also print this deployment's fingerprint, and whether it names the page.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the SHA-256 of the page on which participants answer; keep the page as a file; say whether it is signed."""
    with plain_errors():
        from croupier.deploy.directory import read_deployment
        from croupier.deploy.page.participants import page_hash
        from croupier.deploy.page.participants import participant_page as page

        document: dict[str, object] = {"page_sha256": page_hash()}
        if directory is not None:
            deployment = read_deployment(directory)
            document["deployment_fingerprint"] = deployment.fingerprint.hex()
            document["signed_by_all"] = page_hash() in deployment.participant_pages
        if file is not None:
            with file.open("xb") as written:
                written.write(page())
    show(as_json, document, *(f"{name.replace('_', ' ')}: {value}" for name, value in document.items()))
