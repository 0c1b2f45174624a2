"""Logs: every line of every service is one JSON object, and none of them identifies a client or a ciphertext."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from croupier.deploy.local.processes import LocalDeployment
from croupier.deploy.node.serve import serve
from croupier.operator.keys import make_deployment
from croupier.operator.operator import Operator
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import sign_submission
from croupier.protocol.names import PrivateKey, PublicKey, RoundId, StorageKey
from croupier.protocol.onion import Onion
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.kinds import DocumentKind
from croupier.runtime.logs import LOG_BYTES, BoundedFile, JsonFormatter
from croupier.runtime.store import Store
from tests.operations.support import PATIENCE_S, full_disk, leaks, seal, status_of, submit, until, wait_until
from tests.support import settings
from tests.support.clients import stranger as made_up

KIND = DocumentKind.PASSED_ON
pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("processes")]


def stored_ciphertexts(database: Path) -> list[bytes]:
    """Returns pieces of every batch that a service holds on its disk now."""
    with closing(sqlite3.connect(database)) as db:
        batches = [row[0] for row in db.execute("SELECT ciphertexts FROM chunks WHERE ciphertexts IS NOT NULL")]
    return [batch[start : start + 64] for batch in batches for start in range(0, len(batch), 256)]


def lines_of(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.slow
async def test_no_log_of_a_full_round_holds_a_client_a_hash_or_a_ciphertext(
    local: LocalDeployment, operator: Operator
) -> None:
    """With refused submissions, a full disk, a peer that is away, a killed worker and a refused call on the way."""
    terms = await operator.open_round(settings(min_batch_size=20))
    people = await seal(operator, terms, 150)
    people["noise"] = sign_submission(terms.hash, os.urandom(Onion(terms).joint.sealed_size), PrivateKey(bytes(32)))
    await operator.enrol([PublicKey(people["noise"].client_key)])
    stranger = made_up(terms)
    forged = pb.Submission(client_key=people["0"].client_key, envelope=stranger.envelope, signature=bytes(64))
    with full_disk(local.pids()["shuffler-1"]), pytest.raises(Refusal):
        await submit(operator, terms.round_id, people)

    async def stored() -> bool:
        try:
            return await submit(operator, terms.round_id, people) == {pb.SUBMISSION_CODE_ACCEPTED}
        except Refusal:
            return False

    await until(stored)
    await submit(operator, terms.round_id, {"forged": forged, "stranger": stranger})
    second = sign_submission(terms.hash, stranger.envelope, PrivateKey(bytes(32)))
    assert await submit(operator, terms.round_id, {"second": second}) == {pb.SUBMISSION_CODE_ALREADY_EXISTS}
    await asyncio.to_thread(local.down, ["shuffler-2"])
    await operator.close_round(terms.round_id)

    async def mixed() -> bool:
        return (await status_of(operator, "shuffler-1", terms.round_id)).problem != ""

    await until(mixed)
    inner = stored_ciphertexts(local.directory / "shuffler-1" / "rounds.db")
    assert len(inner) > 150
    await asyncio.to_thread(local.up, ["shuffler-2"], 1)
    publication, _ = await operator.result(terms.round_id, PATIENCE_S)
    assert publication.num_reports == 150
    for index in range(3):
        with pytest.raises(Refusal):
            await submit(operator, f"nowhere-{index}", people)

    everybody = [*people.values(), stranger, second]
    secrets = [person.client_key for person in everybody]
    secrets += [hashlib.sha256(person.envelope).digest() for person in everybody]
    secrets += [person.envelope for person in everybody] + inner
    events, states = set(), {}
    for name in operator.deployment.chain:
        log = local.directory / name / "service.log"
        assert leaks(log.read_bytes(), secrets) == []
        lines = lines_of(log)
        for line in lines:
            assert {"time", "level", "service", "logger", "event"} <= set(line)
            assert line["service"] == name
        events |= {(line["level"], line.get("code", "")) for line in lines}
        mine = [line["state"] for line in lines if "state" in line and line["round_id"] == terms.round_id]
        states[name] = list(dict.fromkeys(mine))
    assert {("ERROR", "STORE_FAILED"), ("INFO", "STORE_FAILED"), ("INFO", "UNKNOWN_ROUND")} <= events
    assert states == {
        "shuffler-1": ["OPEN", "CLOSED", "MIXED", "DELIVERED"],
        "shuffler-2": ["OPEN", "CLOSED", "MIXED", "DELIVERED"],
        "accountant": ["OPEN", "CLOSED", "CERTIFIED", "RELEASED"],
        "analyzer": ["OPEN", "CLOSED", "MIXED", "PUBLISHED"],
    }


def test_an_uncaught_exception_is_one_json_line() -> None:
    program = (
        "import threading\n"
        "from croupier.runtime.logs import log_as_json\n"
        "log_as_json('shuffler-1')\n"
        "import warnings; warnings.warn('old\\nhabit')\n"
        "thread = threading.Thread(target=lambda: 1 / 0); thread.start(); thread.join()\n"
        "raise RuntimeError('the end\\nof it')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["level"] for line in lines] == ["WARNING", "CRITICAL", "CRITICAL"]
    assert "ZeroDivisionError" in lines[1]["exception"]
    assert lines[2]["event"] == "the service ends: the end\nof it"
    assert done.returncode == 1


@pytest.mark.slow
def test_a_service_that_cannot_start_says_why_in_json(tmp_path: Path) -> None:
    deployment = make_deployment(tmp_path / "there", "clinic", 1)
    taken = deployment.service("shuffler-1").address.rpartition(":")
    with socket.create_server((taken[0], int(taken[2]))):
        for directory, code, message in (
            (tmp_path / "nowhere", 2, "deployment.toml does not exist"),
            (tmp_path / "there", 2, "nothing can listen at 127.0.0.1:"),
        ):
            command = [sys.executable, "-m", "croupier.cli", "serve", "shuffler-1", "--dir", str(directory)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            *before, line = [json.loads(line) for line in done.stderr.splitlines()]
            assert [record["event"] for record in before] in ([], ["starting"])
            assert message in line["event"]
            assert (line["level"], done.returncode) == ("CRITICAL", code)


def test_a_service_whose_store_fails_while_it_starts_says_so_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended with a traceback and the code of an error that nobody foresaw."""

    async def fail(*_: Any) -> None:
        raise Refusal(Code.STORE_FAILED)

    monkeypatch.setattr("croupier.deploy.node.serve.serve_until_stopped", fail)
    monkeypatch.setattr("croupier.deploy.node.serve.log_as_json", lambda *_: None)
    monkeypatch.setattr(os, "umask", lambda _: 0)
    monkeypatch.setenv("PYTHONWARNINGS", os.environ.get("PYTHONWARNINGS", ""))  # which serve would set for good
    with pytest.raises(SystemExit, check=lambda end: end.code == 4):
        serve("analyzer", tmp_path)
    ours = [record for record in caplog.records if record.name != "asyncio"]  # which tells of earlier tests
    (line,) = (json.loads(JsonFormatter("analyzer").format(record)) for record in ours)
    assert line["event"] == f"the service ends: {Code.STORE_FAILED.message}"
    assert (line["level"], line["code"], "exception" in line) == ("CRITICAL", "STORE_FAILED", False)


@pytest.mark.slow
def test_a_killed_service_leaves_nothing_but_json_in_its_log(tmp_path: Path) -> None:
    """Python's tracker of semaphores outlives the service and used to write its warning there."""
    local = LocalDeployment(tmp_path / "deployment", 1)
    pid = local.up(["analyzer"], workers=1)["analyzer"]
    family = [Path("/proc", child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    assert len(family) >= 2
    local.down(kill=True)
    wait_until(lambda: not any(child.exists() for child in family))
    assert lines_of(local.directory / "analyzer" / "service.log")


@pytest.mark.slow
def test_the_log_of_a_local_service_does_not_grow_without_end(tmp_path: Path) -> None:
    """Needs a process: the log is its standard error. What an earlier run has left is cut, too."""
    local = LocalDeployment(tmp_path / "deployment", 1)
    log = local.directory / "analyzer" / "service.log"
    with log.open("wb") as file:
        file.truncate(LOG_BYTES)
    local.up(["analyzer"], workers=1)
    local.down()
    assert log.with_name("service.log.1").stat().st_size == LOG_BYTES
    assert "stopped" in [line["event"] for line in lines_of(log)]


def test_a_bounded_log_keeps_its_newest_lines(tmp_path: Path) -> None:
    """Others append to the same file meanwhile: workers, and libraries that know nothing of our logs."""
    file = tmp_path / "service.log"
    with file.open("a") as stream, file.open("a", buffering=1) as worker:
        handler = BoundedFile(file, stream, most_bytes=10_000)
        for number in range(3000):
            handler.emit(logging.LogRecord("a", logging.INFO, __file__, 1, "line %d", (number,), None))
            worker.write(f"worker {number}\n")
            assert file.stat().st_size < 10_100
    both = (file.with_name("service.log.1").read_text() + file.read_text()).splitlines()
    ends = [line for number in range(3000) for line in (f"line {number}", f"worker {number}")]
    assert 500 < len(both) < 6000
    assert both == ends[-len(both) :]


def test_only_named_extras_are_written_and_a_peer_cannot_fill_the_log() -> None:
    record = logging.LogRecord("a", logging.INFO, __file__, 1, "refused: %s", ("x\n" * 10**6,), None)
    record.__dict__ |= {"round_id": "r" * 10**6, "client_key": "alice", "code": "CONFLICT"}
    text = JsonFormatter("shuffler-1").format(record)
    line = json.loads(text)
    assert (line["code"], line["service"]) == ("CONFLICT", "shuffler-1")
    assert "alice" not in text
    assert len(text) < 10_000
    assert "\n" not in text


async def test_a_full_disk_does_not_write_submissions_into_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SQLAlchemy would put the parameters of a failed statement, client keys beside envelopes, into the error's text.

    (With SQLite they print as memory addresses, with PostgreSQL as bytes.)
    """
    store = Store(f"sqlite:///{tmp_path / 'rounds.db'}", StorageKey(bytes(32)))
    rows = [(os.urandom(32), os.urandom(32)) for _ in range(3000)]
    try:
        await store.run("look", lambda tx: tx.connection.exec_driver_sql("PRAGMA max_page_count=40").close())
        with pytest.raises(Refusal, match=Code.STORE_FAILED.message):
            await store.run("look", lambda tx: tx.add_submissions(RoundId("round"), rows))
    finally:
        store.close()
    text = "\n".join(JsonFormatter("shuffler-1").format(record) for record in caplog.records)
    assert "the store failed: look: database or disk is full" in text
    assert leaks(text.encode(), [secret for row in rows for secret in row]) == []


async def test_an_outage_of_the_store_is_a_few_short_lines_with_their_cause(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each call that anybody made meanwhile wrote a traceback of 7 KB, and its cause stood in the last lines of it."""
    store = Store(f"sqlite:///{tmp_path / 'rounds.db'}", StorageKey(bytes(32)))
    try:
        await store.run("look", lambda tx: tx.connection.exec_driver_sql("PRAGMA max_page_count=40").close())
        for _ in range(100):
            with pytest.raises(Refusal, match=Code.STORE_FAILED.message):
                await store.run("show", lambda tx: tx.put_document(RoundId("r"), KIND, bytes(1_000_000), "result"))
    finally:
        store.close()
    ours = [
        record for record in caplog.records if record.name == "croupier.runtime.store"
    ]  # others tell of earlier tests
    lines = [JsonFormatter("shuffler-1").format(record) for record in ours]
    assert all("the store failed: show: database or disk is full" in line and len(line) < 300 for line in lines)
    seconds = {int(record.created) for record in ours}
    assert 20 <= len(lines) <= 20 * (len(seconds) + 1)
    assert any("are not logged" in line for line in lines)
