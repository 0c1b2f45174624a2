"""Admission: registered clients may submit, once per round, acknowledged only after the commit.

Hop 1 admits submissions, and the accountant requests for tickets; both keep the same roster. Signatures are checked in
the worker pool, where hop 1 also opens the envelopes of admissible clients. Submissions that are checked during a
commit are committed together with the next one (group commit). Reads come from memory, which is filled from the store;
the store's primary key is the safety net.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import Purpose, has_small_order
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import NO_ROUND, Digest, PublicKey, RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.steps import StoreStep
from croupier.runtime.store import Store
from croupier.runtime.tasks import LaneWork, verify_and_open
from croupier.runtime.transaction import Transaction
from croupier.runtime.workers import WorkerPool

MAX_PENDING = 200_000
"""The most submissions that wait to be checked; more are refused for now, so that memory stays bounded."""
MAX_PER_CALL = 2000


def _hash(content: bytes) -> Digest:
    return Digest(hashlib.sha256(content).digest())


def _check_lengths(client_keys: Sequence[PublicKey]) -> None:
    for key in client_keys:
        if len(key) != 32:
            raise Refusal(Code.BAD_REQUEST, f"{len(key)} bytes; an Ed25519 public key has 32")


def _check_orders(client_keys: Sequence[PublicKey]) -> None:
    for number, key in enumerate(client_keys, start=1):
        if has_small_order(key):
            raise Refusal(Code.BAD_REQUEST, f"key {number} is a point of small order, for which anyone can sign")


def _after_close(admitted: dict[PublicKey, Digest], submission: pb.Submission) -> pb.SubmissionCode.ValueType:
    known = admitted.get(PublicKey(submission.client_key))
    if known is None:
        return pb.SUBMISSION_CODE_ROUND_CLOSED
    same = known == _hash(submission.envelope)
    return pb.SUBMISSION_CODE_ACCEPTED if same else pb.SUBMISSION_CODE_ALREADY_EXISTS


@dataclass
class _Waiting:
    """A call whose submissions have passed every check before its transaction."""

    terms: RoundTerms
    submissions: Sequence[pb.Submission]
    records: Sequence[bytes]
    done: asyncio.Future[list[pb.SubmissionCode.ValueType]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


@dataclass
class _Roster:
    """The keys that admit a client.

    The keys in `invited` admit to the rounds of one survey: each has the survey's hash, and the time until which its
    owner gets tickets. A survey or study with invited keys admits no other key. Revoked keys are also in `revoked`;
    they are treated like keys that were never registered.
    """

    keys: set[PublicKey]
    invited: dict[PublicKey, tuple[Digest, int]]
    revoked: set[PublicKey]
    listed: set[Digest] = field(init=False)

    def __post_init__(self) -> None:
        """Finds the surveys and studies that have a list."""
        self.listed = {survey_hash for survey_hash, _ in self.invited.values()}

    def enter(self, client_keys: Iterable[PublicKey], scope: tuple[Digest, int] | None) -> None:
        """Takes keys into memory; see `Admission.register`."""
        if scope is None:
            self.keys.update(client_keys)
        else:
            self.invited.update(dict.fromkeys(client_keys, scope))
            self.listed.add(scope[0])

    def has_list(self, terms: RoundTerms) -> bool:
        """Returns whether a round is of a survey or study to which its invitations alone admit."""
        return terms.survey.invitation_hash in self.listed

    def admits_key(self, client_key: PublicKey, terms: RoundTerms) -> bool:
        """Returns whether a key admits to a round."""
        if client_key in self.revoked:
            return False
        if not self.has_list(terms):
            return client_key in self.keys
        survey_hash, _ = self.invited.get(client_key, (b"", 0))
        return survey_hash == terms.survey.invitation_hash

    def has_expired(self, client_key: PublicKey, terms: RoundTerms, now: float) -> bool:
        """Returns whether a key is an invitation to this round that gets no tickets any more."""
        _, until = self.invited.get(client_key, (b"", 0))
        return self.has_list(terms) and 0 < until <= now

    def refusal(self, submission: pb.Submission, terms: RoundTerms) -> pb.SubmissionCode.ValueType:
        """Returns why this client may not submit, or UNSPECIFIED."""
        admitted = self.admits_key(PublicKey(submission.client_key), terms)
        return pb.SUBMISSION_CODE_UNSPECIFIED if admitted else pb.SUBMISSION_CODE_UNKNOWN_CLIENT


Keep = Callable[[Transaction, RoundTerms, Sequence[bytes], Sequence[bytes]], None]
"""Stores the envelopes that a transaction admits, or their records if there is one for each."""


class _Group:
    """The submissions of one commit, in order: the new ones, and the refused ones."""

    def __init__(
        self, roster: _Roster, admitted: dict[PublicKey, Digest], terms: RoundTerms, keep: Keep | None, now: float
    ) -> None:
        self._roster, self.admitted, self._terms, self._keep, self._now = roster, admitted, terms, keep, now
        self.rows: dict[PublicKey, Digest] = {}
        self.envelopes: list[bytes] = []
        self.records: list[bytes] = []

    def decide_all(self, call: _Waiting) -> list[pb.SubmissionCode.ValueType]:
        """Returns the codes that the submissions of a call get once the group is durable."""
        records = call.records or [b""] * len(call.submissions)
        opened = zip(call.submissions, records, strict=True)
        return [self._decide(submission, record) for submission, record in opened]

    def _decide(self, submission: pb.Submission, record: bytes) -> pb.SubmissionCode.ValueType:
        refusal = self._roster.refusal(submission, self._terms)  # a client may have been revoked meanwhile
        if refusal != pb.SUBMISSION_CODE_UNSPECIFIED:
            return refusal
        client, envelope_hash = PublicKey(submission.client_key), _hash(submission.envelope)
        known = self.admitted.get(client) or self.rows.get(client)
        if known is not None:
            return pb.SUBMISSION_CODE_ACCEPTED if known == envelope_hash else pb.SUBMISSION_CODE_ALREADY_EXISTS
        if self._roster.has_expired(client, self._terms, self._now):
            return pb.SUBMISSION_CODE_UNKNOWN_CLIENT
        limit = self._terms.shared.max_batch_size
        if limit and len(self.admitted) + len(self.rows) >= limit:
            return pb.SUBMISSION_CODE_ROUND_FULL
        if not submission.envelope:  # a question whether the client would be admitted
            return pb.SUBMISSION_CODE_ACCEPTED
        self.rows[client] = envelope_hash
        self.envelopes.append(submission.envelope)
        if record:
            self.records.append(record)
        return pb.SUBMISSION_CODE_ACCEPTED

    def write(self, tx: Transaction) -> bool:
        """Stores the group if the round still takes submissions, and returns whether it does."""
        if tx.round(self._terms.round_id).state != pb.ROUND_STATE_OPEN:
            return False
        if self.rows:
            tx.add_submissions(self._terms.round_id, list(self.rows.items()))
            if self._keep is not None and self.envelopes:
                self._keep(tx, self._terms, self.envelopes, self.records)
        return True

    def remember(self) -> None:
        """Takes the stored group into memory."""
        self.admitted.update(self.rows)


class Admission:
    """Decides on submissions and stores the accepted ones.

    Args:
        store: the service's.
        pool: checks the signatures.
        purpose: of the clients' signatures; a signature for another purpose is wrong.
        keep: stores envelopes in the transaction that admits them. Without it only their hashes are stored, and an
            empty envelope is a question whether the client would be admitted: it gets the same code as a full one, and
            nothing is stored.
        now: the time at which invitations expire; without it they do not. They expire where tickets are given: a client
            with tickets may submit later.
    """

    def __init__(
        self,
        store: Store,
        pool: WorkerPool,
        purpose: Purpose,
        keep: Keep | None = None,
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._store = store
        self._pool = pool
        self._keep = keep
        self._now = now
        self._purpose: Purpose = purpose
        self._known: _Roster | None = None
        self.admitted: dict[RoundId, dict[PublicKey, Digest]] = {}
        self.queue: list[_Waiting] = []
        self._pending = 0
        self.committer: asyncio.Task[None] | None = None
        self._registering = asyncio.Lock()

    @property
    def num_pending(self) -> int:
        """The number of submissions that are being checked or wait for their commit."""
        return self._pending

    async def register(self, client_keys: Sequence[PublicKey], scope: tuple[Digest, int] | None = None) -> int:
        """Adds clients to the roster and returns how many were new; known and revoked ones are unchanged.

        scope: the hash of the only survey to which these keys admit, and when they expire (Unix s; 0: never).

        Raises:
            Refusal: BAD_REQUEST for a key or hash that does not have 32 bytes, and for a key of small order; then none
                is added.
        """
        _check_lengths(client_keys)
        _check_orders(client_keys)
        if scope is not None and (len(scope[0]) != 32 or scope[1] >= 2**63):
            raise Refusal(Code.BAD_REQUEST, f"{len(scope[0])} bytes; the hash of a survey has 32")
        async with self._registering:  # no other call may enter the same key between the look-up and the entry
            roster = await self._roster()
            known = roster.keys if scope is None else roster.invited.keys()
            fresh = set(client_keys) - known - roster.revoked

            def add(tx: Transaction) -> None:
                if scope is None:
                    tx.add_clients(fresh)
                else:
                    tx.add_invited(fresh, *scope)

            try:
                await self._store.run(StoreStep.REGISTER_CLIENTS, add)
            except BaseException:
                self._distrust_memory()
                raise
            roster.enter(fresh, scope)
            return len(fresh)

    async def num_answered(self, round_ids: Sequence[RoundId], client_keys: Sequence[PublicKey]) -> int:
        """Returns how many of these clients have submitted in at least one of these rounds.

        Raises:
            Refusal: BAD_REQUEST for a key that does not have 32 bytes.
        """
        _check_lengths(client_keys)
        return await self._store.run(StoreStep.COUNT_ANSWERED, lambda tx: tx.num_answered(round_ids, client_keys))

    async def revoke(self, client_keys: Sequence[PublicKey]) -> int:
        """Revokes clients for good, and returns how many were not revoked before.

        Their submissions stay: they have been acknowledged, and removing them would let an operator choose, after the
        fact, whose reports are mixed together.

        Raises:
            Refusal: BAD_REQUEST for a key that does not have 32 bytes; then none is revoked.
        """
        _check_lengths(client_keys)
        async with self._registering:
            roster = await self._roster()
            fresh = set(client_keys) - roster.revoked
            roster.revoked |= fresh  # before it is durable: nothing that is decided from here on is committed behind it
            try:
                await self._store.run(StoreStep.REVOKE_CLIENTS, lambda tx: tx.revoke(fresh))
            finally:
                self._distrust_memory()
            return len(fresh)

    async def _roster(self) -> _Roster:
        if self._known is None:
            known = await self._store.run(
                StoreStep.READ_ROSTER, lambda tx: _Roster(tx.client_keys(), tx.invited(), tx.revoked())
            )
            self._known = self._known or known
        return self._known

    async def submit(
        self,
        terms: RoundTerms,
        envelope_size: int,
        submissions: Sequence[pb.Submission],
        lane_work: LaneWork | None = None,
    ) -> tuple[list[pb.SubmissionCode.ValueType], float]:
        """Returns one code per submission, in order, and the workers' CPU seconds.

        Args:
            terms: of the round.
            envelope_size: of every submission.
            submissions: of clients.
            lane_work: opens the envelopes of admissible clients, whose records are stored instead.

        Raises:
            Refusal: OVERLOADED while too many wait.
        """
        if self._pending + len(submissions) > MAX_PENDING:
            raise Refusal(Code.OVERLOADED, log_only=f"{self._pending} submissions are waiting")
        self._pending += len(submissions)
        try:
            codes, passed, records, cpu_s = await self._check(terms, envelope_size, submissions, lane_work)
            if passed:
                waiting = _Waiting(terms, [submissions[index] for index in passed], records)
                self.queue.append(waiting)
                if self.committer is None or self.committer.done():
                    self.committer = asyncio.create_task(self._commit_groups())
                for index, code in zip(passed, await waiting.done, strict=True):
                    codes[index] = code
            return codes, cpu_s
        finally:
            self._pending -= len(submissions)

    async def _check(
        self,
        terms: RoundTerms,
        envelope_size: int,
        submissions: Sequence[pb.Submission],
        lane_work: LaneWork | None,
    ) -> tuple[list[pb.SubmissionCode.ValueType], list[int], list[bytes], float]:
        """Returns codes (unspecified if undecided), the undecided positions with their records, and CPU seconds."""
        roster = await self._roster()
        codes = [
            roster.refusal(submission, terms)
            if len(submission.envelope) == envelope_size or (not submission.envelope and self._keep is None)
            else pb.SUBMISSION_CODE_WRONG_SIZE
            for submission in submissions
        ]
        # All signatures are checked: without the key a caller learns nothing of it, not even by the time it takes.
        sized = [index for index, code in enumerate(codes) if code != pb.SUBMISSION_CODE_WRONG_SIZE]
        if not sized:
            return codes, [], [], 0.0
        allowed = [codes[index] == pb.SUBMISSION_CODE_UNSPECIFIED for index in sized]
        raw = [submissions[index].SerializeToString() for index in sized]
        (faults, records), cpu_s = await self._pool.run(
            verify_and_open, self._purpose, terms.hash, lane_work, allowed, raw
        )
        for index, fault in zip(sized, faults, strict=True):
            codes[index] = fault or codes[index]
        passed = [index for index in sized if codes[index] == pb.SUBMISSION_CODE_UNSPECIFIED]
        return codes, passed, records, cpu_s

    async def _commit_groups(self) -> None:
        while self.queue:
            group, self.queue = self.queue, []
            for round_id in {waiting.terms.round_id for waiting in group}:
                await self._commit([waiting for waiting in group if waiting.terms.round_id == round_id])

    async def _commit(self, calls: list[_Waiting]) -> None:
        try:
            codes = await self._decide(calls)
        except Exception as error:  # noqa: BLE001 (whatever it was, every caller of the group must hear of it)
            self._distrust_memory(calls[0].terms.round_id)
            for call in calls:
                if not call.done.done():  # a caller that has hung up needs no answer
                    call.done.set_exception(error)
            return
        for call, answer in zip(calls, codes, strict=True):
            if not call.done.done():
                call.done.set_result(answer)

    async def _decide(self, calls: list[_Waiting]) -> list[list[pb.SubmissionCode.ValueType]]:
        """Returns the codes of every call of one round, after the commit of the new submissions."""
        terms, roster = calls[0].terms, await self._roster()
        round_id = terms.round_id
        if round_id not in self.admitted:
            keys = [PublicKey(submission.client_key) for call in calls for submission in call.submissions]

            def read(tx: Transaction) -> tuple[bool, dict[PublicKey, Digest]]:
                is_open = tx.round(round_id).state == pb.ROUND_STATE_OPEN
                return is_open, tx.submission_hashes(round_id, None if is_open else keys)

            is_open, admitted = await self._store.run(StoreStep.READ_ADMITTED_CLIENTS, read)
            if is_open:
                self.admitted[round_id] = admitted
        else:
            is_open, admitted = True, self.admitted[round_id]
        if is_open:
            group = _Group(roster, admitted, terms, self._keep, self._now())
            codes = [group.decide_all(call) for call in calls]
            if await self._store.run(StoreStep.ADMIT_SUBMISSIONS, group.write):
                group.remember()
                return codes
            self.stop_round(round_id)
        # Submissions admitted before the close stay admitted.
        return [[_after_close(admitted, submission) for submission in call.submissions] for call in calls]

    def _distrust_memory(self, round_id: RoundId = NO_ROUND) -> None:
        """Forgets the roster in memory: the store may have kept changes that it could not confirm any more."""
        self._known = None
        self.admitted.pop(round_id, None)

    def reload_roster(self) -> None:
        """Has the roster read from the store when it is next needed."""
        self._known = None

    def stop_round(self, round_id: RoundId) -> None:
        """Deletes a closed round from memory."""
        self.admitted.pop(round_id, None)
