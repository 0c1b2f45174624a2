"""Plays one schedule in a world: opens a round, takes the steps, heals everything, closes, and asks the oracle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import grpc.aio

from croupier.client.submission import new_client_key, seal_one
from croupier.client.tickets import seal_prepared
from croupier.net.retrying import retrying
from croupier.operator.operator import Operator
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.errors import Refusal
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.names import Lane, RoundId
from croupier.protocol.onion import onion_of
from croupier.protocol.publications import read_publication
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from tests.faults import oracle
from tests.faults.faulty_store import Trap
from tests.faults.oracle import LETTERS, Attempt, Violation
from tests.faults.schedules import (
    Close,
    Different,
    EndAsking,
    Event,
    Expect,
    Fault,
    Kill,
    LinkFault,
    Pause,
    Repeat,
    Restart,
    Rotate,
    Schedule,
    Submit,
    Tamper,
    Trouble,
)
from tests.faults.worlds import World
from tests.support.clients import crafted, forged_tickets

_LOCAL_EPSILON = 20.0
_MIN_BATCH = 2
_HOP_NOISE = 20.0  # one fake of each letter, less or more by one
_DEADLINE_S = 1800
_STEP_S = 0.15  # a step that takes longer goes on beside the next ones
CALL_S = 10.0
_ERASED_S = 5.0


@dataclass
class Game:
    world: World
    schedule: Schedule
    connections: AsyncExitStack
    operator: Operator = field(init=False)
    clients: grpc.aio.Channel = field(init=False)
    accountant: grpc.aio.Channel = field(init=False)
    terms: RoundTerms = field(init=False)
    keys: list[bytes] = field(default_factory=list)
    enrolled: set[int] = field(default_factory=set)
    attempts: list[Attempt] = field(default_factory=list)
    calls: set[asyncio.Task[None]] = field(default_factory=set)
    back_in: dict[str, int] = field(default_factory=dict)  # steps until a service is started again
    closed: bool = False  # the round may have been closed
    final: ClassVar = {pb.ROUND_STATE_DELIVERED, pb.ROUND_STATE_RELEASED, pb.ROUND_STATE_PUBLISHED}
    given_up: ClassVar = {pb.ROUND_STATE_REFUSED, pb.ROUND_STATE_DISPOSED}

    async def connect(self) -> None:
        """Has operator and clients connect with the deployment file of now; calls under way go on as they are."""
        self.operator = await self.connections.enter_async_context(Operator(self.world.desk, self.world.transport))
        ways_in = [
            self.world.entrance(service)
            for service in (self.world.deployment.shufflers[0], self.world.deployment.accountant)
        ]
        self.clients, self.accountant = [
            await self.connections.enter_async_context(self.world.transport.public_channel(entry)) for entry in ways_in
        ]

    def settings(self) -> RoundSettings:
        """Returns what the operator asks for."""
        deadline = int(self.world.clock.now()) + _DEADLINE_S if self.schedule.deadline else 0
        return RoundSettings(
            Question("letters", KaryResponse(k=LETTERS)),
            (_LOCAL_EPSILON / 2, _LOCAL_EPSILON) if self.schedule.at_risk else (_LOCAL_EPSILON,),
            delta=1e-4,
            epsilon_max=_LOCAL_EPSILON / 4 if self.schedule.at_risk else _LOCAL_EPSILON,
            epsilon_max_of={_LOCAL_EPSILON: _LOCAL_EPSILON},
            min_batch_size=_MIN_BATCH,
            close_deadline_unix_s=deadline,
            hop_noise=_HOP_NOISE if self.schedule.hop_noise else None,
        )

    async def begin(self) -> None:
        """What happens before the steps, without faults."""

    # ------------------------------------------------------------- clients

    @property
    def shuffler(self) -> stubs.ShufflerAsyncStub:
        return stubs.ShufflerStub(self.clients)

    def enrolment(self, service: str) -> stubs.ShufflerAsyncStub | stubs.AccountantAsyncStub:
        channel = self.operator._channels[service]
        return stubs.AccountantStub(channel) if service == "accountant" else stubs.ShufflerStub(channel)

    def attempt(self, client: int | None = None) -> Attempt:
        """Returns a new attempt, of a new client if none is named. It tells the truth: nothing is left to chance."""
        if client is None:
            client = len(self.keys)
            self.keys.append(new_client_key())
        letter = len(self.attempts)
        if letter >= LETTERS:
            raise ValueError(f"a schedule with more than {LETTERS} attempts")
        made = Attempt(client, letter, crafted(self.terms, letter, _LOCAL_EPSILON, key=self.keys[client]))
        self.attempts.append(made)
        return made

    def different(self, client: int) -> Attempt:
        """Returns another attempt of a client; with tickets made up if it can have none any more."""
        made = self.attempt(client)
        if any(attempt.accepted for attempt in self.attempts if attempt.client == client):
            made.keep(seal_one(self.terms, onion_of(self.terms), made.prepared, forged_tickets()))
        return made

    async def get_tickets(self, attempt: Attempt, timeout_s: float, patience_s: float) -> bool:
        """Asks for an attempt's tickets, always with the same bytes, and seals it; returns whether it has them."""
        async with asyncio.timeout(None if patience_s else timeout_s):
            sealed, refused = await seal_prepared(self.accountant, self.terms, {"": attempt.prepared}, patience_s)
        if attempt.submission is None:  # else a call at the same time was faster
            attempt.answers.extend(refused.values())
            for submission in sealed.values():
                attempt.keep(submission)
        return attempt.submission is not None

    async def ask(self, attempt: Attempt, timeout_s: float = CALL_S, patience_s: float = 0.0) -> None:
        """Enrols the client if need be, submits, and writes down the answer; without one, nothing is known."""
        if attempt.submission is None and attempt.answers:  # the accountant has given it no tickets
            return
        try:
            if attempt.client not in self.enrolled:
                register = pb.RegisterClientsRequest(client_keys=[attempt.prepared.client_key])
                for service in ("accountant", "shuffler-1"):
                    call = partial(self.enrolment(service).RegisterClients, register, timeout=CALL_S)
                    await retrying(call, give_up_after_s=patience_s)
                self.enrolled.add(attempt.client)
            if attempt.submission is None and not await self.get_tickets(attempt, timeout_s, patience_s):
                return
            request = pb.SubmitRequest(round_id=self.terms.round_id)
            if attempt.submission is not None:
                request.submissions.append(attempt.submission)
            answer = await retrying(
                lambda: self.shuffler.Submit(request, timeout=timeout_s), give_up_after_s=patience_s
            )
        except (grpc.aio.AioRpcError, Refusal, TimeoutError):
            if patience_s:
                raise
            return
        attempt.answers.extend(answer.codes)

    def patience_s(self, patiently: bool) -> float:
        return self.world.bound_s if patiently else 0.0

    async def at_once(self, *work: Awaitable[None], patiently: bool = False) -> None:
        """Starts calls, waits for them a little, or until they end, and restarts services that die meanwhile."""
        tasks = {asyncio.ensure_future(coroutine) for coroutine in work}
        self.calls |= tasks
        _, waiting = await asyncio.wait(tasks, timeout=_STEP_S)
        while patiently and waiting:
            await self.revive()
            _, waiting = await asyncio.wait(tasks, timeout=_STEP_S)

    async def close_round(self, patience_s: float, *, end_sequential: bool = False) -> None:
        self.closed = True
        hop_1 = self.world.deployment.shufflers[0].name
        request = rpc.CloseRequest(round_id=self.terms.round_id, end_sequential=end_sequential)
        try:
            await retrying(
                lambda: self.operator._control(hop_1).Close(request, timeout=CALL_S), give_up_after_s=patience_s
            )
        except (grpc.aio.AioRpcError, Refusal):
            return

    # ------------------------------------------------------------- steps

    async def step(self, number: int, step: Event) -> None:
        world = self.world
        known = [attempt for attempt in self.attempts if attempt.authentic]
        sealed = [attempt for attempt in known if attempt.submission is not None]
        match step:
            case Submit(clients, hang_up_ms, patiently):
                timeout_s, patience_s = hang_up_ms / 1000 or CALL_S, self.patience_s(patiently)
                calls = (self.ask(self.attempt(), timeout_s, patience_s) for _ in range(clients))
                await self.at_once(*calls, patiently=patiently)
            case Repeat(which) if known:
                await self.at_once(self.ask(known[which % len(known)]))
            case Different(which) if known:
                await self.at_once(self.ask(self.different(known[which % len(known)].client)))
            case Tamper(which, part, bit) if sealed:
                await self.at_once(self.ask(self.tampered(sealed[which % len(sealed)], part, bit)))
            case Close(patiently):
                await self.at_once(self.close_round(self.patience_s(patiently)), patiently=patiently)
            case EndAsking():
                await self.at_once(self.close_round(0.0, end_sequential=True))
            case Fault() as fault:
                self.arm(number, fault)
            case Kill(service, down) if service not in world.down:
                self.back_in[service] = down
                await world.kill(service)
            case Restart(service) if service not in world.down:
                await world.stop(service)
                await world.start(service)
            case Rotate(service):
                await world.rotate(service)
                await self.connect()
            case LinkFault(link, state, delay_ms):
                world.links[link].delay_s = delay_ms / 1000
                world.links[link].become(state)
            case Trouble(service, delay_ms, clock_offset_s, disk_full):
                if clock_offset_s > 0 and self.schedule.deadline:
                    self.closed = True
                world.order(service, delay_s=delay_ms / 1000, clock_offset_s=float(clock_offset_s), disk_full=disk_full)
            case Expect(service, state):

                async def is_there() -> bool:
                    await self.revive()
                    return pb.RoundState.Name((await self.states())[service]) == f"ROUND_STATE_{state}"

                await self.until(is_there, f"{service} is not {state}")
            case Pause(ms):
                await asyncio.sleep(ms / 1000)
        await self.revive()

    def arm(self, number: int, fault: Fault) -> None:
        self.back_in[fault.service] = fault.down
        self.world.order(fault.service, trap=Trap(number, fault.point, fault.action, fault.nth))

    def tampered(self, original: Attempt, part: str, bit: int) -> Attempt:
        submission = pb.Submission()
        if original.submission is not None:
            submission.CopyFrom(original.submission)
        content = bytearray(getattr(submission, part))
        content[bit // 8 % len(content)] ^= 1 << bit % 8
        setattr(submission, part, bytes(content))
        attempt = Attempt(original.client, len(self.attempts), original.prepared, submission, authentic=False)
        self.attempts.append(attempt)
        return attempt

    async def revive(self) -> None:
        """Starts every service again whose time has come."""
        await self.world.settle()
        for service in sorted(self.world.down):
            self.back_in[service] = self.back_in.get(service, 0) - 1
            if self.back_in[service] < 0:
                await self.world.start(service)

    # ------------------------------------------------------------- the end

    async def heal(self) -> None:
        """Ends every fault. Services that live go on as they are: a restart could hide that they hang."""
        for link in self.world.links.values():
            link.delay_s = 0.0
            link.become("open")
        await self.world.settle()
        for service in self.world.deployment.chain:
            self.world.order(service, trap=None, delay_s=0.0, disk_full=False)
        for service in (self.world.deployment.shufflers[0].name, self.world.deployment.accountant.name):
            self.world.order(service, clock_offset_s=0.0)
        await self.world.settle()
        for service in sorted(self.world.down):
            await self.world.start(service)
        if self.calls:
            done, late = await asyncio.wait(self.calls, timeout=2 * CALL_S)
            for call in done:
                call.result()
            if late:
                raise Violation(f"{len(late)} calls were never answered")

    async def finish(self) -> None:
        """Closes the round, with enough clients, and waits for what it publishes."""
        while sum(attempt.accepted for attempt in self.attempts) < _MIN_BATCH:
            state = await self.state_of_hop_1()
            if state != pb.ROUND_STATE_OPEN:
                break
            await self.ask(self.attempt(), patience_s=self.world.bound_s)
        hop_1 = self.world.deployment.shufflers[0].name
        if self.schedule.closed_by == "clock":
            was_past = self.closed
            self.closed = True
            self.world.order(hop_1, clock_offset_s=2.0 * _DEADLINE_S)
            if not was_past:  # else it may have passed over too few clients; such a round waits for its operator
                await self.until(self.is_closed, "the deadline passed and the round stayed open")
        if self.schedule.closed_by == "operator" or not await self.is_closed():
            self.closed = True
            answer = await self.operator.close_round(self.terms.round_id)
            if answer.state == pb.ROUND_STATE_OPEN:
                raise Violation(f"the round does not close with {answer.num_clients} clients")
        await self.until(self.is_published, "nothing is published")

    async def state_of_hop_1(self) -> pb.RoundState.ValueType:
        request = rpc.GetRoundRequest(round_id=self.terms.round_id)
        patience_s = self.world.bound_s
        answer = await retrying(lambda: self.shuffler.GetRound(request, timeout=CALL_S), give_up_after_s=patience_s)
        return answer.state

    async def is_closed(self) -> bool:
        return await self.state_of_hop_1() != pb.ROUND_STATE_OPEN

    async def is_published(self) -> bool:
        return all(state in self.final for state in (await self.states()).values())

    async def states(self) -> dict[str, pb.RoundState.ValueType]:
        """Returns the state of the round in every service that answers.

        Raises:
            Violation: a service has given the round up.
        """
        states: dict[str, pb.RoundState.ValueType] = {}
        for name, status in zip(
            self.world.deployment.chain, await self.operator.status(self.terms.round_id), strict=True
        ):
            states[name] = pb.ROUND_STATE_UNSPECIFIED
            if isinstance(status, rpc.StatusResponse):
                states[name] = status.rounds[0].state
                if status.rounds[0].state in self.given_up:
                    raise Violation(f"{name}: the round is {pb.RoundState.Name(status.rounds[0].state)}")
        return states

    async def until(self, condition: Callable[[], Awaitable[bool]], otherwise: str) -> None:
        deadline = asyncio.get_running_loop().time() + self.world.bound_s
        while not await condition():
            self.listen()
            if asyncio.get_running_loop().time() > deadline:
                names = {name: pb.RoundState.Name(state) for name, state in (await self.states()).items()}
                raise Violation(f"{otherwise} within {self.world.bound_s:g} s: {names}")
            await asyncio.sleep(0.1)

    async def judge(self) -> None:
        for attempt in self.attempts:
            await self.ask(attempt, patience_s=self.world.bound_s)
        oracle.check_answers(self.attempts, may_be_closed=self.closed)
        publication, certificate = await self.result()
        if not certificate.granted:
            raise Violation(f"refused: {certificate.refusals}")
        lists = [await self.passed_on(lane) for lane in (pb.LANE_REPORT, pb.LANE_PARAMETER)]
        oracle.check_counted(self.attempts, publication, certificate, lists)
        await self.judge_files()

    async def judge_files(self) -> None:
        """What holds for every round, whatever it published."""
        testimony = self.world.testimony()
        oracle.check_order(testimony)
        await self.until_forgotten(testimony)
        self.listen()

    async def result(self) -> tuple[pb.Publication, pb.Certificate]:
        """Returns what was published, which is the same however often one asks."""
        analyzer = stubs.AnalyzerStub(self.operator._analyzer)
        request = rpc.GetResultRequest(round_id=self.terms.round_id)
        documents = [(await analyzer.GetResult(request, timeout=CALL_S)).publication for _ in range(2)]
        if documents[0] != documents[1]:
            raise Violation("the published result changed")
        return read_publication(documents[0], self.world.deployment)

    async def passed_on(self, lane: Lane) -> list[bytes]:
        request = rpc.GetInclusionRequest(round_id=self.terms.round_id, lane=lane)
        page = await self.shuffler.GetInclusion(request, timeout=CALL_S)
        return [page.hashes[start : start + 32] for start in range(0, len(page.hashes), 32)]

    async def until_forgotten(self, testimony: Mapping[str, Iterable[str]]) -> None:
        """Waits a little: the state becomes final just before the log is erased."""
        deadline = asyncio.get_running_loop().time() + _ERASED_S
        while True:
            try:
                oracle.check_forgotten(testimony, self.world.files())
            except Violation:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(0.05)
            else:
                return

    def listen(self) -> None:
        if self.world.complaints():
            raise Violation("\n".join(["a service failed:", *self.world.complaints()]))


async def _open_round(game: Game) -> RoundTerms:
    """Opens a round under faults; killed services are started again at once. A round that fails is left behind."""
    world, schedule = game.world, game.schedule
    for number, fault in enumerate(schedule.opening):
        world.order(fault.service, trap=Trap(-1 - number, fault.point, fault.action, fault.nth))

    async with _supervised(world):
        for number in range(5):
            try:
                return await game.operator.open_round(game.settings(), RoundId(f"round-{number}"))
            except (grpc.aio.AioRpcError, Refusal):
                continue
    raise Violation("no round can be opened")


@asynccontextmanager
async def _supervised(world: World) -> AsyncIterator[None]:
    """Starts every service again as soon as it has died; springs no trap at the end."""

    done = asyncio.Event()

    async def supervise() -> None:
        while not done.is_set():
            await world.settle()
            for name in sorted(world.down):
                await world.start(name)
            await asyncio.sleep(0.01)

    supervisor = asyncio.create_task(supervise())
    try:
        yield
    finally:
        for name in world.deployment.chain:
            world.order(name, trap=None)
        done.set()
        await supervisor


async def play(world: World, schedule: Schedule, make_game: Callable[..., Game] = Game) -> None:
    """Plays the schedule in a world that has been built.

    Raises:
        Violation: a promise was broken.
    """
    async with AsyncExitStack() as connections:
        game = make_game(world, schedule, connections)
        await game.connect()
        game.terms = await _open_round(game)
        await game.begin()
        for number, step in enumerate(schedule.steps):
            await game.step(number, step)
        await game.heal()
        async with _supervised(world):  # a trap may have been sprung while it was taken away
            await game.finish()
            await game.judge()
