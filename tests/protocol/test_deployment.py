"""Deployment files and keys: what is refused, and who may read what."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from croupier.deploy.node.serve import warn_of_unpinned
from croupier.operator.keys import make_deployment
from croupier.operator.rotation import activate, rotate
from croupier.protocol.deployment import DEPLOYMENT_FILE, load_deployment
from croupier.runtime.service_directory import ServiceSettings, load_secrets, load_settings, not_pinned
from tests.support.messages import naming


def test_keygen_writes_a_deployment_that_loads(tmp_path: Path) -> None:
    made = make_deployment(tmp_path / "d", "clinic", 3)
    assert made == load_deployment(tmp_path / "d" / DEPLOYMENT_FILE)
    assert made.chain == ("shuffler-1", "shuffler-2", "shuffler-3", "accountant", "analyzer")
    assert len(set(made.identities.values())) == 5
    assert made.service("analyzer").public_address
    for secret in (tmp_path / "d").glob("*/*.key"):
        assert secret.stat().st_mode & 0o077 == 0
    secrets = load_secrets(tmp_path / "d" / "accountant")
    assert secrets.identity_key.hex() not in repr(secrets)
    with pytest.raises(ValueError, match=r"deployment.toml exists"):
        make_deployment(tmp_path / "d", "clinic", 3)


@pytest.mark.parametrize(("name", "hops", "message"), [("Clinic", 2, "name is 'Clinic'"), ("c", 0, "hops is 0")])
def test_keygen_checks_its_arguments(tmp_path: Path, name: str, hops: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_deployment(tmp_path / "d", name, hops)
    with pytest.raises(ValueError, match=naming("2 addresses", "4 services", 3, 7)):
        make_deployment(tmp_path / "d", "c", 2, ["a:1", "b:2"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('role = "analyzer"', 'role = "oracle"', "role"),
        ('role = "accountant"', 'role = "shuffler"', "one accountant"),
        ('name = "analyzer"', 'name = "accountant"', "they must differ"),
        ('name = "shuffler-1"', 'name = "operator"', "'operator' is taken"),
        ('identity = "', 'identity = "zz', "identity"),
        ('role = "analyzer"', 'role = "analyzer"\ncolour = "red"', "colour"),
        ("public_address", "# public_address", "need a public_address"),
        ('address = "127.0.0.1:', 'address = "127.0.0.1-', "address"),
        ('name = "local"', "name = ", "not a valid deployment file"),
        ('name = "local"', 'name = "local"\ngateway = "http://gateway.example"', "gateway"),
    ],
)
def test_bad_deployment_files_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    make_deployment(tmp_path, "local", 2)
    file = tmp_path / DEPLOYMENT_FILE
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(ValueError, match=message):
        load_deployment(file)


def test_missing_files_say_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=naming("--dir", "'croupier init'")):
        load_deployment(tmp_path / "none.toml")
    with pytest.raises(ValueError, match=naming("storage.key")):
        load_secrets(tmp_path)
    with pytest.raises(ValueError, match=naming("'x'", "shuffler-1")):
        make_deployment(tmp_path, "local", 1).service("x")


def test_keys_are_encrypted_and_the_storage_key_may_live_elsewhere(tmp_path: Path) -> None:
    make_deployment(tmp_path, "local", 1)
    directory = tmp_path / "analyzer"
    secrets = load_secrets(directory)
    files = b"".join(file.read_bytes() for file in directory.glob("*") if file.name != "storage.key")
    assert files.count(b"BEGIN ENCRYPTED PRIVATE KEY") == 2
    assert b"BEGIN PRIVATE KEY" not in files
    assert secrets.identity_key.hex().encode() not in files
    storage_key = (directory / "storage.key").read_text()
    (directory / "storage.key").unlink()
    with pytest.raises(ValueError, match=naming("storage.key")):
        load_secrets(directory)
    (directory / "service.toml").write_text('storage_key = "env:SAFE"')
    assert load_secrets(directory, {"SAFE": storage_key}) == secrets
    for environment, message in [
        ({}, "environment.*'SAFE'"),
        ({"SAFE": "12"}, "64 hexadecimal digits"),
        ({"SAFE": "00" * 32}, "does not open with this storage key"),
    ]:
        with pytest.raises(ValueError, match=message):
            load_secrets(directory, environment)


def test_a_certificate_of_another_key_is_named(tmp_path: Path) -> None:
    """A service whose change of keys was cut short said that another program used its port."""
    make_deployment(tmp_path, "local", 1)
    directory = tmp_path / "analyzer"
    rotate(tmp_path, "analyzer")
    for file in ("identity.key", "tls.key"):
        (directory / f"pending-{file}").replace(directory / file)
    with pytest.raises(ValueError, match=naming("tls.crt", "tls.key", "'croupier rotate analyzer --activate'")):
        load_secrets(directory)
    activate(tmp_path, "analyzer")
    secrets = load_secrets(directory)
    assert not_pinned(load_deployment(tmp_path / DEPLOYMENT_FILE).service("analyzer"), secrets) is None
    (directory / "tls.crt").write_text("-----BEGIN")
    with pytest.raises(ValueError, match=naming("tls.crt", "PEM")):
        load_secrets(directory)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('colour = "red"', "colour"),
        ('store = "mysql://x"', "store"),
        ('listen = "7001"', "listen"),
        ("workers = 0", "workers"),
        ('scheduler = "tcp://scheduler.example:8786"', "scheduler"),
        (
            'scheduler = "tls://scheduler.example:0"',
            "scheduler: .*'tls://scheduler.example:0'.*tls://HOST",
        ),
        ('scheduler = "tls://scheduler.example:65536"', "1..65535$"),
        ("max_concurrent_calls = 1", "max_concurrent_calls"),
        ("workers = ", "not a valid settings file"),
        # Reproductions: the sentences were the library's, of several lines; port 99999 was 34463.
        ("keepdays = 3", "keepdays: .*keep_days[?]$"),
        (
            "keep_days = 0\nx = 1",
            "keep_days: .* 0; .* 1; x: ",
        ),
        ('workers = "many"', "workers: it must be a valid integer, unable to parse string as an integer$"),
        ('listen = "0.0.0.0:99999"', "listen: .*'0.0.0.0:99999'.*1..65535$"),
        ('public_listen = "0.0.0.0:0"', "public_listen: it is '0.0.0.0:0', and must"),
    ],
)
def test_bad_settings_are_named(tmp_path: Path, line: str, message: str) -> None:
    assert load_settings(tmp_path) == ServiceSettings()
    (tmp_path / "service.toml").write_text(line)
    with pytest.raises(ValueError, match=message):
        load_settings(tmp_path)


@pytest.mark.parametrize("wrong", ['metrics_listen = "0.0.0.0:7103"', 'store = "postgres://me:hunter2@db/x"'])
def test_what_is_wrong_with_settings_shows_no_password(tmp_path: Path, wrong: str) -> None:
    """Reproduction: the line of the log held all settings, or the one that was wrong."""
    store = 'store = "postgresql+psycopg://me:hunter2@db/x"\n' if "store" not in wrong else ""
    (tmp_path / "service.toml").write_text(store + wrong)
    with pytest.raises(ValueError, match=naming("settings file")) as refused:
        load_settings(tmp_path)
    assert "hunter2" not in "".join(traceback.format_exception(refused.value))


def test_a_service_is_warned_of_keys_that_are_not_pinned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Reproduction: with another identity in deployment.toml it served, was not accepted, and said nothing."""
    entry = make_deployment(tmp_path, "local", 1).service("analyzer")
    secrets = load_secrets(tmp_path / "analyzer")
    other = entry.model_copy(update={"identity": "00" * 32})
    for service in (entry, other.model_copy(update={"pending_identity": entry.identity})):
        warn_of_unpinned(service, secrets)
    assert not caplog.records
    warn_of_unpinned(other, secrets)
    assert caplog.messages == ["identity.key is not what deployment.toml pins: others do not accept this service"]
