"""Canaries: clients played by the operator, whose ciphertexts are searched for behind every hop.

To the hops a canary is a client like any other, so a hop that drops or replaces some submissions meets one with the
same chance as any other client. Each comes at a time of its own, over a connection of its own, and in a call of its
own; with a key that was enrolled among clients' keys (`enrol_with_canaries`) if some were reserved, else with a key
that is enrolled when it comes. Hop 1 still sees its network address.

If organisations approve enrolments, each of them, that of a hop too, sees the keys of canaries in a proposal shortly
before the canaries come: then only those with reserved keys are like any other client.

Its value is random and its budget the smallest of the grid. An observer that knows the canaries' reports can remove
them, so canaries add no cover: the round's certificate must count them among its dishonest clients.

A canary's prepared report is in the outbox before it asks for tickets, as with any client: the same command continues
after a process that was killed, and no ticket is lost.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import SystemRandom

from sqlalchemy.exc import IntegrityError

from croupier.client.outbox import Outbox
from croupier.client.randomizers import RANDOMIZERS
from croupier.client.round_checks import fetch_round, fetch_terms
from croupier.client.submission import Participant, PreparedReport, draw_report, new_client_key, prepare_one, send
from croupier.client.tickets import seal_prepared
from croupier.client.verification import certified_chain, missing_at_hop
from croupier.net.transport import TLS, Transport
from croupier.operator.keys import alone, replace_secret
from croupier.operator.operator import Operator
from croupier.operator.roster import Enrolment, enrol, enrolled
from croupier.protocol.deployment import OPERATOR
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import public_key_of
from croupier.protocol.manifest import RoundTerms, state_name
from croupier.protocol.names import PrivateKey, RoundId
from croupier.protocol.onion import onion_of
from croupier.protocol.questions import choose_budget
from croupier.protocol.v1 import messages_pb2 as pb


@dataclass(frozen=True)
class CanaryReport:
    """The number of acknowledged canaries, and the number that each hop, in order, has not passed on."""

    sent: int
    missing: dict[str, int]


def _outbox(directory: Path) -> Outbox:
    return Outbox(directory / OPERATOR / "canaries.db")


def _reserved(directory: Path) -> Path:
    return directory / OPERATOR / "canary-keys.txt"


async def enrol_with_canaries(
    directory: Path, clients: Sequence[Enrolment], count: int, transport: Transport = TLS
) -> int:
    """Enrols clients, with new keys among theirs that are reserved for canaries; returns as `enrol` does.

    Args:
        directory: of the deployment.
        clients: with their public keys.
        count: the number of keys to reserve.
        transport: to the services.

    Raises:
        ValueError: the count is negative; everything else as for `enrol`.
    """
    if count < 0:
        raise ValueError(f"canaries is {count}; it must be at least 0")
    keys = [new_client_key() for _ in range(count)]
    if keys:
        keep_keys(directory, keys)
        # By key, so that their order does not reveal the canaries.
        clients = sorted(
            [*clients, *(Enrolment(public_key_of(key).hex()) for key in keys)], key=lambda entry: entry.key
        )
    return await enrol(directory, clients, transport)


def keep_keys(directory: Path, keys: Sequence[PrivateKey]) -> None:
    """Reserves keys for canaries."""
    with alone(_reserved(directory)):
        _write_keys(directory, [*_read_keys(directory), *keys])


def take_keys(directory: Path, count: int) -> list[PrivateKey]:
    """Takes `count` of the reserved keys and returns them; a new key for each that is missing."""
    with alone(_reserved(directory)):
        reserved = _read_keys(directory)
        if reserved:
            _write_keys(directory, reserved[count:])
    taken = reserved[:count]
    return [*taken, *(new_client_key() for _ in range(count - len(taken)))]


def _read_keys(directory: Path) -> list[PrivateKey]:
    file = _reserved(directory)
    return [PrivateKey(bytes.fromhex(key)) for key in file.read_text().split()] if file.exists() else []


def _write_keys(directory: Path, keys: Sequence[PrivateKey]) -> None:
    replace_secret(_reserved(directory), "".join(f"{key.hex()}\n" for key in keys))


async def send_canaries(
    directory: Path, round_id: RoundId, count: int, transport: Transport = TLS, over_s: float = 0.0
) -> int:
    """Plays canaries in an open round and returns their total number.

    Args:
        directory: of the deployment.
        round_id: the round; "" for the newest open one.
        count: of further canaries, at least 1; prepared ones that have not arrived come first, and count.
        transport: to the services.
        over_s: the time within which they come, each at a random time of its own.

    Raises:
        ValueError: a count below 1, or more canaries than the manifest's number of dishonest clients, with those that
            another process plays at the same time; a negative `over_s`.
        Refusal: the round is not open, or not all of them were admitted; the admitted ones stay.
    """
    if over_s < 0:
        raise ValueError(f"over is {over_s}; it must be at least 0 seconds")
    its_operator = Operator(directory, transport)  # without its keys it ends here, with nothing written
    outbox = _outbox(directory)
    try:
        async with its_operator as operator:
            async with operator.client_channel() as channel:
                terms, state = await fetch_round(channel, operator.deployment, round_id)
            if state != pb.ROUND_STATE_OPEN:
                raise Refusal(Code.ROUND_CLOSED, f"{terms.round_id!r} is {state_name(state)}")
            earlier = {**outbox.prepared(terms.round_id), **dict.fromkeys(outbox.pending(terms.round_id))}
            known = len(outbox.begun(terms.round_id))
            most = terms.shared.dishonest - known + len(earlier)
            if not 1 <= count <= most:
                must = f"it must be in 1..{most}" if most > 0 else "there can be no more"
                raise ValueError(
                    f"count is {count}; {must}: the certificate of this round allows for {terms.shared.dishonest} "
                    f"dishonest clients, of which {known} are canaries"
                )
            keys = take_keys(directory, max(0, count - len(earlier)))
            enrolled_keys = {entry.key for entry in enrolled(directory) if entry.enrolled_at}
            fresh: dict[str, Participant | PreparedReport]
            fresh = {f"canary {secrets.token_hex(8)}": _canary(terms, key) for key in keys}
            if operator.deployment.approvals:
                fresh = {name: await _prepare(outbox, terms, name, canary) for name, canary in fresh.items()}
                await _enrol_together(directory, [*earlier.values(), *fresh.values()], enrolled_keys, transport)
            came = await asyncio.gather(
                *(
                    _come(operator, outbox, terms, name, canary, enrolled_keys, over_s)
                    for name, canary in (earlier | fresh).items()
                ),
                return_exceptions=True,
            )
            codes = []
            for outcome in came:  # now that none of the others is under way any more
                if isinstance(outcome, BaseException):
                    raise outcome
                codes += [outcome] if outcome != pb.SUBMISSION_CODE_ACCEPTED else []
            if codes:
                why = Code[pb.SubmissionCode.Name(codes[0]).removeprefix("SUBMISSION_CODE_")]
                raise Refusal(why, f"{len(codes)} of {len(came)} canaries were not let in")
            return len(outbox.acknowledged(terms.round_id))
    finally:
        outbox.close()


async def _come(
    operator: Operator,
    outbox: Outbox,
    terms: RoundTerms,
    name: str,
    canary: Participant | PreparedReport | None,
    enrolled_keys: Collection[str],
    over_s: float,
) -> pb.SubmissionCode.ValueType:
    """Takes part as one client, and returns the services' code; None as the canary: it was sealed before."""
    await asyncio.sleep(SystemRandom().uniform(0.0, over_s))
    round_id = terms.round_id
    async with operator.client_channel() as channel:
        await fetch_terms(channel, operator.deployment, round_id)  # every client asks first
        if isinstance(canary, Participant):
            canary = await _prepare(outbox, terms, name, canary)
        if canary is not None:
            if canary.client_key.hex() not in enrolled_keys and not operator.deployment.approvals:
                await operator.enrol([canary.client_key])
            async with operator.client_channel(operator.deployment.accountant.name) as accountant:
                sealed, refused = await seal_prepared(accountant, terms, {name: canary})
                if refused.get(name) == pb.SUBMISSION_CODE_UNKNOWN_CLIENT:
                    # An invitation list admits nobody else; without a list, adding one would exclude all others.
                    await operator.invite([canary.client_key], terms.survey.invitation_hash, 0)
                    sealed, refused = await seal_prepared(accountant, terms, {name: canary})
            if name in refused:
                await asyncio.to_thread(outbox.discard, round_id, [name])
                return refused[name]
            with suppress(IntegrityError):  # another process has sealed the same canary meanwhile
                await asyncio.to_thread(outbox.keep, round_id, sealed)
        code = (await send(channel, round_id, {name: outbox.kept(round_id, name).submission}))[name]
        if code == pb.SUBMISSION_CODE_ACCEPTED:
            await asyncio.to_thread(outbox.acknowledge, round_id, [name])
    return code


async def _prepare(
    outbox: Outbox, terms: RoundTerms, name: str, canary: Participant | PreparedReport
) -> PreparedReport:
    """Returns a canary's prepared report, which the outbox keeps; another process may play canaries here, too."""
    if isinstance(canary, PreparedReport):
        return canary
    if terms.permanent is not None:  # it comes in one wave only
        epsilon = choose_budget(canary.max_local_epsilon, terms.budget_grid)
        canary = replace(canary, kept_report=draw_report(terms, canary.value, epsilon))
    fresh = {name: prepare_one(terms, onion_of(terms), canary)}
    return (await asyncio.to_thread(outbox.prepare, terms.round_id, fresh, most=terms.shared.dishonest))[name]


async def _enrol_together(
    directory: Path,
    canaries: Sequence[Participant | PreparedReport | None],
    enrolled_keys: Collection[str],
    transport: Transport,
) -> None:
    """Enrols canaries whose keys are not enrolled yet, if organisations approve it: in one proposal.

    Raises:
        Refusal: NOT_APPROVED, with the file that organisations have to sign.
    """
    keys = {canary.client_key.hex() for canary in canaries if isinstance(canary, PreparedReport)}
    if unknown := sorted(keys.difference(enrolled_keys)):
        await enrol(directory, [Enrolment(key) for key in unknown], transport)


def _canary(terms: RoundTerms, key: PrivateKey) -> Participant:
    mechanism = terms.question.mechanism
    value = RANDOMIZERS[mechanism.kind].any_value(mechanism)
    return Participant(value, terms.budget_grid[0], key)


async def check_canaries(directory: Path, round_id: RoundId, transport: Transport = TLS) -> CanaryReport:
    """Searches for the canaries behind every hop of a certified (or refused) round.

    Raises:
        ValueError: this operator has no canaries in the round.
        Refusal: NOT_READY before the certificate; BAD_BATCH if a hop's list does not match its commitment.
    """
    its_operator = Operator(directory, transport)
    outbox = _outbox(directory)
    hashes_of = outbox.inclusion_hashes(round_id)
    outbox.close()
    if not hashes_of:
        raise ValueError(f"round {round_id!r} has no canaries of this operator")
    async with its_operator as operator:
        async with operator.client_channel() as channel:
            terms = await fetch_terms(channel, operator.deployment, round_id)
        _, certificate = await operator.result(round_id, 20.0)
        chain = certified_chain(certificate, terms, operator.deployment)
        missing = {}
        for hop, entry in enumerate(operator.deployment.shufflers, start=1):
            lost = await missing_at_hop(operator.channel_to(entry.name), terms, chain, hop, hashes_of)
            missing[entry.name] = len(lost)
    return CanaryReport(len(hashes_of), missing)
