"""The client of examples/node, tried: `make node` installs its packages and runs this.

The golden vectors first; then two answers to a real deployment, over gRPC and through a gateway, each sent twice and
counted once; then two starts at once, to which
a dishonest accountant gives tickets each. It is no part of `make test`, which needs neither Node nor npm.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from croupier.client.submission import Participant, new_client_key
from croupier.deploy.gateway.server import make_gateway
from croupier.deploy.listening import WebAddress
from croupier.net.transport import TLS
from tests.another_client.vectors import FILE
from tests.support import settings
from tests.support.gateways import PassOn, Tampering, tickets_for_all
from tests.support.rounds import QUESTIONS, people, table

HERE = Path(__file__).parents[2] / "examples" / "node"
OTHERS = 20
LIMIT = "[privacy_limit]\ntotal_epsilon = 20\ntotal_delta = 1e-3\n"


def node(*arguments: str | Path, **environment: str) -> str:
    done = subprocess.run(
        ["node", *arguments],
        cwd=HERE,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
        env=os.environ | environment,
    )
    return done.stdout


async def submit(directory: Path) -> None:
    async with table(directory, 2, LIMIT, over_tls=True) as here:
        terms = await here.operator.open_round(settings(), "a/../../round")  # of which a client makes a file
        await here.submit(terms, people(QUESTIONS[0], OTHERS, seed=5))
        (token,) = await here.operator.issue_tokens(1)
        key = new_client_key()
        await here.operator.enrol([Participant(None, 0.0, key).public_key])
        (key_file := directory / "client.key").write_text(key.hex())
        server = make_gateway(here.inside.directory, WebAddress())
        serving = asyncio.create_task(server.run_until_stopped())
        secrets = {"CROUPIER_VALUE": "1", "CROUPIER_EPSILON": "1.5"}
        for name, how, more in (
            ("grpc", (), {"CROUPIER_TOKEN": token.hex()}),
            ("https", ("--key-file", key_file, "--gateway", server.url), {}),
        ):
            (place := directory / name).mkdir()
            asked = (here.inside.directory / "deployment.toml", "--round", terms.round_id, *how, "--directory", place)

            def start() -> Any:
                return json.loads(node("client.mjs", *asked, **secrets, **more))  # noqa: B023

            for said in [await asyncio.to_thread(start) for _ in range(2)]:
                assert said == {"round_id": terms.round_id, "code": "SUBMISSION_CODE_ACCEPTED"}, said
            assert [file.name for file in place.iterdir()] == ["a%2F..%2F..%2Fround.sealed"]
        server.should_exit = True
        await serving
        publication, certificate = await here.finish(terms)
        assert publication.num_reports == certificate.num_users == OTHERS + 2, certificate
        sys.stdout.write(f"counted: {publication.num_reports} reports, two of them from JavaScript\n")


async def start_twice_at_once(directory: Path) -> None:
    """Two starts of one person, whom a dishonest accountant both gives tickets: they must not send two reports."""
    async with table(directory, 1, LIMIT, over_tls=True) as here:
        terms = await here.operator.open_round(settings())
        (key_file := directory / "client.key").write_text(new_client_key().hex())
        await here.operator.enrol([Participant(None, 0.0, bytes.fromhex(key_file.read_text())).public_key])
        both = asyncio.Barrier(2)
        gateway = Tampering(TLS)

        async def tickets(raw: bytes, _: PassOn) -> bytes:
            await both.wait()
            return await tickets_for_all(here.inside.running["accountant"].service, raw)

        gateway.instead = {"GetTickets": tickets}
        server = make_gateway(here.inside.directory, WebAddress(), (), gateway.transport)
        serving = asyncio.create_task(server.run_until_stopped())
        asked = (here.inside.directory / "deployment.toml", "--key-file", key_file, "--gateway", server.url)
        starts = [
            asyncio.to_thread(
                node, "client.mjs", *asked, "--directory", directory, CROUPIER_VALUE="1", CROUPIER_EPSILON="1"
            )
            for _ in range(2)
        ]
        for said in await asyncio.gather(*starts):
            assert json.loads(said) == {"round_id": terms.round_id, "code": "SUBMISSION_CODE_ACCEPTED"}, said
        sent = {raw for method, raw in gateway.seen if method == "Submit"}
        assert len(sent) == 1, f"{len(sent)} randomizations of one value were sent"
        server.should_exit = True
        await serving
    sys.stdout.write("started twice at once: one report\n")


if __name__ == "__main__":
    sys.stdout.write(node("vectors.mjs", FILE))
    sys.stdout.write(node("bodies.mjs"))
    for play in (submit, start_twice_at_once):
        with tempfile.TemporaryDirectory() as place:
            asyncio.run(play(Path(place)))
