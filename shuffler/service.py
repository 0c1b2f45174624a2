"""The shuffler's gRPC service and its part in the life of a round.

    hop 1:     OPEN ──close──▶ CLOSED ──mix──▶ MIXED ──deliver──▶ DELIVERED
    hop 2..k:  OPEN ──hand-over──▶ CLOSED ──mix──▶ MIXED ──deliver──▶ DELIVERED
    in turns:                                       MIXED ──deliver──▶ IN_TURNS ──no more turns──▶ DELIVERED

The output batch and the commitments are durable before the first byte is sent, so a crash can repeat a delivery but
never choose a second order. After the next role's acknowledgement bodies and round key are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any

import grpc.aio

from protocol.batches import ciphertext_hashes, digest, drop_counts
from protocol.deployment import OPERATOR
from protocol.envelope import open_many
from protocol.errors import Code, Refusal, refusal_of
from protocol.identity import Kind, attendance_is_authentic, read_signed
from protocol.manifest import RoundTerms, canonical
from protocol.onion import Onion
from protocol.randomness import SystemRandom
from protocol.v1 import messages_pb2 as pb
from protocol.v1 import services_pb2 as rpc
from protocol.v1 import services_pb2_grpc as stubs
from runtime.service import ENVELOPE_KEY, TURNS_REPORT, RoundService, ServiceSetup, Stopwatch
from runtime.store import RoundRow, Transaction
from shuffler.admission import MAX_PER_CALL, Admission
from shuffler.attendance import MAX_ATTENDANCES, Attendance, Stream
from shuffler.mixing import open_layer, permute
from shuffler.sequential import ORDER_KEY, PROGRESS, TURNS_ENDED, new_order_key, take_turns

__all__ = ["ShufflerService"]

_log = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]
_INCLUSION_PAGE = 65536
_HASH_BYTES = 32
_TIME_TO_ENTER_S = 20.0  # for a stream to let somebody in: who has nobody keeps no slot
_BEFORE_LAST_TURN = (pb.ROUND_STATE_CLOSED, pb.ROUND_STATE_MIXED, pb.ROUND_STATE_IN_TURNS)
_LANES: tuple[pb.Lane.ValueType, ...] = (pb.LANE_REPORT, pb.LANE_PARAMETER)


class ShufflerService(RoundService, stubs.ShufflerServicer):
    """One hop. Hop 1 also admits clients."""

    passing = (PROGRESS,)

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self._admission = Admission(setup.store, setup.pool)
        self._attendance = Attendance()
        self._sizes: dict[str, int] = {}

    @property
    def num_waiting_submissions(self) -> int:
        return self._admission.num_pending

    # ------------------------------------------------------------- place in the chain

    def hop(self, terms: RoundTerms) -> int:
        return terms.services.index(self.name) + 1

    def predecessor(self, terms: RoundTerms) -> str:
        hop = self.hop(terms)
        if hop == 1:
            raise Refusal(Code.NOT_YOUR_CALL, "hop 1 takes submissions, not deliveries")
        return terms.manifest.hops[hop - 2].service

    def _receivers(self, terms: RoundTerms) -> dict[pb.Lane.ValueType, str]:
        hop = self.hop(terms)
        if hop < terms.num_hops:
            return dict.fromkeys(_LANES, terms.manifest.hops[hop].service)
        return {
            pb.LANE_REPORT: terms.manifest.analyzer.service,
            pb.LANE_PARAMETER: terms.manifest.accountant.service,
        }

    # ------------------------------------------------------------- the round

    async def advance(self, row: RoundRow, terms: RoundTerms) -> bool:
        if row.state == pb.ROUND_STATE_OPEN:
            return await self._close_at_deadline(terms)
        if row.state == pb.ROUND_STATE_CLOSED:
            await self._mix(terms)
        elif row.state == pb.ROUND_STATE_MIXED:
            await self._deliver(terms)
        elif row.state == pb.ROUND_STATE_IN_TURNS:
            return await self._turns(terms)
        return True

    async def _close_at_deadline(self, terms: RoundTerms) -> bool:
        deadline = terms.manifest.close_deadline_unix_s
        if self.hop(terms) != 1 or not deadline:
            return False
        while self.clock.now() < deadline:
            await asyncio.sleep(0.2)  # the clock is injected and may jump
            row = await self.store.run(lambda tx: tx.round(terms.round_id))
            if row.state != pb.ROUND_STATE_OPEN:  # the operator was faster
                return True
        state, _ = await self.close(terms)
        return state != pb.ROUND_STATE_OPEN

    async def close(self, terms: RoundTerms) -> tuple[pb.RoundState.ValueType, int]:
        """Ends admission if there are enough distinct clients; else holds or disposes, as the manifest says."""
        manifest = terms.manifest

        def step(tx: Transaction) -> tuple[pb.RoundState.ValueType, int]:
            state, count = tx.round(terms.round_id).state, tx.num_submissions(terms.round_id)
            if state == pb.ROUND_STATE_OPEN:
                if count >= manifest.min_batch_size:
                    state = pb.ROUND_STATE_CLOSED
                elif manifest.short_batch_policy == pb.SHORT_BATCH_POLICY_DISPOSE:
                    state = pb.ROUND_STATE_DISPOSED
                    tx.forget(terms.round_id)
                tx.update_round(terms.round_id, state=state)
            return state, count

        state, count = await self.store.run(step)
        if state == pb.ROUND_STATE_DISPOSED:
            self.dismiss(terms.round_id)
        return state, count

    async def _mix(self, terms: RoundTerms) -> None:
        watch = Stopwatch()
        hop, onion = self.hop(terms), Onion(terms)
        keys = await self.store.run(lambda tx: tx.keys(terms.round_id))
        private_key = keys[ENVELOPE_KEY].private
        if hop == 1:
            envelopes = await self.store.run(lambda tx: tx.envelopes(terms.round_id))
            opened = await open_layer(self.pool, terms.suite, private_key, onion.joint, envelopes)
            watch.workers_cpu_s += opened.cpu_s
            pairs = [onion.split(plaintext) for plaintext in opened.plaintexts]
            incoming = dict.fromkeys(_LANES, envelopes)
            lanes = {pb.LANE_REPORT: [pair[0] for pair in pairs], pb.LANE_PARAMETER: [pair[1] for pair in pairs]}
            drops = dict.fromkeys(_LANES, opened.drops)
        else:
            incoming, lanes, drops = {}, {}, {}
            for lane in _LANES:
                incoming[lane] = await self.lane_in(terms, lane)
                layer = onion.layer(lane, hop)
                opened = await open_layer(self.pool, terms.suite, private_key, layer, incoming[lane])
                watch.workers_cpu_s += opened.cpu_s
                lanes[lane], drops[lane] = opened.plaintexts, opened.drops
        await asyncio.to_thread(_permute_all, lanes)
        commitments = await asyncio.to_thread(self._commit, terms, incoming, lanes, drops)
        earlier = await self._earlier_commitments(terms)
        handover = pb.HandOverRequest(round_id=terms.round_id, commitments=[*earlier, *commitments])
        hashes = {lane: await asyncio.to_thread(ciphertext_hashes, batch) for lane, batch in lanes.items()}
        problem = self._too_few(terms, lanes)

        def keep(tx: Transaction) -> None:
            if problem:
                raise Refusal(Code.SHORT_BATCH, problem)
            for lane, batch in lanes.items():
                self.put_output(tx, terms.round_id, lane, batch)
                _put_list(tx, terms.round_id, lane, hashes[lane])
            tx.put_document(terms.round_id, "commitments-out", handover.SerializeToString(deterministic=True))
            tx.update_round(terms.round_id, state=pb.ROUND_STATE_MIXED)
            tx.add_cost(terms.round_id, "mix", *watch.read())

        await self.store.run(keep)
        for lane, reasons in drops.items() if hop > 1 else [(pb.LANE_JOINT, opened.drops)]:
            self.metrics.drops(lane, reasons)
        self.metrics.stage("mix", watch.read()[0])

    def _too_few(self, terms: RoundTerms, lanes: Mapping[pb.Lane.ValueType, Sequence[bytes]]) -> str:
        fewest = min(len(batch) for batch in lanes.values())
        needed = terms.manifest.min_batch_size
        return f"{fewest} of them open; the round needs {needed}" if fewest < needed else ""

    async def _earlier_commitments(self, terms: RoundTerms) -> Sequence[pb.Signed]:
        document = await self.store.run(lambda tx: tx.document(terms.round_id, "commitments-in"))
        return pb.HandOverRequest.FromString(document).commitments if document else []

    def _commit(
        self,
        terms: RoundTerms,
        incoming: Mapping[pb.Lane.ValueType, Sequence[bytes]],
        outgoing: Mapping[pb.Lane.ValueType, Sequence[bytes]],
        drops: Mapping[pb.Lane.ValueType, Mapping[str, int]],
    ) -> list[pb.Signed]:
        """Returns this hop's signed commitments, report lane first."""
        return [
            self.identity.signed(
                Kind.COMMITMENT,
                canonical(
                    pb.Commitment(
                        round_id=terms.round_id,
                        manifest_hash=terms.hash,
                        hop=self.hop(terms),
                        lane=lane,
                        num_in=len(incoming[lane]),
                        num_out=len(outgoing[lane]),
                        drops=drop_counts(drops[lane]),
                        digest_in=digest(incoming[lane]),
                        digest_out=digest(outgoing[lane]),
                    )
                ),
            )
            for lane in _LANES
        ]

    async def _deliver(self, terms: RoundTerms) -> None:
        watch = Stopwatch()
        document = await self.store.run(lambda tx: tx.document(terms.round_id, "commitments-out"))
        handover = pb.HandOverRequest.FromString(document or b"")
        receivers = self._receivers(terms)
        sent = 0
        for lane, receiver in receivers.items():
            sent += await self.send_lane(terms, receiver, lane)
        for receiver in dict.fromkeys(receivers.values()):
            await self.hand_over(terms, receiver, handover.commitments)

        in_turns = terms.question.turns is not None

        def finish(tx: Transaction) -> None:
            state = pb.ROUND_STATE_IN_TURNS if in_turns else pb.ROUND_STATE_DELIVERED
            tx.update_round(terms.round_id, state=state, bytes_sent=sent)
            tx.add_cost(terms.round_id, "deliver", *watch.read())
            if not in_turns:
                tx.forget(terms.round_id)
                return
            tx.forget_ciphertexts(terms.round_id)
            if self.hop(terms) == 1:
                tx.put_key(terms.round_id, ORDER_KEY, new_order_key(SystemRandom()))

        await self.store.run(finish)
        self.metrics.stage("deliver", watch.read()[0])
        self._admission.forget(terms.round_id)

    # ------------------------------------------------------------- turns

    def withdrawable(self, tx: Transaction, row: RoundRow) -> bool:
        """In turns, too: nobody is asked any more then, and nothing comes of the answers that were given."""
        return super().withdrawable(tx, row) or row.state == pb.ROUND_STATE_IN_TURNS

    async def _turns(self, terms: RoundTerms) -> bool:
        """Takes the turns (hop 1) and passes on that they have ended; returns False while there is nothing to do."""
        document = await self.store.run(lambda tx: tx.document(terms.round_id, TURNS_REPORT))
        if document is None and self.hop(terms) > 1:
            return False
        if document is None:
            document = await self._take_turns(terms)
        signed = pb.Signed.FromString(document)
        self._attendance.finish(terms.round_id, pb.TurnsReport.FromString(signed.payload))
        receiver = self._receivers(terms)[pb.LANE_PARAMETER]
        stub = stubs.DeliveryStub(self.channel_to(receiver))
        request = pb.EndTurnsRequest(round_id=terms.round_id, report=signed)
        await self.persist(terms.round_id, receiver, stub.EndTurns, request)

        def finish(tx: Transaction) -> None:
            tx.update_round(terms.round_id, state=pb.ROUND_STATE_DELIVERED)
            self.forget(tx, terms.round_id)

        await self.store.run(finish)
        return True

    async def _take_turns(self, terms: RoundTerms) -> bytes:
        """Waits for the certificate, asks clients if it is granted, and returns the signed report, which is durable."""
        watch = Stopwatch()
        accountant = terms.manifest.accountant.service
        stub = stubs.AccountantStub(self.channel_to(accountant))
        request = rpc.GetCertificateRequest(round_id=terms.round_id)
        signed = (await self.persist(terms.round_id, accountant, stub.GetCertificate, request)).certificate
        certificate = read_signed(Kind.CERTIFICATE, pb.Certificate, signed, self.deployment.identities, [accountant])
        report = pb.TurnsReport(round_id=terms.round_id, manifest_hash=terms.hash)
        if certificate.granted:
            relay = partial(self._pass_on, terms)
            report = await take_turns(terms, self.store, self._attendance, signed, relay)
        document = self.identity.signed(Kind.TURNS, canonical(report)).SerializeToString(deterministic=True)

        def keep(tx: Transaction) -> None:
            tx.put_document(terms.round_id, TURNS_REPORT, document)
            tx.add_cost(terms.round_id, "turns", *watch.read())

        await self.store.run(keep)
        self.metrics.stage("turns", watch.read()[0])
        return document

    async def _pass_on(self, terms: RoundTerms, answer: bytes) -> pb.RelayResponse:
        """Sends an answer to whoever opens its next layer, until that has worked."""
        receiver = self._receivers(terms)[pb.LANE_REPORT]
        stub = stubs.DeliveryStub(self.channel_to(receiver))
        request = pb.RelayRequest(round_id=terms.round_id, ciphertext=answer)
        response = await self.persist(terms.round_id, receiver, stub.Relay, request)
        if response.HasField("model"):  # what it says is counted by
            analyzer = terms.manifest.analyzer.service
            read_signed(Kind.MODEL, pb.Model, response.model, self.deployment.identities, [analyzer])
        return response

    async def Relay(self, request: pb.RelayRequest, context: Context) -> pb.RelayResponse:  # noqa: N802
        terms = await self.terms(request.round_id)
        self.require_caller(context, [self.predecessor(terms)])
        keys = await self.store.run(lambda tx: tx.keys(terms.round_id))
        if terms.question.turns is None or not keys:
            raise Refusal(Code.WRONG_STATE, "the round takes no turns, or no more")
        layer = Onion(terms).layer(pb.LANE_ANSWER, self.hop(terms))
        if len(request.ciphertext) != layer.sealed_size:
            return pb.RelayResponse()
        (opened,) = open_many(terms.suite, keys[ENVELOPE_KEY].private, layer.label, [request.ciphertext])
        if opened is None:
            return pb.RelayResponse()
        receiver = self._receivers(terms)[pb.LANE_REPORT]
        try:
            forward = pb.RelayRequest(round_id=terms.round_id, ciphertext=opened)
            return await stubs.DeliveryStub(self.channel_to(receiver)).Relay(forward, timeout=30.0)
        except grpc.aio.AioRpcError as error:
            raise refusal_of(error) or Refusal(Code.NOT_READY, f"{receiver} does not answer") from error

    async def Attend(  # noqa: N802
        self, requests: AsyncIterator[pb.AttendRequest], context: Context
    ) -> AsyncIterator[pb.AttendResponse]:
        first = None
        with contextlib.suppress(TimeoutError, StopAsyncIteration):
            first = await asyncio.wait_for(anext(requests), _TIME_TO_ENTER_S)
        if first is None or not first.round_id:
            raise Refusal(Code.BAD_REQUEST, "the first message names the round")
        terms = await self.terms(first.round_id)
        if self.hop(terms) != 1:
            raise Refusal(Code.NOT_YOUR_CALL, f"clients attend at {terms.manifest.hops[0].service!r}")
        if terms.question.turns is None:
            raise Refusal(Code.BAD_REQUEST, f"round {terms.round_id!r} takes no turns")
        stream = self._attendance.open(terms.round_id)
        reader = asyncio.create_task(self._listen(stream, requests))
        late = asyncio.get_running_loop().call_later(_TIME_TO_ENTER_S, stream.end_if_empty)
        try:
            yield pb.AttendResponse(challenge=stream.challenge)
            row, document = await self.store.run(
                lambda tx: (tx.round(terms.round_id), tx.document(terms.round_id, TURNS_REPORT))
            )
            if row.state == pb.ROUND_STATE_DISPOSED or row.problem:
                self.dismiss(terms.round_id)
            if document is not None:
                report = pb.TurnsReport.FromString(pb.Signed.FromString(document).payload)
                self._attendance.finish(terms.round_id, report)
            while (response := await stream.outgoing.get()) is not None:
                if isinstance(response, Refusal):
                    raise response
                yield response
        finally:
            late.cancel()
            reader.cancel()
            self._attendance.close(stream)

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
                f"{len(request.attendances)} attendances in one message, allowed are 0..{MAX_ATTENDANCES}; the round "
                "is named once",
            )
        if request.attendances:
            codes = await self._admit(stream, request.attendances)
            stream.push(pb.AttendResponse(admitted=pb.Admitted(codes=codes)))
            accepted = zip(request.attendances, codes, strict=True)
            admitted = [one.client_key for one, code in accepted if code == pb.SUBMISSION_CODE_ACCEPTED]
            await self._attendance.enter(stream, admitted)
        if request.HasField("answer"):
            self._attendance.answer(stream, request.answer)

    async def _admit(self, stream: Stream, attendances: Sequence[pb.Attendance]) -> list[pb.SubmissionCode.ValueType]:
        def check() -> list[bool]:
            return [attendance_is_authentic(stream.round_id, stream.challenge, one) for one in attendances]

        keys = [one.client_key for one in attendances]
        known = await self.store.run(lambda tx: tx.who_submitted(stream.round_id, keys))
        return [
            pb.SUBMISSION_CODE_UNKNOWN_CLIENT
            if key not in known
            else pb.SUBMISSION_CODE_ACCEPTED
            if authentic
            else pb.SUBMISSION_CODE_BAD_SIGNATURE
            for key, authentic in zip(keys, await asyncio.to_thread(check), strict=True)
        ]

    def hang_up(self) -> None:
        for driver in self._drivers.values():  # whoever is sent away must not be asked
            driver.cancel()
        self._attendance.hang_up()

    def dismiss(self, round_id: str) -> None:
        self._attendance.dismiss(round_id, Refusal(Code.WRONG_STATE, "the round has ended without a result"))

    # ------------------------------------------------------------- Shuffler

    async def GetRound(self, request: rpc.GetRoundRequest, context: Context) -> rpc.GetRoundResponse:  # noqa: N802
        def find(tx: Transaction) -> RoundRow:
            if request.round_id:
                return tx.round(request.round_id)
            for row in tx.rounds():
                if row.state == pb.ROUND_STATE_OPEN:
                    return row
            raise Refusal(Code.NO_OPEN_ROUND)

        row = await self.store.run(find)
        if not row.manifest:
            raise Refusal(Code.NOT_READY, f"round {row.round_id!r} is being prepared")
        return rpc.GetRoundResponse(manifest=pb.Signed.FromString(row.manifest), state=row.state)

    async def Submit(self, request: pb.SubmitRequest, context: Context) -> pb.SubmitResponse:  # noqa: N802
        if not 1 <= len(request.submissions) <= MAX_PER_CALL:
            raise Refusal(
                Code.BAD_REQUEST, f"{len(request.submissions)} submissions in one call; allowed are 1..{MAX_PER_CALL}"
            )
        terms = await self.terms(request.round_id)
        if self.hop(terms) != 1:
            raise Refusal(Code.NOT_YOUR_CALL, f"clients submit to {terms.manifest.hops[0].service!r}")
        deadline = terms.manifest.close_deadline_unix_s
        if deadline and self.clock.now() >= deadline:
            state, _ = await self.close(terms)
            if state in (pb.ROUND_STATE_CLOSED, pb.ROUND_STATE_DISPOSED):  # the latter still has a log to erase
                self.wake(terms.round_id)  # nobody watches the deadline any more when it passed over too few clients
        watch = Stopwatch()
        codes, cpu_s = await self._admission.submit(terms, self._envelope_size(terms), request.submissions)
        watch.workers_cpu_s += cpu_s
        await self.store.run(lambda tx: tx.add_cost(terms.round_id, "admit", *watch.read()))
        self.metrics.submissions(codes)
        self.metrics.stage("admit", watch.read()[0])
        return pb.SubmitResponse(codes=codes)

    def _envelope_size(self, terms: RoundTerms) -> int:
        if terms.round_id not in self._sizes:
            self._sizes[terms.round_id] = Onion(terms).joint.sealed_size
        return self._sizes[terms.round_id]

    async def GetInclusion(  # noqa: N802
        self, request: rpc.GetInclusionRequest, context: Context
    ) -> rpc.GetInclusionResponse:
        terms = await self.terms(request.round_id)
        if self.hop(terms) != 1:
            self.require_caller(context, [OPERATOR])
        if request.lane not in _LANES:
            raise Refusal(Code.BAD_REQUEST, f"lane is {request.lane}; allowed are report and parameter")
        page, within = divmod(request.offset, _INCLUSION_PAGE)

        def read(tx: Transaction) -> tuple[bytes, int]:
            (total,) = struct.unpack(">Q", tx.document(terms.round_id, _list_name(request.lane)) or bytes(8))
            return tx.document(terms.round_id, _list_name(request.lane, page)) or b"", total

        hashes, total = await self.store.run(read)
        if not total:
            raise Refusal(Code.NOT_READY, "the list is published when the batch is mixed")
        return rpc.GetInclusionResponse(hashes=hashes[_HASH_BYTES * within :], total=total)

    async def RegisterClients(  # noqa: N802
        self, request: pb.RegisterClientsRequest, context: Context
    ) -> pb.RegisterClientsResponse:
        self.require_caller(context, [OPERATOR])
        return pb.RegisterClientsResponse(
            registered=await self._admission.register(request.client_keys, request.token_hashes)
        )

    # ------------------------------------------------------------- RoundControl

    async def Close(self, request: rpc.CloseRequest, context: Context) -> rpc.CloseResponse:  # noqa: N802
        self.require_caller(context, [OPERATOR])
        terms = await self.terms(request.round_id)
        if self.hop(terms) != 1:
            raise Refusal(Code.NOT_YOUR_CALL, f"{terms.manifest.hops[0].service!r} closes this round")
        state, count = await self.close(terms)
        if request.end_turns and terms.question.turns is not None and state in _BEFORE_LAST_TURN:
            await self.store.run(lambda tx: tx.put_document(terms.round_id, TURNS_ENDED, b"1"))
            await self._attendance.end(terms.round_id)
        if state != pb.ROUND_STATE_OPEN:
            self.wake(terms.round_id)
        return rpc.CloseResponse(state=state, num_clients=count)


def _permute_all(lanes: dict[pb.Lane.ValueType, list[bytes]]) -> None:
    """Permutes each lane in place of its old order, with its own permutation."""
    for lane, batch in lanes.items():
        lanes[lane] = permute(batch, SystemRandom())


def _list_name(lane: pb.Lane.ValueType, page: int | None = None) -> str:
    """Returns the name of the document that holds a page of the list of what was passed on, or the list's length."""
    return f"passed-on-{lane}" if page is None else f"passed-on-{lane}-{page}"


def _put_list(tx: Transaction, round_id: str, lane: pb.Lane.ValueType, hashes: Sequence[bytes]) -> None:
    tx.put_document(round_id, _list_name(lane), struct.pack(">Q", len(hashes)))
    for page, start in enumerate(range(0, len(hashes), _INCLUSION_PAGE)):
        tx.put_document(round_id, _list_name(lane, page), b"".join(hashes[start : start + _INCLUSION_PAGE]))
