"""The gateway over real HTTP, and what it answers to requests that are none of a client's calls."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import ssl
import sys
from contextlib import AbstractAsyncContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, cast
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import grpc.aio
import pytest

import croupier
from croupier.deploy.directory import read_deployment
from croupier.deploy.gateway.app import make_app
from croupier.deploy.gateway.server import make_gateway
from croupier.deploy.listening import WebAddress
from croupier.deploy.node.probe import is_ready
from croupier.deploy.version_files import write_deployment
from croupier.net.http_channel import HTTP_STATUS, HttpChannel
from croupier.net.limits import BUDGET_BYTES
from croupier.net.sizes import MESSAGE_BYTES
from croupier.operator.keys import make_cluster_keys, make_deployment
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import PublicKey
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.cluster import AUTHORITY_FILE, certificate_files
from tests.support import settings, sign_again
from tests.support.command_line import Said, running
from tests.support.command_line import croupier as command
from tests.support.core_files import core_limit
from tests.support.gateways import Tampering, ask, serving
from tests.support.in_memory import Network
from tests.support.messages import naming, refuses
from tests.support.rounds import QUESTIONS, Table, people, table

GET_ROUND = "/croupier.protocol.v1.Shuffler/GetRound"
SUBMIT = "/croupier.protocol.v1.Shuffler/Submit"
GET_RESULT = "/croupier.protocol.v1.Analyzer/GetResult"
_SHARE = 3
PAGE = "https://survey.example"


def gateway_of(here: Table, *origins: str) -> AbstractAsyncContextManager[str]:
    return serving(make_gateway(here.inside.directory, WebAddress(), origins, here.inside.transport))


@pytest.mark.slow
async def test_an_answer_goes_through_the_gateway_is_counted_and_found_again(tmp_path: Path) -> None:
    async with table(tmp_path, 2) as here, gateway_of(here) as url:
        terms = await here.operator.open_round(settings())
        await here.submit(terms, people(QUESTIONS[0], 25, seed=6))
        client = croupier.AsyncClient(here.inside.directory, directory=tmp_path / "device", gateway=url)
        await here.operator.enrol([PublicKey(bytes.fromhex(client.public_key))])
        asked = await client.round()
        receipt = await asked.submit(1, max_local_epsilon=1.0)
        assert receipt == croupier.Receipt(
            terms.round_id, "", 1.0, 0.0, sealed_before=False, promises=asked.promises(1.0)
        )
        assert (await asked.submit(1, max_local_epsilon=1.0)).sealed_before
        with refuses(Code.NOT_READY):
            await asked.verify()
        await here.finish(terms)
        assert (await asked.result()).num_reports == 26
        assert await asked.verify() == croupier.Inclusion(terms.round_id, 1, ("shuffler-1", "shuffler-2"))
        with pytest.raises(croupier.Refusal, match=f"{Code.UNKNOWN_ROUND.message}: 'never'"):
            await client.round("never")
        await client.close()
        with croupier.connect(here.inside.directory, gateway=url) as waiting:
            terms_seen = await asyncio.to_thread(waiting.round, terms.round_id)
            assert terms_seen.terms.hash == terms.hash


@pytest.mark.slow
async def test_a_participant_at_the_command_line_goes_through_the_gateway(tmp_path: Path) -> None:
    """Submit, verify, round show and round result call nothing else: the services' own ports are not where it says."""

    async def run(*arguments: str | Path, expect: int = 0) -> Said:
        return await asyncio.to_thread(command, *arguments, "--dir", device, "--gateway", url, expect=expect)

    async with table(tmp_path, 2) as here, gateway_of(here) as url:
        terms = await here.operator.open_round(settings())
        await here.submit(terms, people(QUESTIONS[0], 25, seed=6))
        device = tmp_path / "device"
        device.mkdir()
        deployment = read_deployment(here.inside.directory)
        nowhere = (service.model_copy(update={"public_address": "127.0.0.1:1"}) for service in deployment.services)
        write_deployment(device, deployment.model_copy(update={"services": tuple(nowhere), "version": 2}))
        sign_again(device, here.inside.directory)
        shown = (await run("survey", "show")).stdout
        assert terms.round_id in shown
        assert shown.rstrip().endswith(f"  --gateway {url}")  # of the command to answer with
        key = await asyncio.to_thread(command, "keygen", "--client", tmp_path / "me.key", "--json")
        answer = ("submit", "--value", "1", "--epsilon", "1")
        refused = await run(*answer, "--key", tmp_path / "me.key", expect=6)
        assert re.search(naming("FILE.pub"), " ".join(refused.stderr.split()))
        await here.operator.enrol([PublicKey(bytes.fromhex(json.loads(key.stdout)["client_key"]))])
        said = await run(*answer, "--key", tmp_path / "me.key")
        assert said.stdout.startswith(f"ACCEPTED in round {terms.round_id}, local ε 1")
        await here.finish(terms)
        assert (await run("survey", "results", terms.round_id, "--json")).stdout.startswith("{")
        output = (await run("verify", terms.round_id)).stdout
        assert output.splitlines() == ["shuffler-1: 0 of 1 missing", "shuffler-2: 0 of 1 missing"]


async def test_a_container_asks_the_gateway_whether_hop_1_can_be_reached(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as here, gateway_of(here) as url:
        assert await asyncio.to_thread(is_ready, url.rstrip("/"))
        await here.inside.stop("shuffler-1")
        assert not await asyncio.to_thread(is_ready, url.rstrip("/"))
        await here.inside.start("shuffler-1")
    assert not is_ready(url.rstrip("/"))


def http(url: str, body: bytes | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    try:
        with urlopen(Request(url, body, headers), timeout=60) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except HTTPError as error:
        return error.code, dict(error.headers), error.read()


async def test_health_other_sites_pages_and_services_out_of_reach(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as here, gateway_of(here, PAGE) as url:
        ours = {"Content-Type": "application/proto"}
        status, headers, body = await asyncio.to_thread(http, f"{url}health")
        assert (status, json.loads(body)) == (200, {"status": "SERVING"})
        status, headers, body = await asyncio.to_thread(lambda: http(url + GET_ROUND[1:], b"", Origin=PAGE, **ours))
        assert (status, json.loads(body)) == (
            404,
            {"code": "not_found", "message": f"NO_OPEN_ROUND: {Code.NO_OPEN_ROUND.message}"},
        )
        assert headers["access-control-allow-origin"] == PAGE
        assert "access-control-allow-credentials" not in headers
        assert not [name for name in headers if name.lower() == "set-cookie"]
        other = {"Origin": "https://other.example", **ours}
        _, headers, _ = await asyncio.to_thread(lambda: http(url + GET_ROUND[1:], b"", **other))
        assert "access-control-allow-origin" not in headers
        await here.inside.stop("shuffler-1")
        status, _, body = await asyncio.to_thread(http, f"{url}health")
        assert (status, json.loads(body)) == (503, {"status": "NOT_SERVING"})
        status, _, body = await asyncio.to_thread(lambda: http(url + GET_ROUND[1:], b"", **ours))
        assert (status, json.loads(body)["message"]) == (
            503,
            f"NOT_READY: {Code.NOT_READY.message}: the shuffler is out of reach",
        )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    make_deployment(tmp_path, "local", 1)
    return tmp_path


def said(answer: Any) -> str:
    return str(json.loads(answer.body)["message"])


async def test_only_the_calls_of_clients_are_passed_on(directory: Path) -> None:
    behind = Tampering(Network().transport)
    app = make_app(directory, behind.transport)
    for path in ("/", "/croupier.protocol.v1.Shuffler/Attend", "/croupier.protocol.v1.RoundControl/Close", "/../x"):
        assert (await ask(app, path)).status == 404
    cases: list[tuple[dict[str, Any], int]] = [
        ({"method": "GET"}, 405),
        ({"content_type": "application/json"}, 415),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": ""}, 415),
        ({"content_encoding": "gzip"}, 415),
        ({"content_length": ""}, 411),
        ({"content_length": "-1"}, 411),
        ({"content_length": str(MESSAGE_BYTES + 1)}, 413),
        ({"content_length": "9" * 5000}, 413),
        ({"content_length": "0", "body": b"more"}, 413),
        ({"transfer_encoding": "chunked"}, 411),
    ]
    for how, status in cases:
        answer = await ask(app, GET_ROUND, **how)
        assert answer.status == status, how
        assert json.loads(answer.body)["code"] == "invalid_argument"
    assert said(await ask(app, SUBMIT, b"\x12\x00" * 5000)).startswith(f"BAD_REQUEST: {Code.BAD_REQUEST.message}: ")
    preflight = await ask(app, SUBMIT, method="OPTIONS", origin=PAGE, access_control_request_method="POST")
    assert (preflight.status, "access-control-allow-origin" in preflight.headers) == (405, False)
    assert behind.seen == []


async def test_a_body_that_comes_in_pieces_is_not_read_whatever_length_is_said(directory: Path) -> None:
    """Room is made for the length that is said; with "Transfer-Encoding" a body of any length came behind it."""
    async with serving(server := make_gateway(directory, WebAddress())):
        reader, writer = await asyncio.open_connection(*server.socket.getsockname())
        said = ("Host: x", "Content-Type: application/proto", "Content-Length: 0", "Transfer-Encoding: chunked")
        writer.write("\r\n".join((f"POST {SUBMIT} HTTP/1.1", *said, "", "5", "hello", "")).encode())
        # The body has no end, and is not waited for.
        assert await reader.readuntil(b"\r\n") == b"HTTP/1.1 411 Length Required\r\n"
        writer.close()


async def test_one_address_takes_no_more_than_its_share(directory: Path) -> None:
    behind = Tampering(Network().transport)
    all_wait, end = asyncio.Barrier(_SHARE + 2), asyncio.Event()

    async def wait(*_: object) -> bytes:
        await all_wait.wait()
        await end.wait()
        raise Refusal(Code.OVERLOADED, retry_after_s=2.5)

    behind.instead = {"GetRound": wait, "GetResult": wait}
    app = make_app(directory, behind.transport)
    calls = [asyncio.create_task(ask(app, GET_ROUND)) for _ in range(_SHARE)]
    calls += [asyncio.create_task(ask(app, GET_RESULT, peer="2001:db8::1"))]
    await all_wait.wait()
    for peer, status in (("192.0.2.1", 429), ("2001:db8::2", 503), ("192.0.2.2", 503)):  # nothing listens behind it
        assert (await ask(app, SUBMIT, peer=peer)).status == status
    end.set()
    for answer in await asyncio.gather(*calls):
        assert (answer.status, answer.headers["retry-after"], answer.headers["trailer-retry-after-ms"]) == (
            429,
            "2",
            "2500",
        )
        assert json.loads(answer.body)["code"] == "resource_exhausted"


@pytest.mark.virtual_time
async def test_bodies_that_do_not_arrive_hold_no_more_than_their_budget(directory: Path) -> None:
    app = make_app(directory, Tampering(Network().transport).transport)
    large: dict[str, Any] = {"content_length": str(MESSAGE_BYTES), "arrives": asyncio.Event()}
    fit = BUDGET_BYTES // 4 // MESSAGE_BYTES
    silent = [asyncio.create_task(ask(app, SUBMIT, **large)) for _ in range(fit + 1)]
    done, waiting = await asyncio.wait(silent, return_when=asyncio.FIRST_COMPLETED)
    assert done == {silent[0]}  # the oldest makes room
    assert said(silent[0].result()).startswith("OVERLOADED")
    for task in waiting:
        task.cancel()


def stub_at(url: str) -> stubs.ShufflerAsyncStub:
    return stubs.ShufflerStub(cast(grpc.aio.Channel, HttpChannel(url)))


class Elsewhere(BaseHTTPRequestHandler):
    """A server on the way that is not a gateway."""

    def do_POST(self) -> None:
        status = int(self.path.split("/")[1])
        self.send_response(status)
        self.send_header("Location", "/200/x")
        self.send_header("trailer-retry-after-ms", "70")
        self.end_headers()
        self.wfile.write(b"\xff" if status == 200 else b'{"code": "failed_precondition", "message": "ROUND_FULL: x"}')
        if status == 503:
            self.wfile.write(b"<")

    def log_message(self, *_: object) -> None:
        """Says nothing."""


async def test_a_client_makes_of_any_answer_what_grpc_would_have_said() -> None:
    async def status(url: str) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await stub_at(url).GetRound(rpc.GetRoundRequest())
        return failed.value.code(), str(failed.value.details())

    S = grpc.StatusCode
    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert await status(f"{url}/400") == (S.FAILED_PRECONDITION, "ROUND_FULL: x")
        assert await status(f"{url}/503") == (S.UNAVAILABLE, "the gateway answered with HTTP status 503")
        assert (await status(f"{url}/200"))[0] is S.INTERNAL
        assert (await status(f"{url}/307"))[0] is S.FAILED_PRECONDITION  # not followed
        server.shutdown()
    code, why = await status(url)
    assert (code, "refused" in why) == (S.UNAVAILABLE, True)
    with pytest.raises(grpc.aio.AioRpcError, match=naming("gateway")):
        stub_at(url).Attend()
    for wrong in ("gateway.example", "ftp://x", "http://gateway.example", "https://", "https://x/?a=1"):
        with pytest.raises(ValueError, match=naming("gateway")):
            HttpChannel(wrong)
    assert set(HTTP_STATUS) == set(S) - {S.OK}


@pytest.mark.slow
def test_the_command_listens_says_where_and_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "d"
    make_deployment(place, "local", 1)
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / "deployment.toml").write_bytes((place / "deployment.toml").read_bytes())

    # Reproduction: logs of this process went to a closed file from here on, and another test's command said so.
    monkeypatch.setattr("croupier.deploy.gateway.server.log_as_json", lambda _: None)

    def refused(*arguments: str) -> str:
        return " ".join(command("gateway", "--dir", place, *arguments, expect=2).stderr.split())

    assert re.search(naming("0.0.0.0 would"), refused("--listen", "0.0.0.0:0"))
    for origin in ("*", "survey.example", f"{PAGE}/", "https://"):
        assert re.search(naming("https://survey.example"), refused("--allow-origin", origin))
    program = [sys.executable, "-m", "croupier.cli", "gateway", "--json", "--listen", "127.0.0.1:0"]
    with running(*program, "--dir", tmp_path / "public") as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        assert http(f"{url}health")[0] == 503  # no service runs
        assert core_limit(process.pid) == ("0", "0")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


class Silent(BaseHTTPRequestHandler):
    """Serves nothing: a client that does not trust the certificate never asks."""


def test_a_certificate_that_the_system_does_not_trust_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reproduction: it was 'a certificate that is not pinned … do not trust that server', after 30 s."""
    make_deployment(tmp_path / "d", "local", 1)
    make_cluster_keys(tmp_path / "keys")
    certificate, key = certificate_files(tmp_path / "keys", "scheduler")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        serving = Thread(target=server.serve_forever)
        serving.start()
        try:
            at = f"127.0.0.1:{server.server_port}"
            shown = ("survey", "show", "--dir", tmp_path / "d", "--gateway", f"https://{at}")
            said = " ".join(command(*shown, expect=4).stderr.split())
            assert re.search(naming(f"gateway {at}"), said)
            assert re.search(naming("SSL_CERT_FILE"), said)
            assert "pinned" not in said
            # With the authority it is trusted as far as its name, which is what the message then says.
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "keys" / AUTHORITY_FILE))
            assert re.search(naming("'127.0.0.1'"), " ".join(command(*shown, expect=4).stderr.split()))
        finally:
            server.shutdown()
            serving.join()
