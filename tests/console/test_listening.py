"""Who may read the page, and where it listens."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import signal
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import Request, urlopen

import pytest
from starlette.responses import PlainTextResponse

from croupier import console
from croupier.console.app import make_app
from croupier.console.guard import Guard, Listening
from croupier.console.server import serve
from croupier.console.source import Source
from croupier.deploy.node.extras import missing_library
from croupier.deploy.page.participants import page_hash
from croupier.operator.keys import make_deployment
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.questions import Question
from croupier.protocol.wordings import Wording
from croupier.runtime.service_directory import load_secrets
from tests.support import settings
from tests.support.command_line import croupier, running
from tests.support.gateways import get
from tests.support.messages import naming
from tests.support.rounds import table

TOKEN = "a token of more than 16 characters"
HERE = Path(console.__file__).parent
FILES = sorted([*HERE.glob("templates/*"), *HERE.glob("static/*")])


async def asked(where: Listening, **headers: str) -> tuple[int, Mapping[str, str]]:
    """Returns status and headers of what a guarded application answers."""
    answer = await get(Guard(PlainTextResponse("inside"), where), "/", **headers)
    return answer.status, answer.headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8780", 200),
        ("localhost:8780", 200),
        ("[::1]:8780", 200),
        ("localhost.elsewhere.example:8780", 421),
        ("192.0.2.1:8780", 421),
        ("[", 421),
        ("", 421),
    ],
)
async def test_on_loopback_a_request_names_this_machine(host: str, status: int) -> None:
    code, headers = await asked(Listening(), host=host)
    assert code == status
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"


async def test_on_loopback_the_participants_page_has_its_own_policy(tmp_path: Path) -> None:
    make_deployment(tmp_path, "local", 1)
    page = await get(make_app(Source(tmp_path), Listening()), "/participate/", host="127.0.0.1:8780")
    assert hashlib.sha256(page.body).hexdigest() == page_hash()
    assert page.headers["content-security-policy"].startswith("default-src 'none'; script-src 'sha256-")
    assert page.headers["cross-origin-resource-policy"] == "same-origin"


async def test_elsewhere_the_token_is_needed() -> None:
    where = Listening("192.0.2.1", 8780, Path("tls.crt"), Path("tls.key"), TOKEN)
    status, headers = await asked(where, host="anything.example")
    assert (status, headers["www-authenticate"].startswith("Basic ")) == (401, True)
    for given in ("", "Basic", "Basic !", f"Basic {basic('not the token')}", f"Bearer {basic(TOKEN)}"):
        assert (await asked(where, authorization=given))[0] == 401
    assert (await asked(where, authorization=f"Basic {basic(TOKEN)}"))[0] == 200


@pytest.mark.parametrize("path", ["//evil.example", "///evil.example", "/\\evil.example", "//evil.example/%22", "/a b"])
async def test_no_address_makes_a_link_to_another_host(path: str, tmp_path: Path) -> None:
    """Reproduction: GET //evil.example gave a page with <a href="//evil.example">try again</a>."""
    make_deployment(tmp_path, "local", 1)
    page = await get(make_app(Source(tmp_path), Listening()), path, host="127.0.0.1:8780")
    assert page.status == 404
    links = re.findall(r'href="([^"]*)"', page.body.decode())
    assert [link for link in links if "evil" in link or "a%20b" in link]
    assert {urlsplit(urljoin("http://127.0.0.1:8780/x", link.replace("\\", "/"))).netloc for link in links} == {
        "127.0.0.1:8780"
    }


def basic(password: str) -> str:
    return base64.b64encode(f"reader:{password}".encode()).decode()


def test_what_is_served_has_nothing_inline_and_nothing_from_elsewhere() -> None:
    assert {"base.html", "console.css", "console.js", "icon.svg"} <= {file.name for file in FILES}
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        assert not re.findall(r"<script(?! src=\"/static)|<style|\sstyle=|\son\w+=|javascript:", text), file
        assert not [url for url in re.findall(r"https?://[^\"' ]+", text) if url != "http://www.w3.org/2000/svg"], file


def test_where_it_cannot_listen_is_said(tmp_path: Path) -> None:
    croupier("keygen", "--dir", tmp_path / "d", "--hops", "1")
    token = tmp_path / "token"
    token.write_text(TOKEN)

    def refused(*arguments: str | Path) -> str:
        return " ".join(croupier("console", "--dir", tmp_path / "d", *arguments, expect=2).stderr.split())

    assert re.search(naming("'8780'"), refused("--listen", "8780"))
    assert re.search(naming("'here'"), refused("--listen", "here:1"))
    assert re.search(naming(70000, "0..65535"), refused("--listen", "127.0.0.1:70000"))
    said = refused("--listen", "0.0.0.0:0")
    assert "others can reach 0.0.0.0: give --token-file, with at least 16 characters, or listen on 127.0.0.1" in said
    said = refused("--listen", "0.0.0.0:0", "--token-file", token)
    assert re.search(naming("0.0.0.0 would", "--tls-certificate", "--tls-key"), said)
    assert "deployment.toml" in refused("--dir", tmp_path / "nothing")
    assert re.search(naming("'croupier[console]'"), missing_library(ImportError(name="starlette.routing")))


@pytest.mark.slow
def test_others_come_with_tls_and_the_token_and_may_not_answer_there(tmp_path: Path) -> None:
    croupier("keygen", "--dir", tmp_path / "d", "--hops", "1")
    own = load_secrets(tmp_path / "d" / "operator")
    (certificate := tmp_path / "tls.crt").write_bytes(own.tls_certificate)
    (key := tmp_path / "tls.key").write_bytes(own.tls_key)
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    command: list[str | Path] = [sys.executable, "-m", "croupier.cli", "console", "--json", "--dir", tmp_path / "d"]
    command += ["--listen", "0.0.0.0:0", "--token-file", token, "--tls-certificate", certificate, "--tls-key", key]
    trusting = ssl.create_default_context(cafile=str(certificate))
    trusting.check_hostname = False
    with running(*command) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"].replace("0.0.0.0", "127.0.0.1")
        with pytest.raises(HTTPError, match="401"):
            urlopen(url, context=trusting)
        known = {"Authorization": f"Basic {basic(TOKEN)}"}
        with urlopen(Request(url, headers=known), context=trusting) as page:
            shown = page.read().decode()
        with pytest.raises(HTTPError, match="404"):
            urlopen(Request(f"{url}participate/", headers=known), context=trusting)
        assert shown.count("UNREACHABLE") == 3  # no service runs, and the page says so
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_the_page_ends_with_work_that_fails_or_is_interrupted(tmp_path: Path) -> None:
    croupier("keygen", "--dir", tmp_path / "d", "--hops", "1")
    shown: list[str] = []

    async def fails() -> None:
        raise ValueError("the file has no column 'age'")

    async def is_interrupted() -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()

    with pytest.raises(ValueError, match=naming("'age'")):
        serve(tmp_path / "d", Listening(), shown.append, work=fails)
    for handler in (signal.default_int_handler, signal.SIG_IGN):
        before = signal.signal(signal.SIGINT, handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                serve(tmp_path / "d", Listening(), shown.append, work=is_interrupted)
        finally:
            signal.signal(signal.SIGINT, before)
    assert [url.startswith("http://127.0.0.1:") for url in shown] == [True] * 3


ASKED = [
    Question("bit", RandomizedResponse(), (Wording("en", "Do you smoke?", "Health", choices=("never", "at times")),)),
    Question("mood", KaryResponse(2, ("a", "b")), (Wording("de", "Wie?", choices=("so", "R und D")),)),
    Question("sleep", OneBit(0.0, 24.0), (Wording("en", "How long?", unit="hours", high="all day"),)),
]


@pytest.mark.virtual_time
async def test_the_web_page_asks_in_the_words_of_the_wording(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at, Source(at.inside.directory, at.inside.transport) as source:
        app = make_app(source, Listening())
        for question in ASKED:
            terms = await at.operator.open_round(settings(question))
            shown = (await get(app, f"/rounds/{terms.round_id}", host="127.0.0.1:8780")).body.decode()
            (wording,) = question.wordings
            assert [text for text in (wording.question, *wording.choices, wording.high) if text not in shown] == []
