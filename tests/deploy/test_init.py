"""`croupier init`: what lies where, who gets whose keys, and a round on what it has written."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from croupier.client.outbox import Outbox
from croupier.deploy.directory import read_deployment
from croupier.deploy.local.users import Fleet
from croupier.deploy.render.layout import Layout, Place, called_by
from croupier.operator.doctor import examine
from croupier.operator.init import initialise
from croupier.operator.keys import free_addresses
from croupier.operator.organisations import shared
from croupier.runtime.service_directory import load_settings
from tests.support import BIT, InProcess, Threads, settings
from tests.support.command_line import answer, croupier
from tests.support.in_memory import Network
from tests.support.messages import naming
from tests.support.rounds import people

SHUFFLERS = ("--shuffler", "a.example", "--shuffler", "10.0.0.2")
HOSTS = (*SHUFFLERS, "--accountant", "10.0.0.3,c.example", "--analyzer", "d.example")
MACHINES = {"a.example": "shuffler-1", "10.0.0.2": "shuffler-2", "10.0.0.3": "accountant", "d.example": "analyzer"}


@pytest.mark.parametrize("run_with", ["systemd", "compose"])
def test_every_machine_gets_its_own_keys_and_no_other(run_with: str, tmp_path: Path) -> None:
    place = tmp_path / "clinic"
    said = answer("init", "--dir", place, "--name", "clinic", "--run-with", run_with, *HOSTS)
    assert said["machines"] == {str(place / "machines" / host): [name] for host, name in MACHINES.items()}
    deployment = read_deployment(place)
    private = {}
    for host, name in MACHINES.items():
        machine = place / "machines" / host
        assert read_deployment(machine / name) == deployment
        files = {str(file.relative_to(machine)) for file in machine.rglob("*") if file.is_file()}
        keys = {f"{name}/{name}/{file}" for file in ("identity.key", "tls.key", "tls.crt")}
        started = "croupier@.service" if run_with == "systemd" else "compose.yaml"
        storage_key = f"storage-keys/{name}.storage-key"
        assert files == keys | {f"{name}/deployment.toml", f"{name}/{name}/service.toml", storage_key, started}
        for file in [*keys, storage_key]:
            assert (machine / file).stat().st_mode & 0o077 == 0
            private[host, file] = (machine / file).read_text()
        entry = deployment.service(name)
        certificate = x509.load_pem_x509_certificate(entry.tls_certificate.encode())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert {str(name.value) for name in names} == {name, *entry.hosts}
        asked = load_settings(machine / name / name)
        assert asked.listen == "0.0.0.0:7100"
        assert asked.insecure_admin_anywhere == (run_with == "compose")
    assert len(set(private.values())) == len(private)
    assert deployment.service("shuffler-2").address == "10.0.0.2:7100"
    assert deployment.accountant.public_address == "c.example:7101"
    assert {file.name for file in (place / "operator").iterdir()} == {
        "identity.key",
        "storage.key",
        "tls.key",
        "tls.crt",
    }
    assert "exists; choose another directory" in croupier("init", "--dir", place, *HOSTS, expect=2).stderr


def test_what_is_to_be_copied_is_there(tmp_path: Path) -> None:
    """The commands of the page are read: every file that they take exists, and where the unit and the settings look."""
    for run_with in ("systemd", "compose"):
        place = tmp_path / run_with
        croupier("init", "--dir", place, "--run-with", run_with, *HOSTS)
        page = (place / "NEXT.md").read_text()
        for host, name in MACHINES.items():
            (block,) = re.findall(rf"## {host}: {name}\n.*?```sh\n(.*?)```", page, re.DOTALL)
            copy, *steps = [shlex.split(line, comments=True) for line in block.splitlines()]
            assert copy == ["scp", "-r", f"machines/{host}", f"{host}:croupier-files"]
            machine = place / copy[2]
            for command in steps:
                for word in command:
                    if word.startswith((name, "storage-keys", "croupier@.")) and "*" not in word:
                        assert (machine / word).exists(), command
            assert list(machine.glob("storage-keys/*"))
    unit = (tmp_path / "systemd" / "machines" / "a.example" / "croupier@.service").read_text()
    assert "LoadCredential=storage-key:/etc/croupier/%i.storage-key" in unit
    assert "/etc/croupier/shuffler-1.storage-key" in (tmp_path / "systemd" / "NEXT.md").read_text()
    compose = yaml.safe_load((tmp_path / "compose" / "machines" / "a.example" / "compose.yaml").read_text())
    assert set(compose["services"]) == {"shuffler-1"}
    machine = tmp_path / "compose" / "machines" / "a.example"
    assert (machine / compose["services"]["shuffler-1"]["volumes"][0]["source"] / "deployment.toml").exists()
    assert (machine / compose["secrets"]["shuffler-1-storage-key"]["file"]).exists()


@pytest.mark.parametrize("run_with", ["systemd", "compose"])
def test_its_page_says_that_one_person_has_seen_all_keys(run_with: str, tmp_path: Path) -> None:
    place = tmp_path / "clinic"
    croupier("init", "--dir", place, "--run-with", run_with, *HOSTS)
    page = (place / "NEXT.md").read_text()
    assert "one person" in page
    assert "`croupier org new`" in page
    for name in ("shuffler", "accountant", "analyzer"):
        assert (f"Install `croupier[{name}]` there" in page) == (run_with == "systemd")


@pytest.mark.virtual_time
async def test_a_round_on_what_it_has_written(tmp_path: Path) -> None:
    """The machines' folders become one deployment in memory, which tries their keys, certificates and addresses."""
    place = tmp_path / "clinic"
    croupier("init", "--dir", place, "--name", "clinic", *HOSTS)
    for host, name in MACHINES.items():
        machine = place / "machines" / host
        shutil.copytree(machine / name / name, place / name)
        (place / name / "service.toml").write_text(
            f'storage_key = "file:{machine / "storage-keys" / f"{name}.storage-key"}"\n'
        )
    inside = InProcess(place, Network().transport)
    await inside.start(*MACHINES.values())
    async with inside.operator() as operator:
        async with operator.client_channel() as channel, operator.client_channel("accountant") as accountant:
            terms = await operator.open_round(settings())
            outbox, named = (
                Outbox(tmp_path / "outbox.db"),
                {str(n): person for n, person in enumerate(people(BIT, 30, 1))},
            )
            await Fleet(channel, accountant, outbox, Threads(), operator.enrol).answer(terms, named)
            outbox.close()
        await operator.close_round(terms.round_id)
        publication, _ = await operator.result(terms.round_id, 60.0)
    assert publication.num_reports == 30
    checks = await examine(place, inside.transport, inside.clock)
    (apart,) = [check for check in checks if not check.is_well]
    assert (apart.check, apart.service) == ("keys apart", "operator")
    assert re.search(naming("shuffler-1", "shuffler-2"), apart.says)
    for name in ("operator", "shuffler-2", "accountant", "analyzer"):
        shutil.rmtree(place / name)
    shutil.rmtree(place / "machines")
    here = {check.check: check.is_well for check in await examine(place, inside.transport, inside.clock)}
    assert here["keys apart"] is True
    await inside.stop(*MACHINES.values())


@pytest.mark.parametrize(("where", "url"), [("gw.example:8443", "https://gw.example:8443"), ("d.example", "")])
@pytest.mark.parametrize("run_with", ["systemd", "compose"])
def test_a_gateway_is_laid_out_where_it_is_asked_for(run_with: str, where: str, url: str, tmp_path: Path) -> None:
    place, host = tmp_path / "clinic", where.partition(":")[0]
    said = answer("init", "--dir", place, "--run-with", run_with, *HOSTS, "--gateway", where)
    deployment = read_deployment(place)
    assert deployment.gateway == (url or "https://d.example")
    machine = place / "machines" / host
    assert said["machines"][str(machine)] == ([] if url else ["analyzer"]) + ["gateway"]
    assert read_deployment(machine / "gateway") == deployment
    assert [file.name for file in (machine / "gateway").iterdir()] == ["deployment.toml"]  # no key
    assert (machine / "storage-keys").exists() == (not url)
    (block,) = re.findall(
        rf"## {host}: [a-z, ]*gateway\n.*?```sh\n(.*?)```", (place / "NEXT.md").read_text(), re.DOTALL
    )
    for word in shlex.split(block, comments=True):
        if word.startswith(("gateway", "croupier-gateway.", "croupier@.", "storage-keys/a")):
            assert (machine / word).exists(), word
    if run_with == "systemd":
        assert "enable --now croupier-gateway" in block
        assert (machine / "croupier-gateway.service").exists()
        assert (machine / "croupier@.service").exists() == (not url)
    else:
        gateway = yaml.safe_load((machine / "compose.yaml").read_text())["services"]["gateway"]
        assert "profiles" not in gateway
        assert gateway["healthcheck"]["test"][-1] == f"http://{gateway['command'][-1]}"
        assert gateway["network_mode"] == "host"


@pytest.mark.slow
def test_without_a_gateway_there_is_none(tmp_path: Path) -> None:
    croupier("init", "--dir", tmp_path / "d", *HOSTS)
    assert not [file for file in (tmp_path / "d").rglob("*") if "gateway" in file.name]
    assert "gateway" not in (tmp_path / "d" / "deployment.toml").read_text()
    for bad in ("https://gw.example", "gw.example:0", "gw.example:x", "gw.example:65536", ":80"):
        said = croupier("init", "--dir", tmp_path / "e", *HOSTS, "--gateway", bad, expect=2).stderr
        assert re.search(naming(f"'{bad}'", "HOST"), " ".join(said.split()))


@pytest.mark.slow
def test_services_that_share_a_machine_have_own_ports_and_a_warning(tmp_path: Path) -> None:
    hosts = ("--shuffler", "a.example", "--accountant", "c.example", "--analyzer", "c.example")
    said = croupier("init", "--dir", tmp_path / "d", *hosts)
    assert "can read reports" in " ".join(said.stderr.split())
    deployment = read_deployment(tmp_path / "d")
    assert (deployment.accountant.address, deployment.analyzer.public_address) == ("c.example:7100", "c.example:7111")
    compose = Layout.of("local", ["a"] * 3, "a", "b")
    assert [place.first_port for place in compose.places] == [7100, 7110, 7120, 7130, 7100]
    assert "one shuffler" in shared(initialise(tmp_path / "one", compose, "compose"))[0]
    layout = Layout.of("local", ["a", "b"], "a", "c")
    assert shared(initialise(tmp_path / "two", layout, "compose")) == [
        "shuffler-1 and accountant share a: its administrator sees what both see"
    ]
    for bad, message in (
        ((*hosts[:-1], "no host"), "host.*'no host'.*host's.*IPv4"),
        ((*hosts, "--shuffler", "a,b"), "shuffler-2.*'b'.*1 only"),
        ((*hosts, "--name", "No"), "name.*'No'"),
        ((*hosts, *(("--shuffler", "a") * 32)), r"there are 33 shufflers; it must be 1\.\.32"),
    ):
        assert re.search(message, " ".join(croupier("init", "--dir", tmp_path / "e", *bad, expect=2).stderr.split()))


def test_a_deployment_that_cannot_be_is_refused() -> None:
    def at(service: str) -> Place:
        return Place(service=service, role="shuffler", host="a", takes_clients=False)

    with pytest.raises(ValueError, match=naming("ports")):
        Layout(name="local", places=(at("shuffler-1"), at("shuffler-2")))
    with pytest.raises(ValueError, match="extra"):
        Place.model_validate({**at("shuffler-1").model_dump(), "port": 1})


def test_the_calls_of_a_chain_of_three() -> None:
    places = Layout.of("local", ["a", "b", "c"], "d", "e").places
    assert {place.service: [other.service for other in called_by(places, place)] for place in places} == {
        "shuffler-1": ["shuffler-2", "shuffler-3", "accountant"],
        "shuffler-2": ["shuffler-3", "accountant"],
        "shuffler-3": ["accountant", "analyzer"],
        "accountant": ["analyzer"],
        "analyzer": ["accountant"],
    }


def test_a_range_of_ports_is_kept_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROUPIER_PORTS", "20000-20002")
    with pytest.raises(RuntimeError, match=naming(5, "20000–20002")):
        free_addresses(5)
    for wrong in ("80-90", "20002-20000", "20000", "1024-65536", "20000-20002x", "٢٠٠٠-٣٠٠٠"):
        monkeypatch.setenv("CROUPIER_PORTS", wrong)
        with pytest.raises(ValueError, match=naming("CROUPIER_PORTS", f"'{wrong}'", "1024-65535")):
            free_addresses(1)
