"""Enrols clients by their public keys, and keeps the operator's list of them.

The list is `operator/enrolled.csv`: public key, label, when it was enrolled, when it was revoked, and who has approved
of it. Services keep keys only; labels stay here. A service that has lost its store gets all of them again from this
file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from croupier.client.key_file import PRIVATE, PUBLIC
from croupier.net.transport import TLS, Transport
from croupier.operator.keys import alone, replace_secret
from croupier.operator.operator import Operator
from croupier.protocol.deployment import OPERATOR
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import has_small_order
from croupier.protocol.names import PublicKey
from croupier.protocol.shown import check_shown
from croupier.show.csv_file import csv_records, csv_text, plain_text

_COLUMNS = ("key", "label", "enrolled_at", "revoked_at", "enrolled_by")
_LONGEST_LABEL = 200
"""The most characters of a person's label."""


@dataclass(frozen=True)
class Enrolment:
    """A client's public key in the operator's list.

    Attributes:
        key: Ed25519 public key, 64 hexadecimal digits.
        label: the owner, as the operator writes it down; may be empty.
        enrolled_at, revoked_at: UTC, as in 2026-01-31T12:00:00Z; empty if it never was.
        enrolled_by: the organisations that have approved it, separated by commas; empty if the operator alone decided.
    """

    key: str
    label: str = ""
    enrolled_at: str = ""
    revoked_at: str = ""
    enrolled_by: str = ""

    def line(self) -> str:
        """Returns one line on the client for people."""
        times = [f"{what} {at}" for what, at in (("enrolled", self.enrolled_at), ("revoked", self.revoked_at)) if at]
        approved = [f"approved by {self.enrolled_by}"] if self.enrolled_by else []
        return f"{self.key}  {', '.join([self.label or '(no label)', *times, *approved])}"


def _file(directory: Path) -> Path:
    return directory / OPERATOR / "enrolled.csv"


def read_keys(lines: Sequence[tuple[int, Sequence[str]]], name: str) -> list[Enrolment]:
    """Returns the public keys in a file, each once: KEY or KEY,LABEL on a line, also as this module's own list is.

    Args:
        lines: the cells of each line of the file, with its number.
        name: of the file, for errors.

    Raises:
        ValueError: naming the line that is not such a line, or that gives a key a second label.
    """
    if any(PRIVATE in cell for _, cells in lines[:1] for cell in cells):
        raise ValueError(
            f"{name} holds a client's private key, which only the client may know: enrol the other file, FILE.pub; if "
            "the client has sent you this one, it needs a new key"
        )
    enrolled_keys: dict[str, Enrolment] = {}
    for number, row in lines:
        cells = [cell.strip() for cell in row]
        if not any(cells) or cells[0].startswith("#") or cells == [PUBLIC] or (number == 1 and cells[0] == "key"):
            continue
        try:
            key, written, _, revoked_at, _, *more = [*cells, *[""] * (len(_COLUMNS) - len(cells))]
            label = plain_text(written)
            raw = bytes.fromhex(key)
            if len(raw) != 32 or more:
                raise ValueError(key)
        except ValueError as error:
            raise ValueError(
                f"line {number} of {name} is not a public key of 64 hexadecimal digits with a label behind a comma, "
                "such as 9f…,Ada"
            ) from error
        if has_small_order(PublicKey(raw)):
            raise ValueError(f"line {number} of {name} is not a key that can sign; the client needs a new one")
        check_label(f"the label in line {number} of {name}", label)
        enrolled_key = Enrolment(raw.hex(), label, revoked_at=revoked_at)
        if enrolled_keys.setdefault(enrolled_key.key, enrolled_key).label != label:
            raise ValueError(
                f"line {number} of {name} gives key {enrolled_key.key[:8]}… a second label; each key has one"
            )
    return list(enrolled_keys.values())


def check_label(name: str, label: str) -> None:
    """Raises ValueError for a label that is too long or cannot be shown."""
    if len(label) > _LONGEST_LABEL:
        raise ValueError(f"{name} has {len(label)} characters; at most {_LONGEST_LABEL} are allowed")
    check_shown(name, label)


def enrolled(directory: Path) -> list[Enrolment]:
    """Returns the operator's list, oldest first; empty if nothing was enrolled from this directory."""
    file = _file(directory)
    if not file.exists():
        return []
    rows = csv_records(file.read_text(encoding="utf-8"))
    return [Enrolment(**{name: row.get(name, "") for name in _COLUMNS}) for row in rows]


async def enrol(directory: Path, keys: Sequence[Enrolment], transport: Transport = TLS) -> int:
    """Registers clients' keys with hop 1 and the accountant, and adds them to the list; returns how many are new there.

    The same call again is harmless: it registers what a service has missed, and changes labels.

    Raises:
        ValueError: there is no key, or one was revoked.
        Refusal, grpc.aio.AioRpcError: a service refuses, or is out of reach; then the list is unchanged.
    """
    if not keys:
        raise ValueError("no key is given; there is nothing to enrol")
    revoked = {key.key: key.revoked_at for key in (*enrolled(directory), *keys) if key.revoked_at}
    for key in keys:
        if key.key in revoked:
            raise ValueError(
                f"key {key.key[:8]}…{f' ({key.label})' if key.label else ''} was revoked at {revoked[key.key]} and "
                "cannot be enrolled again; the client needs a new key"
            )
    async with Operator(directory, transport) as operator:
        try:
            approved_by = await operator.enrol([PublicKey(bytes.fromhex(key.key)) for key in keys])
        except Refusal as refusal:
            if refusal.code is Code.NOT_APPROVED:
                _note_labels(directory, keys)
            raise
    return note_enrolled(directory, keys, approved_by)


async def revoke_keys(directory: Path, client_keys: Sequence[str], transport: Transport = TLS) -> dict[str, int]:
    """Revokes client keys at hop 1 and the accountant, and notes it in the list; see `Operator.revoke`.

    Raises:
        ValueError: a key is not 64 hexadecimal digits.
    """
    raw = [PublicKey(_unhex(number, text)) for number, text in enumerate(client_keys, start=1)]
    async with Operator(directory, transport) as operator:
        revoked = await operator.revoke(raw)
    note_revoked(directory, [key.hex() for key in raw])
    return revoked


def _unhex(number: int, text: str) -> bytes:
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != 32:  # it may be a private key, and is not shown
        raise ValueError(f"key {number} has {len(text)} characters; it must be 64 hexadecimal digits")
    return key


def enrolling(directory: Path, transport: Transport = TLS) -> Callable[[PublicKey], Awaitable[None]]:
    """Returns a function that registers one client's public key and adds it to the list, for `AsyncClientRound.answer`.

    Raises:
        ValueError: the operator's keys are not in this directory.
    """
    its_operator = Operator(directory, transport)

    async def enrol_key(public_key: PublicKey) -> None:
        async with its_operator as operator:
            approved_by = await operator.enrol([public_key])
        await asyncio.to_thread(note_enrolled, directory, [Enrolment(public_key.hex())], approved_by)

    return enrol_key


def note_enrolled(directory: Path, keys: Iterable[Enrolment], approved_by: Sequence[str] = ()) -> int:
    """Adds keys that services have registered to the list, or changes their labels; returns how many are new there.

    Args:
        directory: of the deployment.
        keys: that were registered.
        approved_by: the organisations that have approved it.
    """
    now, by, fresh = _now(), ", ".join(approved_by), 0
    with _changing(directory) as listed:
        for key in keys:
            known = listed.get(key.key, Enrolment(key.key))
            if not known.enrolled_at:
                known, fresh = replace(known, enrolled_at=now, enrolled_by=by), fresh + 1
            listed[key.key] = replace(known, label=key.label or known.label)
    return fresh


def _note_labels(directory: Path, keys: Iterable[Enrolment]) -> None:
    """Notes the labels of keys that are proposed, and enrolled once organisations have approved."""
    with _changing(directory) as listed:
        for key in keys:
            known = listed.get(key.key, key)
            listed[key.key] = replace(known, label=key.label or known.label)


def note_revoked(directory: Path, keys: Iterable[str]) -> None:
    """Notes in the list that keys are revoked, including keys that it does not have yet."""
    now = _now()
    with _changing(directory) as listed:
        for key in keys:
            known = listed.get(key, Enrolment(key))
            listed[key] = replace(known, revoked_at=known.revoked_at or now)


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


@contextmanager
def _changing(directory: Path) -> Iterator[dict[str, Enrolment]]:
    """Yields the list by key, and writes it at the end; no other process changes it meanwhile."""
    with alone(_file(directory)):
        listed = {entry.key: entry for entry in enrolled(directory)}
        yield listed
        replace_secret(_file(directory), csv_text(_COLUMNS, map(astuple, listed.values())))
