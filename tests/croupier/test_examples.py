"""The programs of examples/ on a deployment over TLS, and with them the client that waits."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import croupier
from croupier.operator.invitations import People, invite_people
from croupier.operator.opened_surveys import keep_survey, open_rounds
from croupier.operator.round_settings import check_settings
from croupier.protocol.invitations import Invitation, new_secret
from croupier.protocol.names import PublicKey, RoundId
from croupier.show.csv_file import csv_records
from examples import batch_job, offline_device, web_backend
from tests.support import settings
from tests.support.rounds import QUESTIONS, Table, people, table

ROOT = Path(__file__).parents[2]
GATEWAY = "https://gateway.example"


def post(server: ThreadingHTTPServer, body: Any) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(f"http://127.0.0.1:{server.server_port}/", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def run(*program: str | Path, expect: int = 0, place: Path = ROOT) -> str:
    """Runs a Python program in a directory; returns what it writes, which is an error or an output."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=place, env=environment)
    assert done.returncode == expect, done.stderr
    return done.stdout + done.stderr


def serve_visitors(deployment: Path, round_id: str, visitors: Path) -> None:
    with (
        croupier.connect(deployment, directory=visitors.parent / "backend", patience_s=5) as client,
        web_backend.make_server(client, web_backend.read_links(visitors), port=0) as server,
    ):
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            counted = {"round": round_id, "local_epsilon": 1.0, "local_delta": 0.0}
            assert post(server, {"visitor": "ada", "answer": 1}) == (200, counted)
            assert post(server, {"visitor": "ada", "answer": 1})[0] == 200
            assert post(server, {"visitor": "grace", "answer": 7})[0] == 400
            assert post(server, {"visitor": "eve", "answer": 1})[0] == 403
            # Reproduction: without a field it closed the connection, and gave no answer.
            bodies: tuple[Any, ...] = ({"visitor": "ada"}, {"answer": 1}, {}, [], "ada", None)
            for body in bodies:
                status, said = post(server, body)
                assert (status, said["error"][:12]) == (400, "the body mus")
            assert post(server, {"visitor": "mallory", "answer": 1})[1]["code"] == "UNKNOWN_CLIENT"
        finally:
            server.shutdown()
            thread.join()


async def be_offline_then_online(here: Table, make: Callable[[], croupier.Client], round_id: str, said: Path) -> None:
    """Every step is a start of the program, with a client of its own."""

    def start() -> tuple[str, bool]:
        with make() as client:
            return offline_device.next_step(client, round_id, said), said.exists()

    await asyncio.to_thread(said.write_text, '{"value": 1, "max_local_epsilon": 2}')
    await here.inside.stop("shuffler-1")
    assert await asyncio.to_thread(start) == ("later", True)
    await here.inside.start("shuffler-1")
    assert await asyncio.to_thread(start) == ("sent, local ε 2, local δ 0", False)
    assert await asyncio.to_thread(start) == ("later", False)


LIBRARY = sorted(file for file in (ROOT / "examples" / "library").glob("*.py") if file.stem != "__init__")


@pytest.mark.slow
@pytest.mark.parametrize("program", LIBRARY, ids=lambda file: file.stem)
def test_the_programs_of_the_library_run(program: Path, tmp_path: Path) -> None:
    certificate = croupier.certify([1.0] * 10_000, "rr", delta=1e-6)
    certified = croupier.certify(
        croupier.Budgets.from_tiers([(0.5, 9000), (2.0, 1000)]), "rr", delta=1e-6, dishonest=100
    )
    shown: dict[str, list[object]] = {
        "certify": [certificate.epsilon, certificate.grade],
        "curves": [croupier.privacy_profile([1.0] * 10_000, "krr(k=5)").epsilon(1e-7)],
        "data_frames": ["9000", "1000"],
        "decide": ["0", *certificate.assumptions],
        "explain": [croupier.explain(certificate).certified],
        "simulate": ["smokes", "CERTIFIED"],
        "tiers": [certified.epsilon, *certified.assumptions],
        "train_model": ["CERTIFIED"],
    }
    rows = [f"{age},{20 + age % 10},{int(age > 50)}\n" for age in range(20, 80)] * 10
    (tmp_path / "people.csv").write_text("".join(["age,bmi,outcome\n", *rows]))
    lines = run(program, place=tmp_path)
    assert [value for value in shown[program.stem] if str(value) not in lines] == []
    assert (tmp_path / "curve.png").exists() == (program.stem == "curves")
    assert (tmp_path / "before-we-ask.html").exists() == (program.stem == "simulate")


@pytest.mark.slow
async def test_a_backend_a_batch_job_and_a_device_in_one_round(tmp_path: Path) -> None:
    async with table(tmp_path, 1, over_tls=True) as here:
        place, how = here.inside.directory, here.inside.transport
        deployment = place / "deployment.toml"

        survey = check_settings(settings(), here.deployment, RoundId("backend")).survey
        keep_survey(place, survey)
        (terms,) = await open_rounds(here.operator, place, survey)

        async def invite(people: People, name: str) -> Path:
            links: dict[str, Any] = {"gateway": GATEWAY, "qr_codes": False, "transport": how}
            await invite_people(place, survey.survey_id, people, tmp_path / name, **links)
            return tmp_path / name / "links.csv"

        visitors = await invite(People(("name",), (("ada",), ("grace",))), "visitors")
        await here.submit(terms, people(QUESTIONS[0], 20, seed=3))
        stranger = Invitation(new_secret(), here.deployment.fingerprint, terms.round_id).fragment
        visitors.write_text(f"{visitors.read_text()}mallory,{GATEWAY}#{stranger},\n")
        await asyncio.to_thread(serve_visitors, deployment, terms.round_id, visitors)

        batched = People(("name", "answer", "max_local_epsilon"), (("p0", "1", "0.7"), ("p1", "1", "0.7")))
        rows = csv_records((await invite(batched, "people")).read_text())
        async with croupier.AsyncClient(deployment, directory=tmp_path / "batch") as batch:
            for _ in range(2):
                outcomes = await batch_job.answer_for_all(batch, [*rows, rows[0] | {"name": "p2", "answer": "maybe"}])
                assert list(outcomes.values())[:2] == ["counted, local ε 0.5, local δ 0"] * 2
                assert "value is 'maybe'" in outcomes["p2"]

        def make() -> croupier.Client:
            return croupier.connect(deployment, directory=tmp_path / "device", patience_s=0.2)

        with make() as client:
            own = PublicKey(bytes.fromhex(client.public_key))
            await here.operator.invite([own], survey.invitation_hash, 0)
        await be_offline_then_online(here, make, terms.round_id, tmp_path / "said.json")
        await here.finish(terms)
        with make() as client:
            result = await asyncio.to_thread(lambda: client.round(terms.round_id).result())
            assert result.num_reports == 24
            done = await asyncio.to_thread(offline_device.next_step, client, terms.round_id, tmp_path / "said.json")
            assert done == "passed on by shuffler-1"
            assert (client.spent.local_epsilon, client.limits) == (2.0, croupier.Limits())
        said = await asyncio.to_thread(run, offline_device.__file__, deployment, terms.round_id, "said.json", expect=1)
        assert "nothing was acknowledged" in said  # another directory, so another device


@pytest.mark.slow
async def test_the_first_program_of_the_documentation(tmp_path: Path) -> None:
    async with table(tmp_path, 1, over_tls=True) as here:
        terms = await here.operator.open_round(settings())
        place = here.inside.directory
        with croupier.connect(place) as client:
            own = PublicKey(bytes.fromhex(client.public_key))
            await here.operator.enrol([own])
        page = await asyncio.to_thread((ROOT / "docs" / "client-library.md").read_text, encoding="utf-8")
        (program, *_) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        assert await asyncio.to_thread(run, "-c", program, place=place) == "counted, local ε 1, local δ 0\n"
        store = here.inside.running["shuffler-1"].service.store
        assert await store.run("look", lambda tx: tx.num_submissions(terms.round_id)) == 1
