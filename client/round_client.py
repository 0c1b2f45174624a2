"""A client's directory and channels in one deployment, and the rounds that it finds, checks and answers.

`client.async_client` joins surveys with it. It combines the parts of `client`: one directory for everything durable,
channels that are opened at their first use, and errors that say what to do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Self, cast
from weakref import WeakValueDictionary

import grpc.aio
from sqlalchemy.exc import IntegrityError

from croupier.client.limits import LIMITS_FILE, Limits, SpentHere, change_limits, read_limits
from croupier.client.one_answer import (
    ALREADY_ANSWERED,
    AnswerOutcome,
    Enrol,
    Given,
    Respondent,
    value_of,
    with_kept_reports,
)
from croupier.client.outbox import KEPT_DAYS, Outbox, other_person
from croupier.client.own_key import read_or_make_key
from croupier.client.round_checks import fetch_publication, fetch_round
from croupier.client.round_result import Inclusion, Receipt, RoundResult
from croupier.client.submission import Participant, new_client_key, prepare_one, send
from croupier.client.tickets import seal_prepared
from croupier.client.verification import missing_by_hop
from croupier.client.versions import newer_versions
from croupier.net.channels import ClientTransport, public_channel
from croupier.net.http_channel import HttpChannel
from croupier.net.retrying import why_unreachable
from croupier.protocol.deployment import DEPLOYMENT_FILE, Deployment, ServiceEntry, load_deployment
from croupier.protocol.errors import Code, NotIncludedError, Refusal, SignatureError, UnreachableError
from croupier.protocol.invitations import Invitation
from croupier.protocol.manifest import RoundTerms, one_survey, state_name
from croupier.protocol.names import NO_KEY, PrivateKey, PublicKey, RoundId
from croupier.protocol.onion import decode_budget, onion_of
from croupier.protocol.questions import choose_budget
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.promises import Promises, promises_of


class RoundClient:
    """One participant's device, or the program that answers for several people, in one deployment.

    Several coroutines of one event loop may use it at once. Its sealed answers and its spending are in its directory
    and outlive it; two programs may share a directory. A test replaces its clock: `now` and `sleep`.
    """

    def __init__(
        self,
        deployment: Path | str | Deployment,
        *,
        directory: Path | str | None = None,
        key_file: Path | str | None = None,
        limits: Limits | None = None,
        patience_s: float = 60.0,
        gateway: str = "",
        transport: ClientTransport | None = None,
    ) -> None:
        """Reads the deployment; no service is called yet.

        Args:
            deployment: the deployment file from the operator, or its directory.
            directory: for sealed answers, limits and the key, readable only by this user; by default `client` beside
                the deployment file, which the command line uses as well.
            key_file: the Ed25519 key that signs answers without a key of their own, from 'croupier keygen --client'; by
                default a new one in the directory. The operator has to enrol its public half, `public_key`.
            limits: this application's own, beside those in the directory (`croupier limits`); the stricter counts.
            patience_s: the time for which each service may be out of reach before a call fails.
            gateway: "https://…" of a gateway to the services, for networks without gRPC. The checks are the same.
            transport: to the services without a gateway; TLS by default.

        Raises:
            ValueError: the deployment file does not exist or cannot be used, a directory is needed and not given, or
                the gateway's URL is not valid.
        """
        self._file: Path | None = None
        if isinstance(deployment, Deployment):
            self.deployment = deployment
            if directory is None:
                raise ValueError("directory is missing; without a deployment file it must be given")
        else:
            file = Path(deployment)
            file = file / DEPLOYMENT_FILE if file.is_dir() else file
            self.deployment = load_deployment(file)
            self._file = file
            directory = directory or file.parent / "client"
        self.directory = Path(directory)
        self.patience_s = patience_s
        self._key_file = Path(key_file) if key_file else self.directory / "client.key"
        self._key_is_own = not key_file
        self._limits = limits or Limits()
        self._open_channel = transport.public_channel if transport else public_channel
        self.gateway = HttpChannel(gateway) if gateway else None
        self.now = time.time
        self.sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
        self._outbox: Outbox | None = None
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._answering: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes channels and files; sealed answers stay."""
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()
        if self._outbox is not None:
            self._outbox.close()
            self._outbox = None

    async def round(self, round_id: str = "") -> AsyncClientRound:
        """Returns a round whose terms every service has signed.

        Args:
            round_id: the round; the newest open one if not given.

        Raises:
            Refusal: there is no such round (UNKNOWN_ROUND, NO_OPEN_ROUND), or its terms are not acceptable.
            SignatureError: a service has not signed the terms.
            UnreachableError: hop 1 does not answer.
        """
        with _typed_errors():
            try:
                terms, state = await fetch_round(self.shuffler, self.deployment, RoundId(round_id), self.patience_s)
            except (SignatureError, Refusal, grpc.aio.AioRpcError) as error:
                explained = not isinstance(error, Refusal) or error.code is Code.BAD_MANIFEST
                if not explained or not await self.follow_versions():
                    raise
                terms, state = await fetch_round(self.shuffler, self.deployment, RoundId(round_id), self.patience_s)
        return AsyncClientRound(terms, state_name(state), self)

    async def rounds_of(self, name: str = "") -> list[AsyncClientRound]:
        """Returns all rounds of a survey, or of one of its waves, in the order of its questions.

        Args:
            name: of the survey, of a wave, or of any round of it; the newest open round if not given.

        Raises:
            Refusal: there is no such round, or the survey's rounds do not belong together (BAD_MANIFEST).
            SignatureError, UnreachableError: as for `round`.
        """
        try:
            asked = await self.round(name)
        except Refusal as refusal:
            if not name or refusal.code is not Code.UNKNOWN_ROUND:
                raise
            try:
                asked = await self.round(f"{name}-1")
            except Refusal as of_first:
                raise refusal if of_first.code is Code.UNKNOWN_ROUND else of_first from of_first
        others = asked.terms.survey.round_ids(asked.terms.wave.number if asked.terms.wave else 0)
        rounds = [asked if other == asked.id else await self.round(other) for other in others]
        try:
            one_survey([client_round.terms for client_round in rounds])
        except ValueError as error:
            raise Refusal(Code.BAD_MANIFEST, str(error)) from error
        return rounds

    async def follow_versions(self) -> bool:
        """Continues with the newest version of the deployment that all services have signed; returns if it is newer.

        The version replaces the deployment file of this client, if it is writable. `round` calls this if a round does
        not match the present version, or if hop 1 does not answer.

        Raises:
            ValueError: a service shows a version that one of the others has not signed.
        """
        for entry in (self.deployment.shufflers[0], self.deployment.accountant, self.deployment.analyzer):
            with suppress(grpc.aio.AioRpcError):
                if versions := await newer_versions(self._channel(entry), self.deployment):
                    break
        else:
            return False
        for channel in self._channels.values():
            await channel.close()
        self._channels = {}
        (*_, (raw, self.deployment)) = versions.items()
        if self._file is not None:
            with suppress(OSError):
                fresh = self._file.with_suffix(".new")
                fresh.write_bytes(raw)
                fresh.replace(self._file)
        return True

    @property
    def limits(self) -> Limits:
        """The limits that every answer keeps to: the stricter of the application's and the directory's."""
        return self._limits.stricter(read_limits(self.directory / LIMITS_FILE))

    def change_limits(self, **changes: float | None) -> None:
        """Changes those limits in the directory that are given and not None; see `croupier.Limits`.

        Raises:
            ValueError: a limit is out of range.
        """
        change_limits(self.directory / LIMITS_FILE, changes)

    @property
    def spent(self) -> SpentHere:
        """The total spending of all rounds answered from here; see `client.limits`."""
        return self.outbox.spent_in_all()

    def acknowledged(self, round_id: str) -> dict[str, bytes]:
        """Returns the inclusion hashes of the submissions to a round that were acknowledged here, by user.

        Raises:
            ValueError: nothing was acknowledged here, or it is too long ago.
        """
        hashes_of = self.outbox.inclusion_hashes(RoundId(round_id))
        if not hashes_of:
            raise ValueError(f"nothing was acknowledged here in round {round_id!r} in the last {KEPT_DAYS} days")
        return hashes_of

    @property
    def public_key(self) -> str:
        """The public half of the client's key, hexadecimal, for the operator to enrol."""
        return Participant(None, 0.0, self.private_key).public_key.hex()

    @cached_property
    def private_key(self) -> PrivateKey:
        """The key that signs answers for which no other is given; made when it is first needed."""
        return read_or_make_key(self._key_file)

    @property
    def outbox(self) -> Outbox:
        """The sealed answers of this client."""
        if self._outbox is None:
            self._outbox = Outbox(self.directory / "outbox.db")
        return self._outbox

    @property
    def shuffler(self) -> grpc.aio.Channel:
        """The channel to hop 1."""
        return self._channel(self.deployment.shufflers[0])

    @property
    def accountant(self) -> grpc.aio.Channel:
        """The channel to the accountant."""
        return self._channel(self.deployment.accountant)

    @property
    def analyzer(self) -> grpc.aio.Channel:
        """The channel to the analyzer."""
        return self._channel(self.deployment.analyzer)

    def _channel(self, entry: ServiceEntry) -> grpc.aio.Channel:
        if self.gateway is not None:
            return cast(grpc.aio.Channel, self.gateway)
        if entry.name not in self._channels:
            self._channels[entry.name] = self._open_channel(entry)
        return self._channels[entry.name]

    def one_at_a_time(self, round_id: str, user: str) -> asyncio.Lock:
        """Returns the lock of a person's answer to a round; a second call sends the submission of the first."""
        return self._answering.setdefault((round_id, user), asyncio.Lock())


@dataclass(frozen=True)
class VerifiedRound:
    """A round whose terms were verified.

    Attributes:
        terms: everything that the services have signed.
        state: hop 1's answer at the time of the request, OPEN for instance.
    """

    terms: RoundTerms
    state: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, {self.question!r}, {self.state})"

    @property
    def id(self) -> RoundId:
        """The round's name."""
        return self.terms.round_id

    @property
    def question(self) -> str:
        """The kind of the question, in a word."""
        return self.terms.question.name

    @property
    def budgets(self) -> tuple[float, ...]:
        """The local budgets that an answer can spend, ascending."""
        return self.terms.budget_grid

    @property
    def local_delta(self) -> float:
        """The local δ of each of these budgets; 0 if reports are ε-private by themselves."""
        return self.terms.local_delta

    def promises(self, local_epsilon: float) -> Promises:
        """Returns the guarantees of an answer with this budget if one server is honest, and if none is.

        Its `lines` state them in sentences.
        """
        return promises_of(self.terms, local_epsilon)

    @property
    def closes_at(self) -> datetime | None:
        """The time at which the round closes by itself; None if its operator closes it."""
        deadline = self.terms.close_deadline_unix_s
        return datetime.fromtimestamp(deadline, UTC) if deadline else None


@dataclass(frozen=True, repr=False)
class AsyncClientRound(VerifiedRound):
    """One round, and the client that answers it."""

    client: RoundClient

    async def submit(
        self,
        value: Given,
        max_local_epsilon: float,
        *,
        person: str = "",
        key: bytes = b"",
        invitation: str = "",
    ) -> Receipt:
        """Randomizes, seals, stores and sends one person's answer, once; the value itself leaves nothing behind.

        After a failure the same call may be made again, at any time and after a crash, until it returns or refuses for
        good: a sealed answer is sent again unchanged, and no answer is ever randomized twice.

        Args:
            value: a number, or text as people write it down, such as a category's name; with `choices` the names of
                the chosen options.
            max_local_epsilon: the most to spend; the largest budget of the round up to it is used.
            person: the respondent's constant name, if a program answers for several people. The name never leaves this
                machine. "" is the one person whose device this is.
            key: an enrolled Ed25519 key, 32 bytes, instead of the client's own.
            invitation: the link of an invitation to the round's survey, or to rounds, from which a key follows.

        Raises:
            ValueError: value, budget or link cannot be used, or a person with a name has neither key nor invitation.
            LimitError: the limits do not allow the answer.
            OtherPersonError: someone else has answered from here; name each person if there are several.
            UnreachableError: a service does not answer; call again later.
            Refusal: a service refuses: UNKNOWN_CLIENT, ROUND_FULL, ROUND_CLOSED and others; see `Refusal.code`.
            TicketError: the accountant's tickets cannot be trusted.
            ProtocolError: a service's answer is not part of the protocol.
        """
        if invitation:
            key = self.invited_key(invitation)
        done = await self.answer(value, max_local_epsilon, Respondent(person, PrivateKey(key)))
        if done.code not in ("ACCEPTED", ALREADY_ANSWERED):
            raise Refusal(Code[done.code])
        promised = promises_of(self.terms, done.local_epsilon)
        return Receipt(done.round_id, person, done.local_epsilon, done.local_delta, done.sealed_before, promised)

    def invited_key(self, link: str) -> PrivateKey:
        """Returns the key that an invitation to the survey of this round gives.

        Raises:
            ValueError: the link is not an invitation.
        """
        return Invitation.read(link).key(self.terms.survey.invitation_hash)

    async def answer(
        self,
        value: Given,
        max_local_epsilon: float,
        respondent: Respondent,
        enrol: Enrol | None = None,
    ) -> AnswerOutcome:
        """Does the work of `submit`, and returns the code of a service that does not admit the respondent.

        A user whose submission is already in the outbox sends those bytes again, whatever the value now is: to
        randomize twice would spend the budget twice. One whose report is prepared asks for the same tickets again.

        Args:
            value: as for `submit`.
            max_local_epsilon: as for `submit`.
            respondent: who answers.
            enrol: registers the signing key before its use, if the caller is the operator.

        Raises:
            Refusal: a service refuses the call; everything else as for `submit`.
        """
        client, round_id, outbox = self.client, self.id, self.client.outbox
        key = respondent.key or (new_client_key() if respondent.new_key else NO_KEY)
        key = key or await asyncio.to_thread(lambda: client.private_key)
        participant = Participant(value_of(self.terms.question.mechanism, value), max_local_epsilon, key)
        user = respondent.user(participant.public_key, outbox.begun(round_id))
        with _typed_errors():
            async with client.one_at_a_time(round_id, user):
                known = outbox.begun(round_id)
                if respondent.alone and known and user not in known:  # it may be the same person under a new key
                    raise other_person(round_id, len(known))
                sealed_before, refused = user in outbox.users(round_id), None
                if not sealed_before:
                    sealed_before, refused = await self._seal(user, participant, respondent, enrol)
                    await asyncio.to_thread(outbox.overwrite_log)
                if refused is not None:
                    return AnswerOutcome(round_id, _name(refused), 0.0, 0.0, sealed_before)
                code = await self._send(user, enrol if sealed_before else None)
        spent = outbox.kept(round_id, user).local_epsilon
        return AnswerOutcome(round_id, code, spent, self.terms.local_delta, sealed_before)

    async def _seal(
        self, user: str, participant: Participant, respondent: Respondent, enrol: Enrol | None
    ) -> tuple[bool, pb.SubmissionCode.ValueType | None]:
        """Seals an answer in the outbox; returns whether an earlier call made it, and the code if it gets no tickets.

        The order is the safe one: the contents of the outbox go first, then the person's own limits, and only then is
        anything randomized or sent.
        """
        client, terms, round_id, outbox = self.client, self.terms, self.id, self.client.outbox
        limits, alone, earlier = client.limits, respondent.alone, outbox.prepared(round_id).get(user)
        if earlier is None:
            epsilon = choose_budget(participant.max_local_epsilon, terms.budget_grid)
        else:
            epsilon, _ = decode_budget(earlier.record.budget)
        limits.check_round(terms, epsilon)
        if earlier is None and terms.permanent is not None:
            if not (respondent.person or alone):
                raise ValueError("person is missing; in a permanent study each of several people needs a name")
            mine, whose = {user: participant}, lambda _: respondent.person
            participant = (await asyncio.to_thread(with_kept_reports, outbox, terms, mine, whose, limits))[user]
        attempt = await asyncio.to_thread(outbox.begin, round_id, epsilon, terms.local_delta, limits)
        try:
            if enrol:
                await enrol(participant.public_key if earlier is None else earlier.client_key)
            fresh = earlier or prepare_one(terms, onion_of(terms), participant)
            prepared = await asyncio.to_thread(outbox.prepare, round_id, {user: fresh}, alone=alone)
            sealed, refused = await seal_prepared(client.accountant, terms, prepared, client.patience_s)
            await asyncio.to_thread(outbox.discard, round_id, refused)
            await asyncio.to_thread(outbox.keep, round_id, sealed, limits=limits, alone=alone)
        except IntegrityError:  # the same person's other window has sealed the answer meanwhile
            return True, None
        finally:
            outbox.withdraw(attempt)
        return earlier is not None or prepared != {user: fresh}, refused.get(user)

    async def _send(self, user: str, enrol: Enrol | None) -> str:
        """Sends the answer that the outbox has, unless hop 1 has acknowledged it; returns the code."""
        client, outbox = self.client, self.client.outbox
        kept = outbox.kept(self.id, user)
        if kept.acknowledged:
            return ALREADY_ANSWERED
        if not kept.submission:
            raise ValueError(f"the answer was sealed more than {KEPT_DAYS} days ago, and is forgotten; it was not sent")
        if enrol:
            await enrol(PublicKey(pb.Submission.FromString(kept.submission).client_key))
        sent = (await send(client.shuffler, self.id, {user: kept.submission}, client.patience_s))[user]
        if sent == pb.SUBMISSION_CODE_ACCEPTED:
            await asyncio.to_thread(outbox.acknowledge, self.id, [user])
        return _name(sent)

    async def verify(self, wait_s: float = 0.0) -> Inclusion:
        """Checks that every hop has passed on all acknowledged submissions; its requests do not identify them.

        Args:
            wait_s: the time to wait for the round's result.

        Raises:
            NotIncludedError: a hop has not passed on a submission; it names the hops.
            Refusal: the result is not there yet (NOT_READY), or a hop shows another list than it has committed to.
            SignatureError: a signature is missing or wrong.
            UnreachableError: a service does not answer.
            ValueError: no submission from here was acknowledged, or it is too long ago.
        """
        hashes_of = self.client.acknowledged(self.id)
        missing = await self.missing_by_hop(hashes_of, wait_s)
        if any(missing.values()):
            raise NotIncludedError({hop: users for hop, users in missing.items() if users})
        return Inclusion(self.id, len(hashes_of), tuple(missing))

    async def missing_by_hop(self, hashes_of: Mapping[str, bytes], wait_s: float = 0.0) -> dict[str, list[str]]:
        """Returns, for every hop by name, the users whose submissions it has not passed on.

        Args:
            hashes_of: inclusion hashes by user; see `RoundClient.acknowledged`.
            wait_s: the time to wait for the round's result.

        Raises:
            Refusal, SignatureError, UnreachableError: as for `verify`.
        """
        client = self.client
        with _typed_errors():
            _, certificate = await fetch_publication(client.analyzer, client.deployment, self.id, wait_s)
            return await missing_by_hop(client.shuffler, self.terms, certificate, client.deployment, hashes_of)

    async def result(self, wait_s: float = 0.0) -> RoundResult:
        """Returns the published result, verified.

        Args:
            wait_s: the time to wait for it.

        Raises:
            NotCertifiedError: the accountant has refused the round; there will be no result.
            Refusal: the result is not there yet (NOT_READY).
            SignatureError: a signature is missing or wrong.
            UnreachableError: the analyzer does not answer.
        """
        with _typed_errors():
            published = await fetch_publication(self.client.analyzer, self.client.deployment, self.id, wait_s)
        return RoundResult.read(*published)

    async def goes_on(self) -> bool:
        """Returns whether the rule of the question has led to a further wave, or may still do so.

        Raises:
            SignatureError: a signature is missing or wrong.
            UnreachableError: the analyzer does not answer.
        """
        with _typed_errors():
            try:
                publication, _ = await fetch_publication(self.client.analyzer, self.client.deployment, self.id, 0.0)
            except Refusal as refusal:
                if refusal.code not in (Code.NOT_READY, Code.UNKNOWN_ROUND):
                    raise
                return self.state != "DISPOSED"
        return publication.HasField("rule_state")


def _name(code: pb.SubmissionCode.ValueType) -> str:
    return pb.SubmissionCode.Name(code).removeprefix("SUBMISSION_CODE_")


@contextmanager
def _typed_errors() -> Iterator[None]:
    """Raises UnreachableError if gRPC reports that a call did not arrive."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise UnreachableError(f"a service is out of reach: {why_unreachable(error)}") from error
