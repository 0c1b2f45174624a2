"""Good clients and bad peers at once: every good report lands, and each once."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path

import grpc.aio
import pytest

from croupier.client.round_checks import fetch_publication, fetch_terms
from croupier.client.submission import Participant, send
from croupier.client.verification import missing_by_hop
from croupier.deploy.local.processes import LocalDeployment
from croupier.net.channels import public_channel
from croupier.net.limits import BUDGET_BYTES, MAX_FIELDS
from croupier.net.sizes import MESSAGE_BYTES
from croupier.operator.operator import Operator
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2_grpc as stubs
from research.bench.full_size import forget_peak, resident_bytes
from research.bench.http2 import UNVERIFIED, calling
from research.bench.load import simulated_clients
from tests.load.bad_peers import bad_peers, relay
from tests.support import settings
from tests.support.clients import seal_all_of, submissions_of
from tests.support.rounds import WAIT_S, Table, table

pytestmark = pytest.mark.slow

NUM_GOOD = 60
NUM_BAD = 30
PATIENCE_S = 120.0


async def good_client(at: Table, terms: RoundTerms, raw: bytes) -> int:
    """What a client does, with its own connection and nothing but its own bounded retries."""
    async with public_channel(at.deployment.shufflers[0]) as channel:
        assert (await fetch_terms(channel, at.deployment)).round_id == terms.round_id
        (code,) = (await send(channel, terms.round_id, {"me": raw}, patience_s=PATIENCE_S)).values()
        return code


async def many(at: Table, terms: RoundTerms) -> None:
    sealed = await seal_all_of(at.operator, terms, [Participant(number % 2, 1.0) for number in range(NUM_GOOD)])
    codes = await asyncio.gather(*(good_client(at, terms, submission.submission) for submission in sealed))
    assert set(codes) == {pb.SUBMISSION_CODE_ACCEPTED}


async def test_many_clients_get_through_thirty_bad_peers_of_every_kind(tmp_path: Path) -> None:
    async with table(tmp_path, 1, settings_of=lambda _: "max_concurrent_calls = 64\n", over_tls=True) as at:
        terms = await at.operator.open_round(settings())
        async with relay(at.deployment.shufflers[0]) as there:
            bad = [asyncio.create_task(kind()) for kind in islice(cycle(bad_peers(there, terms).values()), NUM_BAD)]
            try:
                await many(at, terms)
                assert not [task for task in bad if task.done()]  # every one of them was there until the end
            finally:
                for task in bad:
                    task.cancel()
                await asyncio.gather(*bad, return_exceptions=True)
        publication, certificate = await at.finish(terms)
        assert (publication.num_reports, certificate.num_users) == (NUM_GOOD, NUM_GOOD)


async def test_no_answer_is_lost_of_300_clients_with_connections_of_their_own(tmp_path: Path) -> None:
    """The bench in small: `croupier research bench-load`. A third of the bad peers is silent, slow, or gone."""
    async with table(tmp_path, 1, over_tls=True) as at:
        terms = await at.operator.open_round(settings())
        sealed = await seal_all_of(at.operator, terms, [Participant(number % 2, 1.0) for number in range(300)])
        submissions = {number: submission.submission for number, submission in enumerate(sealed)}
        seen = await simulated_clients(at.deployment, terms.round_id, submissions, at_once=300, bad=60)
        assert seen.codes == dict.fromkeys(range(300), pb.SUBMISSION_CODE_ACCEPTED)
        assert seen.connections == len(seen.first_s) == len(seen.submit_s) == 300
        assert not seen.gave_up
        assert set(seen.failures) <= {"OVERLOADED"}  # each with a reason, and repeated
        await at.operator.close_round(terms.round_id)
        hashes = {str(number): submission.inclusion_hashes for number, submission in enumerate(sealed)}
        async with at.operator.client_channel("analyzer") as analyzer:
            _, certificate = await fetch_publication(analyzer, at.deployment, terms.round_id, WAIT_S)
        missing = await missing_by_hop(at.channel, terms, certificate, at.deployment, hashes)
        assert missing == {"shuffler-1": []}


@pytest.mark.processes
@pytest.mark.xdist_group("processes")
async def test_a_storm_of_handshakes_does_not_end_a_service(tmp_path: Path) -> None:
    """Once it did: each handshake freed the certificates that another one was just using."""
    local = await asyncio.to_thread(LocalDeployment, tmp_path / "deployment", 1)
    before = await asyncio.to_thread(local.up, ["shuffler-1"], 1)
    host, _, port = (local.deployment.shufflers[0].public_address or "").rpartition(":")

    async def handshakes() -> None:
        for _ in range(20):
            with suppress(OSError):
                _, writer = await asyncio.open_connection(host, int(port), ssl=UNVERIFIED)
                writer.close()

    await asyncio.gather(*(handshakes() for _ in range(50)))
    assert local.pids() == before
    assert await asyncio.to_thread(local.down) == ["shuffler-1"]


@pytest.mark.processes
@pytest.mark.xdist_group("processes")
@pytest.mark.parametrize(("num_refused", "num_accepted"), [(80, 8), (500, 500)], ids=["88", "1000"])
async def test_large_calls_hold_no_more_than_their_budget_whatever_the_answer(
    tmp_path: Path, num_refused: int, num_accepted: int
) -> None:
    """Reproduction: cycles kept 1,600 refused calls of 4 MiB, 4.5 GB. Processes, because a service's memory is read.

    Accepted calls have as many fields as a call may have: one submission, which hop 1 has, again and again.
    """
    local = await asyncio.to_thread(LocalDeployment, tmp_path / "deployment", 1)
    pid = (await asyncio.to_thread(local.up, None, 1))["shuffler-1"]
    refused = pb.SubmitRequest(round_id="x" * (MESSAGE_BYTES - 100))
    try:
        async with Operator(local.directory) as operator, operator.client_channel() as channel:
            terms = await operator.open_round(settings())
            own = submissions_of(await seal_all_of(operator, terms, [Participant(1, 1.0)]))
            most = MAX_FIELDS // (1 + len(own[0].ListFields())) - 1
            accepted = pb.SubmitRequest(round_id=terms.round_id, submissions=own * most)
            stub, turn = stubs.ShufflerStub(channel), asyncio.Semaphore(16)
            answers: Counter[str] = Counter()

            async def call(request: pb.SubmitRequest) -> None:
                async with turn:
                    try:
                        answers.update(map(pb.SubmissionCode.Name, (await stub.Submit(request, timeout=120.0)).codes))
                    except grpc.aio.AioRpcError as error:
                        answers[error.code().name] += 1

            await call(accepted)
            before = forget_peak(pid)
            await asyncio.gather(*map(call, [refused] * num_refused + [accepted] * num_accepted))
            assert resident_bytes(pid, "VmHWM") - before < BUDGET_BYTES
            assert answers == {"INVALID_ARGUMENT": num_refused, "SUBMISSION_CODE_ACCEPTED": most * (1 + num_accepted)}
    finally:
        await asyncio.to_thread(local.down)


@pytest.mark.processes
@pytest.mark.xdist_group("processes")
async def test_strangers_that_never_finish_hold_no_more_than_their_budget(tmp_path: Path) -> None:
    """Once 8 connections with 100 messages each, all but their last bytes, held 3.3 GB; the ceiling is 256 MiB."""
    local = await asyncio.to_thread(LocalDeployment, tmp_path / "deployment", 1)
    pid = (await asyncio.to_thread(local.up, ["shuffler-1"], 1))["shuffler-1"]
    entry, before, peak = local.deployment.shufflers[0], resident_bytes(pid), 0

    async def stranger() -> int:
        async with calling(entry) as caller:
            taken = await caller.say_almost_all([caller.call("Shuffler/Submit") for _ in range(100)])
            assert len(caller.ended) >= 84  # 16 messages are one address's share
            return taken

    strangers = [asyncio.create_task(stranger()) for _ in range(8)]
    while not all(stranger.done() for stranger in strangers):
        await asyncio.wait(strangers, timeout=0.1)
        peak = max(peak, resident_bytes(pid))
    assert sum(stranger.result() for stranger in strangers) > BUDGET_BYTES // 8  # they did try
    assert peak - before < BUDGET_BYTES
    assert await asyncio.to_thread(local.down) == ["shuffler-1"]
