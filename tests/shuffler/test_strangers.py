"""What a caller without a key can make hop 1 do: little to read, nothing to write, nothing to remember."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from croupier.client.submission import new_client_key
from croupier.protocol.identity import sign_submission
from croupier.protocol.manifest import parse_terms
from croupier.protocol.names import PublicKey, RoundId
from croupier.protocol.onion import Onion
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime import round_engine
from croupier.runtime.steps import StoreStep
from croupier.runtime.transaction import Transaction
from tests.support import BIT, settings
from tests.support.rounds import Table, people, table

pytestmark = pytest.mark.virtual_time


def written_by(at: Table, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the names of the transactions that change something at hop 1 from now on."""
    store, names = at.inside.running["shuffler-1"].service.store, list[str]()
    really = store.transact

    def watched(name: str, work: Callable[[Transaction], Any]) -> Any:
        def counted(tx: Transaction) -> Any:
            before = tx.connection.exec_driver_sql("SELECT total_changes()").scalar_one()
            result = work(tx)
            if tx.connection.exec_driver_sql("SELECT total_changes()").scalar_one() != before:
                names.append(name)
            return result

        return really(name, counted)

    monkeypatch.setattr(store, "transact", watched)
    return names


async def test_what_is_not_admitted_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bogus submission, and each repeated one, was a durable transaction about its cost."""
    async with table(tmp_path, 1) as at:
        terms = await at.operator.open_round(settings())
        envelope = bytes(Onion(terms).joint.sealed_size)
        stranger = sign_submission(terms.hash, envelope, new_client_key())
        forged = pb.Submission(client_key=bytes(32), envelope=envelope, signature=bytes(64))
        wrong = sign_submission(terms.hash, envelope[1:], new_client_key())
        guest = sign_submission(terms.hash, envelope, key := new_client_key())
        await at.operator.enrol([PublicKey(guest.client_key)])
        stub, names = stubs.ShufflerStub(at.channel), written_by(at, monkeypatch)
        request = pb.SubmitRequest(round_id=terms.round_id, submissions=[guest])
        assert (await stub.Submit(request, timeout=20)).codes == [pb.SUBMISSION_CODE_ACCEPTED]
        assert [name for name in names if name != StoreStep.PROBE] == [StoreStep.ADMIT_SUBMISSIONS]
        names.clear()
        other = sign_submission(terms.hash, envelope[:-1] + b"x", key)
        for submission in (stranger, forged, wrong, guest, other):
            await stub.Submit(pb.SubmitRequest(round_id=terms.round_id, submissions=[submission]), timeout=20)
        assert [name for name in names if name != StoreStep.PROBE] == []


async def test_keys_of_an_open_round_are_read_once_and_go_with_the_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with table(tmp_path, 1) as at:
        terms = await at.operator.open_round(settings())
        hop_1: Any = at.inside.running["shuffler-1"].service
        names, really = list[str](), hop_1.store.transact

        def watched(name: str, work: Callable[[Transaction], Any]) -> Any:
            names.append(name)
            return really(name, work)

        monkeypatch.setattr(hop_1.store, "transact", watched)
        for seed in range(3):
            await at.submit(terms, people(BIT, 20, seed=seed))
        assert names.count(StoreStep.READ_KEYS_TO_ADMIT) == 1
        assert hop_1.submissions.admitting[terms.round_id].lane_work is not None
        await at.finish(terms)
        assert not hop_1.submissions.admitting


async def test_asking_for_the_newest_round_reads_one_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with table(tmp_path, 1) as at:
        for number in range(3):
            await at.operator.open_round(settings(), RoundId(f"round-{number}"))
        rows, really = list[int](), Transaction.select_rounds

        def counted(self: Transaction, *how: Any) -> Any:
            result = really(self, *how)
            rows.append(len(result))
            return result

        monkeypatch.setattr(Transaction, "select_rounds", counted)
        answer = await stubs.ShufflerStub(at.channel).GetRound(rpc.GetRoundRequest(), timeout=20)
        assert parse_terms(answer.round).round_id == "round-2"
        assert max(rows) == 1


@pytest.mark.slow
async def test_old_rounds_do_not_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_engine, "MAX_TERMS", 2)
    async with table(tmp_path, 1) as at:
        played = []
        for number in range(4):
            terms = await at.operator.open_round(settings(), RoundId(f"round-{number}"))
            named = people(BIT, 20, seed=number)
            await at.submit(terms, named)
            await at.finish(terms)
            played.append(terms)
        stub = stubs.ShufflerStub(at.channel)
        for terms in played:  # late submissions, and questions about them, bring none of it back
            late = sign_submission(terms.hash, bytes(Onion(terms).joint.sealed_size), new_client_key())
            await stub.Submit(pb.SubmitRequest(round_id=terms.round_id, submissions=[late]), timeout=20)
        for running in at.inside.running.values():
            assert len(running.service.engine.kept_terms) <= 2
            assert not running.service.engine.drivers
        hop_1: Any = at.inside.running["shuffler-1"].service
        assert not hop_1.admission.admitted
        assert not hop_1.submissions.admitting
