"""One user at the command line: submit once, verify afterwards."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import grpc.aio
from pydantic import ValidationError

from croupier.client.key_file import read_private_key
from croupier.client.limits import LIMITS_FILE, Limits, SpentHere, read_limits, write_limits
from croupier.client.one_answer import Answered, answer_once, check_person, missing_by_hop, read_value
from croupier.client.outbox import KEPT_DAYS, Outbox
from croupier.client.published import publication_json
from croupier.client.rounds import fetch_publication, fetch_round, fetch_terms, state_name
from croupier.client.submission import Participant, new_client_key
from croupier.deploy.directory import client_transport, read_deployment
from croupier.deploy.operator.roster import Enrolled, note_enrolled
from croupier.deploy.operator.rounds import Operator
from croupier.net.http_channel import NO_TOKENS
from croupier.net.transport import TLS, Transport
from croupier.protocol.errors import OtherPersonError, Refusal
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.documents import terms_json
from croupier.show.views import TermsView

__all__ = ["own_limits", "read_round", "submit_one", "verify_inclusion"]


_TOKEN_BYTES = 32


def _read_key(key_file: Path | None) -> bytes:
    return new_client_key() if key_file is None else read_private_key(key_file)


def _known_as(public_key: bytes, token: bytes, *, has_key_file: bool) -> str:
    """Returns the name of a user in the outbox: the key, or else the token."""
    return public_key.hex() if has_key_file or not token else f"token {hashlib.sha256(token).hexdigest()}"


def _outbox(directory: Path) -> Outbox:
    return Outbox(directory / "client" / "outbox.db")


def _limits_file(directory: Path) -> Path:
    return directory / "client" / LIMITS_FILE


def own_limits(directory: Path, **changes: float | None) -> tuple[Limits, SpentHere]:
    """Returns the limits of a deployment's client and what it has spent; changes the limits that are given.

    Raises:
        ValueError: a limit is out of range, or the directory has no deployment, or a file of limits that is none.
    """
    read_deployment(directory)
    file = _limits_file(directory)
    limits, given = read_limits(file), {name: value for name, value in changes.items() if value is not None}
    if given:
        try:
            limits = Limits.model_validate(limits.model_dump(exclude_unset=True) | given)
        except ValidationError as error:
            (wrong, *_) = error.errors()
            must = wrong["msg"].replace("Input should", "it must")
            raise ValueError(f"{wrong['loc'][0]} is {wrong['input']}; {must}") from error
        write_limits(file, limits)
    outbox = _outbox(directory)
    spent = outbox.spent_in_all()
    outbox.close()
    return limits, spent


async def submit_one(
    directory: Path,
    round_id: str,
    value: str,
    max_local_epsilon: float,
    key_file: Path | None,
    *,
    token: bytes = b"",
    enrol: bool = False,
    another_person: bool = False,
    transport: Transport = TLS,
    gateway: str = "",
) -> Answered:
    """Submits one user's value and returns what became of it.

    A user whose submission for this round is already in the outbox sends those bytes again, whatever the value now is:
    to randomize twice would spend the budget twice. A user is known by the key, or else by the token. Without
    either, it is taken to be the user that has answered here before, if there is one: what is sealed needs no key.

    Args:
        directory: of the deployment.
        round_id: the round; "" for the newest open one.
        value: as text, for `Question.parse_value`.
        max_local_epsilon: the most to spend.
        key_file: the user's key; a fresh one if not given.
        token: a one-use token, in the place of a registered key.
        enrol: register the key with the operator's certificate first.
        another_person: this is not the person who has answered here in this round before.
        transport: how the services are reached.
        gateway: "https://…" of a gateway that passes the client's calls on; the operator's go past it.

    Raises:
        ValueError: value, budget or key cannot be used, or a token would go through a gateway; the client's own limits
            (`client.limits`) do not allow the answer; or someone has answered here under another key or token, so that
            a person with a lost key may be about to randomize twice.
        Refusal, SignatureError, TicketError: the round, or the accountant's tickets, cannot be trusted.
    """
    if token and gateway:
        raise ValueError(NO_TOKENS)
    if len(token) not in (0, _TOKEN_BYTES):
        raise ValueError(f"the token has {2 * len(token)} hexadecimal digits; it must have {2 * _TOKEN_BYTES}")
    called = client_transport(gateway, transport)
    deployment = read_deployment(directory)
    operator = Operator(directory, transport) if enrol else None  # without its keys it ends here, with nothing spent
    private_key = await asyncio.to_thread(_read_key, key_file)
    limits = await asyncio.to_thread(read_limits, _limits_file(directory))

    async def enrol_key(public_key: bytes) -> None:
        if operator:
            async with operator:
                await operator.enrol([public_key])
            await asyncio.to_thread(note_enrolled, directory, [Enrolled(public_key.hex())])

    outbox = _outbox(directory)
    async with (
        called.public_channel(deployment.shufflers[0]) as channel,
        called.public_channel(deployment.accountant) as accountant,
    ):
        terms = await fetch_terms(channel, deployment, round_id)
        participant = Participant(read_value(terms.question, value), max_local_epsilon, private_key, token)
        user = _known_as(participant.public_key, token, has_key_file=key_file is not None)
        known = outbox.users(terms.round_id)
        if not (key_file or token or another_person) and len(known) == 1:
            (user,) = known
        try:
            if not another_person:
                check_person(outbox, terms.round_id, user)
            answered = await answer_once(
                channel,
                accountant,
                terms,
                user,
                participant,
                outbox=outbox,
                limits=limits,
                enrol=enrol_key,
                alone=not another_person,
            )
        except OtherPersonError as error:
            raise OtherPersonError(f"{error}: for another person give --another-person") from error
    outbox.close()
    return answered


async def read_round(directory: Path, round_id: str = "", transport: Transport = TLS) -> TermsView:
    """Returns the terms of a round as JSON (`terms_json`), verified as before an answer, and what became of it.

    That is the state at hop 1 and, from the verified result once the analyzer has published it, whether the accountant
    has granted the round ("granted", None until then) and its reasons if not ("refusals").

    Args:
        directory: of the deployment.
        round_id: the round; "" for the newest open one.
        transport: how the services are reached.

    Raises:
        Refusal, SignatureError: there is no such round, or its terms or its result cannot be trusted.
    """
    deployment = read_deployment(directory)
    async with transport.public_channel(deployment.shufflers[0]) as channel:
        terms, state = await fetch_round(channel, deployment, round_id)
    shown: TermsView = {**terms_json(terms), "state": state_name(state), "granted": None, "refusals": []}
    if state != pb.ROUND_STATE_OPEN:
        async with transport.public_channel(deployment.analyzer) as channel:
            try:
                published = await fetch_publication(channel, deployment, terms.round_id, 0.0)
            except (grpc.aio.AioRpcError, Refusal):  # there is no result yet, or the analyzer is out of reach
                return shown
        certificate = publication_json(*published)["certificate"]
        shown["granted"], shown["refusals"] = certificate["granted"], certificate["refusals"]
    return shown


async def verify_inclusion(
    directory: Path, round_id: str, transport: Transport = TLS, patience_s: float = 20.0
) -> tuple[int, dict[str, list[str]]]:
    """Returns how many submissions from here were acknowledged, and by hop the users whose submissions it lacks.

    Args:
        directory: of the deployment.
        round_id: of the round.
        transport: how the services are reached.
        patience_s: how long to wait for the certificate.

    Raises:
        ValueError: no submission from here was acknowledged.
        Refusal: the round has no certificate yet (NOT_READY), or a hop's list is not what it committed to.
    """
    deployment = read_deployment(directory)
    hashes_of: dict[str, bytes] = {}
    for outbox in (_outbox(directory), Outbox(directory / "fleet" / "outbox.db")):
        hashes_of |= outbox.inclusion_hashes(round_id)
        outbox.close()
    if not hashes_of:
        kept = f"in the last {KEPT_DAYS} days"
        raise ValueError(f"nothing was submitted from {directory} in round {round_id!r} {kept}")
    async with (
        transport.public_channel(deployment.shufflers[0]) as first,
        transport.public_channel(deployment.analyzer) as analyzer,
    ):
        terms = await fetch_terms(first, deployment, round_id)
        return len(hashes_of), await missing_by_hop(first, analyzer, terms, deployment, hashes_of, patience_s)
