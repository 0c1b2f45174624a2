"""The client of examples/node, tried: `make node` installs its packages and runs this.

The golden vectors first; then two answers to a real deployment, over gRPC and through a gateway, each sent twice and
counted once, and one of the package in `web/`; then two starts at once, to which a dishonest accountant gives tickets
each. It is not part of `make test`, which needs neither Node nor npm.
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
from croupier.protocol.names import PrivateKey, RoundId
from tests.another_client.vectors import FILE
from tests.support import settings
from tests.support.gateways import PassOn, Tampering, tickets_for_all
from tests.support.rounds import QUESTIONS, Table, people, table

HERE = Path(__file__).parents[2] / "examples" / "node"
PACKAGE = Path(__file__).parents[2] / "web"
OTHERS = 20
FIXED = "fixed_terms = true"
LIMIT = f"[privacy_limit]\ntotal_epsilon = 20\ntotal_delta = 1e-3\n{FIXED}\n"
USES = """import {type Deployment, type Terms, readManifest, readNewest} from "croupier-client";
const deployment: Deployment = readNewest(new Uint8Array()).deployment;
const terms: Terms = readManifest(undefined, deployment);
export const least: number = terms.manifest.minBatchSize;
"""


def node(*arguments: str | Path, **environment: str) -> str:
    return node_in(HERE, *arguments, **environment)


def node_in(where: Path, /, *arguments: str | Path, **environment: str) -> str:
    done = subprocess.run(
        ["node", *arguments],
        cwd=where,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
        env=os.environ | environment,
    )
    return done.stdout


async def submit(directory: Path) -> None:
    async with table(directory, 2, LIMIT, over_tls=True) as here:
        terms = await here.operator.open_round(settings(), RoundId("a/../../round"))  # of which a client makes a file
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
        deployment, how = here.inside.directory / "deployment.toml", ("--key-file", key_file, "--gateway", server.url)
        await asyncio.to_thread(refuses_another_limit, deployment, directory, how)
        await answer_with_the_package(here, server.url, directory / "answer")
        server.should_exit = True
        await serving
        publication, certificate = await here.finish(terms)
        assert publication.num_reports == certificate.num_users == OTHERS + 3, certificate
        sys.stdout.write(f"counted: {publication.num_reports} reports, three of them from JavaScript\n")


def refuses_another_limit(file: Path, directory: Path, how: tuple[str | Path, ...]) -> None:
    """A manifest states that the terms of all rounds are fixed, and the deployment file of this person does not."""
    assert FIXED in file.read_text()
    (other := directory / "other.toml").write_text(file.read_text().replace(FIXED, "fixed_terms = false"))
    try:
        node("client.mjs", other, *how, CROUPIER_VALUE="1", CROUPIER_EPSILON="1.5")
    except subprocess.CalledProcessError:
        return
    raise AssertionError("another privacy limit than that of the deployment file was not refused")


async def answer_with_the_package(here: Table, url: str, file: Path) -> None:
    """By its name, as another program imports it; its types are those that a compiler reads there."""
    key = new_client_key()
    await here.operator.enrol([Participant(None, 0.0, key).public_key])
    secrets = {"CROUPIER_VALUE": "1", "CROUPIER_KEY": key.hex()}
    for _ in range(2):
        said = await asyncio.to_thread(node_in, PACKAGE, "example.mjs", url, file, "1", **secrets)
        assert json.loads(said)["state"] == "accepted"


def types_of_the_package() -> None:
    """A program that uses them rightly compiles, and one that does not is refused."""
    options = ["--noEmit", "--strict", "--module", "esnext", "--moduleResolution", "bundler", "--target", "es2022"]
    compiler = PACKAGE / "node_modules" / ".bin" / "tsc"
    for name, text, expected in (("uses.ts", USES, True), ("misuses.ts", USES.replace(": number", ": string"), False)):
        (PACKAGE / "dist" / name).write_text(text)
        done = subprocess.run(
            [compiler, *options, "--skipLibCheck", "--ignoreConfig", f"dist/{name}"],
            cwd=PACKAGE,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert (done.returncode == 0) is expected, done.stdout


async def start_twice_at_once(directory: Path) -> None:
    """Two starts of one person, whom a dishonest accountant both gives tickets: they must not send two reports."""
    async with table(directory, 1, LIMIT, over_tls=True) as here:
        terms = await here.operator.open_round(settings())
        (key_file := directory / "client.key").write_text(new_client_key().hex())
        await here.operator.enrol([Participant(None, 0.0, PrivateKey(bytes.fromhex(key_file.read_text()))).public_key])
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
    types_of_the_package()
    for play in (submit, start_twice_at_once):
        with tempfile.TemporaryDirectory() as place:
            asyncio.run(play(Path(place)))
