"""What every role does for a round: keys, manifest, incoming lanes, the driver that carries a round to its end.

A role is a subclass that says which key pairs it holds (`purposes`), whom it expects lanes from, and what to do next in
each state (`advance`). States only ever move forward, each step is one transaction, and on start every unfinished round
is driven on from where it stood; so a crash between two steps costs nothing but the work of one step.
"""

from __future__ import annotations

import abc
import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from protocol.batches import digest, read_commitments, unpack
from protocol.deployment import OPERATOR, Deployment, ServiceEntry
from protocol.envelope import KeyPair, generate_key_pair
from protocol.errors import Code, Refusal, SignatureError
from protocol.identity import Identity, Kind, read_signed, verify_signed
from protocol.manifest import RoundTerms, canonical, parse_terms
from protocol.onion import Onion
from protocol.v1 import messages_pb2 as pb
from protocol.v1 import services_pb2 as rpc
from protocol.v1 import services_pb2_grpc as stubs
from runtime.clock import Clock, SystemClock
from runtime.metrics import Metrics
from runtime.service_directory import Secrets
from runtime.store import RoundRow, Store, Transaction
from runtime.transport import caller_name, peer_channel, retrying
from runtime.workers import WorkerPool, peak_memory_bytes

__all__ = ["ENVELOPE_KEY", "RELEASE_KEY", "TURNS_REPORT", "RoundService", "ServiceSetup", "Stopwatch"]

T = TypeVar("T")
_log = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]

ENVELOPE_KEY = "envelope"
RELEASE_KEY = "release"
TURNS_REPORT = "turns-report"
_CHUNK_BYTES = 1024 * 1024
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 10.0
_BEFORE_CERTIFICATE = (
    pb.ROUND_STATE_PREPARED,
    pb.ROUND_STATE_OPEN,
    pb.ROUND_STATE_CLOSED,
    pb.ROUND_STATE_MIXED,
)
_FINAL = (
    pb.ROUND_STATE_DELIVERED,
    pb.ROUND_STATE_REFUSED,
    pb.ROUND_STATE_RELEASED,
    pb.ROUND_STATE_PUBLISHED,
    pb.ROUND_STATE_DISPOSED,
)


@dataclass(frozen=True)
class ServiceSetup:
    """Everything that a service is given from outside."""

    entry: ServiceEntry
    deployment: Deployment
    secrets: Secrets
    store: Store
    pool: WorkerPool
    clock: Clock = field(default_factory=SystemClock)
    metrics: Metrics = field(default_factory=Metrics)


class Stopwatch:
    """Wall seconds, and CPU seconds of this process; workers' CPU seconds are added by hand."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self.workers_cpu_s = 0.0

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._wall, time.process_time() - self._cpu + self.workers_cpu_s


class RoundService(stubs.RoundControlServicer, stubs.DeliveryServicer, abc.ABC):
    """A role of the deployment; see the module's opening."""

    purposes: tuple[str, ...] = (ENVELOPE_KEY,)
    lanes_in: tuple[pb.Lane.ValueType, ...] = (pb.LANE_REPORT, pb.LANE_PARAMETER)
    passing: tuple[str, ...] = ()
    """Documents that go when the round's keys go, by what their kinds begin with."""

    def __init__(self, setup: ServiceSetup) -> None:
        self.name = setup.entry.name
        self.deployment = setup.deployment
        self.store = setup.store
        self.pool = setup.pool
        self.clock = setup.clock
        self.metrics = setup.metrics
        self.identity = Identity(self.name, setup.secrets.identity_key)
        self._secrets = setup.secrets
        self._terms: dict[str, RoundTerms] = {}
        self._drivers: dict[str, asyncio.Task[None]] = {}
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._old_channels: list[grpc.aio.Channel] = []
        self._waiting: dict[str, str] = {}  # why a round does not move at the moment

    # ------------------------------------------------------------- for the roles

    @abc.abstractmethod
    def hop(self, terms: RoundTerms) -> int:
        """Returns this service's place in the onion: 1..k, or one of the places behind the chain."""

    @abc.abstractmethod
    async def advance(self, row: RoundRow, terms: RoundTerms) -> bool:
        """Takes the next step of a round; returns False when there is nothing to do until something arrives."""

    def predecessor(self, terms: RoundTerms) -> str:
        """Returns the only service that may deliver lanes to this one."""
        return terms.manifest.hops[-1].service

    async def terms(self, round_id: str) -> RoundTerms:
        """Returns the terms of a round that is open here, or has been."""
        if round_id not in self._terms:
            row = await self.store.run(lambda tx: tx.round(round_id))
            if not row.manifest:
                raise Refusal(Code.WRONG_STATE, f"round {round_id!r} is prepared but not open")
            self._terms[round_id] = parse_terms(pb.Signed.FromString(row.manifest).payload)
        return self._terms[round_id]

    def channel_to(self, name: str) -> grpc.aio.Channel:
        if name not in self._channels:
            self._channels[name] = peer_channel(self.deployment.service(name), self._secrets)
        return self._channels[name]

    def require_caller(self, context: Context, allowed: Iterable[str]) -> None:
        """Raises Refusal NOT_YOUR_CALL unless the caller's certificate is pinned for one of the names."""
        name = caller_name(context, self.deployment)
        if name not in set(allowed):
            raise Refusal(Code.NOT_YOUR_CALL, f"{name or 'a client'} called")

    def forget(self, tx: Transaction, round_id: str) -> None:
        """Destroys keys, ciphertexts and passing documents of a round that has ended here, however it has."""
        tx.forget(round_id)
        for kind in self.passing:
            tx.drop_documents(round_id, kind)

    def wake(self, round_id: str) -> None:
        """Drives a round on, if nobody is doing so."""
        task = self._drivers.get(round_id)
        if task is None or task.done():
            self._drivers[round_id] = asyncio.create_task(self._drive(round_id))

    async def send_lane(self, terms: RoundTerms, receiver: str, lane: pb.Lane.ValueType) -> int:
        """Sends this round's stored output of one lane and returns the bytes on the wire; keeps trying."""
        packed = await self.store.run(lambda tx: tx.chunks(terms.round_id, "out", lane))
        stub = stubs.DeliveryStub(self.channel_to(receiver))
        sent = 0
        for index, ciphertexts in enumerate(packed or []):
            request = pb.DeliverRequest(
                round_id=terms.round_id,
                lane=lane,
                chunk_index=index,
                chunk_count=len(packed or []),
                ciphertexts=ciphertexts,
            )
            sent += request.ByteSize()
            await self.persist(terms.round_id, receiver, stub.Deliver, request)
        return sent

    async def hand_over(self, terms: RoundTerms, receiver: str, commitments: Sequence[pb.Signed]) -> None:
        """Tells the receiver that its lanes are complete, and returns when it has taken responsibility."""
        request = pb.HandOverRequest(round_id=terms.round_id, commitments=commitments)
        stub = stubs.DeliveryStub(self.channel_to(receiver))
        await self.persist(terms.round_id, receiver, stub.HandOver, request)

    async def persist(self, round_id: str, receiver: str, method: Callable[..., Awaitable[T]], request: Message) -> T:
        """Calls a peer until it answers; meanwhile the round's status says whom it waits for."""

        def tell(error: grpc.aio.AioRpcError) -> None:
            self._wait(round_id, f"{receiver} does not answer: {error.code().name}")

        answer = await retrying(lambda: method(request, timeout=60.0), give_up_after_s=float("inf"), on_failure=tell)
        self._waiting.pop(round_id, None)
        self.metrics.sent(request.ByteSize())
        return answer

    def put_output(self, tx: Transaction, round_id: str, lane: pb.Lane.ValueType, ciphertexts: Sequence[bytes]) -> None:
        """Stores an output batch in the order in which it will be sent, in chunks that fit a message."""
        per_chunk = max(1, _CHUNK_BYTES // len(ciphertexts[0]))
        parts = [ciphertexts[start : start + per_chunk] for start in range(0, len(ciphertexts), per_chunk)]
        for index, part in enumerate(parts):
            tx.put_chunk(round_id, "out", lane, index, len(parts), b"".join(part))

    async def lane_in(self, terms: RoundTerms, lane: pb.Lane.ValueType) -> list[bytes]:
        """Returns the ciphertexts of a complete incoming lane."""
        packed = await self.store.run(lambda tx: tx.chunks(terms.round_id, "in", lane))
        if packed is None:
            raise Refusal(Code.BAD_BATCH, f"lane {pb.Lane.Name(lane)} is not complete")
        size = Onion(terms).arriving_size(lane, self.hop(terms))
        return [ciphertext for chunk in packed for ciphertext in unpack(chunk, size)]

    # ------------------------------------------------------------- life of the service

    async def start(self) -> None:
        """Drives on every round that an earlier run left unfinished."""
        await self.warm()
        await self.store.erase_log()
        for row in await self.store.run(lambda tx: tx.rounds()):
            if row.manifest and row.state not in _FINAL and not row.problem:
                self.wake(row.round_id)

    async def warm(self) -> None:
        """Does once, before the first round, what would make the first round slow."""

    def replace(self, deployment: Deployment, secrets: Secrets) -> None:
        """Goes on with the keys and pins of a new deployment file; calls under way end on their old channels."""
        self.deployment, self._secrets = deployment, secrets
        self.identity = Identity(self.name, secrets.identity_key)
        self._old_channels += self._channels.values()
        self._channels = {}

    def hang_up(self) -> None:
        """Ends the calls that last, before the server waits for those under way."""

    def dismiss(self, round_id: str) -> None:
        """Ends the calls that last of a round of which nothing will come."""

    async def stop(self) -> None:
        """Stops driving; everything durable stays as it is."""
        tasks = [task for task in self._drivers.values() if not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for channel in (*self._channels.values(), *self._old_channels):
            await channel.close()

    async def _drive(self, round_id: str) -> None:
        """Takes step after step. What may pass (a full disk, an unreachable peer) is tried again, ever more slowly.

        Any other Refusal is an answer: it is kept as the round's problem, and the round stops here.
        """
        problem, wait_s = "", _FIRST_WAIT_S
        known = pb.ROUND_STATE_UNSPECIFIED
        while True:
            try:
                if problem:
                    await self._record_problem(round_id, problem)
                    self._waiting.pop(round_id, None)
                    self.metrics.round_stopped()
                    return
                terms = await self.terms(round_id)
                row = await self.store.run(lambda tx: tx.round(round_id))
                if row.state != known:
                    known = row.state
                    state = pb.RoundState.Name(known).removeprefix("ROUND_STATE_")
                    _log.info("the round is %s", state, extra={"round_id": round_id, "state": state})
                if row.state in _FINAL:
                    await self.store.erase_log()  # here, so that it is tried again until it is done
                moved = row.state not in _FINAL and await self.advance(row, terms)
                self._waiting.pop(round_id, None)
                if not moved:
                    return
                wait_s = _FIRST_WAIT_S
                continue
            except (Refusal, SignatureError) as error:
                if isinstance(error, SignatureError) or not error.code.may_pass:
                    _log.error("the round stops: %s", error, extra=_about(round_id, error))
                    problem = str(error)
                    continue
                self._wait(round_id, str(error), error)
            except Exception:  # noqa: BLE001 (a round that fails must not take others with it)
                _log.exception("a step failed", extra={"round_id": round_id})
                self._waiting[round_id] = "internal error; the service's log has the details"
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _wait(self, round_id: str, why: str, error: Exception | None = None) -> None:
        """Keeps why a round does not move; logged once for each reason."""
        if self._waiting.get(round_id) != why:
            _log.warning("the round waits: %s", why, extra=_about(round_id, error))
        self._waiting[round_id] = why

    @property
    def num_waiting_rounds(self) -> int:
        """How many rounds are tried again and again, because a step failed or a peer does not answer."""
        return len(self._waiting)

    @property
    def num_waiting_submissions(self) -> int:
        """How many submissions are not answered yet; only hop 1 has any."""
        return 0

    async def _record_problem(self, round_id: str, problem: str) -> None:
        """Ends the round here: nothing takes it up again, so nobody may find its keys and ciphertexts later."""

        def end(tx: Transaction) -> None:
            tx.update_round(round_id, problem=problem)
            self.forget(tx, round_id)

        await self.store.run(end)
        self.dismiss(round_id)
        await self.store.erase_log()

    # ------------------------------------------------------------- RoundControl

    async def Prepare(self, request: rpc.PrepareRequest, context: Context) -> rpc.PrepareResponse:  # noqa: N802
        self.require_caller(context, [OPERATOR])
        round_id, suite = request.round_id, request.hpke_suite
        if not 1 <= len(round_id.encode()) <= 128:
            raise Refusal(Code.BAD_REQUEST, f"round_id is {round_id!r}; it must have 1..128 bytes")
        try:
            fresh = {purpose: generate_key_pair(suite) for purpose in self.purposes}
        except ValueError as error:
            raise Refusal(Code.BAD_REQUEST, str(error)) from error

        def prepare(tx: Transaction) -> dict[str, KeyPair]:
            row = tx.find_round(round_id)
            if row is None:
                tx.add_round(round_id, suite, fresh)
                return fresh
            if row.state != pb.ROUND_STATE_PREPARED or row.suite != suite:
                raise Refusal(Code.CONFLICT, f"round {round_id!r} has already been used")
            return tx.keys(round_id)

        keys = await self.store.run(prepare)
        payload = canonical(self._own_keys(round_id, keys))
        return rpc.PrepareResponse(round_keys=self.identity.signed(Kind.ROUND_KEYS, payload))

    def _own_keys(self, round_id: str, keys: dict[str, KeyPair]) -> pb.RoundKeys:
        release = keys.get(RELEASE_KEY)
        return pb.RoundKeys(
            round_id=round_id,
            service=self.name,
            public_key=keys[ENVELOPE_KEY].public,
            release_public_key=release.public if release else b"",
        )

    async def _check_terms(self, payload: bytes) -> RoundTerms:
        terms = parse_terms(payload)
        terms.check_place(self.deployment)
        keys = await self.store.run(lambda tx: tx.keys(terms.round_id))
        if not keys or terms.keys_of(self.name) != self._own_keys(terms.round_id, keys):
            raise Refusal(Code.BAD_MANIFEST, f"the keys of {self.name!r} are not those that it made for this round")
        return terms

    async def Sign(self, request: rpc.SignRequest, context: Context) -> rpc.SignResponse:  # noqa: N802
        """Signs one manifest per round: the second, different one would be a manifest made for somebody."""
        self.require_caller(context, [OPERATOR])
        terms = await self._check_terms(request.manifest)
        await self.store.run(lambda tx: tx.put_document(terms.round_id, "signed-manifest", terms.hash))
        return rpc.SignResponse(signature=self.identity.sign(Kind.MANIFEST, request.manifest))

    async def Open(self, request: rpc.OpenRequest, context: Context) -> rpc.OpenResponse:  # noqa: N802
        self.require_caller(context, [OPERATOR])
        payload = verify_signed(Kind.MANIFEST, request.manifest, self.deployment.identities, self.deployment.chain)
        round_id = parse_terms(payload).round_id
        row = await self.store.run(lambda tx: tx.round(round_id))
        if row.manifest:
            if pb.Signed.FromString(row.manifest).payload != payload:
                raise Refusal(Code.CONFLICT, f"round {round_id!r} is open under another manifest")
            self.wake(round_id)  # the call that opened it may have broken off behind its commit
            return rpc.OpenResponse()
        await self._check_terms(payload)
        document = request.manifest.SerializeToString()
        await self.store.run(lambda tx: tx.update_round(round_id, manifest=document, state=pb.ROUND_STATE_OPEN))
        self.wake(round_id)
        return rpc.OpenResponse()

    async def Close(self, request: rpc.CloseRequest, context: Context) -> rpc.CloseResponse:  # noqa: N802
        self.require_caller(context, [OPERATOR])
        raise Refusal(Code.NOT_YOUR_CALL, "only the first shuffler closes rounds")

    def withdrawable(self, tx: Transaction, row: RoundRow) -> bool:
        """Returns whether a round may still be deleted here: until it is certified."""
        return row.state in _BEFORE_CERTIFICATE

    def on_withdrawal(self, tx: Transaction, row: RoundRow) -> None:
        """Changes what else has to change in the transaction that deletes a round."""

    async def Withdraw(self, request: rpc.WithdrawRequest, context: Context) -> rpc.WithdrawResponse:  # noqa: N802
        self.require_caller(context, [OPERATOR])
        round_id = request.round_id
        driver = self._drivers.get(round_id)
        if driver is not None:
            driver.cancel()
            await asyncio.gather(driver, return_exceptions=True)

        def withdraw(tx: Transaction) -> pb.RoundState.ValueType:
            row = tx.round(round_id)
            if row.state == pb.ROUND_STATE_DISPOSED:
                return row.state
            if not self.withdrawable(tx, row):
                state = pb.RoundState.Name(row.state).removeprefix("ROUND_STATE_")
                raise Refusal(Code.WRONG_STATE, f"round {round_id!r} is {state}; allowed is up to its certificate")
            self.on_withdrawal(tx, row)
            tx.update_round(round_id, state=pb.ROUND_STATE_DISPOSED, problem="")
            self.forget(tx, round_id)
            return pb.ROUND_STATE_DISPOSED

        try:
            state = await self.store.run(withdraw)
            self.dismiss(round_id)
            await self.store.erase_log()
        finally:
            self._waiting.pop(round_id, None)
            if driver is not None:
                self.wake(round_id)
        return rpc.WithdrawResponse(state=state)

    async def Status(self, request: rpc.StatusRequest, context: Context) -> rpc.StatusResponse:  # noqa: N802
        self.require_caller(context, [OPERATOR])

        def read(tx: Transaction) -> list[pb.RoundStatus]:
            rows = [tx.round(request.round_id)] if request.round_id else tx.rounds()[:20]
            return [
                pb.RoundStatus(
                    round_id=row.round_id,
                    state=row.state,
                    num_items=tx.num_submissions(row.round_id),
                    costs=tx.costs(row.round_id),
                    bytes_sent=row.bytes_sent,
                    problem=row.problem or self._waiting.get(row.round_id, ""),
                )
                for row in rows
            ]

        return rpc.StatusResponse(
            service=self.name,
            pid=os.getpid(),
            peak_memory_bytes=peak_memory_bytes(),
            rounds=await self.store.run(read),
        )

    # ------------------------------------------------------------- Delivery

    async def Deliver(self, request: pb.DeliverRequest, context: Context) -> pb.DeliverResponse:  # noqa: N802
        terms = await self.terms(request.round_id)
        self.require_caller(context, [self.predecessor(terms)])
        if request.lane not in self.lanes_in:
            raise Refusal(Code.BAD_REQUEST, f"lane {request.lane} does not come to {self.name}")
        if not request.chunk_index < request.chunk_count:
            raise Refusal(Code.BAD_REQUEST, f"chunk {request.chunk_index} of {request.chunk_count}")
        unpack(request.ciphertexts, Onion(terms).arriving_size(request.lane, self.hop(terms)))

        def take(tx: Transaction) -> None:
            tx.put_chunk(
                terms.round_id, "in", request.lane, request.chunk_index, request.chunk_count, request.ciphertexts
            )
            if tx.round(terms.round_id).state == pb.ROUND_STATE_DISPOSED:
                raise Refusal(Code.WRONG_STATE, "the round is disposed of")

        await self.store.run(take)
        return pb.DeliverResponse()

    async def HandOver(self, request: pb.HandOverRequest, context: Context) -> pb.HandOverResponse:  # noqa: N802
        terms = await self.terms(request.round_id)
        self.require_caller(context, [self.predecessor(terms)])
        document = request.SerializeToString(deterministic=True)
        row = await self.store.run(lambda tx: tx.round(terms.round_id))
        if row.state == pb.ROUND_STATE_OPEN:
            await self._check_batch(terms, request)

        def close(tx: Transaction) -> None:
            tx.put_document(terms.round_id, "commitments-in", document)
            if tx.round(terms.round_id).state == pb.ROUND_STATE_OPEN:
                tx.update_round(terms.round_id, state=pb.ROUND_STATE_CLOSED)

        await self.store.run(close)
        self.wake(terms.round_id)
        return pb.HandOverResponse()

    async def Relay(self, request: pb.RelayRequest, context: Context) -> pb.RelayResponse:  # noqa: N802
        raise Refusal(Code.NOT_YOUR_CALL, f"{self.name} takes no answers")

    async def EndTurns(self, request: pb.EndTurnsRequest, context: Context) -> pb.EndTurnsResponse:  # noqa: N802
        terms = await self.terms(request.round_id)
        self.require_caller(context, [self.predecessor(terms)])
        first = terms.manifest.hops[0].service
        report = read_signed(
            Kind.TURNS, pb.TurnsReport, request.report, {first: self.deployment.identities[first]}, [first]
        )
        if (report.round_id, report.manifest_hash) != (terms.round_id, terms.hash):
            raise Refusal(Code.BAD_BATCH, "the report is about another round or manifest")
        document = request.report.SerializeToString(deterministic=True)
        await self.store.run(lambda tx: tx.put_document(terms.round_id, TURNS_REPORT, document))
        self.wake(terms.round_id)
        return pb.EndTurnsResponse()

    async def _check_batch(self, terms: RoundTerms, request: pb.HandOverRequest) -> None:
        """Checks the chain of commitments, and that what arrived is what the predecessor committed to."""
        hops = min(self.hop(terms) - 1, terms.num_hops)
        chain = read_commitments(request.commitments, terms, self.deployment.identities, hops)
        for lane in self.lanes_in:
            ciphertexts = await self.lane_in(terms, lane)
            last = chain[lane][-1]
            arrived = await asyncio.to_thread(digest, ciphertexts)
            if (last.num_out, last.digest_out) != (len(ciphertexts), arrived):
                raise Refusal(Code.BAD_BATCH, f"lane {pb.Lane.Name(lane)} is not what hop {hops} committed to")
            distinct = len(set(ciphertexts))
            if distinct < terms.manifest.min_batch_size:
                raise Refusal(
                    Code.SHORT_BATCH, f"{distinct} distinct items; the round needs {terms.manifest.min_batch_size}"
                )


def _about(round_id: str, error: Exception | None) -> dict[str, str]:
    return {"round_id": round_id} | ({"code": error.code.name} if isinstance(error, Refusal) else {})
