"""The ledger's backup: taken while the accountant runs, restored before it starts, and believed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from croupier.accountant.rounds.ledger import Ledger
from croupier.operator.doctor import examine
from croupier.operator.keys import make_deployment
from croupier.operator.ledger import backup_ledger, restore_ledger, spent
from croupier.operator.rotation import rotate
from croupier.protocol.codes import RefusalReason
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import BIT, settings
from tests.support.messages import naming
from tests.support.rounds import Table, people, table
from tests.support.statements import codes, parameters

pytestmark = pytest.mark.virtual_time
LIMIT = "\n[privacy_limit]\ntotal_epsilon = 0.8\ntotal_delta = 3e-4\n"


async def play(at: Table, name: str) -> pb.Certificate:
    terms: RoundTerms = await at.operator.open_round(settings(), RoundId(name))
    await at.submit(terms, people(BIT, 150, seed=1))
    return (await at.finish(terms))[1]


@pytest.mark.slow
async def test_a_restored_ledger_refuses_what_the_lost_one_would_have_refused(tmp_path: Path) -> None:
    async with table(tmp_path, 1, LIMIT) as at:
        directory, rounds = at.inside.directory, 0
        while (await play(at, f"round-{rounds}")).granted:
            rounds += 1
            backup = tmp_path / f"ledger-{rounds}.json"
            assert await asyncio.to_thread(backup_ledger, directory, backup) == rounds
        numbers = at.inside.running["accountant"].metrics.registry
        assert numbers.get_sample_value("croupier_certificates_total", {"outcome": "refused"}) == 1
        assert numbers.get_sample_value("croupier_certificates_total", {"outcome": "granted"}) == rounds
        before = spent(directory, 3e-4)
        assert rounds >= 2
        with pytest.raises(ValueError, match=naming("another process")):
            restore_ledger(directory, backup)

        await at.inside.stop("accountant")
        for file in (directory / "accountant").glob("rounds.db*"):
            file.unlink()
        for _ in range(2):
            assert restore_ledger(directory, backup) == rounds
        assert spent(directory, 3e-4) == before
        await at.inside.start("accountant")
        certificate = await play(at, "after-the-restore")
        assert not certificate.granted
        assert codes(certificate.refusals)[-1] == RefusalReason.LEDGER_LIMIT


def files_to_back_up() -> list[str]:
    """Returns the files of a service's own directory that docs/backup.md names."""
    text = (Path(__file__).parents[2] / "docs" / "backup.md").read_text()
    (row,) = re.findall(r"^\| (`deployment\.toml`.*?) \|", text, re.MULTILINE)
    return re.findall(r"`([\w.]+)`", row)


@pytest.mark.slow
async def test_a_lost_machine_comes_back_from_what_was_backed_up(tmp_path: Path) -> None:
    files = files_to_back_up()
    assert files == ["deployment.toml", "service.toml", "identity.key", "tls.key", "tls.crt"]
    async with table(tmp_path, 1) as at:
        directory, kept = at.inside.directory, tmp_path / "kept"
        own = directory / "accountant"
        kept.mkdir()
        assert (await play(at, "before")).granted
        await asyncio.to_thread(backup_ledger, directory, kept / "ledger.json")
        for file in (*files[1:], "storage.key"):
            shutil.copy2(own / file, kept / file)
        await at.inside.stop("accountant")
        shutil.rmtree(own)

        own.mkdir()
        for file in (*files[1:], "storage.key"):
            shutil.copy2(kept / file, own / file)
        assert restore_ledger(directory, kept / "ledger.json") == 1
        await at.inside.start("accountant")
        checks = await examine(directory, at.inside.transport)
        assert [check for check in checks if not check.is_well and check.check != "clock"] == []
        assert (await play(at, "after")).granted
        assert {tier.rounds for tier in spent(directory, 3e-4)} == {2}


@pytest.mark.slow
async def test_only_so_many_rounds_show_how_many_clients_used_each_budget(tmp_path: Path) -> None:
    """Reproduction: hop 1 found the budgets of all 120 people from the counts of 100 rounds; nothing ended them."""
    limit = "\n[privacy_limit]\ntotal_epsilon = 50.0\ntotal_delta = 1e-2\nmax_rounds = 3\n"
    async with table(tmp_path, 1, limit) as at:

        async def play_for(epsilon_max: float) -> pb.Certificate:
            terms = await at.operator.open_round(settings(epsilon_max=epsilon_max))
            await at.submit(terms, people(BIT, 30, seed=1))
            return (await at.finish(terms))[1]

        granted, refused = await play_for(4.0), await play_for(0.01)  # a refusal tells something, too
        assert (granted.granted, refused.granted) == (True, False)
        backup = tmp_path / "ledger.json"
        assert await asyncio.to_thread(backup_ledger, at.inside.directory, backup) == 1
        await at.inside.stop("accountant")
        for file in (at.inside.directory / "accountant").glob("rounds.db*"):
            file.unlink()
        assert restore_ledger(at.inside.directory, backup) == 1
        await at.inside.start("accountant")
        assert (await play_for(4.0)).granted
        for epsilon_max in (4.0, 0.01):
            last = await play_for(epsilon_max)
            assert not last.granted
            assert codes(last.refusals) == [RefusalReason.ROUNDS_SHOWN]
            assert parameters(last.refusals, RefusalReason.ROUNDS_SHOWN) == {"rounds": 3}
            assert not last.tiers
            assert not last.comparison
            assert not last.HasField("lower_bound_epsilon")


def test_a_backup_of_something_else_is_refused(tmp_path: Path) -> None:
    directory, backup = tmp_path / "deployment", tmp_path / "ledger.json"
    make_deployment(directory, "clinic", 1)
    with pytest.raises(ValueError, match=naming("accountant")):
        backup_ledger(directory, backup)
    entry = {"local_epsilon": 1.0, "local_delta": 0.0, "count": 9, "epsilon": 0.5, "delta": 1e-6, "profile": []}
    flags = {"one_record": True, "unknown": True}
    one_round = {"round_id": "r", "batch_digest": "00", "entries": [entry], **flags}
    good = {"deployment": "clinic", "rounds": [one_round]}
    bad: list[tuple[dict[str, object], str]] = [
        ({"deployment": "other"}, "'other'.*'clinic'"),
        ({"rounds": [{"round_id": "r"}]}, "must be a backup"),
        ({"rounds": [one_round | {"entries": [entry | {"epsilon": -1.0}]}]}, "must be a backup"),
        ({"rounds": [one_round | {"batch_digest": "xy"}]}, "must be a backup"),
    ]
    for change, message in bad:
        backup.write_text(json.dumps(good | change))
        with pytest.raises(ValueError, match=message):
            restore_ledger(directory, backup)
    backup.write_text(json.dumps(good))
    assert restore_ledger(directory, backup) == 1
    backup.write_text(json.dumps(good | {"rounds": [one_round | {"batch_digest": "01"}]}))
    with pytest.raises(ValueError, match=naming("ledger")):
        restore_ledger(directory, backup)
    again = tmp_path / "again.json"
    assert backup_ledger(directory, again) == 1
    kept = good | {"rounds": [one_round | {"entries": [entry | {"series": ""}]}], "shown": ["r"], "budget_costs": {}}
    kept |= {"surveys": [], "survey_rounds": []}
    assert json.loads(again.read_text()) == kept
    with pytest.raises(ValueError, match=naming("backup")):
        backup_ledger(directory, again)
    with pytest.raises(ValueError, match=naming("again.json")):
        backup_ledger(directory, tmp_path / "none" / "again.json")


def one_round_of_records(round_id: str) -> str:
    entry = {"local_epsilon": 1.0, "local_delta": 0.0, "count": 9, "epsilon": 0.5, "delta": 1e-6, "profile": []}
    record = {"round_id": round_id, "batch_digest": "00", "entries": [entry], "one_record": True}
    return json.dumps({"deployment": "clinic", "rounds": [record]})


def test_a_round_that_is_entered_during_a_backup_is_there_as_it_is_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is about one record was backed up as if it were about a user: two moments of the ledger in one file."""
    directory, file, backup = tmp_path / "deployment", tmp_path / "ledger.json", tmp_path / "backup.json"
    make_deployment(directory, "clinic", 1)
    file.write_text(one_round_of_records("first"))
    restore_ledger(directory, file)

    def meanwhile(ledger: Ledger) -> set[RoundId]:
        monkeypatch.undo()
        records = ledger.record_rounds()
        file.write_text(one_round_of_records("second"))
        restore_ledger(directory, file)
        return records

    monkeypatch.setattr(Ledger, "record_rounds", meanwhile)
    backup_ledger(directory, backup)
    assert all(record["one_record"] for record in json.loads(backup.read_text())["rounds"])


def test_what_root_writes_belongs_to_the_user_of_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The accountant could not open a ledger that root had restored, nor any service the keys of root's rotation."""
    directory, file, given = tmp_path / "deployment", tmp_path / "ledger.json", set[str]()
    make_deployment(directory, "clinic", 1)
    file.write_text(one_round_of_records("first"))
    owner = (directory / "accountant").stat()

    def chown(path: Path, uid: int, gid: int, *, follow_symlinks: bool) -> None:
        assert (uid, gid, follow_symlinks) == (owner.st_uid, owner.st_gid, False)
        given.add(path.name)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", chown)
    restore_ledger(directory, file)
    assert given == {"rounds.db", "rounds.db.lock"}
    assert {path.stat().st_mode & 0o777 for path in (directory / "accountant").glob("rounds.db*")} == {0o600}
    given.clear()
    rotate(directory, "accountant")
    assert given == {"pending-identity.key", "pending-tls.key", "pending-tls.crt", "deployment.new", "1.new", "2.new"}
