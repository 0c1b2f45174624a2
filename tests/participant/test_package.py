"""The package in `web/`, used by another program under Node: `web/example.mjs` answers a round through a gateway.

The package's code is taken from the participants' page, so that nothing has to be built; `make web` builds the package.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from croupier.client.submission import Participant, new_client_key
from croupier.deploy.gateway.server import make_gateway
from croupier.deploy.listening import WebAddress
from croupier.deploy.page.participants import participant_page
from tests.support import settings
from tests.support.gateways import PassOn, Tampering, tickets_for_all
from tests.support.rounds import QUESTIONS, people, table

EXAMPLE = Path(__file__).parents[2] / "web" / "example.mjs"
PACKAGE = """import * as client from "./page.mjs";
export const {fetchRound, goOn, prepareAnswer} = client.answering;
export const {fromHex} = client.bytes;
export const {Gateway, readBody} = client.calls;
export const {readNewest} = client.versions;
"""
ENDLESS = """import assert from "node:assert/strict";
import {readBody} from "croupier-client";
let sent = 0;
const pull = (controller) => { sent += 65536; controller.enqueue(new Uint8Array(65536)); };
await assert.rejects(readBody(new Response(new ReadableStream({pull}))), {name: "Distrust"});
assert.ok(sent < 2 ** 23);
assert.equal((await readBody(new Response("small"))).length, 5);
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder with the example, in which Node finds the package by its name."""
    if shutil.which("node") is None:
        pytest.skip("no Node: install the package 'nodejs'")
    (package := tmp_path / "node_modules" / "croupier-client").mkdir(parents=True)
    _, _, script = participant_page().decode().partition('<script type="module">')
    (package / "page.mjs").write_text(script.partition("</script>")[0])
    (package / "index.mjs").write_text(PACKAGE)
    (package / "package.json").write_text(json.dumps({"name": "croupier-client", "exports": "./index.mjs"}))
    return Path(shutil.copy(EXAMPLE, tmp_path / "example.mjs"))


async def node(*arguments: str | Path, **environment: str) -> str:
    running = await asyncio.create_subprocess_exec(
        "node", *arguments, stdout=asyncio.subprocess.PIPE, env=os.environ | environment
    )
    said, _ = await running.communicate()
    assert running.returncode == 0
    return said.decode()


@pytest.mark.slow
async def test_an_answer_is_counted_once_however_often_the_program_starts(program: Path) -> None:
    """Twice at once, with a dishonest accountant that gives tickets to both, and once more afterwards."""
    async with table(program.parent, 2) as here:
        terms = await here.operator.open_round(settings())
        await here.submit(terms, people(QUESTIONS[0], 20, seed=5))
        key, both = new_client_key(), asyncio.Barrier(2)
        await here.operator.enrol([Participant(None, 0.0, key).public_key])
        gateway = Tampering(here.inside.transport)

        async def when_both_have_asked(raw: bytes, pass_on: PassOn) -> bytes:
            await both.wait()
            return await pass_on(raw)

        async def tickets(raw: bytes, pass_on: PassOn) -> bytes:
            await both.wait()
            await pass_on(raw)
            return await tickets_for_all(here.inside.running["accountant"].service, raw)

        server = make_gateway(here.inside.directory, WebAddress(), (), gateway.transport)
        serving = asyncio.create_task(server.run_until_stopped())
        secrets = {"CROUPIER_VALUE": "1", "CROUPIER_KEY": key.hex()}

        async def start() -> None:
            said = await node(program, server.url, program.parent / "answer", "1", **secrets)
            assert json.loads(said) == {"round_id": terms.round_id, "state": "accepted"}

        gateway.instead = {"GetRound": when_both_have_asked, "GetTickets": tickets}
        await asyncio.gather(start(), start())
        gateway.instead = {}
        await start()
        server.should_exit = True
        await serving
        assert len({raw for method, raw in gateway.seen if method == "Submit"}) == 1
        publication, certificate = await here.finish(terms)
        assert publication.num_reports == certificate.num_users == 21


async def test_an_endless_answer_is_not_read_to_its_end(program: Path) -> None:
    (endless := program.with_name("endless.mjs")).write_text(ENDLESS)
    await node(endless)
