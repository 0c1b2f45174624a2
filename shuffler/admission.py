"""Admission at hop 1: who may submit, once per round, acknowledged only after the commit.

Signatures are checked in the worker pool; whatever has been checked while a commit runs is committed together with the
next (group commit). Reads come from memory, which is filled from the store; the store's primary key is the safety net.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.errors import Code, Refusal
from protocol.identity import submission_is_authentic
from protocol.manifest import RoundTerms
from protocol.store import Store, Transaction
from protocol.v1 import messages_pb2 as pb
from protocol.workers import WorkerPool

__all__ = ["MAX_PER_CALL", "Admission"]

_MAX_PENDING = 200_000
MAX_PER_CALL = 2000


def _authentic(round_id: str, submissions: Sequence[bytes]) -> list[bool]:
    return [submission_is_authentic(round_id, pb.Submission.FromString(raw)) for raw in submissions]


def _code(admitted: bytes | None, envelope_hash: bytes) -> pb.SubmissionCode.ValueType:
    if admitted is None:
        return pb.SUBMISSION_CODE_ROUND_CLOSED
    return pb.SUBMISSION_CODE_ACCEPTED if admitted == envelope_hash else pb.SUBMISSION_CODE_ALREADY_EXISTS


@dataclass
class _Waiting:
    round_id: str
    submissions: list[tuple[bytes, bytes, bytes]]
    done: asyncio.Future[list[pb.SubmissionCode.ValueType]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Admission:
    """Decides on submissions and stores those that are accepted."""

    def __init__(self, store: Store, pool: WorkerPool) -> None:
        self._store = store
        self._pool = pool
        self._clients: set[bytes] | None = None
        self._registering = asyncio.Lock()
        self._admitted: dict[str, dict[bytes, bytes]] = {}
        self._queue: list[_Waiting] = []
        self._pending = 0
        self._committer: asyncio.Task[None] | None = None

    async def register(self, client_keys: Sequence[bytes]) -> int:
        """Adds clients to the roster and returns how many were new.

        Raises:
            Refusal: BAD_REQUEST for a key that has not 32 bytes; then none is added.
        """
        for key in client_keys:
            if len(key) != 32:
                raise Refusal(Code.BAD_REQUEST, f"a client key has {len(key)} bytes; an Ed25519 public key has 32")
        async with self._registering:  # between two calls with the same key one must see the other
            fresh = set(client_keys) - await self._roster()
            try:
                await self._store.run(lambda tx: tx.add_clients(fresh))
            except BaseException:  # also a caller who hangs up: whether they are durable now, only the store knows
                self._clients = None
                raise
            (await self._roster()).update(fresh)
        return len(fresh)

    async def _roster(self) -> set[bytes]:
        if self._clients is None:
            loaded = await self._store.run(lambda tx: tx.client_keys())
            if self._clients is None:  # else another call was faster, and may have added to what it read
                self._clients = loaded
        return self._clients

    async def submit(
        self, terms: RoundTerms, envelope_size: int, submissions: Sequence[pb.Submission]
    ) -> tuple[list[pb.SubmissionCode.ValueType], float]:
        """Returns one code per submission, in order, and the workers' CPU seconds.

        Raises:
            Refusal: OVERLOADED while too many wait.
        """
        if self._pending + len(submissions) > _MAX_PENDING:
            raise Refusal(Code.OVERLOADED, f"{self._pending} submissions are waiting")
        self._pending += len(submissions)
        try:
            codes, passed, cpu_s = await self._check(terms, envelope_size, submissions)
            if passed:
                chosen = [submissions[index] for index in passed]
                rows = [(one.client_key, hashlib.sha256(one.envelope).digest(), one.envelope) for one in chosen]
                waiting = _Waiting(terms.round_id, rows)
                self._queue.append(waiting)
                if self._committer is None or self._committer.done():
                    self._committer = asyncio.create_task(self._commit_groups())
                for index, code in zip(passed, await waiting.done, strict=True):
                    codes[index] = code
            return codes, cpu_s
        finally:
            self._pending -= len(submissions)

    async def _check(
        self, terms: RoundTerms, envelope_size: int, submissions: Sequence[pb.Submission]
    ) -> tuple[list[pb.SubmissionCode.ValueType], list[int], float]:
        """Returns codes (unspecified where still undecided), the undecided positions, and the workers' CPU seconds."""
        roster = await self._roster()
        codes = [pb.SUBMISSION_CODE_UNSPECIFIED] * len(submissions)
        undecided: list[int] = []
        for index, submission in enumerate(submissions):
            if len(submission.envelope) != envelope_size:
                codes[index] = pb.SUBMISSION_CODE_WRONG_SIZE
            elif submission.client_key not in roster:
                codes[index] = pb.SUBMISSION_CODE_UNKNOWN_CLIENT
            else:
                undecided.append(index)
        raw = [submissions[index].SerializeToString() for index in undecided]
        verdicts, cpu_s = await self._pool.run(_authentic, terms.round_id, raw) if raw else ([], 0.0)
        for index, authentic in zip(undecided, verdicts, strict=True):
            if not authentic:
                codes[index] = pb.SUBMISSION_CODE_BAD_SIGNATURE
        passed = [index for index in undecided if codes[index] == pb.SUBMISSION_CODE_UNSPECIFIED]
        return codes, passed, cpu_s

    async def _commit_groups(self) -> None:
        while self._queue:
            group, self._queue = self._queue, []
            for round_id in {waiting.round_id for waiting in group}:
                await self._commit(round_id, [waiting for waiting in group if waiting.round_id == round_id])

    async def _commit(self, round_id: str, group: list[_Waiting]) -> None:
        try:
            admitted = await self._write(round_id, group)
        except Exception as error:  # noqa: BLE001 (whatever it was, every caller of the group must hear of it)
            self._admitted.pop(round_id, None)  # whether it is durable all the same, only the store knows
            for waiting in group:
                if not waiting.done.done():
                    waiting.done.set_exception(error)
            return
        for waiting in group:
            if not waiting.done.done():  # the caller may have hung up
                waiting.done.set_result([_code(admitted.get(row[0]), row[1]) for row in waiting.submissions])

    async def _write(self, round_id: str, group: list[_Waiting]) -> dict[bytes, bytes]:
        """Stores what is new in the group and returns who stands in the round after the commit, with which envelope."""
        if round_id not in self._admitted:
            self._admitted[round_id] = await self._store.run(lambda tx: tx.submission_hashes(round_id))
        admitted = self._admitted[round_id]
        fresh: dict[bytes, tuple[bytes, bytes, bytes]] = {}
        for waiting in group:
            for row in waiting.submissions:
                if row[0] not in admitted:
                    fresh.setdefault(row[0], row)

        def write(tx: Transaction) -> bool:
            accepting = tx.round(round_id).state == pb.ROUND_STATE_OPEN
            if fresh and accepting:
                tx.add_submissions(round_id, list(fresh.values()))
            return accepting

        if await self._store.run(write):
            admitted.update({client: row[1] for client, row in fresh.items()})
        return admitted

    def forget(self, round_id: str) -> None:
        """Drops a closed round from memory."""
        self._admitted.pop(round_id, None)
