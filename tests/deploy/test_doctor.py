"""`croupier doctor` on a healthy deployment and on broken ones: every check fails once, and says what to do."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from croupier.client.round_checks import fetch_terms
from croupier.deploy.directory import read_deployment
from croupier.deploy.gateway.app import make_app
from croupier.deploy.page.participants import page_hash
from croupier.deploy.version_files import write_deployment
from croupier.operator.doctor import CHECKS, CheckResult, check_version, examine
from croupier.operator.keys import make_deployment, write_keys
from croupier.protocol.errors import SignatureError
from croupier.protocol.names import StorageKey
from croupier.runtime.clock import Clock, SystemClock
from tests.support import InProcess, in_memory, in_process, settings, sign_again
from tests.support.command_line import answer, croupier
from tests.support.gateways import URL, reached_at
from tests.support.messages import naming

DAY_S = 86400.0
EVERYWHERE = {"certificate", "names", "key files", "own files", "reaches", "port", "version", "disk", "clock"}
EVERYWHERE |= {"deployment file"}


REFERENCE = Path(__file__).parents[2] / "docs" / "operations-reference.md"


def test_every_check_is_described() -> None:
    (section,) = re.findall(r"^## Examine\n(.*?)^## ", REFERENCE.read_text(), re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| ([a-z, ]+) \| ", section, re.MULTILINE)
    described = {name for row in rows for name in row.split(", ")} - {"check"}
    assert described == EVERYWHERE | {"public port", "keys apart", "gateway", "page", "noise limit"}


def test_a_check_that_the_reference_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match=naming("speed", *CHECKS)):
        CheckResult("speed", "shuffler-1", True, "fast")


@dataclass
class Shifted:
    """A clock that is wrong."""

    clock: Clock
    by_s: float

    def now(self) -> float:
        return self.clock.now() + self.by_s


async def wrong(inside: InProcess, directory: Path | None = None, clock: Clock | None = None) -> list[CheckResult]:
    findings = await examine(directory or inside.directory, inside.transport, clock or inside.clock)
    for finding in findings:
        assert bool(finding.remedy) != finding.is_well, finding
    # Tests edit the file of one reader; that services go by another one, a test of its own says.
    return [finding for finding in findings if not finding.is_well and finding.check != "deployment file"]


def alike(findings: list[CheckResult]) -> set[tuple[str, str]]:
    return {(finding.check, finding.service) for finding in findings}


@asynccontextmanager
async def healthy(tmp_path: Path) -> AsyncIterator[InProcess]:
    async with in_memory(tmp_path / "d", 2, clock=SystemClock()) as inside:  # certificates are of today
        assert await wrong(inside) == []
        yield inside


def change(directory: Path, keys: Path, service: str, **values: object) -> None:
    """Edits the deployment file of one reader, for all to sign; the services go on with what they have read."""
    deployment = read_deployment(directory)
    entries = tuple(
        entry.model_copy(update=values) if entry.name == service else entry for entry in deployment.services
    )
    write_deployment(directory, deployment.model_copy(update={"services": entries}))
    sign_again(directory, keys)


@pytest.mark.virtual_time
async def test_a_healthy_deployment_passes_every_check(tmp_path: Path) -> None:
    async with healthy(tmp_path) as inside:
        findings = await examine(inside.directory, inside.transport, inside.clock)
        checks = {(finding.check, finding.service) for finding in findings}
        for service in ("shuffler-1", "shuffler-2", "accountant", "analyzer"):
            assert {check for check, owner in checks if owner == service} - {"public port", "noise limit"} == EVERYWHERE
        assert {owner for check, owner in checks if check == "noise limit"} == {"shuffler-1", "shuffler-2"}
        assert {owner for check, owner in checks if check == "public port"} == {"shuffler-1", "accountant", "analyzer"}
        assert {check for check, owner in checks if owner == "operator"} == {"certificate", "key files", "clock"}
        reached = {(finding.service, finding.says.split()[0]) for finding in findings if finding.check == "reaches"}
        assert ("shuffler-2", "analyzer") in reached
        assert ("shuffler-2", "shuffler-1") not in reached


@pytest.mark.virtual_time
async def test_what_services_answer_is_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with healthy(tmp_path) as inside:
        good = inside.clock
        await inside.stop("accountant")
        inside.clock = Shifted(good, 90.0)
        await inside.start("accountant")
        inside.clock = good
        (late,) = await wrong(inside)
        assert (late.check, late.service, late.says) == ("clock", "accountant", "90.0 s ahead of the others")
        assert "NTP" in late.remedy
        own = [finding for finding in await wrong(inside, clock=Shifted(good, -400.0)) if finding.service == "operator"]
        assert [(finding.check, finding.says) for finding in own] == [("clock", "400.0 s behind the others")]

        inside.running["analyzer"].store.free_bytes = lambda: 10 * 2**20  # type: ignore[method-assign]
        assert alike(await wrong(inside)) == {("clock", "accountant"), ("disk", "analyzer")}

        await inside.running["shuffler-2"].readiness.stop()
        unready = {("port", "shuffler-2"), ("reaches", "shuffler-1")}
        assert alike(await wrong(inside)) >= unready
        assert any(finding.says.endswith("and is not ready") for finding in await wrong(inside))

        await inside.stop("accountant", "analyzer")
        findings = {(finding.check, finding.service): finding for finding in await wrong(inside)}
        assert {("port", "analyzer"), ("public port", "analyzer"), ("reaches", "shuffler-2")} <= set(findings)
        assert "does not answer" in findings["port", "analyzer"].says
        assert "croupier@analyzer" in findings["port", "analyzer"].remedy
        assert "'croupier up'" in findings["port", "analyzer"].remedy  # it is on loopback

        monkeypatch.setattr("croupier.operator.doctor.version", lambda _: "9.9")
        versions = [finding for finding in await wrong(inside) if finding.check == "version"]
        assert {finding.service for finding in versions} == {"shuffler-1", "shuffler-2"}
        assert all(finding.says.endswith("and 9.9 here") for finding in versions)


@pytest.mark.virtual_time
async def test_files_are_examined(tmp_path: Path) -> None:
    async with healthy(tmp_path) as inside:
        here = tmp_path / "here"
        shutil.copytree(inside.directory, here)

        (here / "analyzer" / "identity.key").chmod(0o644)
        (open_file,) = await wrong(inside, here)
        assert (open_file.check, open_file.service) == ("key files", "analyzer")
        assert "identity.key (mode 0644)" in open_file.says
        assert open_file.remedy.startswith(f"chmod 600 {here / 'analyzer' / 'identity.key'}")
        (here / "analyzer" / "identity.key").chmod(0o440)  # a container's group
        assert await wrong(inside, here) == []

        (here / "shuffler-1" / "storage.key").write_text("00" * 32)
        (shut,) = await wrong(inside, here)
        assert (shut.check, shut.service) == ("own files", "shuffler-1")
        assert "storage key" in shut.says
        shutil.rmtree(here / "shuffler-1")

        change(here, inside.directory, "analyzer", public_address="analyzer.example:7101")
        (moved,) = await wrong(inside, here)
        assert (moved.check, moved.service) == ("public port", "analyzer")

        deployment = read_deployment(here)
        change(here, inside.directory, "analyzer", tls_certificate=deployment.accountant.tls_certificate)
        findings = {(finding.check, finding.service): finding for finding in await wrong(inside, here)}
        assert findings["names", "analyzer"].says == "is for accountant, and not analyzer, 127.0.0.1, analyzer.example"
        assert "rotate analyzer" in findings["names", "analyzer"].remedy
        assert re.search(naming("tls.crt", "deployment.toml"), findings["own files", "analyzer"].says)

        for days, says in ((810, "expires on"), (900, "expired on"), (-3, "is not valid before")):
            clock = Shifted(inside.clock, 0.0)
            clock.by_s = _made(deployment.operator_tls_certificate) + days * DAY_S - inside.clock.now()
            late = [finding for finding in await wrong(inside, here, clock) if finding.check == "certificate"]
            assert len(late) == 5
            assert all(finding.says.startswith(says) for finding in late)


@pytest.mark.virtual_time
async def test_a_gateway_that_the_deployment_names_is_called_as_a_client_does(tmp_path: Path) -> None:
    async with healthy(tmp_path) as inside:
        assert "gateway" not in {
            finding.check for finding in await examine(inside.directory, inside.transport, inside.clock)
        }
        deployment = read_deployment(inside.directory)
        named = deployment.model_copy(update={"gateway": URL})
        write_deployment(inside.directory, named)
        sign_again(inside.directory)
        with reached_at(make_app(inside.directory, inside.transport)):
            findings = await examine(inside.directory, inside.transport, inside.clock)
            assert [finding.says for finding in findings if finding.service == "gateway"] == [
                f"{URL} passes a client's call on",
                f"{URL}/participate/ is the page that all services have signed",
            ]
            async with inside.operator() as operator:
                await operator.open_round(settings())
            assert await wrong(inside) == []
            write_deployment(inside.directory, named.model_copy(update={"participant_pages": ("ab" * 32,)}))
            sign_again(inside.directory)
            (changed,) = await wrong(inside)
            assert (changed.check, changed.service) == ("page", "gateway")
            assert page_hash() in changed.says
            write_deployment(inside.directory, named)
            sign_again(inside.directory)
            other = make_deployment(tmp_path / "other", "local", 1)
            write_deployment(tmp_path / "other", other.model_copy(update={"gateway": URL}))
            sign_again(tmp_path / "other")
            findings = await examine(tmp_path / "other", inside.transport, inside.clock)
            (strange,) = [finding for finding in findings if finding.check == "gateway"]
            assert re.search(naming(f"{URL} shows"), strange.says)
            await inside.stop("shuffler-1")
            (cut_off,) = [finding for finding in await wrong(inside) if finding.check == "gateway"]
            assert "out of reach" in cut_off.says
            assert "machine" in cut_off.remedy
            await inside.start("shuffler-1")
        write_deployment(inside.directory, deployment.model_copy(update={"gateway": "http://127.0.0.1:1"}))
        sign_again(inside.directory)
        (down,) = await wrong(inside)
        assert (down.check, down.says) == ("gateway", "http://127.0.0.1:1 does not answer (connection refused)")
        assert "croupier-gateway" in down.remedy


def _made(certificate: str) -> float:
    from cryptography import x509

    return x509.load_pem_x509_certificate(certificate.encode()).not_valid_before_utc.timestamp() + DAY_S


async def test_the_command_says_what_is_wrong_and_ends_with_1(tmp_path: Path) -> None:
    """Over TLS, where a certificate that is not pinned is told from a service that is down."""
    place, other = tmp_path / "d", tmp_path / "other"
    async with in_process(place, 1):
        said = await asyncio.to_thread(partial(croupier, "doctor", "--dir", place))
        assert said.stdout.rstrip().endswith("checks passed")
        assert max(map(len, said.stdout.splitlines())) <= 80
        shutil.copytree(place, other)
        _, certificate = write_keys(tmp_path / "new", "analyzer", StorageKey(bytes(32)))
        change(other, place, "analyzer", tls_certificate=certificate)
        findings = await asyncio.to_thread(partial(answer, "doctor", "--dir", other, expect=1))
        assert findings["ok"] is False
        bad = {
            (finding["check"], finding["service"]): finding for finding in findings["checks"] if not finding["is_well"]
        }
        assert set(bad) == {
            ("own files", "analyzer"),
            ("port", "analyzer"),
            ("public port", "analyzer"),
            ("reaches", "shuffler-1"),
            ("reaches", "accountant"),
            ("deployment file", "shuffler-1"),
            ("deployment file", "accountant"),
        }
        assert bad["port", "analyzer"]["says"].endswith("shows a certificate that is not pinned")
        assert "newest deployment.toml" in bad["port", "analyzer"]["remedy"]
        said = await asyncio.to_thread(partial(croupier, "doctor", "--dir", other, expect=1))
        assert said.stdout.startswith("WRONG  ")
        assert "    →  bring the newest deployment.toml here" in said.stdout


def test_without_a_deployment_there_is_nothing_to_examine(tmp_path: Path) -> None:
    assert "deployment.toml does not exist" in croupier("doctor", "--dir", tmp_path, expect=2).stderr


@pytest.mark.parametrize(
    ("theirs", "minimum", "is_well"),
    [("0.1.0", "", True), ("0.1.0", "0.1", True), ("0.1.0", "0.2.0", False), ("", "0.1.0", False)],
)
def test_a_service_older_than_the_deployments_minimum_is_named(theirs: str, minimum: str, is_well: bool) -> None:
    checked = check_version("shuffler-1", theirs, "0.1.0", minimum)
    assert checked.is_well is is_well
    assert is_well or minimum in checked.says


@pytest.mark.virtual_time
async def test_two_files_with_one_number_are_noticed_by_doctor_and_clients(tmp_path: Path) -> None:
    """Reproduction: with two complete versions of one number, nobody noticed that services go by the other one."""
    async with healthy(tmp_path) as inside:
        async with inside.operator() as operator, operator.client_channel() as channel:
            terms = await operator.open_round(settings())
            assert (await fetch_terms(channel, operator.deployment, terms.round_id)).hash == terms.hash
            deployment = read_deployment(inside.directory)
            write_deployment(inside.directory, deployment.model_copy(update={"minimum_version": "0.0.1"}))
            other = sign_again(inside.directory)
            with pytest.raises(SignatureError, match=naming("version 1", deployment.fingerprint.hex()[:16])):
                await fetch_terms(channel, other, terms.round_id)
            # One with another number is followed, or its signatures tell.
            newer = other.model_copy(update={"version": 2})
            assert (await fetch_terms(channel, newer, terms.round_id)).hash == terms.hash
        findings = await examine(inside.directory, inside.transport, inside.clock)
        compared = [finding for finding in findings if finding.check == "deployment file"]
        assert [finding.is_well for finding in compared] == [False] * 4
        assert all("two files with one number" in finding.remedy for finding in compared)
