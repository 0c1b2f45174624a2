"""Keys change while rounds run: nothing stops, and the results of before stay readable."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import grpc.aio
import pytest

from croupier.client.round_checks import fetch_publication, fetch_signed_result, fetch_terms
from croupier.client.verification import certified_chain
from croupier.net.channels import public_channel
from croupier.operator import storage_key
from croupier.operator.keys import make_deployment
from croupier.operator.operator import Operator
from croupier.operator.overview import overview
from croupier.operator.published_result import kept_result
from croupier.operator.rotation import activate, mark_compromised, rotate
from croupier.operator.storage_key import NEXT_STORAGE_KEY
from croupier.protocol.deployment import DEPLOYMENT_FILE, load_deployment, read_unchecked
from croupier.protocol.errors import Code, Refusal, SignatureError, refusal_of
from croupier.protocol.identity import Identity, public_key_of
from croupier.protocol.names import PrivateKey
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.service_directory import identity_keys, load_secrets, not_pinned
from tests.support import BIT, settings
from tests.support.command_line import croupier
from tests.support.messages import naming
from tests.support.rounds import WAIT_S, people, table

OWN_FILES = ("identity.key", "tls.key", "tls.crt")


@pytest.mark.slow
async def test_every_service_changes_its_keys_while_a_round_runs(tmp_path: Path) -> None:
    """Over TLS: the certificates change, too, on servers and channels that are in use."""
    async with table(tmp_path, 2, over_tls=True) as at:
        directory, old = at.inside.directory, at.deployment
        earlier = await at.operator.open_round(settings())
        await at.submit(earlier, people(BIT, 30, seed=1))
        await at.finish(earlier)
        kept = tmp_path / "earlier.signed"
        async with public_channel(old.analyzer) as channel:
            kept.write_bytes((await fetch_signed_result(channel, earlier.round_id, 5.0)).SerializeToString())
        terms = await at.operator.open_round(settings())
        await at.submit(terms, people(BIT, 30, seed=1))
        for name in old.chain:
            await at.inside.have_noticed(rotate(directory, name))
            deployment = activate(directory, name)
            await at.inside.have_noticed(deployment)
            assert deployment.service(name).identity != old.service(name).identity
            assert at.inside.running[name].service.peers.identity.public_key == deployment.identities[name][0]
        async with Operator(directory) as operator:
            await operator.close_round(terms.round_id)
            publication, certificate = await operator.result(terms.round_id, WAIT_S)
            assert (publication.num_reports, certificate.num_users) == (30, 30)
            # A client with the newest file joins the next round; one with the oldest does not trust the new keys.
            following = await operator.open_round(settings())
            # All that was signed before the change stays valid: rounds, results, what was kept of one.
            seen = await overview(operator, {})
            assert [row["problems"] for row in seen["rounds"]] == [{}, {}, {}]
            assert all(row["terms"] for row in seen["rounds"])
        async with public_channel(deployment.shufflers[0]) as channel:
            assert (await fetch_terms(channel, deployment, following.round_id)).round_id == following.round_id
            with pytest.raises(SignatureError, match="is wrong"):
                await fetch_terms(channel, old, following.round_id)
            fetched = await fetch_terms(channel, deployment, earlier.round_id)
        async with public_channel(deployment.analyzer) as channel:
            await fetch_publication(channel, deployment, terms.round_id, 5.0)
            publication, certificate = await fetch_publication(channel, deployment, earlier.round_id, 5.0)
        assert kept_result(directory, earlier.round_id, kept)[:2] == (publication, certificate)
        assert len(certified_chain(certificate, fetched, deployment)) == 2


@pytest.mark.virtual_time
async def test_a_round_that_waits_for_a_peer_survives_the_change_of_both_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait kept the channel of before: the ledger was charged, and nothing was ever published."""
    async with table(tmp_path, 1) as at:
        directory, chain = at.inside.directory, at.deployment.chain
        terms = await at.operator.open_round(settings())
        await at.submit(terms, people(BIT, 30, seed=1))
        asked = asyncio.Event()

        def away(*_: object) -> NoReturn:
            asked.set()
            raise Refusal(Code.NOT_READY, "away")

        analyzer = at.inside.running["analyzer"].service
        with monkeypatch.context() as patched:
            patched.setattr(analyzer, "read_certificate", away)
            await at.operator.close_round(terms.round_id)
            await asked.wait()
            for name in chain:
                await at.inside.have_noticed(rotate(directory, name))
                await at.inside.have_noticed(activate(directory, name))
        async with at.inside.operator() as operator:
            publication, _ = await operator.result(terms.round_id, WAIT_S)
        assert publication.num_reports == 30


@pytest.mark.slow
async def test_a_connection_of_before_the_change_of_keys_is_told_to_come_again(tmp_path: Path) -> None:
    """It was told that the call is not its own, which is final: a round ended with its keys destroyed."""
    async with table(tmp_path, 1, over_tls=True) as at:
        directory = at.inside.directory
        async with at.peer_channel("analyzer", "accountant") as channel:
            stub, request = stubs.RoundControlStub(channel), rpc.WithdrawRequest(round_id="r")
            for before in (True, False):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await stub.Withdraw(request, timeout=20)
                refusal = refusal_of(refused.value)
                assert refusal is not None
                assert refusal.code is (Code.NOT_YOUR_CALL if before else Code.NOT_READY)
                if before:
                    await at.inside.have_noticed(rotate(directory, "accountant"))
                    await at.inside.have_noticed(activate(directory, "accountant"))


def test_a_retired_identity_stays_listed_with_its_date(tmp_path: Path) -> None:
    before = make_deployment(tmp_path, "local", 1)
    retired = []
    for year in (2026, 2027):
        rotate(tmp_path, "accountant")
        retired.append(load_deployment(tmp_path / DEPLOYMENT_FILE).service("accountant").identity)
        deployment = activate(tmp_path, "accountant", datetime(year, 5, 1, tzinfo=UTC))
    assert deployment == load_deployment(tmp_path / DEPLOYMENT_FILE)
    entry = deployment.service("accountant")
    assert [identity.identity for identity in entry.retired_identities] == retired
    believed = {year: entry.pinned(int(datetime(year, 1, 1, tzinfo=UTC).timestamp())) for year in (2026, 2027, 2028)}
    first, second = map(bytes.fromhex, retired)
    assert [believed[year][first] is None for year in (2026, 2027, 2028)] == [True, False, False]
    assert [believed[year][second] is None for year in (2026, 2027, 2028)] == [True, True, False]
    assert re.search(naming("2026-05-01", "00:00 UTC", "2027-01-01"), str(believed[2027][first]))
    assert "from before" in str(entry.pinned(None)[second])
    assert all(keys[bytes.fromhex(entry.identity)] is None for keys in believed.values())
    assert deployment.service("analyzer") == before.service("analyzer")


def test_the_last_retired_identity_is_marked_as_compromised(tmp_path: Path) -> None:
    make_deployment(tmp_path, "local", 1)
    for year in (2026, 2027):
        rotate(tmp_path, "accountant")
        activate(tmp_path, "accountant", datetime(year, 5, 1, tzinfo=UTC))
    deployment = mark_compromised(tmp_path, "accountant")
    assert deployment == load_deployment(tmp_path / DEPLOYMENT_FILE)
    entry = deployment.service("accountant")
    assert [identity.compromised for identity in entry.retired_identities] == [False, True]
    first, second = (bytes.fromhex(identity.identity) for identity in entry.retired_identities)
    assert entry.pinned(0)[first] is None
    assert "marks as compromised" in str(entry.pinned(0)[second])


def test_steps_out_of_order_are_refused_and_broken_ones_repeated(tmp_path: Path) -> None:
    make_deployment(tmp_path, "local", 1)
    for step, message in ((activate, "no pending keys"), (mark_compromised, "no retired identity")):
        with pytest.raises(ValueError, match=message):
            step(tmp_path, "accountant")
    with pytest.raises(ValueError, match=naming("'nobody'")):
        rotate(tmp_path, "nobody")
    rotate(tmp_path, "accountant")
    with pytest.raises(ValueError, match=naming("activate")):
        rotate(tmp_path, "accountant")
    # A crash after the first file has moved: repeating the step ends in a whole set of new keys.
    own = tmp_path / "accountant"
    (own / "pending-identity.key").replace(own / "identity.key")
    deployment = activate(tmp_path, "accountant")
    secrets = load_secrets(own)
    assert Identity("accountant", secrets.identity_key).public_key == deployment.identities["accountant"][0]
    assert secrets.tls_certificate.decode() == deployment.service("accountant").tls_certificate


@pytest.mark.virtual_time
async def test_files_that_cannot_be_used_change_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with table(tmp_path, 1) as at:
        file = at.inside.directory / DEPLOYMENT_FILE
        good = file.read_text()
        file.write_text("nonsense = [")
        for _ in range(200):
            if "the new files are not used" in caplog.text:
                break
            await asyncio.sleep(0.05)
        assert caplog.text.count("the new files are not used") >= 1
        file.write_text(good)
        terms = await at.operator.open_round(settings())
        await at.submit(terms, people(BIT, 30, seed=1))
        publication, _ = await at.finish(terms)
        assert publication.num_reports == 30


@contextmanager
def pod(cluster: Path, name: str, home: Path) -> Iterator[Path]:
    """Mounts a service's files as its pod has them: a volume that it writes to, all other files read-only.

    Where this process may not mount, a copy is as good: the test looks whether any but the volume's files changes.
    """
    shutil.copytree(cluster, home)
    mounted: list[Path] = []

    def mount(place: Path, how: str) -> None:
        subprocess.run(["mount", "--bind", place, place], check=True, capture_output=True)
        mounted.append(place)
        subprocess.run(["mount", "-o", f"remount,bind,{how}", place], check=True, capture_output=True)

    with suppress(OSError, subprocess.CalledProcessError):
        mount(home, "ro")
        mount(home / name, "rw")
        for file in OWN_FILES:
            mount(home / name / file, "ro")
    try:
        yield home
    finally:
        for place in reversed(mounted):
            subprocess.run(["umount", place], check=True)


def contents(home: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(home)): file.read_bytes()
        for file in home.rglob("*")
        if file.is_file() and not file.name.startswith("pending-")
    }


def test_a_pod_rotates_by_manifests_alone(tmp_path: Path) -> None:
    """Every step ended with an error in a pod, where files are mounted read-only: no key could ever be changed."""
    cluster, name = tmp_path / "cluster", "shuffler-1"
    old = make_deployment(cluster, "local", 1).service(name)
    identities = [old.identity]
    for number, option in enumerate(("", "--activate", "--compromised")):
        with pod(cluster, name, tmp_path / f"pod-{number}") as home:
            before = contents(home)
            step: list[str | Path] = ["rotate", name, *([option] if option else []), "--dir", home, "--kubernetes"]
            first, manifest = (json.loads(croupier(*step).stdout) for _ in range(2))
            named = [set(re.findall(r"\b[0-9a-f]{64}\b", json.dumps(printed))) for printed in (first, manifest)]
            assert (named[0] == named[1]) is bool(option)  # the first step makes new keys each time
            assert contents(home) == before
            for file in (home / name).glob("pending-*"):
                shutil.copy(file, cluster / name)  # the volume stays
        kinds = {item["kind"]: item for item in manifest["items"]}
        assert (kinds["ConfigMap"]["metadata"]["name"], len(kinds)) == ("croupier-proposal", 1 + bool("act" in option))
        (cluster / DEPLOYMENT_FILE).write_text(kinds["ConfigMap"]["data"]["proposal.toml"])
        if "Secret" in kinds:
            assert kinds["Secret"]["metadata"]["name"] == f"{name}-keys"
        for file, content in kinds.get("Secret", {"data": {}})["data"].items():
            (cluster / name / file).write_bytes(base64.b64decode(content))
        entry = load_deployment(cluster / DEPLOYMENT_FILE).service(name)
        assert not_pinned(entry, load_secrets(cluster / name)) is None
        identities.append(entry.identity)
    assert identities[0] == identities[1] != identities[2] == identities[3]
    assert entry.pending_identity is None
    assert [(retired.identity, retired.compromised) for retired in entry.retired_identities] == [(identities[0], True)]


def test_a_pod_with_its_own_keys_prints_a_proposal_for_the_others(tmp_path: Path) -> None:
    """The file that pods read stays as it is until all have signed the next version: they would not start on it."""
    make_deployment(tmp_path / "all", "local", 1)
    home, name = tmp_path / "pod", "analyzer"
    shutil.copytree(tmp_path / "all" / name, home / name)
    shutil.copy(tmp_path / "all" / DEPLOYMENT_FILE, home)
    step = ("rotate", name, "--dir", home, "--kubernetes")
    (proposed,) = json.loads(croupier(*step).stdout)["items"]
    assert proposed["metadata"]["name"] == "croupier-proposal"
    copy = tmp_path / "all" / "from-the-pod.toml"
    copy.write_text(proposed["data"]["proposal.toml"])
    assert read_unchecked(copy).not_signed_by() == ["shuffler-1", "accountant"]
    others = tmp_path / "others"
    others.mkdir()
    shutil.copy(tmp_path / "all" / DEPLOYMENT_FILE, others)
    for other in ("shuffler-1", "accountant"):
        shutil.copytree(tmp_path / "all" / other, others / other)
    before = contents(others)
    copy.write_text(croupier("proposal", "sign", "--yes", copy, "--print", "--dir", others).stdout)
    assert contents(others) == before
    assert load_deployment(copy).service(name).pending_identity


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_a_pod_changes_its_storage_key_by_manifests_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused in a pod, where the service's keys are mounted read-only: its storage key never changed."""
    async with table(tmp_path / "cluster", 1) as at:
        cluster, name = at.inside.directory, "shuffler-1"
        own, safe = cluster / name, cluster / "secrets" / "storage.key"
        safe.parent.mkdir()
        (own / "storage.key").rename(safe)
        with (own / "service.toml").open("a", encoding="utf-8") as own_settings:
            own_settings.write(f'storage_key = "file:../secrets/{safe.name}"\n')
        terms = await at.operator.open_round(settings())
        await at.submit(terms, people(BIT, 30, seed=1))
        await at.inside.have_noticed(rotate(cluster, name))
        await at.inside.stop(name)
        before = load_secrets(own)
        with pod(cluster, name, tmp_path / "pod") as home:
            step = ("rotate", name, "--storage-key", "--dir", home)
            with monkeypatch.context() as patched:
                patched.setattr(storage_key, "replace_secret", read_only)
                said = " ".join(croupier(*step, expect=2).stderr.split())
            assert re.search(naming("--kubernetes", "'kubectl apply'"), said)
            printed = [json.loads(croupier(*step, "--kubernetes").stdout) for _ in range(2)]
            secrets = [
                {item["metadata"]["name"]: item["data"] for item in manifest["items"] if item["kind"] == "Secret"}
                for manifest in printed
            ]
            assert secrets[0][f"{name}-storage-key"] == secrets[1][f"{name}-storage-key"]
            for file in [*(f"{name}/{file}" for file in OWN_FILES), DEPLOYMENT_FILE, f"secrets/{safe.name}"]:
                assert (home / file).read_bytes() == (cluster / file).read_bytes()
            shutil.copytree(home / name, own, dirs_exist_ok=True)  # the volume stays
        keys, (key,) = secrets[1][f"{name}-keys"], secrets[1][f"{name}-storage-key"].items()
        assert (set(keys), key[0]) == (set(OWN_FILES), safe.name)
        for file, content in keys.items():
            (own / file).write_bytes(base64.b64decode(content))
        with pytest.raises(ValueError, match=naming("storage key")):
            load_secrets(own)
        safe.write_bytes(base64.b64decode(key[1]))
        (own / NEXT_STORAGE_KEY).unlink()
        after = load_secrets(own)
        assert after.storage_key != before.storage_key
        assert (after.identity_key, after.tls_key) == (before.identity_key, before.tls_key)
        assert len(identity_keys(own)) == 2  # the pending one opens, too
        await at.inside.start(name)
        publication, _ = await at.finish(terms)
        assert publication.num_reports == 30


def read_only(file: Path, _: str) -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(file))


@pytest.mark.parametrize("number", [errno.EROFS, errno.EBUSY])
def test_a_read_only_mount_is_named_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    make_deployment(tmp_path, "local", 1)
    rotate(tmp_path, "analyzer")

    def refuse(file: Path, target: Path) -> NoReturn:
        raise OSError(number, os.strerror(number), str(target))

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(ValueError, match=naming("read-only", "--kubernetes")):
        activate(tmp_path, "analyzer")


@pytest.mark.slow
async def test_another_operator_takes_over_and_the_former_one_is_shut_out(tmp_path: Path) -> None:
    """Over TLS, because the deployment file pins the operator's certificate."""
    async with table(tmp_path / "all", 1, over_tls=True) as at:
        directory, former, following = at.inside.directory, tmp_path / "former", tmp_path / "following"
        croupier("org", "new", "--role", "operator", "--dir", following)
        shutil.copy(following / "operator.public.toml", directory)
        croupier("proposal", "new", directory / "operator.public.toml", "--dir", directory)
        croupier("proposal", "sign", "--yes", "--hand-over", "operator", "--dir", directory)
        deployment = load_deployment(directory / DEPLOYMENT_FILE)
        assert deployment.version == at.deployment.version + 1
        await at.inside.have_noticed(deployment)
        former.mkdir()
        (directory / "operator").rename(former / "operator")
        for home in (former, following):
            shutil.copy(directory / DEPLOYMENT_FILE, home)
        async with Operator(former) as operator:
            answers = await operator.status()
            assert not [answer for answer in answers if isinstance(answer, rpc.StatusResponse)]
        async with Operator(following) as operator:
            await operator.enrol([public_key_of(PrivateKey(bytes([1]) * 32))])
            terms = await operator.open_round(settings())
            assert terms.shared.deployment == deployment.name
