"""The client of examples/node, tried: `make node` installs its packages and runs this.

The golden vectors first; then two answers to a real deployment, over gRPC and through a gateway, each sent twice and
counted once. It is no part of `make test`, which needs neither Node nor npm.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from client.submission import Participant, new_client_key
from deploy.gateway.server import make_gateway
from deploy.listening import WebAddress
from tests.another_client.vectors import FILE
from tests.support import settings
from tests.support.rounds import QUESTIONS, people, table

HERE = Path(__file__).parents[2] / "examples" / "node"
OTHERS = 20
LIMIT = "[privacy_limit]\ntotal_epsilon = 20\ntotal_delta = 1e-3\n"


def node(*arguments: str | Path) -> str:
    done = subprocess.run(["node", *arguments], cwd=HERE, stdout=subprocess.PIPE, text=True, check=True, timeout=120)
    return done.stdout


async def submit(directory: Path) -> None:
    async with table(directory, 2, LIMIT, over_tls=True) as here:
        terms = await here.operator.open_round(settings(), "a/../../round")  # of which a client makes a file
        await here.submit(terms, people(QUESTIONS[0], OTHERS, seed=5))
        (token,) = await here.operator.issue_tokens(1)
        key = new_client_key()
        await here.operator.enrol([Participant(None, 0.0, key).public_key])
        server = make_gateway(here.inside.directory, WebAddress())
        serving = asyncio.create_task(server.run_until_stopped())
        for name, how in (
            ("grpc", ("--token", token.hex())),
            ("https", ("--key", key.hex(), "--gateway", server.url)),
        ):
            (place := directory / name).mkdir()
            asked = (here.inside.directory / "deployment.toml", "1", "1.5", "--round", terms.round_id, *how)
            for _ in range(2):
                said: Any = json.loads(await asyncio.to_thread(node, "client.mjs", *asked, "--directory", place))
                assert said == {"round_id": terms.round_id, "code": "SUBMISSION_CODE_ACCEPTED"}, said
            assert [file.name for file in place.iterdir()] == ["a%2F..%2F..%2Fround.sealed"]
        server.should_exit = True
        await serving
        publication, certificate = await here.finish(terms)
        assert publication.num_reports == certificate.num_users == OTHERS + 2, certificate
        sys.stdout.write(f"counted: {publication.num_reports} reports, two of them from JavaScript\n")


if __name__ == "__main__":
    sys.stdout.write(node("vectors.mjs", FILE))
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(submit(Path(place)))
