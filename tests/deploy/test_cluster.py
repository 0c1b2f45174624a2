"""Work on a Dask cluster: rounds and experiments, and what becomes of them where a worker or the scheduler is lost.

Processes are needed: what is shown is that certificates are asked for, that keys and answers arrive as they were, and
that a worker that is killed takes nothing with it.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from croupier.operator.keys import make_cluster_keys
from croupier.protocol.errors import Code, Refusal
from croupier.runtime.cluster import Cluster
from research.bench.cluster import envelopes_of, open_on
from research.bench.local_cluster import LocalCluster, local_cluster
from tests.deploy.cluster_work import records_unless_first, refuse, wait_until
from tests.support import BIT, settings
from tests.support.command_line import answer, as_process, refused
from tests.support.core_files import core_limit
from tests.support.messages import naming
from tests.support.rounds import WAIT_S, people, table

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("processes")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("cluster") / "certificates", workers=2) as running:
        yield running


def appears(file: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while not file.exists():
        assert time.monotonic() < deadline, file
        time.sleep(0.02)


def who_did_work(place: Path) -> set[int]:
    """Which processes have opened something."""
    return {int(file.name) for file in place.iterdir() if file.name.isdigit()}


@pytest.mark.slow
async def test_a_worker_that_is_killed_while_it_opens_costs_no_report(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croupier.runtime.lane_opener.records_of", partial(records_unless_first, tmp_path))

    def settings_of(name: str) -> str:
        shutil.copytree(cluster.certificates, tmp_path / "deployment" / name / "cluster")
        return f'scheduler = "{cluster.address}"\n'

    async with table(tmp_path, 2, settings_of=settings_of) as laid:
        terms = await laid.operator.open_round(settings())
        report = await laid.submit(terms, people(BIT, 40, seed=1))
        await asyncio.to_thread(appears, tmp_path / "victim")
        victim = int((tmp_path / "victim").read_text())
        os.kill(victim, signal.SIGKILL)
        publication, certificate = await laid.finish(terms)
    assert report.accepted == publication.num_reports == certificate.num_users == 40
    assert certificate.granted
    assert certificate.dishonest == 0
    assert os.getpid() not in who_did_work(tmp_path)
    assert who_did_work(tmp_path) > {victim}


@pytest.mark.slow
def test_points_are_measured_on_a_cluster(cluster: LocalCluster, tmp_path: Path) -> None:
    names = {"ca": "ca", "cert": "client", "key": "client-key"}
    tls = [word for option, name in names.items() for word in (f"--tls-{option}", cluster.certificates / f"{name}.pem")]
    run = ("experiment", "run", "krr-table1", "--quick")
    there = answer(*run, "--scheduler", cluster.address, *tls, "--out", tmp_path / "there", run=as_process)
    here = answer(*run, "--jobs", "1", "--out", tmp_path / "here")
    assert there == here
    kept = {room: sorted(file.name for file in (tmp_path / room / "points").iterdir()) for room in ("there", "here")}
    assert kept["there"] == kept["here"]


@pytest.mark.slow
def test_what_an_envelope_costs_is_measured_where_it_is_spent(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("research.bench.cluster.EMPTY_JOBS", 20)
    work, envelopes = envelopes_of(1500)
    costs = asyncio.run(open_on(cluster, work, envelopes))
    own = costs["items_per_s"], costs["workers_cpu_s_per_item"], costs["own_cpu_s_per_item"], costs["own_cpu_s_per_job"]
    assert min(own) > 0  # the scheduler's CPU time has steps of 10 ms
    assert costs["workers_cpu_s_per_item"] > costs["own_cpu_s_per_item"]
    assert re.search(naming("least 1"), refused("research", "bench-cluster", "--workers", "2,0"))
    assert "at least 1000" in refused("research", "bench-cluster", "--items", "10")
    assert "whole numbers" in refused("research", "bench-cluster", "--workers", "many")


@pytest.mark.slow
def test_no_process_of_a_cluster_may_leave_a_core_file(cluster: LocalCluster) -> None:
    with Cluster.of(cluster.address, cluster.certificates).executor() as executor:
        worker = executor.submit(resource.getrlimit, resource.RLIMIT_CORE).result(WAIT_S)
    assert worker == (0, 0)
    assert core_limit(cluster.scheduler_pid) == ("0", "0")


@pytest.mark.slow
def test_a_scheduler_takes_no_strangers_and_is_named_when_it_is_lost(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Cluster.of(cluster.address, cluster.certificates)
    with there.executor() as executor, there.executor() as idle:
        assert executor.submit(len, b"abc").result(WAIT_S) == idle.submit(len, b"abc").result(WAIT_S) == 3
        with pytest.raises(ZeroDivisionError):
            executor.submit(divmod, 1, 0).result(WAIT_S)
        with pytest.raises(Refusal) as own:
            executor.submit(refuse, "a batch").result(WAIT_S)
        assert (own.value.code, own.value.hint) == (Code.BAD_BATCH, "a batch")
        make_cluster_keys(tmp_path / "other")
        with (
            Cluster.of(cluster.address, tmp_path / "other").executor() as stranger,
            pytest.raises(Refusal, match=naming(Code.CLUSTER_FAILED.message, "TLS certificate")),
        ):
            stranger.submit(len, b"abc").result(WAIT_S)
        waiting = executor.submit(wait_until, tmp_path / "released")
        appears(tmp_path / "released.waits")
        monkeypatch.setattr("croupier.runtime.cluster.PATIENCE_S", 0.5)
        os.kill(cluster.scheduler_pid, signal.SIGKILL)  # the last test that needs it
        with pytest.raises(Refusal, match=Code.CLUSTER_FAILED.message) as lost:
            waiting.result(WAIT_S)
        assert lost.value.code is Code.CLUSTER_FAILED
        assert lost.value.code.may_pass
        with pytest.raises(Refusal, match=Code.CLUSTER_FAILED.message):
            executor.submit(len, b"abc").result(WAIT_S)
        with pytest.raises(Refusal, match=Code.CLUSTER_FAILED.message):  # it may not have noticed yet
            idle.submit(len, b"abc").result(WAIT_S)
        (tmp_path / "released").touch()


@pytest.mark.slow
def test_a_cluster_without_certificates_is_refused(tmp_path: Path) -> None:
    run = ("experiment", "run", "krr-table1", "--quick", "--out", tmp_path)
    assert "must be tls://HOST:PORT" in refused(*run, "--scheduler", "tcp://127.0.0.1:8786")
    assert "does not exist" in refused(*run, "--scheduler", "tls://127.0.0.1:8786", "--tls-ca", tmp_path / "ca.pem")
