"""Invitations: links that admit participants through a gateway.

A link to a survey, with all its waves, holds a secret from which the person's key follows; it may expire, and can be
replaced or revoked. Services get public halves only, so a gateway cannot answer for a participant. A person who has
made or seen a link can, and the page says so.

`operator/surveys/NAME/invitations.csv` lists the people whom a survey has invited: public key, label, times. No secret
is kept.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from croupier.deploy.directory import read_deployment
from croupier.deploy.page.participants import PAGE_PATH
from croupier.net.transport import TLS, Transport
from croupier.operator.invitation_cards import LINK_COLUMNS, check_qr_codes, write_links
from croupier.operator.keys import alone, replace_secret
from croupier.operator.opened_surveys import (
    kept_rounds,
    kept_versions,
    round_file,
    survey_folder,
    title_of,
    version_of_wave,
)
from croupier.operator.operator import Operator, registrations, revocations
from croupier.operator.roster import check_label
from croupier.protocol.deployment import OPERATOR
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import public_key_of
from croupier.protocol.invitations import Invitation, new_secret
from croupier.protocol.names import Digest, PublicKey, RoundId
from croupier.show.csv_file import csv_records, csv_text

_MOST = 100_000
"""The most people in one list of invitations."""
_COLUMNS = ("key", "label", "expires_at", "made_at", "revoked_at")


@dataclass(frozen=True)
class People:
    """The people to invite: a table whose first column is the label.

    Attributes:
        columns: the names of its columns, which the file of the links repeats.
        rows: one for each person, as long as `columns`.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        """Raises ValueError if a label is missing, repeated or cannot be shown, or there is nobody or too many."""
        if not 1 <= len(self.rows) <= _MOST:
            raise ValueError(f"{len(self.rows)} people are invited; it must be 1..{_MOST}")
        for row in self.rows:
            if not row[0]:
                raise ValueError(f"a line of the people has no label: {','.join(row)!r}")
            check_label("a label", row[0])
        if repeated := [label for label, count in Counter(self.labels).items() if count > 1]:
            raise ValueError(f"the label {repeated[0]!r} is there twice; everybody needs a label of their own")

    @property
    def labels(self) -> list[str]:
        """The people's labels."""
        return [row[0] for row in self.rows]

    @classmethod
    def labelled(cls, labels: Iterable[str]) -> People:
        """Returns people with only a label."""
        return cls(("label",), tuple((label,) for label in labels))


def read_people(lines: Sequence[tuple[int, Sequence[str]]]) -> People:
    """Returns the people in a file whose first row is the header.

    Args:
        lines: the cells of each line of the file, with its number.

    Raises:
        ValueError: a column has no name or that of another one, a row has more cells than the header, or as `People`.
    """
    table = [(number, cells) for number, row in lines if (cells := _filled(row))]
    columns = table[0][1] if table else ()
    for place, name in enumerate(columns, start=1):
        check_label(f"the name of column {place}", name)
        if not name or name in (*columns[: place - 1], *LINK_COLUMNS):
            raise ValueError(
                f"column {place} of the people is called {name!r}; the first row is the header, in which every column "
                f"must have a name of its own, and none of {', '.join(LINK_COLUMNS)}"
            )
    for number, row in table:
        if len(row) > len(columns):
            raise ValueError(
                f"line {number} of the people has {len(row)} cells; it must have {len(columns)}, as the header"
            )
    return People(columns, tuple((*row, *[""] * (len(columns) - len(row))) for _, row in table[1:]))


def _filled(row: Sequence[str]) -> tuple[str, ...]:
    """Returns the cells of a row up to the last one that holds something."""
    cells = [cell.strip() for cell in row]
    while cells and not cells[-1]:
        cells.pop()
    return tuple(cells)


@dataclass(frozen=True)
class Invitee:
    """A person whom a survey has invited, in the operator's list.

    Attributes:
        key: Ed25519 public key, 64 hexadecimal digits.
        label: the owner.
        expires_at, made_at, revoked_at: UTC, as in 2026-01-31T12:00:00Z; empty if never.
    """

    key: str
    label: str
    expires_at: str = ""
    made_at: str = ""
    revoked_at: str = ""

    @property
    def is_good(self) -> bool:
        """Whether it is neither revoked nor expired."""
        return not self.revoked_at and (not self.expires_at or self.expires_at > _utc(time.time()))


def _utc(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%dT%H:%M:%SZ}"


@dataclass(frozen=True)
class _InvitationScope:
    """The scope of invitations: a survey, or a study with all its waves and versions.

    Attributes:
        list: the file with the invited people.
        bound_to: the hash from which keys follow.
        deadline: of the first answer, Unix seconds; 0: none.
        title: for printed cards.
        opens: the round that a link opens.
        rounds: all past and present open rounds.
    """

    list: Path
    bound_to: Digest
    deadline: int
    title: str
    opens: RoundId
    rounds: tuple[RoundId, ...]


_LIST = "invitations.csv"


def _asked(directory: Path, name: str) -> _InvitationScope:
    """Returns the scope of invitations to a survey of this name, with all its waves and versions.

    Raises:
        ValueError: there is none, or it is not completely open.
    """
    versions = kept_versions(directory, name)
    if not versions:
        raise ValueError(
            f"{directory} has opened no survey {name!r}; 'croupier survey open survey.toml' opens one, and "
            "'croupier survey run' the waves of one with a calendar"
        )
    survey = list(versions.values())[-1]
    file, title, schedule = survey_folder(directory, name) / _LIST, title_of(survey), survey.schedule
    if schedule is None:
        ids = tuple(terms.round_id for terms in kept_rounds(directory, survey))
        return _InvitationScope(file, survey.invitation_hash, survey.message.close_deadline_unix_s, title, ids[0], ids)
    opened = [
        number for number in range(1, schedule.last_wave + 1) if round_file(directory, survey, 0, number).exists()
    ]
    rounds = tuple(
        round_id for number in opened for round_id in version_of_wave([*versions.values()], number).round_ids(number)
    )
    coming = (wave.number for wave in schedule.waves() if wave.closes_unix_s > time.time())
    opens = survey.round_id(0, opened[-1] if opened else next(coming, schedule.last_wave))
    deadline = 0 if schedule.follows_results else schedule.wave(schedule.last_wave).closes_unix_s
    return _InvitationScope(file, survey.invitation_hash, deadline, title, opens, rounds)


def invited_people(directory: Path, survey_id: str) -> list[Invitee]:
    """Returns the operator's list of a survey or a study, oldest first."""
    return _read_list(_asked(directory, survey_id).list)


def _read_list(file: Path) -> list[Invitee]:
    if not file.exists():
        return []
    rows = csv_records(file.read_text(encoding="utf-8"))
    return [Invitee(**{name: row.get(name, "") for name in _COLUMNS}) for row in rows]


def _write_list(file: Path, listed: Iterable[Invitee]) -> None:
    replace_secret(file, csv_text(_COLUMNS, map(astuple, listed)))


def note_revoked_invitations(directory: Path, keys: Collection[str]) -> set[str]:
    """Notes in the lists of surveys and studies that keys are revoked; returns those that are invitations."""
    now, invitation_keys = _utc(time.time()), set()
    for file in sorted((directory / OPERATOR).glob(f"*/*/{_LIST}")):
        with alone(file):
            listed = _read_list(file)
            listed_keys = {invitation.key for invitation in listed} & set(keys)
            if listed_keys:
                _write_list(
                    file,
                    (
                        replace(invitation, revoked_at=invitation.revoked_at or now)
                        if invitation.key in listed_keys
                        else invitation
                        for invitation in listed
                    ),
                )
        invitation_keys |= listed_keys
    return invitation_keys


async def invite_people(
    directory: Path,
    survey_id: str,
    people: People,
    folder: Path,
    *,
    reissue: bool = False,
    gateway: str = "",
    until: int = 0,
    qr_codes: bool = True,
    transport: Transport = TLS,
) -> int:
    """Makes an invitation for each person, registers its key, and writes the links; returns how many.

    A person's earlier invitations are revoked, a good one with `reissue` alone.

    Args:
        directory: of the deployment.
        survey_id: a survey that was opened from there.
        people: to invite.
        folder: a new folder for links.csv, cards.html and the QR codes, which only its owner can read.
        reissue: every person has an invitation, which the new one replaces.
        gateway: its address; by default the one in the deployment file.
        until: Unix seconds after which the invitations get no tickets; 0: the survey's deadline.
        qr_codes: whether to draw them.
        transport: to the services.

    Raises:
        ValueError: somebody has a valid invitation, or with `reissue` none; or has answered with a former one, and
            could answer twice; the folder exists, there is no gateway, or `until` is past.
        Refusal: NOT_APPROVED; the links are written, and valid once the proposal is approved and sent.
        Refusal, grpc.aio.AioRpcError: a service refuses, or is out of reach; then there are no links.
    """
    labels = set(people.labels)
    earlier = [invitation for invitation in invited_people(directory, survey_id) if invitation.label in labels]
    if reissue:  # where organisations approve, a call before this one may have revoked some
        if unknown := labels - {invitation.label for invitation in earlier}:
            raise ValueError(f"{sorted(unknown)[0]!r} has no invitation to {survey_id!r} that could be replaced")
    elif good := [invitation.label for invitation in earlier if invitation.is_good]:
        raise ValueError(f"{good[0]!r} has an invitation to {survey_id!r}; --reissue replaces one")
    if await asyncio.to_thread(folder.exists):
        raise ValueError(f"{folder} exists; choose another folder")
    check_qr_codes(qr_codes)
    deployment = read_deployment(directory)
    address = _address(gateway or deployment.gateway or "")
    asked = _asked(directory, survey_id)
    until = until or asked.deadline
    if 0 < until <= time.time():
        raise ValueError(f"the invitations would expire at {_utc(until)}, which is past")
    await _end_unused(directory, survey_id, earlier, transport)
    named = deployment.fingerprint
    made = [Invitation(new_secret(), named, asked.opens, until) for _ in people.rows]
    keys = [public_key_of(invitation.key(asked.bound_to)) for invitation in made]
    refused = None
    async with Operator(directory, transport) as operator:
        try:
            await operator.invite(keys, asked.bound_to, until)
        except Refusal as refusal:
            if refusal.code is not Code.NOT_APPROVED:
                raise
            refused = refusal  # the links are good once organisations have approved and the proposal was sent
    links = [f"{address}{PAGE_PATH}#{invitation.fragment}" for invitation in made]
    expires = _utc(until) if until else ""
    await asyncio.to_thread(write_links, folder, people.columns, people.rows, links, expires, asked.title, qr_codes)
    now = _utc(time.time())
    with alone(asked.list):
        fresh = [Invitee(key.hex(), row[0], expires, now) for key, row in zip(keys, people.rows, strict=True)]
        _write_list(asked.list, [*_read_list(asked.list), *fresh])
    if refused is not None:
        raise refused
    return len(made)


def _named(directory: Path, survey_id: str, labels: Sequence[str]) -> list[Invitee]:
    """Returns the invitations of these labels that are not revoked.

    Raises:
        ValueError: a label has none.
    """
    listed = [invitation for invitation in invited_people(directory, survey_id) if not invitation.revoked_at]
    valid = {invitation.label for invitation in listed}
    if unknown := [label for label in labels if label not in valid]:
        raise ValueError(f"{unknown[0]!r} has no invitation to {survey_id!r} that could be revoked")
    return [invitation for invitation in listed if invitation.label in labels]


async def _end_unused(directory: Path, survey_id: str, invited: Sequence[Invitee], transport: Transport) -> None:
    """Revokes these invitations, after which their people can get new ones.

    Expired ones are revoked as well: by a service's clock they may still be good.

    Raises:
        ValueError: somebody has answered with one.
    """
    labels = {invitation.label for invitation in invited}
    await _check_unused(directory, survey_id, labels, transport)
    if valid := [invitation for invitation in invited if not invitation.revoked_at]:
        await _revoke(directory, valid, transport)
        await _check_unused(directory, survey_id, labels, transport)  # one may have answered until it was revoked


async def _check_unused(directory: Path, survey_id: str, labels: Collection[str], transport: Transport) -> None:
    """Raises ValueError if one of these people has answered with an invitation, also one that is revoked or expired."""
    listed = [invitation for invitation in invited_people(directory, survey_id) if invitation.label in labels]
    if used := await _answered(directory, survey_id, listed, transport):
        raise ValueError(
            f"{used[0].label!r} has answered with the invitation; with a new one the same person could answer twice"
        )


async def _answered(directory: Path, survey_id: str, invited: Sequence[Invitee], transport: Transport) -> list[Invitee]:
    """Returns those of these people who have answered a question of the survey: one call for each if anybody has."""
    round_ids = _asked(directory, survey_id).rounds
    keys = [PublicKey(bytes.fromhex(person.key)) for person in invited]
    if not keys:
        return []
    async with Operator(directory, transport) as operator:
        if not await operator.count_answered(round_ids, keys):
            return []
        pairs = zip(invited, keys, strict=True)
        return [person for person, key in pairs if await operator.count_answered(round_ids, [key])]


async def revoke_invitations(directory: Path, survey_id: str, labels: Sequence[str], transport: Transport = TLS) -> int:
    """Revokes the invitations of these labels for good, and returns how many; answers with them stay.

    Raises:
        ValueError: a label has no invitation.
        Refusal, grpc.aio.AioRpcError: a service refuses, or is out of reach; the same call again is harmless.
    """
    gone = _named(directory, survey_id, labels)
    await _revoke(directory, gone, transport)
    return len(gone)


async def _revoke(directory: Path, invited: Sequence[Invitee], transport: Transport) -> None:
    async with Operator(directory, transport) as operator:
        await operator.revoke([PublicKey(bytes.fromhex(invitation.key)) for invitation in invited])
    note_revoked_invitations(directory, {invitation.key for invitation in invited})


async def register_again(directory: Path, survey_id: str, transport: Transport = TLS) -> int:
    """Registers the listed invitations again at a service that has lost its store; returns how many are valid.

    Revoked ones are revoked again.
    """
    bound_to, listed = _asked(directory, survey_id).bound_to, invited_people(directory, survey_id)
    by_end: dict[str, list[bytes]] = {}
    for invitation in listed:
        if not invitation.revoked_at:
            by_end.setdefault(invitation.expires_at, []).append(bytes.fromhex(invitation.key))
    revoked = [PublicKey(bytes.fromhex(invitation.key)) for invitation in listed if invitation.revoked_at]
    registered = [
        request
        for expires_at, keys in by_end.items()
        for request in registrations(
            list(map(PublicKey, keys)),
            bound_to,
            int(datetime.fromisoformat(expires_at).timestamp()) if expires_at else 0,
        )
    ]
    async with Operator(directory, transport) as operator:
        operator.require_approval_of([*revocations(revoked), *registered])
        await operator.revoke(revoked)
        await operator.register(registered)
    return sum(invitation.is_good for invitation in listed)


async def num_answered(directory: Path, survey_id: str, transport: Transport = TLS) -> int:
    """Returns how many people have answered with their invitations, including revoked ones."""
    keys = [bytes.fromhex(invitation.key) for invitation in invited_people(directory, survey_id)]
    async with Operator(directory, transport) as operator:
        return await operator.count_answered(_asked(directory, survey_id).rounds, list(map(PublicKey, keys)))


async def who_has_not_answered(directory: Path, survey_id: str, transport: Transport = TLS) -> list[str]:
    """Returns the labels of the invitations that are good and have not been used, for reminders."""
    good = [invitation for invitation in invited_people(directory, survey_id) if invitation.is_good]
    used = await _answered(directory, survey_id, good, transport)
    return [invitation.label for invitation in good if invitation not in used]


def _address(gateway: str) -> str:
    parts = urlsplit(gateway)
    local = parts.hostname in ("127.0.0.1", "localhost")
    if not parts.hostname or parts.query or parts.fragment or parts.scheme not in ("https", *(["http"] * local)):
        raise ValueError(
            f"gateway is {gateway!r}; it must be like https://gateway.example: give --gateway, or name the gateway in "
            "deployment.toml"
        )
    return gateway.rstrip("/")
