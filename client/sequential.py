"""Taking part in a sequential round: clients attend on a stream to hop 1, and each answers once when it is asked.

Before it answers, a client checks that the accountant has granted the round, and that the model is the analyzer's. The
answer is stored before it is sent, and every later request, with any model, gets the same bytes, because a second
report would spend the budget a second time. The budget was submitted before (`client.submission`).
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from sqlalchemy.exc import IntegrityError

from croupier.client.outbox import Outbox
from croupier.client.randomizers import RANDOMIZERS
from croupier.client.submission import SealedSubmission, check_codes, seal_answer
from croupier.net.retrying import retrying
from croupier.protocol.deployment import Deployment
from croupier.protocol.errors import TRANSIENT, Code, ProtocolError, Refusal
from croupier.protocol.identity import Kind, Pinned, public_key_of, read_signed, sign_attendance
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Digest, PrivateKey, PublicKey, RoundId
from croupier.protocol.onion import onion_of
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2_grpc as stubs

_PER_MESSAGE = 500
"""The most attendances in one message of the stream."""
_PAUSE_S = (0.05, 0.1)
"""The range, in seconds, of the random pause before asking again, which keeps clients from asking at the same
moment."""


@dataclass(frozen=True)
class Attendee:
    """One user of a sequential round.

    Attributes:
        private_key: Ed25519, 32 bytes: the key that has submitted the budget. The answer spends that budget, which the
            outbox has counted.
        gradient: returns the user's vector, float64 (d,), or a silo's vectors, one for each record, for the model's
            parameters: float32, little-endian. If it raises, the user answers with the zero vector, because silence
            would depend on the data.
    """

    private_key: PrivateKey
    gradient: Callable[[bytes], Any]

    def __repr__(self) -> str:
        return "Attendee()"


@dataclass
class SequentialAnswers:
    """The outcome of the round for each user.

    Attributes:
        answered: the users that have answered.
        refused: the users that were not admitted, with the reason.
        without_gradient: the users whose gradient could not be used, with the reason; they answered with the zero
            vector.
        report: hop 1's report at the end.
    """

    answered: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    without_gradient: dict[str, str] = field(default_factory=dict)
    report: pb.SequentialReport = field(default_factory=pb.SequentialReport)


async def answer_sequentially(
    channel: grpc.aio.Channel,
    terms: RoundTerms,
    deployment: Deployment,
    users: Mapping[str, Attendee],
    *,
    outbox: Outbox,
    patience_s: float = 60.0,
    progress: Callable[[int], None] = lambda _: None,
) -> SequentialAnswers:
    """Attends for all users until the asking has ended, reconnecting when the stream breaks.

    Args:
        channel: to hop 1.
        terms: the round's, verified.
        deployment: with the keys of the certificate and the models.
        users: by name; one without a submitted budget in this round is not admitted, and the others continue.
        outbox: holds the users' submissions, by the same names, with the keys that sign their answers; stores every
            answer before it is sent.
        patience_s: the time for which hop 1 may be out of reach, or admit no user.
        progress: called with 1 after every answer.

    Raises:
        Refusal: no user is admitted, or hop 1 refuses the call.
        ProtocolError: hop 1's answer is not part of the protocol.
        SignatureError: the certificate is not signed by the accountant, or a model not by the analyzer; no user
            answers then.
        grpc.aio.AioRpcError: hop 1 stayed out of reach.
    """
    await asyncio.to_thread(RANDOMIZERS[terms.question.mechanism.kind].load)
    taking = _Taking(terms, deployment, users, outbox, progress)
    stub = stubs.ShufflerStub(channel)
    while not await retrying(lambda: taking.attend(stub), give_up_after_s=patience_s):  # noqa: ASYNC110
        await asyncio.sleep(secrets.SystemRandom().uniform(*_PAUSE_S))
    return taking.taken


class _Taking:
    def __init__(
        self,
        terms: RoundTerms,
        deployment: Deployment,
        users: Mapping[str, Attendee],
        outbox: Outbox,
        progress: Callable[[int], None],
    ) -> None:
        self.taken = SequentialAnswers(refused=dict.fromkeys(users, "its submission is not in the outbox"))
        self._terms, self._onion = terms, onion_of(terms)
        self._deployment = deployment
        self._answer_keys = outbox.answer_keys(terms.round_id)
        self._users = {
            public_key_of(user.private_key): (name, user) for name, user in users.items() if name in self._answer_keys
        }
        for name, _ in self._users.values():
            del self.taken.refused[name]
        if not self._users:
            raise Refusal(Code.UNKNOWN_CLIENT, f"no submission of these {len(users)} users is in the outbox")
        self._outbox = outbox
        self._answers = f"answers/{terms.round_id}"
        self._progress = progress
        self._granted = False

    async def attend(self, stub: stubs.ShufflerAsyncStub) -> bool:
        """Attends on one stream, from the challenge to its end; returns whether the asking has ended, too.

        Raises the stream's error if no user was admitted before, also if hop 1 is out of reach.
        """
        call, admitted, challenge = stub.Attend(), False, b""
        coming, part = iter(self._users), list[PublicKey]()
        try:
            await _say(call, pb.AttendRequest(round_id=self._terms.round_id))
            async for response in call:
                if response is None:  # gRPC's result for an unreadable message
                    raise ProtocolError("hop 1 has sent what is not a message of this stream")
                kind = response.WhichOneof("kind")
                if kind == "challenge":
                    challenge = response.challenge
                    part = await self._come(call, challenge, coming)
                elif kind == "admitted":
                    admitted |= self._note_admitted(part, response.admitted)
                    part = await self._come(call, challenge, coming)
                    if not part and not admitted:
                        name, why = next(iter(self.taken.refused.items()), ("", "no users"))
                        raise Refusal(Code.UNKNOWN_CLIENT, f"none of {len(self._users)} users is let in; {name}: {why}")
                elif kind == "certificate":
                    self._check_certificate(response.certificate)
                elif kind == "ask":
                    await self._answer(call, response.ask)
                elif kind == "finished":
                    self.taken.report = response.finished
                    return True
        except grpc.aio.AioRpcError as error:
            if not admitted or error.code() not in TRANSIENT:
                raise
            return False
        finally:
            call.cancel()
        if not admitted:
            raise _broken("the stream has ended before any user was let in")
        return False

    async def _come(self, call: Any, challenge: bytes, coming: Iterator[PublicKey]) -> list[PublicKey]:
        """Has the next users attend, as many as fit a message; returns their keys."""
        part = list(itertools.islice(coming, _PER_MESSAGE))
        if part:
            keys = [self._users[key][1].private_key for key in part]
            signed = await asyncio.to_thread(_sign_all, self._terms.hash, challenge, keys)
            await _say(call, pb.AttendRequest(attendances=signed))
        return part

    def _note_admitted(self, part: Sequence[PublicKey], admitted: pb.Admitted) -> bool:
        """Notes which users are not let in, and returns whether any other is."""
        check_codes(admitted.codes, len(part))
        for key, code in zip(part, admitted.codes, strict=True):
            name = self._users[key][0]
            self.taken.refused.pop(name, None)
            if code != pb.SUBMISSION_CODE_ACCEPTED:
                self.taken.refused[name] = pb.SubmissionCode.Name(code).removeprefix("SUBMISSION_CODE_")
        return pb.SUBMISSION_CODE_ACCEPTED in admitted.codes

    def _pinned(self) -> Pinned:
        return self._deployment.pinned(self._terms.created_unix_s)

    def _check_certificate(self, signed: pb.Signed) -> None:
        accountant = self._deployment.accountant.name
        certificate = read_signed(Kind.CERTIFICATE, pb.Certificate, signed, self._pinned(), [accountant])
        if (certificate.round_id, certificate.manifest_hash) != (self._terms.round_id, self._terms.hash):
            raise Refusal(Code.BAD_BATCH, "the certificate is about another round")
        if not certificate.granted:
            raise Refusal(Code.WRONG_STATE, "the accountant has not granted the round, so no user answers")
        self._granted = True

    async def _answer(self, call: Any, ask: pb.Ask) -> None:
        if not self._granted:
            raise Refusal(Code.WRONG_STATE, "asked without a certificate, so no user answers")
        client_key = PublicKey(ask.client_key)
        if client_key not in self._users:
            raise Refusal(Code.BAD_REQUEST, "asked for a user that does not attend here")
        name, user = self._users[client_key]
        parameters = self._parameters(ask)
        envelope = await asyncio.to_thread(self._envelope, name, user, parameters)
        await _say(call, pb.AttendRequest(answer=pb.Answer(client_key=ask.client_key, envelope=envelope)))
        if name not in self.taken.answered:
            self.taken.answered.add(name)
            self._progress(1)

    def _parameters(self, ask: pb.Ask) -> bytes:
        task = self._terms.question.mechanism.task
        if not ask.HasField("model") and task is not None:
            return task.parameters
        analyzer = self._deployment.analyzer.name
        model = read_signed(Kind.MODEL, pb.Model, ask.model, self._pinned(), [analyzer])
        if (model.round_id, model.manifest_hash) != (self._terms.round_id, self._terms.hash):
            raise Refusal(Code.BAD_BATCH, "the model is about another round")
        return model.parameters

    def _envelope(self, name: str, user: Attendee, parameters: bytes) -> bytes:
        """Returns the user's one answer: the stored one, or a new one that is stored."""
        try:
            return self._outbox.kept(RoundId(self._answers), name).submission
        except KeyError:
            pass
        key, epsilon = self._answer_keys[name], self._outbox.kept(self._terms.round_id, name).local_epsilon
        try:
            vector = user.gradient(parameters)
            envelope = seal_answer(self._terms, self._onion, vector, epsilon, PrivateKey(key))
        except Exception as error:  # noqa: BLE001 (whatever one user's model does, the others go on)
            self.taken.without_gradient[name] = str(error)
            mechanism = self._terms.question.mechanism
            zero = RANDOMIZERS[mechanism.kind].any_value(mechanism)
            envelope = seal_answer(self._terms, self._onion, zero, epsilon, PrivateKey(key))
        try:
            self._outbox.keep(RoundId(self._answers), {name: SealedSubmission(envelope, b"")})
        except IntegrityError:  # another stream was faster
            return self._outbox.kept(RoundId(self._answers), name).submission
        return envelope


async def _say(call: Any, request: pb.AttendRequest) -> None:
    """Writes, if the other side still listens; the next read raises the reason if it does not."""
    try:
        await call.write(request)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        if call.done() and await call.code() is grpc.StatusCode.INTERNAL:  # gRPC's word for a write that came too late
            raise _broken("the stream has ended") from None


def _broken(what: str) -> grpc.aio.AioRpcError:
    """Returns the error of a stream that is worth another one."""
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), what)


def _sign_all(manifest_hash: Digest, challenge: bytes, keys: Sequence[PrivateKey]) -> list[pb.Attendance]:
    return [sign_attendance(manifest_hash, challenge, key) for key in keys]
