"""Sequential rounds at a hop: clients answer one after the other, and every answer passes the hops alone.

Hop 1 waits for the certificate, asks, and reports how many have answered; the hops behind it pass answers and the
report on. `shuffler.sequential_order` says in which order clients are asked, `shuffler.attendance` has their streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from functools import partial

import grpc.aio

from croupier.net.limits import mark_authenticated
from croupier.net.tls import Context
from croupier.protocol.envelope import open_many
from croupier.protocol.errors import Code, Refusal, refusal_of
from croupier.protocol.identity import Kind, attendance_is_authentic, canonical, read_signed
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import PublicKey, RoundId
from croupier.protocol.onion import onion_of
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.clock import Stopwatch
from croupier.runtime.kinds import DocumentKind, KeyPurpose
from croupier.runtime.peers import Peers
from croupier.runtime.round_engine import RoundEngine
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.transaction import Transaction
from croupier.shuffler.attendance import MAX_ATTENDANCES, Attendance, Stream
from croupier.shuffler.position import ChainPosition
from croupier.shuffler.sequential_order import ask_in_order

_log = logging.getLogger(__name__)
_TIME_TO_ENTER_S = 20.0  # for a stream to let a client in: one that never does keeps no slot
_BEFORE_LAST_ANSWER = (pb.ROUND_STATE_CLOSED, pb.ROUND_STATE_MIXED, pb.ROUND_STATE_SEQUENTIAL)


class SequentialHop:
    """What a hop does in sequential rounds.

    Attributes:
        attendance: the streams of the clients that attend at hop 1.
    """

    def __init__(self, setup: ServiceSetup, peers: Peers, engine: RoundEngine, position: ChainPosition) -> None:
        self._store = setup.store
        self._metrics = setup.metrics
        self._peers = peers
        self._engine = engine
        self._position = position
        self.attendance = Attendance()

    async def run(self, terms: RoundTerms) -> bool:
        """Asks the clients (hop 1), and passes on that it has ended; returns False while there is nothing to do."""
        await self._store.shred_pages()  # the batch, which may take a while and keeps no one waiting
        document = await self._store.run(
            StoreStep.READ_SEQUENTIAL_REPORT, lambda tx: tx.document(terms.round_id, DocumentKind.SEQUENTIAL_REPORT)
        )
        if document is None and self._position.hop(terms) > 1:
            return False
        if document is None:
            document = await self._ask_clients(terms)
        signed = pb.Signed.FromString(document)
        self.attendance.finish(terms.round_id, pb.SequentialReport.FromString(signed.payload))
        receiver = self._position.receivers(terms)[pb.LANE_PARAMETER]
        request = pb.EndSequentialRequest(round_id=terms.round_id, report=signed)
        await self._peers.call_until_answered(
            terms.round_id, receiver, lambda to: stubs.DeliveryStub(to).EndSequential, request
        )

        def finish(tx: Transaction) -> None:
            tx.update_round(terms.round_id, state=pb.ROUND_STATE_DELIVERED)
            self._engine.shred_round(tx, terms.round_id)

        await self._store.run(StoreStep.FINISH_SEQUENTIAL_PART, finish)
        return True

    async def _ask_clients(self, terms: RoundTerms) -> bytes:
        """Waits for the certificate, asks clients if it is granted, and returns the signed report, which is durable."""
        watch = Stopwatch()
        accountant = terms.accountant.service
        request = rpc.GetCertificateRequest(round_id=terms.round_id)
        answer = await self._peers.call_until_answered(
            terms.round_id, accountant, lambda to: stubs.AccountantStub(to).GetCertificate, request
        )
        signed = answer.certificate
        certificate = read_signed(Kind.CERTIFICATE, pb.Certificate, signed, self._peers.pinned_at(terms), [accountant])
        report = pb.SequentialReport(round_id=terms.round_id, manifest_hash=terms.hash)
        if certificate.granted:
            relay = partial(self.pass_on, terms)
            report = await ask_in_order(terms, self._store, self.attendance, signed, relay)
        document = self._peers.identity.signed(Kind.SEQUENTIAL, canonical(report)).SerializeToString(deterministic=True)

        def keep(tx: Transaction) -> None:
            tx.put_document(terms.round_id, DocumentKind.SEQUENTIAL_REPORT, document)
            tx.add_cost(terms.round_id, "sequential", *watch.read())

        await self._store.run(StoreStep.SIGN_SEQUENTIAL_REPORT, keep)
        self._metrics.stage("sequential", watch.read()[0])
        return document

    async def pass_on(self, terms: RoundTerms, answer: bytes) -> pb.RelayResponse:
        """Sends an answer to the service that opens its next layer, until that has worked."""
        receiver = self._position.receivers(terms)[pb.LANE_REPORT]
        request = pb.RelayRequest(round_id=terms.round_id, ciphertext=answer)
        response = await self._peers.call_until_answered(
            terms.round_id, receiver, lambda to: stubs.DeliveryStub(to).Relay, request
        )
        if response.HasField("model"):  # what it says is counted by
            analyzer = terms.analyzer.service
            read_signed(Kind.MODEL, pb.Model, response.model, self._peers.pinned_at(terms), [analyzer])
        return response

    async def relay(self, request: pb.RelayRequest, context: Context) -> pb.RelayResponse:
        """Opens one layer of an answer and passes it on; returns what the analyzer made of it.

        Raises:
            Refusal: NOT_YOUR_CALL (only the predecessor may), UNKNOWN_ROUND, WRONG_STATE (not a sequential round, or
                over), NOT_READY (the next service does not answer).
        """
        terms = await self._engine.terms(RoundId(request.round_id))
        self._peers.require_caller(context, [self._position.predecessor(terms)])
        keys = await self._store.run(StoreStep.READ_KEYS_TO_RELAY, lambda tx: tx.keys(terms.round_id))
        if terms.question.sequential is None or not keys:
            raise Refusal(Code.WRONG_STATE, "the round is not sequential, or its asking has ended")
        layer = onion_of(terms).layer(pb.LANE_ANSWER, self._position.hop(terms))
        if len(request.ciphertext) != layer.sealed_size:
            return pb.RelayResponse()
        (opened,) = open_many(
            terms.shared.hpke_suite, keys[KeyPurpose.ENVELOPE].private, layer.label, [request.ciphertext]
        )
        if opened is None:
            return pb.RelayResponse()
        receiver = self._position.receivers(terms)[pb.LANE_REPORT]
        try:
            forward = pb.RelayRequest(round_id=terms.round_id, ciphertext=opened)
            return await stubs.DeliveryStub(self._peers.channel_to(receiver)).Relay(forward, timeout=30.0)
        except grpc.aio.AioRpcError as error:
            raise refusal_of(error) or Refusal(Code.NOT_READY, f"{receiver} does not answer") from error

    async def attend(self, requests: AsyncIterator[pb.AttendRequest]) -> AsyncGenerator[pb.AttendResponse]:
        """Lets clients in on a stream, asks each in the secret order, and takes its answer.

        Raises:
            Refusal: BAD_REQUEST (no round named, not a sequential round, too many attendances), NOT_YOUR_CALL (not
                hop 1), UNKNOWN_ROUND, NOT_READY (no client was let in in time), OVERLOADED (responses are not read),
                WRONG_STATE (the round has ended without a result), CONFLICT (all clients of the stream have come on
                newer ones), STOPPING.
        """
        first = None
        with contextlib.suppress(TimeoutError, StopAsyncIteration):
            first = await asyncio.wait_for(anext(requests), _TIME_TO_ENTER_S)
        if first is None or not first.round_id:
            raise Refusal(Code.BAD_REQUEST, "the first message must name the round")
        terms = await self._engine.terms(RoundId(first.round_id))
        if self._position.hop(terms) != 1:
            raise Refusal(Code.NOT_YOUR_CALL, f"clients attend at {terms.hops[0].service!r}")
        if terms.question.sequential is None:
            raise Refusal(Code.BAD_REQUEST, f"round {terms.round_id!r} is not sequential")
        stream = self.attendance.open(terms.round_id)
        reader = asyncio.create_task(self._listen(stream, requests))
        late = asyncio.get_running_loop().call_later(_TIME_TO_ENTER_S, stream.end_if_empty)
        try:
            yield pb.AttendResponse(challenge=stream.challenge)
            row, document = await self._store.run(
                StoreStep.READ_STATE_FOR_STREAM,
                lambda tx: (tx.round(terms.round_id), tx.document(terms.round_id, DocumentKind.SEQUENTIAL_REPORT)),
            )
            if row.state == pb.ROUND_STATE_DISPOSED or row.problem:
                self.stop_round(terms.round_id)
            if document is not None:
                report = pb.SequentialReport.FromString(pb.Signed.FromString(document).payload)
                self.attendance.finish(terms.round_id, report)
            while (response := await stream.outgoing.get()) is not None:
                if isinstance(response, Refusal):
                    raise response
                yield response
        finally:
            late.cancel()
            reader.cancel()
            self.attendance.close(stream)

    async def _listen(self, stream: Stream, requests: AsyncIterator[pb.AttendRequest]) -> None:
        """Takes what a stream's caller says, until it has hung up or said something that ends the stream."""
        try:
            async for request in requests:
                await self._hear(stream, request)
            stream.end()
        except Refusal as refusal:
            stream.end(refusal)
        except Exception as error:  # noqa: BLE001 (gRPC's, where a caller has vanished; ours would be a defect)
            _log.warning("a stream cannot be read any more: %s", error, extra={"round_id": stream.round_id})
            stream.end(Refusal(Code.INTERNAL))

    async def _hear(self, stream: Stream, request: pb.AttendRequest) -> None:
        if len(request.attendances) > MAX_ATTENDANCES or request.round_id:
            raise Refusal(
                Code.BAD_REQUEST,
                f"{len(request.attendances)} attendances in one message; there must be at most {MAX_ATTENDANCES}, and "
                "the round is named in the first message only",
            )
        if request.attendances:
            codes = await self._admit(stream, request.attendances)
            stream.push(pb.AttendResponse(admitted=pb.Admitted(codes=codes)))
            accepted = zip(request.attendances, codes, strict=True)
            admitted = [
                PublicKey(attendance.client_key) for attendance, code in accepted if code == pb.SUBMISSION_CODE_ACCEPTED
            ]
            if admitted:
                mark_authenticated()
            await self.attendance.enter(stream, admitted)
        if request.HasField("answer"):
            self.attendance.answer(stream, request.answer)

    async def _admit(self, stream: Stream, attendances: Sequence[pb.Attendance]) -> list[pb.SubmissionCode.ValueType]:
        terms = await self._engine.terms(stream.round_id)

        def check() -> list[bool]:
            return [attendance_is_authentic(terms.hash, stream.challenge, attendance) for attendance in attendances]

        keys = [PublicKey(attendance.client_key) for attendance in attendances]
        known = await self._store.run(
            StoreStep.FIND_WHO_MAY_ATTEND, lambda tx: tx.submission_hashes(stream.round_id, keys)
        )
        return [
            pb.SUBMISSION_CODE_BAD_SIGNATURE  # of a stranger too: it does not tell who takes part
            if not authentic
            else pb.SUBMISSION_CODE_ACCEPTED
            if key in known
            else pb.SUBMISSION_CODE_UNKNOWN_CLIENT
            for key, authentic in zip(keys, await asyncio.to_thread(check), strict=True)
        ]

    async def end_asking(self, terms: RoundTerms, state: pb.RoundState.ValueType) -> None:
        """Ends the asking at the operator's request, from the next client on; also before it has begun."""
        if terms.question.sequential is None or state not in _BEFORE_LAST_ANSWER:
            return
        await self._store.run(
            StoreStep.END_SEQUENTIAL_PART,
            lambda tx: tx.put_document(terms.round_id, DocumentKind.SEQUENTIAL_ENDED, b"1"),
        )
        await self.attendance.end(terms.round_id)

    def close_streams(self) -> None:
        """Ends all streams; their clients reconnect."""
        self.attendance.close_all()

    def stop_round(self, round_id: RoundId) -> None:
        """Ends the streams of a round that will have no result."""
        self.attendance.close_round(round_id, Refusal(Code.WRONG_STATE, "the round has ended without a result"))
