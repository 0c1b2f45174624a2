"""The page "Three organisations", command by command: folders with keys of their own, from keys to a new analyzer."""

from __future__ import annotations

import asyncio
import shlex
import shutil
from functools import partial
from pathlib import Path

import pytest

import croupier.deploy.node.versions
from croupier.client.async_client import AsyncClient
from croupier.deploy.directory import read_deployment
from croupier.deploy.node.serve import RunningService
from croupier.deploy.version_files import write_deployment
from croupier.operator.operator import Operator
from croupier.protocol.deployment import Deployment
from croupier.protocol.identity import public_key_of
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import PrivateKey
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import Threads
from tests.support.command_line import croupier as command
from tests.support.machines import steps
from tests.support.messages import naming
from tests.support.ports import four_ports

PAGE = Path(__file__).parents[2] / "docs" / "three-organisations.md"
SERVICES = {"A": "shuffler-1", "B": "accountant", "C": "analyzer", "D": "analyzer"}
WAIT_S = 120


class Study:
    """Each organisation's folder, and the service that runs there."""

    def __init__(self, place: Path) -> None:
        self.homes = {name: place / name for name in SERVICES}
        self.ports = {name: f"{four_ports()}" for name in SERVICES}
        self.running: dict[str, RunningService] = {}
        for home in self.homes.values():
            (home / "study").mkdir(parents=True, mode=0o700)

    async def play(self, machine: str, line: str) -> str:
        """Does one step of the page; hosts are this machine."""
        line, _, allowed = line.partition(" || test $? = ")
        program, *words = shlex.split(line)
        home = self.homes[machine]
        if program == "scp":
            source, (host, target) = home / words[0], words[1].split(":")
            goal = self.homes[host[0].upper()] / target
            shutil.copy(source, goal / source.name if target.endswith("/") else goal)
            return ""
        assert program == "croupier"
        for index, word in enumerate(words):
            if word.endswith(".example"):
                words[index] = "127.0.0.1"
            elif word.startswith("study/") or word == "signed.toml" or words[index - 1] == "--dir":
                words[index] = str(home / word)
        if words[:2] == ["org", "new"] and "--host" in words:
            words += ["--port", self.ports[machine]]
        # One is asked before one signs a version.
        expect = int(allowed or 0)
        return (await asyncio.to_thread(partial(command, *words, typed="y\n", expect=expect))).stdout

    def version(self, machine: str) -> Deployment:
        return read_deployment(self.homes[machine] / "study")

    async def start(self, machine: str) -> None:
        running = RunningService(SERVICES[machine], self.homes[machine] / "study", pool=Threads())
        await running.start()
        self.running[machine] = running

    async def stop(self, machine: str) -> None:
        await self.running.pop(machine).stop()

    async def everybody_has(self, number: int, machines: str = "ABC") -> None:
        """Waits until the services have fetched a version that one of them has."""
        async with asyncio.timeout(WAIT_S):
            while any(self.running[machine].service.peers.deployment.version != number for machine in machines):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def answered(self, participant: Path) -> tuple[RoundTerms, pb.Publication]:
        """Two people with one file answer the open round, and its result is published."""
        async with Operator(self.homes["B"] / "study") as operator, AsyncClient(participant) as client:
            joined = await client.round()
            for number in range(2):
                key = bytes([number + 1]) * 32
                await operator.enrol([public_key_of(PrivateKey(key))])
                await joined.submit(1, 1.0, person=str(number), key=key)
            await operator.close_round(joined.id)
            publication, _ = await operator.result(joined.id, WAIT_S)
            return joined.terms, publication


def secrets_of(home: Path) -> set[bytes]:
    return {file.read_bytes() for file in home.rglob("*.key")}


@pytest.mark.slow
async def test_the_page_is_followed_command_by_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over TLS on loopback, because the page's commands are those of the command line."""
    monkeypatch.setattr(croupier.deploy.node.versions, "EVERY_S", 0.1)
    study, participant = Study(tmp_path), tmp_path / "participant"
    participant.mkdir()
    todo = list(steps(PAGE))

    async def until(*beginning: str, times: int = 1) -> None:
        """Plays the page up to and with the step that begins like this."""
        while times:
            machine, line = todo.pop(0)
            await study.play(machine, line)
            times -= (machine, line.startswith(beginning[1])) == (beginning[0], True)

    await until("B", "croupier proposal send signed.toml")
    assert {study.version(name).version for name in "ABC"} == {1}
    for name in "ABC":
        await study.start(name)
    write_deployment(participant, study.version("A"))
    first = study.version("A")
    await until("B", "croupier survey open")
    # The person on call at A has the key of A's service alone: sees everything, and changes nothing.
    for line in ("croupier status",):
        assert "smokes" in await study.play("A", f"{line} --dir study --json")
    with pytest.raises(AssertionError, match=naming("operator's")):
        await study.play("A", "croupier survey open other --dir study")
    terms, publication = await study.answered(participant)
    assert publication.num_reports == 2

    await until("C", "croupier proposal sign")  # pending keys of two at once
    await study.everybody_has(2)
    await until("C", "croupier proposal sign")  # and in use
    await study.everybody_has(3)
    assert [len(service.retired_identities) for service in study.version("B").services] == [1, 0, 1]

    await study.stop("A")
    await until("C", "croupier proposal sign")  # A on its new host
    (study.homes["A"] / "study" / "proposal.toml").unlink()
    await study.play(
        "A", "croupier proposal send ../C/study/deployment.toml --dir study".replace("../C", str(study.homes["C"]))
    )
    await study.start("A")
    await study.everybody_has(4)

    await study.stop("C")
    await until("B", "croupier proposal send signed.toml")  # D in place of C
    await study.start("D")
    for name in "ABD":
        assert study.version(name).version == 5
    await study.everybody_has(5, "ABD")
    # C did not sign: the participant does not follow by itself, and replaces the file by hand.
    await asyncio.to_thread(
        command, "survey", "open", "second", "--min-batch-size", "2", "--dir", study.homes["B"] / "study"
    )
    async with AsyncClient(participant) as client:
        with pytest.raises(ValueError, match=naming("analyzer")):
            await client.round()
    write_deployment(participant, study.version("D"))
    _, publication = await study.answered(participant)
    assert publication.num_reports == 2
    assert study.version("D").fingerprint != first.fingerprint
    # What was signed with the identities of before is still read, with the newest file alone.
    async with AsyncClient(participant) as client:
        assert (await client.round(terms.round_id)).terms.hash == terms.hash

    await until("D", "croupier proposal sign")  # two of them decide together from now on
    await study.everybody_has(6, "ABD")
    await until("B", "croupier proposal send")
    with pytest.raises(AssertionError, match=naming("0 have", 2)):
        await study.play("B", "croupier survey open unapproved --min-batch-size 2 --dir study")
    listed = await study.play("A", "croupier status --dir study --json")
    assert "sleep" in listed
    assert "unapproved" not in listed
    assert todo == []

    for name in "ABCD":
        own = secrets_of(study.homes[name])
        assert len(own) >= (6 if name == "B" else 3)
        for other in SERVICES:
            if other != name:
                files = [file for file in study.homes[other].rglob("*") if file.is_file()]
                assert not [file for file in files for secret in own if secret.strip() in file.read_bytes()]
    for name in "ABD":
        await study.stop(name)
