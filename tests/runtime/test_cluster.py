"""Work as it travels to a cluster, and what is said where a cluster cannot be used; no cluster is needed for that."""

from __future__ import annotations

import asyncio
import gc
import pickle
import re
import socket
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import dask
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA256

from croupier.deploy.node.cluster import run_scheduler, run_workers
from croupier.deploy.node.extras import missing_library
from croupier.operator.keys import make_cluster_keys
from croupier.operator.operator import Operator
from croupier.protocol.names import RoundId
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.cluster import KEPT_IN_MEMORY, Cluster, Job, Sources
from tests.support import BIT, settings
from tests.support.messages import naming
from tests.support.rounds import WAIT_S, people, table

KEY = b"a round's private key, 32 bytes."
SOURCES = Sources()
IN_MEMORY: dict[str, Any] = dict.fromkeys(KEPT_IN_MEMORY, False)


def fails(key: bytes) -> None:
    raise ValueError("does not open")


def test_neither_a_call_nor_its_error_shows_what_it_was_called_with() -> None:
    """Dask logs the task that has failed, arguments and all; so no task fails, and none shows its arguments."""
    job = pickle.loads(pickle.dumps(Job.of(SOURCES, fails, (KEY,))))
    assert repr(job) == str(job) == "<work of croupier>"
    with dask.config.set(IN_MEMORY):
        answer = job()
    assert isinstance(answer.error, ValueError)
    assert KEY.decode() not in repr(answer)


def test_a_worker_with_other_code_or_that_writes_to_disk_does_nothing(tmp_path: Path) -> None:
    job = Job.of(SOURCES, Path.touch, (tmp_path / "done",))
    with dask.config.set(IN_MEMORY):
        assert "another version" in replace(job, digest="0" * 64)().refusal
        for setting in KEPT_IN_MEMORY:
            with dask.config.set({setting: 0.6}):
                assert "write to its disk" in job().refusal
        assert not (tmp_path / "done").exists()
        assert job() == (None, None, "")
    assert (tmp_path / "done").exists()


def test_the_digest_is_of_all_sources_and_libraries() -> None:
    assert Sources().digest() == Sources().digest()
    assert Sources().digest() != Sources(libraries=("cryptography",)).digest()
    assert Sources().digest() != Sources(packages=("croupier.protocol",)).digest()


def test_certificates_of_a_cluster_are_leaves_of_an_authority_of_its_own(tmp_path: Path) -> None:
    files = make_cluster_keys(tmp_path / "c")
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert b"PRIVATE" not in (tmp_path / "c" / "ca.pem").read_bytes()
    authority, *others = [
        x509.load_pem_x509_certificate((tmp_path / "c" / f"{name}.pem").read_bytes())
        for name in ("ca", "client", "scheduler", "worker")
    ]
    signer = authority.public_key()
    assert isinstance(signer, EllipticCurvePublicKey)
    for certificate in others:
        signer.verify(certificate.signature, certificate.tbs_certificate_bytes, ECDSA(SHA256()))
        assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    with pytest.raises(ValueError, match="exists"):
        make_cluster_keys(tmp_path / "c")


def test_what_cannot_be_used_is_named_before_anything_is_started(tmp_path: Path) -> None:
    make_cluster_keys(tmp_path)
    for address in ("tcp://127.0.0.1:1", "tls://127.0.0.1", "tls://127.0.0.1:0", "tls://127.0.0.1:65536"):
        for use in (partial(run_workers, address, tmp_path, 1, None), partial(Cluster.of, address, tmp_path)):
            with pytest.raises(ValueError, match=naming("scheduler", "tls://HOST:PORT")):
                use()
    with pytest.raises(ValueError, match="at least 1"):
        run_workers("tls://127.0.0.1:1", tmp_path, 0, None)
    with pytest.raises(ValueError, match="must be HOST:PORT"):
        run_scheduler(tmp_path, "8786")
    with pytest.raises(ValueError, match=naming("0..65535")):
        run_scheduler(tmp_path, "127.0.0.1:99999")
    for run in (
        lambda: run_scheduler(tmp_path / "none", "127.0.0.1:0"),
        lambda: Cluster.of("tls://h:1", tmp_path / "n"),
    ):
        with pytest.raises(ValueError, match=naming("'croupier keygen --cluster'")):
            run()


def test_an_executor_takes_nothing_after_it_is_shut_down(tmp_path: Path) -> None:
    make_cluster_keys(tmp_path)
    executor = Cluster.of("tls://127.0.0.1:1", tmp_path).executor()
    waiting = executor.submit(len, b"")
    executor.shutdown(cancel_futures=True)
    executor.shutdown()
    assert waiting.cancelled()
    with pytest.raises(RuntimeError, match=naming("shut down")):
        executor.submit(len, b"")


def test_a_connection_that_is_given_up_is_closed(tmp_path: Path) -> None:
    """An open connection warns when it is collected, and pytest makes an error of that."""
    make_cluster_keys(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as scheduler:
        executor = Cluster.of(f"tls://127.0.0.1:{scheduler.getsockname()[1]}", tmp_path).executor()
        waiting = executor.submit(len, b"")
        silent, _ = scheduler.accept()  # it shakes no hands
        with silent:
            waiting.cancel()
            executor.shutdown()
    assert waiting.cancelled()
    del executor, waiting
    gc.collect()


def test_without_the_extra_its_name_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_cluster_keys(tmp_path)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError) as missing:
        Cluster.of("tls://127.0.0.1:1", tmp_path).executor()
    assert re.search(naming("'croupier[cluster]'"), missing_library(missing.value))


def test_a_service_without_a_cluster_does_not_load_it() -> None:
    program = (
        "import sys, croupier.deploy.node.serve, croupier.shuffler.service; "
        "print({'dask', 'distributed'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


async def test_while_its_cluster_is_away_a_service_admits_and_its_round_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croupier.runtime.cluster.PATIENCE_S", 0.05)

    def settings_of(name: str) -> str:
        make_cluster_keys(tmp_path / "deployment" / name / "cluster")
        return 'scheduler = "tls://127.0.0.1:1"\n' if name == "shuffler-1" else ""

    async with table(tmp_path, 1, settings_of=settings_of) as laid:
        terms = await laid.operator.open_round(settings())
        report = await laid.submit(terms, people(BIT, 20, seed=1))
        assert report.accepted == 20
        await laid.operator.close_round(terms.round_id)
        said = ""
        async with asyncio.timeout(WAIT_S):
            while "tls://127.0.0.1:1 is out of reach" not in said:
                await asyncio.sleep(0.02)
                said = await problem(laid.operator, terms.round_id)


async def problem(operator: Operator, round_id: str) -> str:
    """What hop 1 says of a round."""
    answers = [answer for answer in await operator.status(RoundId(round_id)) if isinstance(answer, rpc.StatusResponse)]
    return next(answer.rounds[0].problem for answer in answers if answer.service == "shuffler-1")
