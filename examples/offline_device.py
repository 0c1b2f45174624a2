"""A device that is offline most of the time: it asks its person when it can, and sends when there is a network.

    python examples/offline_device.py deployment.toml ROUND answer.json

A timer starts it now and then. answer.json is what the person has said: {"value": 1, "max_local_epsilon": 1.0}. Each
start does the next thing that can be done: send, then check that every server has passed the answer on. The plain
answer is deleted as soon as hop 1 has stored the sealed one; what is sent again after a broken connection are the same
bytes. The exit status is 0 when there is nothing left to do, 75 when it should be started again.
"""

import json
import sys
from pathlib import Path

import croupier

TRY_AGAIN = 75


def next_step(client: croupier.Client, round_id: str, said: Path) -> str:
    """Does the next thing and says what it was; "later" if there is no network, or no result yet."""
    try:
        asked = client.round(round_id)
        if said.exists():
            receipt = asked.submit(**json.loads(said.read_text(encoding="utf-8")))
            said.unlink()
            return f"sent, local ε {receipt.local_epsilon:g}, local δ {receipt.local_delta:g}"
        return f"passed on by {', '.join(asked.verify().hops)}"
    except croupier.UnreachableError:
        return "later"
    except croupier.Refusal as no:
        if no.code is croupier.Code.NOT_READY:
            return "later"
        raise


def main() -> int:
    """Runs once."""
    deployment, round_id, said = sys.argv[1:]
    with croupier.connect(deployment, patience_s=2) as client:
        done = next_step(client, round_id, Path(said))
    print(done)
    return 0 if done.startswith("passed on") else TRY_AGAIN


if __name__ == "__main__":
    sys.exit(main())
