"""Admission: who gets in, once, and what is durable when it is acknowledged."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import sign_submission
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import PrivateKey, PublicKey, StorageKey
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime import admission as room
from croupier.runtime.admission import Admission
from croupier.runtime.store import Store
from croupier.runtime.tasks import OPENED, LaneWork, verify_and_open
from croupier.runtime.transaction import Transaction
from croupier.runtime.workers import WorkerPool
from tests.support import make_kit
from tests.support.messages import naming, refuses

T = TypeVar("T")
TERMS = make_kit().terms
SIZE = 100
ACCEPTED, EXISTS = pb.SUBMISSION_CODE_ACCEPTED, pb.SUBMISSION_CODE_ALREADY_EXISTS


def private(client: int) -> bytes:
    return bytes([client]) * 32


def public(client: int) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(private(client)).public_key().public_bytes_raw()


def submission(client: int, fill: int = 0, size: int = SIZE, terms: RoundTerms = TERMS) -> pb.Submission:
    return sign_submission(terms.hash, bytes([fill]) * size, PrivateKey(private(client)))


def keep(tx: Transaction, terms: RoundTerms, envelopes: Sequence[bytes], _records: Sequence[bytes]) -> None:
    tx.append_chunk(terms.round_id, pb.LANE_JOINT, b"".join(envelopes))


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    workers = WorkerPool(1)
    yield workers
    workers.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(f"sqlite:///{tmp_path / 'rounds.db'}", StorageKey(b"k" * 32))
    yield opened
    opened.close()


async def opened(store: Store, pool: WorkerPool) -> Admission:
    await store.run("look", lambda tx: tx.add_round(TERMS.round_id, TERMS.shared.hpke_suite, {}))
    await store.run("look", lambda tx: tx.update_round(TERMS.round_id, state=pb.ROUND_STATE_OPEN))
    admission = Admission(store, pool, "submit")
    await admission.register([PublicKey(public(client)) for client in range(1, 6)])
    return admission


async def codes(admission: Admission, *submissions: pb.Submission) -> list[pb.SubmissionCode.ValueType]:
    return (await admission.submit(TERMS, SIZE, submissions))[0]


async def test_each_cause_has_its_code_and_disturbs_no_others(store: Store, pool: WorkerPool) -> None:
    admission = await opened(store, pool)
    forged = submission(3)
    forged.signature = submission(2).signature
    assert await codes(
        admission, submission(1), submission(9), forged, submission(4, size=SIZE - 1), submission(5)
    ) == [
        ACCEPTED,
        pb.SUBMISSION_CODE_UNKNOWN_CLIENT,
        pb.SUBMISSION_CODE_BAD_SIGNATURE,
        pb.SUBMISSION_CODE_WRONG_SIZE,
        ACCEPTED,
    ]
    assert await store.run("look", lambda tx: tx.num_submissions(TERMS.round_id)) == 2


def beginnings(envelopes: list[bytes]) -> list[tuple[int, bytes]]:
    return [(OPENED, envelope[:2]) for envelope in envelopes]


@pytest.mark.slow
async def test_what_is_opened_with_its_signature_is_of_those_who_may_submit(store: Store, pool: WorkerPool) -> None:
    """A stranger, a forger and a second body cost no opening, or leave nothing of it."""
    await opened(store, pool)
    kept: list[tuple[Sequence[bytes], Sequence[bytes]]] = []

    def keep_both(_: Transaction, __: RoundTerms, envelopes: Sequence[bytes], records: Sequence[bytes]) -> None:
        kept.append((envelopes, records))

    admission = Admission(store, pool, "submit", keep_both)
    forged = submission(3, fill=3)
    forged.signature = submission(2).signature
    sent = [submission(1, fill=1), submission(9, fill=9), forged, submission(4, fill=4), submission(1, fill=5)]
    codes, _ = await admission.submit(TERMS, SIZE, sent, LaneWork(SIZE, 2, beginnings))
    assert codes == [
        ACCEPTED,
        pb.SUBMISSION_CODE_UNKNOWN_CLIENT,
        pb.SUBMISSION_CODE_BAD_SIGNATURE,
        ACCEPTED,
        EXISTS,
    ]
    ((envelopes, records),) = kept
    assert envelopes == [sent[0].envelope, sent[3].envelope]
    assert records == [hashlib.sha256(envelope).digest() + bytes([OPENED]) + envelope[:2] for envelope in envelopes]
    raw = [submission.SerializeToString() for submission in sent]
    may = [True, False, True, True, True]
    _, made = verify_and_open("submit", TERMS.hash, LaneWork(SIZE, 2, beginnings), may, raw)
    assert [record[-1] for record in made] == [1, 4, 5]  # nothing of the stranger and the forger


async def test_a_key_of_small_order_is_not_registered(store: Store, pool: WorkerPool) -> None:
    admission = await opened(store, pool)
    with refuses(Code.BAD_REQUEST, naming("key 2")):
        await admission.register([PublicKey(public(6)), PublicKey(bytes(32))])
    assert public(6) not in await store.run("look", lambda tx: tx.client_keys())


async def test_the_same_bytes_count_once_and_different_bytes_are_refused(store: Store, pool: WorkerPool) -> None:
    admission = Admission(store, pool, "submit", keep)
    await opened(store, pool)
    assert await codes(admission, submission(1), submission(1), submission(1, fill=7)) == [ACCEPTED, ACCEPTED, EXISTS]
    assert await codes(admission, submission(1), submission(1, fill=7)) == [ACCEPTED, EXISTS]
    again = Admission(store, pool, "submit", keep)  # a restart knows only what is durable
    assert await codes(again, submission(1), submission(1, fill=7), submission(2)) == [ACCEPTED, EXISTS, ACCEPTED]
    arrived = await store.run("look", lambda tx: tx.unopened(TERMS.round_id, pb.LANE_JOINT, -1))
    assert arrived == [(0, bytes(SIZE)), (1, bytes(SIZE))]


async def test_concurrent_calls_are_committed_together_and_counted_once(store: Store, pool: WorkerPool) -> None:
    admission = await opened(store, pool)
    answers = await asyncio.gather(*(codes(admission, submission(client), submission(1)) for client in range(1, 6)))
    assert answers == [[ACCEPTED, ACCEPTED]] * 5
    assert await store.run("look", lambda tx: tx.num_submissions(TERMS.round_id)) == 5


async def test_after_the_close_only_a_repeat_is_acknowledged(store: Store, pool: WorkerPool) -> None:
    admission = await opened(store, pool)
    assert await codes(admission, submission(1)) == [ACCEPTED]
    await store.run("look", lambda tx: tx.update_round(TERMS.round_id, state=pb.ROUND_STATE_CLOSED))
    assert await codes(admission, submission(1), submission(2)) == [ACCEPTED, pb.SUBMISSION_CODE_ROUND_CLOSED]
    assert await store.run("look", lambda tx: tx.num_submissions(TERMS.round_id)) == 1


async def test_a_late_submission_does_not_bring_a_closed_round_back_into_memory(store: Store, pool: WorkerPool) -> None:
    """Every client's hash was read again, and stayed."""
    admission = await opened(store, pool)
    assert await codes(admission, submission(1), submission(2), submission(3)) == [ACCEPTED] * 3
    await store.run("look", lambda tx: tx.update_round(TERMS.round_id, state=pb.ROUND_STATE_DELIVERED))
    admission.stop_round(TERMS.round_id)
    late = submission(1), submission(2, fill=7), submission(4)
    assert await codes(admission, *late) == [ACCEPTED, EXISTS, pb.SUBMISSION_CODE_ROUND_CLOSED]
    assert admission.admitted == {}


async def test_a_failed_commit_acknowledges_no_client(store: Store, pool: WorkerPool) -> None:
    admission = await opened(store, pool)
    await store.run("look", lambda tx: tx.add_submissions(TERMS.round_id, [(public(2), b"x")]))
    admission.admitted[TERMS.round_id] = {}  # memory that has fallen behind the store: the primary key must hold
    with pytest.raises(Exception, match="UNIQUE"):
        await codes(admission, submission(1), submission(2))
    assert await store.run("look", lambda tx: tx.num_submissions(TERMS.round_id)) == 1


async def test_too_much_at_once_is_refused(store: Store, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    admission = await opened(store, pool)
    monkeypatch.setattr(room, "MAX_PENDING", 1)
    with refuses(Code.OVERLOADED):
        await codes(admission, submission(1), submission(2))
    assert await codes(admission, submission(1)) == [ACCEPTED]


async def test_keys_are_registered_once_and_checked(store: Store, pool: WorkerPool) -> None:
    admission = await opened(store, pool)
    assert await admission.register([PublicKey(public(1)), PublicKey(public(6)), PublicKey(public(6))]) == 1
    with pytest.raises(Refusal, match=naming(3, "Ed25519", 32)):
        await admission.register([PublicKey(public(7)), PublicKey(b"abc")])
    assert await codes(admission, submission(7)) == [pb.SUBMISSION_CODE_UNKNOWN_CLIENT]


async def test_an_empty_envelope_asks_whether_a_client_would_be_admitted(store: Store, pool: WorkerPool) -> None:
    """It gets the code that a full one would, and nothing is stored; signed, so that nobody else learns the code."""
    await opened(store, pool)
    kit = make_kit(round_id="round-2")
    kit.survey.max_batch_size = 2
    terms = kit.terms
    await store.run("look", lambda tx: tx.add_round(terms.round_id, terms.shared.hpke_suite, {}))
    await store.run("look", lambda tx: tx.update_round(terms.round_id, state=pb.ROUND_STATE_OPEN))
    admission = Admission(store, pool, "tickets")
    blinded = bytes.fromhex(
        "e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76"
        "6a493210f7499cd17fecb510ae0cea23a110e8d5b901f8acadd3095c73a3b919"
    )

    def asks(client: int, envelope: bytes = b"") -> pb.Submission:
        return sign_submission(terms.hash, envelope, PrivateKey(private(client)), purpose="tickets")

    async def answers(*requests: pb.Submission) -> list[pb.SubmissionCode.ValueType]:
        return (await admission.submit(terms, len(blinded), requests))[0]

    forged = asks(2)
    forged.signature = asks(1).signature
    unknown, full = pb.SUBMISSION_CODE_UNKNOWN_CLIENT, pb.SUBMISSION_CODE_ROUND_FULL
    assert await answers(asks(1), asks(9), forged) == [ACCEPTED, unknown, pb.SUBMISSION_CODE_BAD_SIGNATURE]
    assert await store.run("look", lambda tx: tx.num_submissions(terms.round_id)) == 0
    assert await answers(asks(1, blinded), asks(1), asks(2)) == [ACCEPTED, EXISTS, ACCEPTED]
    assert await answers(asks(2, blinded), asks(3)) == [ACCEPTED, full]
    await store.run("look", lambda tx: tx.update_round(terms.round_id, state=pb.ROUND_STATE_CLOSED))
    admission.stop_round(terms.round_id)
    assert await answers(asks(3)) == [pb.SUBMISSION_CODE_ROUND_CLOSED]
    hop_1 = Admission(store, pool, "submit", lambda *_: None)
    request = sign_submission(terms.hash, b"", PrivateKey(private(3)))
    assert (await hop_1.submit(terms, SIZE, [request]))[0] == [pb.SUBMISSION_CODE_WRONG_SIZE]


async def test_a_full_round_admits_no_other_client(store: Store, pool: WorkerPool) -> None:
    admission = await opened(store, pool)
    terms = make_kit(max_batch_size=2).terms
    full = pb.SUBMISSION_CODE_ROUND_FULL
    answers = (await admission.submit(terms, SIZE, [submission(client, terms=terms) for client in (1, 1, 2, 3)]))[0]
    assert answers == [ACCEPTED, ACCEPTED, ACCEPTED, full]
    assert (await admission.submit(terms, SIZE, [submission(client, terms=terms) for client in (2, 4)]))[0] == [
        ACCEPTED,
        full,
    ]


def test_every_submission_code_is_in_the_catalogue() -> None:
    names = {name.removeprefix("SUBMISSION_CODE_") for name in pb.SubmissionCode.keys()}  # noqa: SIM118 (no mapping)
    assert names - set(Code.__members__) == {"UNSPECIFIED", "ACCEPTED"}


class Forgetful(Store):
    """A store that commits and then loses the connection before it hears so, as often as it is told to."""

    losses = 0

    def transact(self, name: str, work: Callable[[Transaction], T]) -> T:
        answer = super().transact(name, work)
        if self.losses:
            self.losses -= 1
            raise Refusal(Code.STORE_FAILED)
        return answer


async def test_a_commit_of_unknown_outcome_can_be_repeated(tmp_path: Path, pool: WorkerPool) -> None:
    """Once every repetition failed on the primary key, for ever: memory did not know what the store had."""
    with closing(Forgetful(f"sqlite:///{tmp_path / 'rounds.db'}", StorageKey(b"k" * 32))) as store:
        admission = await opened(store, pool)
        store.losses = 1
        with pytest.raises(Refusal, match=Code.STORE_FAILED.message):
            await codes(admission, submission(1))
        assert await codes(admission, submission(1), submission(2)) == [ACCEPTED, ACCEPTED]
        store.losses = 1
        with pytest.raises(Refusal, match=Code.STORE_FAILED.message):
            await admission.register([PublicKey(public(6))])
        await admission.register([PublicKey(public(6)), PublicKey(public(7))])
        assert await codes(admission, submission(6), submission(7)) == [ACCEPTED, ACCEPTED]
        assert await store.run("look", lambda tx: tx.num_submissions(TERMS.round_id)) == 4


async def test_the_same_key_registered_by_two_calls_at_once_is_registered_once(store: Store, pool: WorkerPool) -> None:
    admission = await opened(store, pool)
    new = await asyncio.gather(
        *(admission.register([PublicKey(public(6)), PublicKey(public(7 + number))]) for number in range(3))
    )
    assert sorted(new) == [1, 1, 2]
    assert await codes(admission, submission(6)) == [ACCEPTED]


async def test_a_caller_that_hangs_up_leaves_the_others_of_its_commit_an_answer(store: Store, pool: WorkerPool) -> None:
    """Once the committer died over the abandoned call, and everyone behind it waited until their deadline."""
    admission = await opened(store, pool)
    holding = threading.Event()
    blocked = asyncio.create_task(store.run("look", lambda _: holding.wait(10)))  # until then no commit goes through
    first = asyncio.create_task(codes(admission, submission(1)))
    while admission.committer is None or admission.queue:  # noqa: ASYNC110 (nothing says when it has begun)
        await asyncio.sleep(0.01)
    calls = [first, *(asyncio.create_task(codes(admission, submission(client))) for client in (2, 3))]
    while len(admission.queue) < 2:  # noqa: ASYNC110 (the first is being committed, these are the next group)
        await asyncio.sleep(0.01)
    calls[0].cancel()
    calls[1].cancel()
    holding.set()
    assert await asyncio.wait_for(calls[2], 10) == [ACCEPTED]
    await blocked
    assert await store.run("look", lambda tx: tx.num_submissions(TERMS.round_id)) == 3


async def test_what_is_revoked_is_as_unknown_as_what_was_never_registered(store: Store, pool: WorkerPool) -> None:
    admission, stranger = await opened(store, pool), pb.SUBMISSION_CODE_UNKNOWN_CLIENT
    assert await codes(admission, submission(1)) == [ACCEPTED]
    assert await admission.revoke([PublicKey(public(1)), PublicKey(public(2)), PublicKey(public(8))]) == 3
    assert await admission.revoke([PublicKey(public(1)), PublicKey(public(2))]) == 0
    for known in (
        admission,
        Admission(store, pool, "submit"),
    ):  # also after a restart, and for a key that was never registered
        assert await known.register([PublicKey(public(2)), PublicKey(public(8))]) == 0
        answers = await codes(known, submission(1), submission(2), submission(8), submission(3))
        assert answers == [stranger, stranger, stranger, ACCEPTED]
    # What was acknowledged before stays in the round.
    assert set(await store.run("look", lambda tx: tx.submission_hashes(TERMS.round_id))) == {public(1), public(3)}
    with pytest.raises(Refusal, match="31 bytes"):
        await admission.revoke([PublicKey(public(4)), PublicKey(bytes(31))])
    assert await store.run("look", lambda tx: tx.num_revoked()) == 3


async def test_a_client_revoked_while_its_submission_waits_is_left_out_alone(store: Store, pool: WorkerPool) -> None:
    admission = await opened(store, pool)
    assert await codes(admission, submission(5)) == [ACCEPTED]
    assert admission.committer
    await admission.committer
    holding = threading.Event()
    blocked = asyncio.create_task(store.run("look", lambda _: holding.wait(10)))  # until then no commit goes through
    first = asyncio.create_task(codes(admission, submission(3)))
    while admission.committer.done() or admission.queue:  # noqa: ASYNC110 (has no event)
        await asyncio.sleep(0.001)
    waiting = asyncio.create_task(codes(admission, submission(1), submission(2)))
    while not admission.queue:  # noqa: ASYNC110 (has no event)
        await asyncio.sleep(0.001)
    revoking = asyncio.create_task(admission.revoke([PublicKey(public(1))]))
    await asyncio.sleep(0)
    holding.set()
    assert await first == [ACCEPTED]
    assert await waiting == [pb.SUBMISSION_CODE_UNKNOWN_CLIENT, ACCEPTED]
    assert (await revoking, await blocked) == (1, True)
