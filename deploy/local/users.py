"""A fleet: many users who answer rounds from one place, each with its own key and its own budget.

Randomizing and sealing run in worker processes and overlap with enrolling, asking for tickets, storing and sending. A
fleet that is started again for the same round goes on where it stopped: a sealed submission of one of its users is sent
again, a prepared report gets the same tickets again, and no user is ever randomized twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import grpc.aio

from croupier.client.one_answer import with_kept_reports
from croupier.client.outbox import Outbox
from croupier.client.submission import (
    Participant,
    SealedSubmission,
    per_call,
    prepare_all,
    seal_all,
    send,
)
from croupier.client.tickets import get_tickets
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import PublicKey
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.workers import WorkerPool

Enrol = Callable[[Sequence[PublicKey]], Awaitable[object]]
Progress = Callable[[int], None]
_CHUNK, _FEWEST = 500, 100
"""The most and the fewest users in a task of a worker process: large tasks cost memory, small ones are slow to hand
over."""
_ASKING = 3  # parts at a time: while one is at the accountant, the next is blinded, and the first can soon be sealed
T = TypeVar("T")


@dataclass
class FleetReport:
    """What a fleet did: codes by count, how many users had answered before and were not sent again, and what it cost.

    `seal_wall_s` runs until the last submission is sealed, `submit_wall_s` from the first call to the last
    acknowledgement; they overlap, `wall_s` is both together. `ticket_wall_s` adds up all calls for tickets, of which
    several are under way at once.
    """

    codes: Counter[str] = field(default_factory=Counter)
    answered_before: int = 0
    wall_s: float = 0.0
    seal_wall_s: float = 0.0
    seal_cpu_s: float = 0.0
    ticket_wall_s: float = 0.0
    submit_wall_s: float = 0.0
    bytes_sent: int = 0

    def outcomes(self) -> str:
        """Returns how many submissions came to what, in words."""
        return ", ".join(f"{count:,} {code.removeprefix('SUBMISSION_CODE_')}" for code, count in self.codes.items())

    @property
    def accepted(self) -> int:
        """How many submissions hop 1 accepted."""
        return self.codes[pb.SubmissionCode.Name(pb.SUBMISSION_CODE_ACCEPTED)]


@dataclass(frozen=True)
class Fleet:
    """Users who answer from one place.

    Attributes:
        shuffler, accountant: channels to hop 1, and to the accountant's public address.
        outbox: stores every prepared report before its tickets are asked for, and every submission before it is sent.
        pool: the processes that randomize and seal.
        enrol: registers client keys; called before tickets are asked for with them.
    """

    shuffler: grpc.aio.Channel
    accountant: grpc.aio.Channel
    outbox: Outbox
    pool: WorkerPool
    enrol: Enrol

    async def answer(
        self, terms: RoundTerms, users: Mapping[str, Participant], progress: Progress = lambda _: None
    ) -> FleetReport:
        """Plays users in one round and returns the outcomes of their submissions.

        Args:
            terms: the round's, verified.
            users: what each takes part with, by name.
            progress: called with the number of users whose fate is known since the last call.

        Raises:
            ValueError: a user's value or `max_local_epsilon` cannot be used; no user of that chunk is randomized.
            TicketError: the accountant's tickets do not verify under the key of the manifest.
            grpc.aio.AioRpcError: hop 1 or accountant stayed out of reach; the outbox keeps what is not acknowledged.
        """
        outbox, pool = self.outbox, self.pool
        report = FleetReport(answered_before=len(users.keys() & outbox.acknowledged(terms.round_id).keys()))
        started = time.perf_counter()
        sealed: asyncio.Queue[dict[str, bytes] | None] = asyncio.Queue(maxsize=16)

        earlier = outbox.prepared(terms.round_id)
        most = per_call(terms)
        chunk = min(most, _CHUNK)
        under_way, asking = asyncio.Semaphore(2 * pool.processes + 6), asyncio.Semaphore(_ASKING)

        async def in_pool(work: Callable[..., T], *args: object) -> T:
            result, cpu_s = await pool.run(work, *args)
            report.seal_cpu_s += cpu_s
            return result

        async def seal_part(part: Mapping[str, Participant]) -> dict[str, SealedSubmission]:
            async with under_way:
                fresh = {user: participant for user, participant in part.items() if user not in earlier}
                fresh = await asyncio.to_thread(with_kept_reports, outbox, terms, fresh)
                reports = await in_pool(prepare_all, terms.unsigned, list(fresh.values()))
                prepared = {user: earlier[user] for user in part if user in earlier} | dict(
                    zip(fresh, reports, strict=True)
                )
                await asyncio.to_thread(outbox.prepare, terms.round_id, prepared)
                await self.enrol([prepared_answer.client_key for prepared_answer in prepared.values()])
                async with asking:
                    asked = time.perf_counter()
                    tickets = await get_tickets(self.accountant, terms, prepared, elsewhere=in_pool)
                    report.ticket_wall_s += time.perf_counter() - asked
                await asyncio.to_thread(outbox.discard, terms.round_id, tickets.refused)
                report.codes.update(pb.SubmissionCode.Name(code) for code in tickets.refused.values())
                progress(len(tickets.refused))
                granted = [(prepared[user], pair) for user, pair in tickets.granted.items()]
                sealed = await in_pool(seal_all, terms.unsigned, granted)
                return dict(zip(tickets.granted, sealed, strict=True))

        async def seal_everyone() -> None:
            known, pending = outbox.users(terms.round_id), outbox.pending(terms.round_id)
            for part in fleet_parts(
                {user: raw for user, raw in pending.items() if user in users}, pool.processes, chunk
            ):
                await self.enrol([PublicKey(pb.Submission.FromString(raw).client_key) for raw in part.values()])
                await sealed.put(part)
            fresh = {user: participant for user, participant in users.items() if user not in known}
            jobs = deque(asyncio.create_task(seal_part(part)) for part in fleet_parts(fresh, pool.processes, chunk))
            while jobs:
                made = await jobs.popleft()  # a list would keep what all of them have made
                await asyncio.to_thread(outbox.keep, terms.round_id, made)
                if made:
                    await sealed.put({user: answer.submission for user, answer in made.items()})
            report.seal_wall_s = time.perf_counter() - started
            await sealed.put(None)

        async def send_everyone() -> None:
            first, more = 0.0, True
            while more and (part := await sealed.get()) is not None:
                first = first or time.perf_counter()
                while more and len(part) + chunk <= most and not sealed.empty():
                    following = sealed.get_nowait()
                    more = following is not None
                    part = part | (following or {})
                codes = await send(self.shuffler, terms.round_id, part)
                accepted = [user for user, code in codes.items() if code == pb.SUBMISSION_CODE_ACCEPTED]
                await asyncio.to_thread(outbox.acknowledge, terms.round_id, accepted)
                report.codes.update(pb.SubmissionCode.Name(code) for code in codes.values())
                report.bytes_sent += sum(len(raw) for raw in part.values())
                report.submit_wall_s = time.perf_counter() - first
                progress(len(part))

        async with asyncio.TaskGroup() as group:
            group.create_task(seal_everyone())
            group.create_task(send_everyone())
        report.wall_s = time.perf_counter() - started
        return report


def fleet_parts(items: Mapping[str, T], processes: int, most: int) -> Iterator[dict[str, T]]:
    """Yields items in parts that get smaller towards the end, so that the processes end at about the same time."""
    pairs, start = list(items.items()), 0
    while start < len(pairs):
        size = min(most, max(_FEWEST, (len(pairs) - start) // (4 * processes)))
        yield dict(pairs[start : start + size])
        start += size
