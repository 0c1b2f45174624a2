"""Invitations: links that admit participants through a gateway, each with a client key that is enrolled for it.

The private half of the key is in the link behind the #, which browsers do not send to a server; services get only the
public half. So a gateway cannot answer in a participant's place, as it could with a one-use token. Whoever has made or
seen the link can, and the page says so.
"""

from __future__ import annotations

import asyncio
import base64
import csv
import io
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from croupier.client.submission import new_client_key
from croupier.deploy.directory import read_deployment
from croupier.deploy.operator.keys import write_secret
from croupier.deploy.operator.roster import Enrolled, enrol
from croupier.deploy.page.participants import PAGE_PATH, fingerprint
from croupier.net.transport import TLS, Transport
from croupier.protocol.identity import public_key_of

__all__ = ["invite", "read_labels"]

_MOST = 100_000


def read_labels(text: str) -> list[str]:
    """Returns the people who are invited: the first column of a CSV file, without a first line "label"."""
    rows = [row[0].strip() for row in csv.reader(io.StringIO(text)) if row and row[0].strip()]
    return rows[1:] if rows and rows[0] == "label" else rows


def _address(gateway: str) -> str:
    parts = urlsplit(gateway)
    local = parts.hostname in ("127.0.0.1", "localhost")
    if not parts.hostname or parts.query or parts.fragment or parts.scheme not in ("https", *(["http"] * local)):
        raise ValueError(
            f"gateway is {gateway!r}; it must be like https://gateway.example: give --gateway, or name the gateway in "
            "deployment.toml"
        )
    return gateway.rstrip("/")


def _written(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


async def invite(
    directory: Path,
    labels: Sequence[str],
    file: Path,
    gateway: str = "",
    round_id: str = "",
    transport: Transport = TLS,
) -> int:
    """Enrols a new key for each person, and writes the links into a new file, LABEL,LINK on a line; returns how many.

    Args:
        directory: of the deployment.
        labels: whose the invitations are; they stay in the operator's list.
        file: a new file, which only its owner reads.
        gateway: its address; the one in the deployment file if not given.
        round_id: the round that the link opens; the newest open one if not given.
        transport: how the services are reached.

    Raises:
        ValueError: nobody or too many are invited, the file exists, or there is no gateway.
        Refusal, grpc.aio.AioRpcError: as `enrol`; then there are no links.
    """
    if not 1 <= len(labels) <= _MOST:
        raise ValueError(f"{len(labels)} people are invited; it must be 1..{_MOST}")
    if await asyncio.to_thread(file.exists):
        raise ValueError(f"{file} exists; choose another file")
    deployment = read_deployment(directory)
    address = _address(gateway or deployment.gateway or "")
    keys = [new_client_key() for _ in labels]
    people = [Enrolled(public_key_of(key).hex(), label) for key, label in zip(keys, labels, strict=True)]
    await enrol(directory, people, transport)
    trusted = {"deployment": _written(fingerprint(deployment)), **({"round": round_id} if round_id else {})}
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["label", "link"])
    for label, key in zip(labels, keys, strict=True):
        rows.writerow([label, f"{address}{PAGE_PATH}#{urlencode({'key': _written(key), **trusted})}"])
    write_secret(file, text.getvalue())
    return len(keys)
