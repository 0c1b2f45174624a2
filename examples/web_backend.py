"""A web backend whose visitors answer: it randomizes and seals each answer for them, and keeps none.

    python examples/web_backend.py deployment.toml visitors.csv
    curl -d '{"visitor": "ada", "answer": 1}' http://127.0.0.1:8080/

visitors.csv has the columns name and link; `croupier invite` makes it from a file of names. The backend sees
the answers for a moment, as any backend does; no server behind it does. Where it must not see them either, the client
belongs into the visitors' own app (docs/another-language.md). In a real backend a session says who the visitor is, not
the request.
"""

import csv
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import croupier


def read_links(file: Path) -> dict[str, str]:
    """Returns the link of every visitor's invitation."""
    with file.open(newline="", encoding="utf-8") as rows:
        return {row["name"]: row["link"] for row in csv.DictReader(rows)}


def make_server(client: croupier.Client, links: dict[str, str], port: int = 8080) -> ThreadingHTTPServer:
    """Returns a server on loopback; its threads share the client."""

    def answer(visitor: str, value: Any) -> tuple[int, dict[str, Any]]:
        if visitor not in links:
            return 403, {"error": "you are not invited"}
        try:
            # The newest round is asked for each time: its terms are verified again.
            asked = client.round()
            receipt = asked.submit(value, max_local_epsilon=1.0, person=visitor, invitation=links[visitor])
        except (ValueError, TypeError) as error:  # the client's own limits are among them
            return 400, {"error": str(error)}
        except croupier.UnreachableError:
            return 503, {"error": "not now; send the same again later, you are counted once"}
        except croupier.Refusal as no:
            return 409, {"error": str(no), "code": no.code.name}
        spent = {"local_epsilon": receipt.local_epsilon, "local_delta": receipt.local_delta}
        return 200, {"round": receipt.round_id, **spent}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                visitor, value = str(body["visitor"]), body["answer"]
            except (ValueError, TypeError, KeyError):
                status, said = 400, {"error": 'the body must be JSON such as {"visitor": "ada", "answer": 1}'}
            else:
                status, said = answer(visitor, value)
            text = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            """Writes nothing: when a visitor answers is the visitor's own business."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main() -> None:
    """Serves until it is interrupted."""
    deployment, visitors = sys.argv[1:]
    with (
        croupier.connect(deployment, patience_s=5) as client,
        make_server(client, read_links(Path(visitors))) as server,
    ):
        server.serve_forever()


if __name__ == "__main__":
    main()
