"""The client of examples/node, tried: `make node` installs its packages and runs this.

The golden vectors first; then an answer to a real deployment over TLS, sent twice, which is counted once. It is no part
of `make test`, which needs neither Node nor npm.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

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
        terms = await here.operator.open_round(settings())
        await here.submit(terms, people(QUESTIONS[0], OTHERS, seed=5))
        (token,) = await here.operator.issue_tokens(1)
        asked = (here.inside.directory / "deployment.toml", terms.round_id, "1", "1.5", token.hex(), directory)
        for _ in range(2):
            said: Any = json.loads(await asyncio.to_thread(node, "client.mjs", *asked))
            assert said == {"round_id": terms.round_id, "code": "SUBMISSION_CODE_ACCEPTED"}, said
        publication, certificate = await here.finish(terms)
        assert publication.num_reports == certificate.num_users == OTHERS + 1, certificate
        sys.stdout.write(f"counted: {publication.num_reports} reports, one of them from JavaScript\n")


if __name__ == "__main__":
    sys.stdout.write(node("vectors.mjs", FILE))
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(submit(Path(place)))
