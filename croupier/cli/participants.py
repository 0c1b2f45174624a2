"""Commands about participants who answer in a browser: invite them, and keep the page that they answer on."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from croupier.cli.console import HERE, Argument, Directory, Json, lines_of, note, show
from croupier.deploy.directory import read_deployment
from croupier.deploy.page.participants import page_hash
from croupier.deploy.page.participants import participant_page as page
from croupier.operator.invitations import (
    People,
    invite_people,
    invited_people,
    num_answered,
    read_people,
    register_again,
    revoke_invitations,
    who_has_not_answered,
)
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import JsonObject
from croupier.show.text import counted


def invite(
    survey_id: Annotated[str, Argument("SURVEY", help="A survey that is open, or a study that was begun.")],
    /,
    *,
    people: Annotated[
        Path | None,
        Parameter(
            help="Whom to invite: a CSV or Excel file with a header, a label in its first column; its columns are kept."
        ),
    ] = None,
    count: Annotated[int, Parameter(help="Instead of --people: how many invitations, numbered.")] = 0,
    reissue: Annotated[
        list[str] | None,
        Parameter(
            metavar="LABEL",
            help="Instead of --people: the label of a person whose unused invitation is revoked, because its link was "
            "lost or seen, and who gets a new one; may be repeated.",
        ),
    ] = None,
    revoke: Annotated[
        list[str] | None,
        Parameter(
            metavar="LABEL",
            help="Instead: revoke the invitation of the person with this label, for good; answers that were given with "
            "it stay and are counted. May be repeated.",
        ),
    ] = None,
    restore: Annotated[
        bool,
        Parameter(
            help="Instead: register the invitations once more, after hop 1 or the accountant has lost its store."
        ),
    ] = False,
    status: Annotated[
        bool, Parameter(help="Instead: count the invitations, and how many have been used; no answer is shown.")
    ] = False,
    remind: Annotated[
        bool, Parameter(help="The same, and list the labels of those who have not answered; hop 1 is asked.")
    ] = False,
    out: Annotated[
        Path | None,
        Parameter(
            help="A new folder for links.csv, cards.html and the QR codes; default: SURVEY-invitations, of reissued "
            "ones SURVEY-reissued."
        ),
    ] = None,
    expires: Annotated[
        datetime | None, Parameter(help="The last moment for a first answer, UTC; default: the deadline.")
    ] = None,
    gateway: Annotated[str, Parameter(help="The gateway's address; default: the one in deployment.toml.")] = "",
    qr_codes: Annotated[bool, Parameter("--qr", negative="--no-qr", help="Draw QR codes and cards.")] = True,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    if sum(map(bool, (people, count, reissue, revoke, restore, status or remind))) != 1:
        raise ValueError(
            "give --people, a file, or --count, a number of people; or --reissue, --revoke, --restore, --status or "
            "--remind"
        )
    if status or remind:
        _show_status(directory, survey_id, remind, as_json)
        return
    if revoke:
        gone = asyncio.run(revoke_invitations(directory, survey_id, revoke))
        show(as_json, {"revoked": gone}, f"{counted(gone, 'invitation')} revoked")
        return
    if restore:
        good = asyncio.run(register_again(directory, survey_id))
        show(as_json, {"good": good}, f"{counted(good, 'invitation')} registered")
        return
    invited = _people(people) if people else People.labelled(reissue or map(str, range(1, count + 1)))
    folder = out or Path(f"{survey_id}-{'reissued' if reissue else 'invitations'}")
    how: JsonObject = {"reissue": bool(reissue), "gateway": gateway, "until": _unix(expires), "qr_codes": qr_codes}
    try:
        made = asyncio.run(invite_people(directory, survey_id, invited, folder, **how))
    except Refusal as refusal:
        if refusal.code is Code.NOT_APPROVED and folder.exists():
            note(f"the links are in {folder / 'links.csv'}; they are good once the proposal is approved and sent")
        raise
    cards = "; cards.html there is for printing" if qr_codes else ""
    show(
        as_json,
        {"invitations": made, "folder": str(folder)},
        f"{counted(made, 'invitation')} in {folder / 'links.csv'}; each link admits anyone who has it{cards}",
    )


def _people(file: Path) -> People:
    """Returns the people in a file, with a note on how it was read."""
    people = read_people(lines_of(file))
    note(
        f"the first row of {file} is its header: the columns {', '.join(people.columns)} are kept; the first of "
        f"{len(people.rows):,} people is {people.labels[0]!r}"
    )
    return people


def _show_status(directory: Path, survey_id: str, remind: bool, as_json: bool) -> None:
    listed = invited_people(directory, survey_id)
    if not listed:
        raise ValueError(f"nobody is invited to {survey_id!r} from {directory}; 'croupier invite {survey_id}' does")
    document: JsonObject = {
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


def _unix(when: datetime | None) -> int:
    """Returns Unix seconds of a time as the option gives it, in UTC; 0 for none."""
    return 0 if when is None else int(when.replace(tzinfo=when.tzinfo or UTC).timestamp())


def participant_page(
    file: Annotated[Path | None, Argument(help="Write the page into this new file.")] = None,
    /,
    *,
    directory: Annotated[
        Path | None,
        Parameter(
            "--dir", help="Also print this deployment's fingerprint, and whether it names the page.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    document: dict[str, object] = {"page_sha256": page_hash()}
    if directory is not None:
        deployment = read_deployment(directory)
        document["deployment_fingerprint"] = deployment.fingerprint.hex()
        document["signed_by_all"] = page_hash() in deployment.participant_pages
    if file is not None:
        with file.open("xb") as written:
            written.write(page())
    show(as_json, document, *(f"{name.replace('_', ' ')}: {value}" for name, value in document.items()))
