"""One user at the command line: submit once, verify afterwards."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ValidationError

from client.limits import LIMITS_FILE, Limits, SpentHere, read_limits, write_limits
from client.outbox import KEPT_DAYS, Outbox
from client.rounds import fetch_publication, fetch_round, fetch_terms
from client.submission import Participant, new_client_key, send
from client.tickets import seal_with_tickets
from client.verification import certified_chain, missing_at_hop
from deploy.directory import read_deployment
from deploy.operator.rounds import Operator
from deploy.show.documents import state_name, terms_json
from protocol.questions import choose_budget
from protocol.v1 import messages_pb2 as pb
from runtime.transport import TLS, Transport

__all__ = ["ALREADY_ANSWERED", "Answered", "own_limits", "read_round", "submit_one", "verify_inclusion"]

ALREADY_ANSWERED = "ALREADY_ANSWERED"
"""In the place of hop 1's code: it has acknowledged a submission of this user before, and nothing was sent now."""


@dataclass(frozen=True)
class Answered:
    """What became of one user's submission.

    Attributes:
        round_id: of the round.
        code: hop 1's, or ALREADY_ANSWERED.
        local_epsilon: what the submission that counts has spent.
        sealed_before: it was made by an earlier call, and value and budget of this one were not used.
    """

    round_id: str
    code: str
    local_epsilon: float
    sealed_before: bool


def _read_key(key_file: Path | None) -> bytes:
    return bytes.fromhex(key_file.read_text().strip()) if key_file else new_client_key()


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
            limits = Limits.model_validate(limits.model_dump() | given)
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

    Raises:
        ValueError: value, budget or key cannot be used; the client's own limits (`client.limits`) do not allow the
            answer; or someone has answered here under another key or token, so that a person with a lost key may be
            about to randomize twice.
        Refusal, SignatureError, TicketError: the round, or the accountant's tickets, cannot be trusted.
    """
    deployment = read_deployment(directory)
    operator = Operator(directory, transport) if enrol else None  # without its keys it ends here, with nothing spent
    private_key = await asyncio.to_thread(_read_key, key_file)
    public_key = Ed25519PrivateKey.from_private_bytes(private_key).public_key().public_bytes_raw()
    limits = await asyncio.to_thread(read_limits, _limits_file(directory))
    outbox = _outbox(directory)
    async with (
        transport.public_channel(deployment.shufflers[0]) as channel,
        transport.public_channel(deployment.accountant) as accountant,
    ):
        terms = await fetch_terms(channel, deployment, round_id)
        user, known = _known_as(public_key, token, has_key_file=key_file is not None), outbox.users(terms.round_id)
        if not another_person and user not in known and known:
            if key_file or token or len(known) > 1:
                raise ValueError(
                    f"{len(known)} answers for round {terms.round_id!r} have been sealed here under other keys or "
                    "tokens; a person answers once, also with a new key: for another person give --another-person"
                )
            (user,) = known
        sealed_before = user in known
        if not sealed_before:
            participant = Participant(
                terms.question.mechanism.parse_value(value), max_local_epsilon, private_key, token
            )
            epsilon = choose_budget(max_local_epsilon, terms.budget_grid)
            limits.check_round(terms, epsilon)
            outbox.begin(terms.round_id, user, epsilon, limits)
            if operator:
                async with operator:
                    await operator.enrol([public_key])
            sealed, refused = await seal_with_tickets(accountant, terms, {user: participant})
            outbox.keep(terms.round_id, sealed)
            if user in refused:
                if refused[user] != pb.SUBMISSION_CODE_TICKETS_GIVEN:  # those may be for an answer that is under way
                    outbox.withdraw(terms.round_id, user)
                outbox.close()
                return Answered(terms.round_id, _name(refused[user]), 0.0, sealed_before)
        if user in outbox.acknowledged(terms.round_id):
            code = ALREADY_ANSWERED
        else:
            kept = outbox.submission(terms.round_id, user)
            if not kept:
                raise ValueError(
                    f"the answer was sealed more than {KEPT_DAYS} days ago, and is forgotten; it was not sent"
                )
            if operator and sealed_before:
                async with operator:
                    await operator.enrol([pb.Submission.FromString(kept).client_key])
            sent = (await send(channel, terms.round_id, {user: kept}))[user]
            if sent == pb.SUBMISSION_CODE_ACCEPTED:
                outbox.acknowledge(terms.round_id, [user])
            code = _name(sent)
        spent = outbox.spent(terms.round_id, user)
    outbox.close()
    return Answered(terms.round_id, code, spent, sealed_before)


async def read_round(directory: Path, round_id: str = "", transport: Transport = TLS) -> dict[str, Any]:
    """Returns the terms of a round as JSON (`terms_json`), verified as before an answer, and its state at hop 1.

    Args:
        directory: of the deployment.
        round_id: the round; "" for the newest open one.
        transport: how hop 1 is reached.

    Raises:
        Refusal, SignatureError: there is no such round, or its terms cannot be trusted.
    """
    deployment = read_deployment(directory)
    async with transport.public_channel(deployment.shufflers[0]) as channel:
        terms, state = await fetch_round(channel, deployment, round_id)
    return terms_json(terms) | {"state": state_name(state)}


def _name(code: pb.SubmissionCode.ValueType) -> str:
    return pb.SubmissionCode.Name(code).removeprefix("SUBMISSION_CODE_")


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
        _, certificate = await fetch_publication(analyzer, deployment, round_id, patience_s)
        chain = certified_chain(certificate, terms, deployment)
        names = [entry.name for entry in deployment.shufflers]
        lost = [await missing_at_hop(first, terms, chain, hop, hashes_of) for hop in range(1, len(names) + 1)]
        return len(hashes_of), dict(zip(names, lost, strict=True))
