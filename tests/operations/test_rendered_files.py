"""The files that deploy croupier contradict nothing that is rendered, and are right: the Containerfile for a linter,
compose files for their schema, and what the image is built from for a service that is built and run like it."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from croupier.deploy.render.compose import compose_file
from croupier.deploy.render.layout import Layout
from croupier.operator.init import initialise
from croupier.operator.keys import free_addresses
from croupier.runtime.service_directory import load_settings
from tests.operations.support import bare_environment, elsewhere

ROOT = Path(__file__).parents[2]
RELEASE: dict[str, Any] = runpy.run_path(str(ROOT / ".ci" / "release"))
COMPOSE = ROOT / "deploy" / "compose"
TOOLS = Path(sys.executable).parent
EXAMPLE = Layout.of("clinic", ["croupier.example"] * 2, "croupier.example", "croupier.example")
"""The deployment of deploy/compose/compose.yaml."""


def test_the_example_is_what_is_rendered_beside_its_optional_services() -> None:
    rendered = yaml.safe_load(compose_file(EXAMPLE, EXAMPLE.places, has_gateway=True))
    example = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    study = example["services"].pop("study")
    assert example["services"]["gateway"].pop("profiles") == ["gateway"]
    assert study.pop("profiles") == ["study"]
    assert example == rendered
    confined = ("image", "user", "read_only", "cap_drop", "security_opt", "mem_limit", "memswap_limit", "ulimits")
    gateway = rendered["services"]["gateway"]
    assert {name: study[name] for name in confined} == {name: gateway[name] for name in confined}


def lint(file: Path) -> subprocess.CompletedProcess[str]:
    command = [str(TOOLS / "hadolint"), "--no-color", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_linter_finds_nothing_wrong_with_the_containerfile(tmp_path: Path) -> None:
    done = lint(COMPOSE / "Containerfile")
    assert (done.returncode, done.stdout) == (0, "")
    worse = tmp_path / "Containerfile"
    worse.write_text((COMPOSE / "Containerfile").read_text().replace("FROM $PYTHON_IMAGE", "FROM python"))
    assert "DL3006" in lint(worse).stdout  # an image without a tag


def test_compose_files_meet_the_schema_of_compose() -> None:
    vendored = resources.files("check_jsonschema.builtin_schemas.vendor") / "compose-spec.json"
    described = json.loads(vendored.read_text())
    schema = jsonschema.validators.validator_for(described)(described)
    text = (COMPOSE / "compose.yaml").read_text()
    schema.validate(yaml.safe_load(text))
    with pytest.raises(jsonschema.ValidationError, match="readonly"):
        schema.validate(yaml.safe_load(text.replace("read_only", "readonly")))


def services(file: Path) -> dict[str, dict[str, Any]]:
    listed: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text())["services"]
    return listed


def test_containers_are_hardened_and_have_what_they_need(tmp_path: Path) -> None:
    layout = Layout.of("clinic", ["a.example", "b.example"], "c.example", "c.example")
    initialise(tmp_path / "d", layout, "compose")
    seen = set()
    for host, places in layout.hosts.items():
        machine = tmp_path / "d" / "machines" / host
        rendered = services(machine / "compose.yaml")
        assert set(rendered) == {place.service for place in places}
        for place in places:
            service = rendered[place.service]
            assert service["command"] == ["croupier", "serve", place.service, "--dir", "/var/lib/croupier"]
            assert (service["user"], service["read_only"], service["cap_drop"]) == ("10001:10001", True, ["ALL"])
            assert service["security_opt"] == ["no-new-privileges:true"]
            assert service["mem_limit"] == service["memswap_limit"]
            settings = load_settings(machine / place.service / place.service)
            ports = dict(port.rsplit(":", 1) for port in service["ports"])
            inside = {"peers": settings.listen, "metrics": settings.metrics_listen}
            outside = {"peers": place.address, "metrics": f"127.0.0.1:{place.first_port + 3}"}
            if place.public_address:
                inside["public"], outside["public"] = settings.public_listen, place.public_address
            expected = {
                (address if name == "metrics" else address.rpartition(":")[2]): (inside[name] or "").rpartition(":")[2]
                for name, address in outside.items()
            }
            assert ports == expected
            seen |= set(ports)
            assert service["healthcheck"]["test"][-1] == settings.admin_listen
            assert service["networks"] == [place.service]
            (secret,) = service["secrets"]
            assert settings.storage_key == f"file:{secret['target']}"
    assert seen == {"7100", "7101", "7110", "7111", "127.0.0.1:7103", "127.0.0.1:7113"}


def instructions() -> list[tuple[str, list[str]]]:
    """The Containerfile's lines, with continued ones in one."""
    text = (COMPOSE / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line.partition(" ") for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, shlex.split(rest)) for name, _, rest in lines]


def test_the_image_runs_without_root_and_names_the_ports_of_the_services() -> None:
    lines = instructions()
    last_stage = lines[[number for number, (name, _) in enumerate(lines) if name == "FROM"][-1] :]
    assert ("USER", [services(COMPOSE / "compose.yaml")["shuffler-1"]["user"]]) in last_stage
    assert ("EXPOSE", ["7100", "7101"]) in last_stage
    assert re.search(r"HEALTHCHECK .*deploy\.node\.probe", (COMPOSE / "Containerfile").read_text(), re.DOTALL)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.xdist_group("processes")
def test_what_the_image_is_built_from_serves(tmp_path: Path) -> None:
    """The wheel of a release, installed by the hash in its folder, starts a service with the same command lines.

    Libraries come from here instead of an index. A container's paths are those of this test.
    """
    dist, home = tmp_path / "dist", tmp_path / "opt"
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(dist)]
    subprocess.run(build, env=elsewhere(), cwd=ROOT, check=True, capture_output=True)
    (wheel,) = dist.iterdir()
    requirement = dist / "wheel-with-hash.txt"
    requirement.write_text(RELEASE["wheel_with_hash"](wheel, version("croupier")))
    site = bare_environment(home)
    (run,) = [words for name, words in instructions() if name == "RUN"]
    install = " ".join(run).split(" && ")[-1].replace("/dist", str(dist)).split()
    assert install[:2] == ["/opt/croupier/bin/pip", "install"]
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(home / "bin" / "python")]
    subprocess.run([*pip, *install[1:], "--no-compile"], env=elsewhere(), cwd=tmp_path, check=True)
    with wheel.open("ab") as changed:
        changed.write(b"\0")
    refused = [*pip, *install[1:], "--force-reinstall"]
    done = subprocess.run(refused, env=elsewhere(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "DO NOT MATCH THE HASHES" in done.stderr
    for name in ("messages.proto", "services.proto"):
        assert (site / "croupier" / "protocol" / "v1" / name).read_bytes() == (
            ROOT / "proto" / "croupier" / "protocol" / "v1" / name
        ).read_bytes()

    place = tmp_path / "d"
    initialise(place, Layout.of("local", ["127.0.0.1"], "127.0.0.1", "127.0.0.1"), "compose")
    machine = place / "machines" / "127.0.0.1"
    own = machine / "shuffler-1" / "shuffler-1"
    ports = free_addresses(4)
    text = (own / "service.toml").read_text()
    for number, address in enumerate(ports):
        text = re.sub(rf"(0\.0\.0\.0|127\.0\.0\.1):710{number}", address, text)
    key = machine / "storage-keys" / "shuffler-1.storage-key"
    (own / "service.toml").write_text(text.replace("/run/secrets/croupier/storage.key", str(key)))
    service = services(machine / "compose.yaml")["shuffler-1"]
    moved = {"/var/lib/croupier": str(machine / "shuffler-1"), "127.0.0.1:7102": ports[2]}
    environment = elsewhere(PATH=f"{home / 'bin'}:{os.environ['PATH']}")
    command = [moved.get(word, word) for word in service["command"]]
    probe = [moved.get(word, word) for word in service["healthcheck"]["test"][1:]]
    assert subprocess.run(probe, env=environment, cwd=tmp_path, check=False).returncode == 1
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == '{"ready": "shuffler-1"}\n'
            assert subprocess.run(probe, env=environment, cwd=tmp_path, check=False).returncode == 0
            loaded = Path(f"/proc/{running.pid}/cmdline").read_bytes().split(b"\0")[0]
            assert loaded.decode().startswith(str(home))
        finally:
            running.terminate()
        assert running.wait(60) == 0
