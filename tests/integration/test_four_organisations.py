"""The page "Three organisations" as its readers have it: users, machines and processes that share nothing.

`.ci/released` runs it with the environments in which it has installed the wheel, each user's with the extra that
docs/install.md names; without them every machine runs the checkout.
"""

from __future__ import annotations

import base64
import csv
import json
import os
import re
import shlex
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from croupier.deploy.directory import read_deployment
from tests.support.machines import Machine, machines, steps
from tests.support.ports import four_ports

PAGE = Path(__file__).parents[2] / "docs" / "three-organisations.md"
SERVICES = {"A": "shuffler-1", "B": "accountant", "C": "analyzer", "D": "analyzer"}
PARTICIPANTS = ("p.example", "q.example")
SUBMIT = ("croupier", "submit", "--value", "1", "--epsilon", "1", "--key", "me.key", "--dir", "study")
FINGERPRINT = "croupier org show --dir study --json"
EXTRAS = {"a": "shuffler", "b": "operator", "c": "analyzer", "d": "analyzer", "p": "client", "q": "client"}
"""The environment of each user: B has the accountant and the operator, for whom the extra `operator` is enough."""
SURVEY = """
name = "work"
title = "Work"
consent = "I answer for myself."
budgets = [1, 2]
min_batch_size = 2
epsilon_max = 2
[[questions]]
name = "desk"
question = "Do you have a desk of your own?"
[[questions]]
name = "office"
question = "Is it in an office?"
"""
ANSWER = """
import sys, croupier
with croupier.connect("study") as client:
    for number in (1, 2):
        client.round(f"work-{number}").submit(1, max_local_epsilon=1.0, invitation=sys.argv[1])
"""
WAIT_S = 60


def forms(key: bytes) -> set[bytes]:
    """Returns how the bytes of a key can lie in a file."""
    return {key, key.hex().encode(), base64.b64encode(key)}


def secrets_of(machine: Machine) -> set[bytes]:
    """Returns the secrets of a machine in every form: its files, and its keys as they are once decrypted."""
    texts = [file.read_bytes().strip() for file in machine.files() if file.suffix == ".key"]
    secrets, passwords = set(texts), [text for text in texts if len(text) == 64]
    for password in passwords:
        secrets |= forms(bytes.fromhex(password.decode()))
    for text in texts:
        if text.startswith(b"-----BEGIN"):
            secrets |= _opened(text, passwords if b"ENCRYPTED" in text else [None])
    return secrets


def _opened(text: bytes, passwords: list[bytes] | list[None]) -> set[bytes]:
    for password in passwords:
        try:
            key = serialization.load_pem_private_key(text, password)
        except ValueError:
            continue
        if isinstance(key, Ed25519PrivateKey):
            raw = key.private_bytes_raw()
        else:
            raw = key.private_numbers().private_value.to_bytes(32, "big")  # type: ignore[union-attr]
        plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        pem = key.private_bytes(serialization.Encoding.PEM, *plain)
        return forms(raw) | {b"".join(pem.splitlines()[1:-1]), b"\n".join(pem.splitlines()[1:-1])}
    raise AssertionError("a key opens with no storage key of its machine")


def found(secrets: set[bytes], machine: Machine) -> list[Path]:
    """Returns the files of a machine that have one of the secrets in them."""
    contents = {file: file.read_bytes() for file in machine.files()}
    return [file for file, content in contents.items() if any(secret in content for secret in secrets)]


class Study:
    """Each organisation at its machine, and the service that runs there."""

    def __init__(self, at: dict[str, Machine], place: Path, running: ExitStack) -> None:
        self.machines = at
        self.of = {name: at[f"{name.lower()}.example"] for name in SERVICES}
        self._ports = {name: f"{four_ports()}" for name in SERVICES}
        self._place, self._running = place, running
        self._services: dict[str, AbstractContextManager[None]] = {}
        self.secrets: dict[int, set[bytes]] = {machine.user: set() for machine in at.values()}

    def play(self, name: str, line: str) -> str:
        """Does one step of the page; scp is a copy by root."""
        line, _, allowed = line.partition(" || test $? = ")
        machine, words = self.of[name], shlex.split(line)
        if words[0] == "scp":
            host, target = words[2].split(":")
            self.of[host[0].upper()].receive(machine.home / words[1], target)
            return ""
        assert words[0] == "croupier"
        if not machine.isolated:
            words = ["127.0.0.1" if word.endswith(".example") else word for word in words]
            words += ["--port", self._ports[name]] if words[1:3] == ["org", "new"] and "--host" in words else []
        # One is asked before one signs a version.
        said = machine.run(*words, typed="y\n", expect=int(allowed or 0)).stdout
        self.secrets[machine.user] |= secrets_of(machine)
        return said

    def start(self, name: str) -> None:
        serving = self.of[name].serving(SERVICES[name], self._place / f"{name}-{len(self._services)}.log")
        self._running.enter_context(serving)
        self._services[name] = serving

    def stop(self, name: str) -> None:
        self._services.pop(name).__exit__(None, None, None)

    def everybody_has(self, number: int, names: str) -> None:
        """Waits until services have fetched a version that one of them has."""
        end = time.monotonic() + WAIT_S
        while {read_deployment(self.of[name].home / "study").version for name in names} != {number}:
            assert time.monotonic() < end, f"not all of {names} have version {number}"
            time.sleep(0.05)

    def answered(self, question: str) -> None:
        """Both participants answer an open round at the services' addresses, and its result is published."""
        rounds = json.loads(self.play("B", "croupier status --dir study --json"))
        (round_id,) = [round_["round_id"] for round_ in rounds["rounds"] if round_["terms"]["question"] == question]
        for host in PARTICIPANTS:
            self.machines[host].run(*SUBMIT, "--round", round_id)
        self.play("B", f"croupier survey close {round_id} --dir study")
        result = json.loads(self.play("B", f"croupier survey results {round_id} --dir study --json"))
        assert result["num_reports"] == result["certificate"]["num_users"] == 2

    def decided(self, line: str) -> None:
        """B plays a command that only proposes, and does what it prints; A and B sign."""
        said = self.of["B"].run(*shlex.split(line), expect=3).stderr
        (file,) = re.findall(r"Send (\S+) to them", " ".join(said.split()))
        for step in (
            ("B", f"scp {file} a.example:study/proposed.toml"),
            ("A", "croupier proposal sign study/proposed.toml --dir study"),
            ("A", "scp study/proposed.toml b.example:study/signed.toml"),
            ("B", f"croupier proposal sign {file} --dir study"),
            ("B", f"croupier proposal send {file} study/signed.toml --dir study"),
        ):
            self.play(*step)

    def asked_a_survey(self, place: Path) -> None:
        """A survey is opened, people are invited, and the answers become a report; two organisations approve."""
        (place / "survey.toml").write_text(SURVEY, encoding="utf-8")
        (place / "people.csv").write_text("label\n" + "\n".join([*PARTICIPANTS, ""]), encoding="utf-8")
        for name in ("survey.toml", "people.csv"):
            self.of["B"].receive(place / name, name)
        self.decided("croupier survey open survey.toml --dir study")
        self.decided("croupier invite work --people people.csv --gateway https://gateway.example --dir study")
        rows = csv.DictReader((self.of["B"].home / "work-invitations" / "links.csv").read_text().splitlines())
        for row in rows:
            self.machines[row["label"]].run("python", "-c", ANSWER, row["link"])
        assert "2" in self.play("B", "croupier invite work --status --dir study")
        self.play("B", "croupier survey close work --dir study")
        assert self.play("B", "croupier survey results work --dir study").count("Answers counted: 2.") == 2
        self.play("B", "croupier report work --out report.html --dir study")

    def at_night(self) -> None:
        """Everybody on call runs the runbook's commands, with the programs of their own service alone."""
        for name in "ABC":
            for line in ("status", "ledger", "doctor"):
                has_no_ledger = line == "ledger" and name == "C"
                how = {"expect": 2 if has_no_ledger else None if line == "doctor" else 0}
                said = self.of[name].run("croupier", *line.split(), "--dir", "study", **how)  # type: ignore[arg-type]
                assert "not installed" not in said.stdout + said.stderr

    def give_deployment(self, name: str) -> None:
        """Has participants take the deployment file of one organisation, and compare its words."""
        words = self.play(name, FINGERPRINT)
        for host in PARTICIPANTS:
            participant = self.machines[host]
            participant.receive(self.of[name].home / "study" / "deployment.toml", "study/deployment.toml")
            own = participant.run(*shlex.split(FINGERPRINT)).stdout
            assert json.loads(own)["words"] == json.loads(words)["words"]

    def take_part(self) -> None:
        """Participants make keys, which B enrols."""
        for host in PARTICIPANTS:
            participant = self.machines[host]
            participant.run("mkdir", "-p", "study")
            participant.run("croupier", "keygen", "--client", "me.key")
            self.secrets[participant.user] |= secrets_of(participant)
            self.of["B"].receive(participant.home / "me.key.pub", f"{host}.pub")
            self.play("B", f"croupier enrol {host}.pub --dir study")


@pytest.mark.slow
def test_four_organisations_that_share_nothing_but_a_network(tmp_path: Path) -> None:
    """Processes, users and namespaces, because what one organisation can reach of another is the system's to decide."""
    users = {f"{name}.example": name for name in "abcdpq"} | {"a2.example": "a"}
    folder = os.environ.get("CROUPIER_ENVIRONMENTS")
    environments = {user: Path(folder, extra) for user, extra in EXTRAS.items()} if folder else None
    with machines(users, environments) as at, ExitStack() as running:
        study = Study(at, tmp_path, running)
        _follow_the_page(study, tmp_path)
        _nobody_has_anything_of_another(study)


def _follow_the_page(study: Study, tmp_path: Path) -> None:
    todo = list(steps(PAGE))

    def until(name: str, beginning: str) -> None:
        """Plays the page up to and with the step that begins like this."""
        while True:
            step = todo.pop(0)
            study.play(*step)
            if step[0] == name and step[1].startswith(beginning):
                return

    until("B", "croupier proposal send signed.toml")
    study.everybody_has(1, "ABC")
    for name in "ABC":
        study.start(name)
    study.take_part()
    study.give_deployment("A")
    until("B", "croupier survey open")
    study.answered("smokes")
    study.at_night()

    until("C", "croupier proposal sign")  # pending keys of two at once
    study.everybody_has(2, "ABC")
    until("C", "croupier proposal sign")  # and in use
    study.everybody_has(3, "ABC")
    assert [len(service.retired_identities) for service in read_deployment(study.of["B"].home / "study").services] == [
        1,
        0,
        1,
    ]

    study.stop("A")  # A on its new host
    new = study.machines["a2.example"]
    new.replace(study.of["A"])
    study.of["A"] = new
    until("C", "croupier proposal sign")
    new.receive(study.of["C"].home / "study" / "deployment.toml", "signed.toml")
    study.play("A", "croupier proposal send signed.toml --dir study")
    study.start("A")
    study.everybody_has(4, "ABC")
    for name, line in (
        ("A", "croupier rotate shuffler-1 --activate --dir study"),
        ("A", "croupier proposal sign --dir study"),
        ("A", "scp study/proposal.toml b.example:study/"),
        ("B", "croupier proposal sign --dir study"),
        ("B", "scp study/proposal.toml c.example:study/"),
        ("C", "croupier proposal sign --dir study"),
    ):
        study.play(name, line)
    study.everybody_has(5, "ABC")
    study.play("B", "croupier survey open moved --min-batch-size 2 --epsilon-max 2 --dir study")
    study.answered("moved")  # participants have followed four versions, and the new host, by themselves

    until("B", "croupier proposal send signed.toml")  # D in place of C, which goes on running
    study.start("D")
    study.everybody_has(6, "ABD")
    until("D", "croupier proposal sign")
    study.everybody_has(7, "ABD")
    until("B", "croupier proposal send")
    assert todo == []
    refused = study.machines[PARTICIPANTS[0]].run(*SUBMIT, expect=None)
    assert "signature of analyzer" in " ".join(refused.stderr.split())
    study.give_deployment("D")
    study.answered("sleep")
    study.asked_a_survey(tmp_path)


def _nobody_has_anything_of_another(study: Study) -> None:
    """Neither a secret, at any time of the page, nor the right to open a file."""
    everybody = study.machines.values()
    for machine in everybody:
        secrets, others = study.secrets[machine.user], [each for each in everybody if each.user != machine.user]
        assert [found(secrets, other) for other in others] == [[]] * len(others)
        files = [str(file) for other in others for file in (other.home, *other.files())]
        assert _openable(machine, files) == []
        own = [str(file) for file in machine.files()]
        assert _openable(machine, own) == own
        if own:  # a search that finds nothing anywhere would show nothing
            assert found(secrets, machine)
    a, p = study.of["A"], study.machines["p.example"]
    for number, secret in enumerate(sorted(study.secrets[a.user])):
        leak = p.home / f"leak-{number}"
        leak.write_bytes(b"before" + secret + b"after")
        assert leak in found(study.secrets[a.user], p)


def _openable(machine: Machine, files: list[str]) -> list[str]:
    """Returns the files that a machine's user can open."""
    look = "import os, sys\nfor file in sys.stdin.read().splitlines():\n if os.access(file, os.R_OK): print(file)"
    return machine.run("python", "-c", look, typed="\n".join(files)).stdout.splitlines()
