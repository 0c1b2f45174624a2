"""Experiments on a Dask cluster: a scheduler and a worker as processes, with certificates made for the test."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID

from tests.deploy.test_messages import refused
from tests.support.command_line import answer, as_process

pytestmark = pytest.mark.processes


def make_certificate(directory: Path) -> list[str | Path]:
    """Writes a certificate that is its own authority, for all sides, and returns the options that name it."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cluster")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    certificate = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pem = serialization.Encoding.PEM
    (directory / "cluster.pem").write_bytes(certificate.sign(key, SHA256()).public_bytes(pem))
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (directory / "cluster-key.pem").write_bytes(key.private_bytes(pem, form, plain))
    file = directory / "cluster.pem"
    return ["--tls-ca", file, "--tls-cert", file, "--tls-key", directory / "cluster-key.pem"]


@contextmanager
def process(room: str, *arguments: str, until: str) -> Iterator[str]:
    """Runs a process of Dask, and yields the line with which it is ready."""
    command = [sys.executable, "-m", f"distributed.cli.dask_{room}", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as child:
        assert child.stderr is not None
        try:
            yield next(line for line in child.stderr if until in line)
        finally:
            child.terminate()
            child.stderr.close()


def test_points_are_measured_on_a_cluster(tmp_path: Path) -> None:
    tls = make_certificate(tmp_path)
    files = [str(option).replace("--tls-ca", "--tls-ca-file") for option in tls]
    with ExitStack() as stack:
        started = stack.enter_context(
            process(
                "scheduler",
                *files,
                "--protocol",
                "tls",
                "--host",
                "127.0.0.1",
                "--port",
                "0",
                "--no-dashboard",
                until="Scheduler at:",
            )
        )
        address = started.split()[-1]
        worker = (
            "--nworkers",
            "1",
            "--nthreads",
            "1",
            "--no-dashboard",
            "--no-nanny",
            "--local-directory",
            str(tmp_path),
        )
        stack.enter_context(process("worker", *files, *worker, address, until="Registered to:"))
        run = ("experiment", "run", "krr-table1", "--quick", "--scheduler", address, *tls)
        there = answer(*run, "--out", tmp_path / "there", run=as_process)
    here = answer("experiment", "run", "krr-table1", "--quick", "--jobs", "1", "--out", tmp_path / "here")
    assert there == here
    kept = {room: sorted(one.name for one in (tmp_path / room / "points").iterdir()) for room in ("there", "here")}
    assert kept["there"] == kept["here"]


def test_a_cluster_without_certificates_is_refused(tmp_path: Path) -> None:
    run = ("experiment", "run", "krr-table1", "--quick", "--out", tmp_path)
    assert "must be tls://HOST:PORT" in refused(*run, "--scheduler", "tcp://127.0.0.1:8786")
    assert "does not exist" in refused(*run, "--scheduler", "tls://127.0.0.1:8786", "--tls-ca", tmp_path / "ca.pem")
