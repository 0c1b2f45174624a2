"""Retention: what is kept of a finished round goes when its time is over, from the tables, the files and the memory."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from croupier.client.round_checks import fetch_publication
from croupier.client.submission import new_client_key
from croupier.net.retrying import retrying
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import public_key_of, sign_submission
from croupier.protocol.names import RoundId
from croupier.protocol.onion import Onion
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.steps import StoreStep
from tests.support import BIT, SUITE, settings
from tests.support.clocks import DAY_S
from tests.support.messages import refuses
from tests.support.rounds import Table, people, table

pytestmark = pytest.mark.virtual_time
KEPT = {"shuffler-1": set[str](), "accountant": {"certificate"}, "analyzer": {"publication"}}


async def pass_days(at: Table, days: float) -> None:
    for name, running in at.inside.running.items():
        at.inside.ahead_s[name] += days * DAY_S
        await running.service.retention.delete_expired()


def files_of(at: Table) -> bytes:
    paths = (path for name in KEPT for path in (at.inside.directory / name).glob("rounds.db*"))
    return b"".join(path.read_bytes() for path in paths)


async def refused(call: Any) -> Refusal:
    with pytest.raises(Refusal) as raised:
        await retrying(lambda: call, give_up_after_s=0)
    return raised.value


async def test_a_large_round_is_deleted_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart in between finds the rest, and a call that comes meanwhile is answered before the end."""
    monkeypatch.setattr("croupier.runtime.rows.rounds.ADMITTED_PER_PAGE", 7)
    async with table(tmp_path, 1) as at:
        terms = await at.operator.open_round(settings())
        await at.submit(terms, people(BIT, 30, seed=1))
        await at.finish(terms)
        await pass_days(at, 0.0)  # notices the end
        service: Any = at.inside.running["shuffler-1"].service
        left: list[int] = []
        run = service.store.run

        async def between(name: str, work: Any) -> Any:
            result = await run(name, work)
            if name == StoreStep.DELETE_PAGE:
                left.append(await run("count", lambda tx: tx.num_submissions(terms.round_id)))
            return result

        monkeypatch.setattr(service.store, "run", between)
        at.inside.ahead_s["shuffler-1"] += 31.0 * DAY_S
        await service.retention.delete_expired()
        assert left == [23, 16, 9, 2, 0]
        assert not await run("remaining", lambda tx: tx.submission_hashes(terms.round_id))


async def test_of_a_finished_round_only_the_result_outlasts_its_days(tmp_path: Path) -> None:
    async with table(tmp_path, 1, settings_of=lambda _: "keep_days = 7\n") as at:
        terms = await at.operator.open_round(settings())
        key = new_client_key()
        await at.operator.enrol([public_key_of(key)])
        guest = sign_submission(terms.hash, bytes(Onion(terms).joint.sealed_size), key)
        shuffler = stubs.ShufflerStub(at.channel)
        request = pb.SubmitRequest(round_id=terms.round_id, submissions=[guest])
        assert (await shuffler.Submit(request, timeout=20)).codes == [pb.SUBMISSION_CODE_ACCEPTED]
        await at.submit(terms, people(BIT, 30, seed=1))
        before, _ = await at.finish(terms)
        await pass_days(at, 0.0)  # notices the end
        for status in await at.operator.status(terms.round_id):
            assert isinstance(status, rpc.StatusResponse)
            assert status.keep_days == 7
            assert status.kept_until_unix_s[terms.round_id] > 0
        await pass_days(at, 6.9)
        assert hashlib.sha256(guest.envelope).digest() in files_of(at)
        page = await shuffler.GetInclusion(
            rpc.GetInclusionRequest(round_id=terms.round_id, lane=pb.LANE_REPORT), timeout=20
        )
        await pass_days(at, 0.2)
        assert hashlib.sha256(guest.envelope).digest() not in files_of(at)
        assert page.hashes[:32] not in files_of(at)
        for name, kinds in KEPT.items():
            store = at.inside.running[name].service.store
            rows = await store.run("look", lambda tx: tx.connection.exec_driver_sql("SELECT * FROM documents").all())
            assert {kind for round_id, kind, _ in rows if round_id == terms.round_id} == kinds
        # The result stays; a repeated submission, a list and the manifest do not.
        async with at.operator.client_channel("analyzer") as channel:
            after, _ = await fetch_publication(channel, at.deployment, terms.round_id, 5.0)
        assert after == before
        for call in (
            shuffler.Submit(request, timeout=20),
            shuffler.GetRound(rpc.GetRoundRequest(round_id=terms.round_id), timeout=20),
            shuffler.GetInclusion(rpc.GetInclusionRequest(round_id=terms.round_id, lane=pb.LANE_REPORT), timeout=20),
        ):
            refusal = await refused(call)
            assert refusal.code is Code.WRONG_STATE
            assert "deleted after 7 days" in str(refusal)
        with refuses(Code.CONFLICT):
            await at.operator.open_round(settings(), terms.round_id)


async def test_keys_of_a_round_that_is_never_opened_go_after_a_day(tmp_path: Path) -> None:
    """They stayed for ever: a round without a manifest has no deadline, and no end."""
    async with table(tmp_path, 1) as at:
        for name in at.deployment.chain:
            await at.operator.prepare(name, RoundId("never"), SUITE)
        opened = await at.operator.open_round(settings(), RoundId("opened"))
        wrapped = [
            bytes(key)
            for name in at.deployment.chain
            for (key,) in await at.inside.running[name].service.store.run(
                "look",
                lambda tx: tx.connection.exec_driver_sql(
                    "SELECT wrapped_private FROM round_keys WHERE round_id = 'never'"
                ).all(),
            )
        ]
        assert len(wrapped) == 6
        await pass_days(at, 0.0)  # notices them
        await at.inside.restart(*at.deployment.chain)
        await pass_days(at, 0.9)
        assert all(key in files_of(at) for key in wrapped)
        await pass_days(at, 0.2)
        assert not any(key in files_of(at) for key in wrapped)
        for name in at.deployment.chain:
            rounds = await at.inside.running[name].service.store.run("look", lambda tx: tx.rounds())
            states = {row.round_id: row.state for row in rounds}
            assert states == {"never": pb.ROUND_STATE_DISPOSED, "opened": pb.ROUND_STATE_OPEN}
        with pytest.raises(Refusal, match=Code.CONFLICT.message):
            await at.operator.prepare("shuffler-1", RoundId("never"), SUITE)
        await at.submit(opened, people(BIT, 30, seed=1))
        assert (await at.finish(opened))[0].num_reports == 30
