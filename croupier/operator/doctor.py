"""Examines a deployment: its problems, and their remedies.

With the operator's keys, every service is asked, as the operator and as a client. With a service's own directory, its
files are checked, and the services that it calls are asked from there, because a firewall between two machines shows
from one of them only. Nothing is changed.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median_low
from typing import Any, NamedTuple, cast

import grpc.aio
from cryptography import x509

from croupier.client.round_checks import accept_manifest
from croupier.deploy.directory import read_deployment
from croupier.deploy.page.participants import PAGE_PATH
from croupier.deploy.render.layout import called_by
from croupier.net.http_channel import HttpChannel
from croupier.net.retrying import HOW_TO_TRUST, is_not_pinned, is_not_trusted, why_unreachable
from croupier.net.transport import TLS, Transport
from croupier.operator.init import MACHINES
from croupier.operator.operator import Operator
from croupier.protocol.deployment import OPERATOR, Deployment, ServiceEntry
from croupier.protocol.documents import document_of
from croupier.protocol.errors import Code, CroupierError, refusal_of
from croupier.protocol.names import JsonObject
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.protocol.versions import another_with_this_number
from croupier.runtime.clock import Clock, SystemClock
from croupier.runtime.service_directory import load_secrets, load_settings, not_pinned
from croupier.show.ledger import noise_line

_CLOCK_S = 10.0
"""Seconds by which the clock of a service may differ."""
_DAYS_LEFT = 30
"""Days before the end of a certificate from which the doctor warns."""
_FREE_BYTES = 1 << 30
"""Free bytes of a disk below which the doctor warns."""
_PATIENCE_S = 5.0
"""The seconds that a service has to answer the doctor."""
_KEY_FILES = ("storage.key", "identity.key", "tls.key")
_LOOPBACK = ("127.", "localhost:")


class Check(NamedTuple):
    """The description of a check, for the reference.

    Attributes:
        compares: its comparison, or its question.
        place: the machines on which it is possible.
    """

    compares: str
    place: str


_OPERATOR, _EACH, _ANYWHERE, _EVERYWHERE = "operator's machine", "each machine", "anywhere", "everywhere"
CHECKS: Mapping[str, Check] = {
    "port": Check("does each service answer the operator, and is it ready?", _OPERATOR),
    "public port": Check("does each service that clients call answer them, and is it ready?", _OPERATOR),
    "clock": Check(f"every service's clock with the one in the middle: at most {_CLOCK_S:g} s", _OPERATOR),
    "version": Check("every service's with this machine's, and with `minimum_version`", _OPERATOR),
    "deployment file": Check("is the version that each service goes by the one that is here?", _OPERATOR),
    "disk": Check(f"at least {_FREE_BYTES >> 30} GiB free where the store is", _EVERYWHERE),
    "noise limit": Check("is a shuffler's `noise_limit` (docs/hop-noise.md) enough for one more round?", _OPERATOR),
    "certificate": Check(f"valid for {_DAYS_LEFT} more days", _ANYWHERE),
    "names": Check("is each certificate made for the service and its hosts?", _ANYWHERE),
    "reaches": Check("does a service reach those that it calls?", _EACH),
    "gateway": Check("does the gateway pass a call on?", _OPERATOR),
    "page": Check("does the gateway serve a page that all have signed (docs/participants.md)?", _OPERATOR),
    "own files": Check("do settings and keys open, and are the keys those in the deployment file?", _EACH),
    "key files": Check("are keys closed to other users?", _EACH),
    "keys apart": Check("are no keys of other machines here?", _EACH),
}
"""Every check by its name; docs/operations-reference.md has the table."""


@dataclass(frozen=True)
class CheckResult:
    """The result of one check of one service.

    Attributes:
        check: its name in `CHECKS`.
        service: the service, or "operator".
        is_well: whether nothing is wrong.
        says: the observation.
        remedy: the advice; empty if all is well.
    """

    check: str
    service: str
    is_well: bool
    says: str
    remedy: str = ""

    def __post_init__(self) -> None:
        if self.check not in CHECKS:
            raise ValueError(f"check is {self.check!r}; it must be one of {', '.join(CHECKS)}")


async def examine(directory: Path, transport: Transport = TLS, clock: Clock | None = None) -> list[CheckResult]:
    """Returns the results of all checks that are possible from here.

    Args:
        directory: of the deployment: on the operator's machine, or on that of a service.
        transport: to the services.
        clock: this machine's.

    Raises:
        ValueError: there is no deployment, or its file cannot be used.
    """
    deployment, clock = read_deployment(directory), clock or SystemClock()
    results = list(_certificates(deployment, clock.now()))
    results += _keys_apart(directory, deployment)
    here = [entry for entry in deployment.services if (directory / entry.name / "identity.key").exists()]
    for owner in (*(entry.name for entry in here), OPERATOR):
        results += _key_files(directory / owner, owner)
    for entry in here:
        results += [_own_files(directory / entry.name, entry), _disk(entry.name, shutil.disk_usage(directory).free)]
        results += await _called(directory / entry.name, deployment, entry, transport)
    if (directory / OPERATOR / "identity.key").exists():
        results += await _asked(directory, deployment, transport, clock)
        if deployment.gateway:
            results.append(await _passed_on(deployment, deployment.gateway))
            if deployment.participant_pages and results[-1].is_well:
                results.append(await _page_served(deployment.participant_pages, deployment.gateway))
    return results


# ------------------------------------------------------------- checks of the files


def _certificates(deployment: Deployment, now_s: float) -> Iterator[CheckResult]:
    """Checks the validity and the names of certificates; an expired one ends every call."""
    now = datetime.fromtimestamp(now_s, UTC)
    for entry in deployment.services:
        certificate = x509.load_pem_x509_certificate(entry.tls_certificate.encode())
        rotate = (
            f"'croupier rotate {entry.name}' on its machine, in two steps: 'croupier docs backup#identity-rotation'"
        )
        yield _validity(entry.name, certificate, now, rotate)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        written = {str(name.value) for name in names}
        missing = [] if entry.name in written else [entry.name]
        if written - {entry.name}:  # one that names no host depends on none
            missing += [host for host in entry.hosts if host not in written]
        said = f"is for {', '.join(sorted(written))}" + (f", and not {', '.join(missing)}" if missing else "")
        yield CheckResult("names", entry.name, not missing, said, rotate if missing else "")
    certificate = x509.load_pem_x509_certificate(deployment.operator_tls_certificate.encode())
    yield _validity(OPERATOR, certificate, now, "open no round that ends later, and make a new deployment")


def _validity(owner: str, certificate: x509.Certificate, now: datetime, remedy: str) -> CheckResult:
    left = (certificate.not_valid_after_utc - now).days
    last = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
    if now < certificate.not_valid_before_utc:
        begins = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        said, remedy = f"is not valid before {begins}", f"set the clock of this machine, or wait until {begins}"
    elif left < 0:
        said = f"expired on {last}"
    elif left < _DAYS_LEFT:
        said = f"expires on {last}, in {left} days"
    else:
        return CheckResult("certificate", owner, True, f"valid until {last}")
    return CheckResult("certificate", owner, False, said, remedy)


def _keys_apart(directory: Path, deployment: Deployment) -> list[CheckResult]:
    """Checks that no keys of other machines are here, unless all services run on this one for a trial."""
    if all(entry.address.startswith(_LOOPBACK) for entry in deployment.services):
        return []
    homes = [directory, *(directory / MACHINES).glob("*/*")]
    held = [
        entry for entry in deployment.services if any((home / entry.name / "identity.key").exists() for home in homes)
    ]
    if not held:
        return []
    owner, names = held[0].name, ", ".join(entry.name for entry in held)
    if (directory / OPERATOR / "identity.key").exists():
        owner, names = OPERATOR, f"{names}, {OPERATOR}"
    elif len({entry.hosts[0] for entry in held}) == 1:
        return [CheckResult("keys apart", owner, True, "no key of another machine is here")]
    said = f"the keys of {names} are in one place, {directory}; a reader of it can act for all of them"
    return [
        CheckResult("keys apart", owner, False, said, "bring each service's keys to its machine, and delete them here")
    ]


def _key_files(directory: Path, owner: str) -> list[CheckResult]:
    """Checks that only their owner can write secret files, and that others cannot read them."""
    modes = {name: (directory / name).stat().st_mode for name in _KEY_FILES if (directory / name).exists()}
    open_to_others = [name for name, mode in modes.items() if mode & (stat.S_IRWXO | stat.S_IWGRP)]
    if not modes:
        return []
    if not open_to_others:
        return [CheckResult("key files", owner, True, f"{', '.join(modes)} are closed to other users")]
    listed = ", ".join(f"{name} (mode {stat.S_IMODE(modes[name]):04o})" for name in open_to_others)
    remedy = f"chmod 600 {' '.join(str(directory / name) for name in open_to_others)}, and rotate the keys if other "
    return [
        CheckResult("key files", owner, False, f"other users can get at {listed}", f"{remedy}people use that machine")
    ]


def _own_files(directory: Path, entry: ServiceEntry) -> CheckResult:
    """Checks that a service would start with its files, and be recognised."""
    try:
        load_settings(directory)
        secrets = load_secrets(directory)
    except (ValueError, OSError) as error:
        remedy = "put the file right; run this as root, where only root reads the storage key"
        return CheckResult("own files", entry.name, False, str(error), remedy)
    if file := not_pinned(entry, secrets):
        remedy = "get the newest deployment.toml; if this is it, the service's keys are those of another deployment"
        return CheckResult("own files", entry.name, False, f"{file} is not what deployment.toml pins", remedy)
    return CheckResult("own files", entry.name, True, "settings can be used, keys open and are the pinned ones")


def _disk(service: str, free_bytes: int) -> CheckResult:
    said = f"{free_bytes / 2**30:.1f} GiB free"
    if free_bytes >= _FREE_BYTES:
        return CheckResult("disk", service, True, said)
    return CheckResult(
        "disk", service, False, said, "make room: what cannot be stored is not acknowledged, and rounds wait"
    )


# ------------------------------------------------------------- checks of the services


async def _called(own: Path, deployment: Deployment, entry: ServiceEntry, transport: Transport) -> list[CheckResult]:
    """Checks that a service reaches the services that it calls."""
    try:
        secrets = load_secrets(own)
    except (ValueError, OSError):
        return []  # reported already
    results = []
    for other in called_by(deployment.services, entry):
        async with transport.peer_channel(other, secrets) as channel:
            results.append(await _health("reaches", entry.name, f"{other.name} at {other.address}", other, channel))
    return results


async def _asked(directory: Path, deployment: Deployment, transport: Transport, clock: Clock) -> list[CheckResult]:
    """Checks the operator's and a client's view of every service."""
    results, offsets = [], {}
    async with Operator(directory, transport) as operator:
        for entry in deployment.services:
            channel = operator.channel_to(entry.name)
            peers = await _health("port", entry.name, entry.address, entry, channel)
            results.append(peers)
            if entry.public_address:
                async with transport.public_channel(entry) as public:
                    results.append(await _health("public port", entry.name, entry.public_address, entry, public))
            sent = clock.now()
            try:
                status = await stubs.RoundControlStub(channel).Status(rpc.StatusRequest(), timeout=_PATIENCE_S)
            except grpc.aio.AioRpcError as error:
                if peers.is_well:
                    results.append(_no_answer("port", entry, entry.address, error))
                continue
            offsets[entry.name] = status.now_unix_ms / 1000 - (sent + clock.now()) / 2
            results.append(check_version(entry.name, status.version, version("croupier"), deployment.minimum_version))
            results.append(_deployment_file(entry.name, status.deployment, deployment))
            if status.HasField("noise_spent"):
                results.append(_noise_limit(entry.name, document_of(status.noise_spent)))
            if status.HasField("free_bytes"):
                results.append(_disk(entry.name, status.free_bytes))
    return [*results, *_clocks(offsets)]


async def _passed_on(deployment: Deployment, url: str) -> CheckResult:
    """Checks that the gateway passes a client's call on, to this deployment's hop 1."""
    remedy = "on its machine: is the gateway up ('systemctl status croupier-gateway', 'docker compose ps'), and the "
    remedy += "reverse proxy before it? 'croupier docs gateway'"
    stub: Any = stubs.ShufflerStub(cast(grpc.aio.Channel, HttpChannel(url)))
    try:
        answer = await stub.GetRound(rpc.GetRoundRequest(), timeout=_PATIENCE_S)
        accept_manifest(answer.round, deployment)
    except grpc.aio.AioRpcError as error:
        refusal = refusal_of(error)
        if refusal is None:
            said = f"{url} does not answer ({why_unreachable(error)})"
            return CheckResult("gateway", "gateway", False, said, HOW_TO_TRUST if is_not_trusted(error) else remedy)
        if refusal.code is not Code.NO_OPEN_ROUND:
            remedy = "can its machine reach what clients call? Has it the newest deployment.toml?"
            return CheckResult("gateway", "gateway", False, f"{url} answers: {refusal}", remedy)
    except CroupierError as error:
        remedy = "bring the newest deployment.toml to the gateway; if it has it, something else answers there"
        return CheckResult("gateway", "gateway", False, f"{url} shows a round that is not ours: {error}", remedy)
    return CheckResult("gateway", "gateway", True, f"{url} passes a client's call on")


async def _page_served(named: Sequence[str], url: str) -> CheckResult:
    """Checks that the gateway serves one of the pages that all services have signed."""
    try:
        answer = await HttpChannel(url).get(PAGE_PATH, _PATIENCE_S)
    except grpc.aio.AioRpcError as error:
        return CheckResult("page", "gateway", False, f"{url}{PAGE_PATH}: {error.details()}", "'croupier docs gateway'")
    served = hashlib.sha256(answer.body).hexdigest()
    if answer.status == 200 and served in named:
        return CheckResult("page", "gateway", True, f"{url}{PAGE_PATH} is the page that all services have signed")
    said = f"{url}{PAGE_PATH} answers {answer.status} with the SHA-256 {served}; signed is {', '.join(named)}"
    remedy = (
        "a page of a newer release is signed as 'croupier docs participants' says; any other one was changed: take the "
    )
    return CheckResult("page", "gateway", False, said, remedy + "gateway off the network, and find out by whom")


def _numbers(release: str) -> tuple[int, ...]:
    """Returns the numbers at the beginning of a version, for example (0, 2, 0) of 0.2.0.dev1."""
    match = re.match(r"\d+(\.\d+)*", release)
    return tuple(map(int, match[0].split("."))) if match else ()


def check_version(service: str, theirs: str, ours: str, minimum: str = "") -> CheckResult:
    """Compares the version that a service runs with this machine's, and with the deployment file's minimum."""
    if _numbers(theirs) < _numbers(minimum):
        remedy = "upgrade it: the deployment file asks for that (minimum_version); 'croupier docs backup#upgrade'"
        return CheckResult(
            "version", service, False, f"{theirs or 'an older one'}; at least {minimum} is needed", remedy
        )
    if theirs == ours:
        return CheckResult("version", service, True, theirs)
    remedy = "bring all services and this machine to one version: 'croupier docs backup#upgrade'"
    return CheckResult("version", service, False, f"{theirs or 'an older one'}, and {ours} here", remedy)


def _deployment_file(service: str, stated: rpc.VersionInForce, deployment: Deployment) -> CheckResult:
    """Compares a service's deployment file in force with the one here."""
    said = f"version {stated.number}, fingerprint {stated.fingerprint.hex()[:16]}…"
    if stated.fingerprint == deployment.fingerprint:
        return CheckResult("deployment file", service, True, said)
    said += f"; here version {deployment.version}, {deployment.fingerprint.hex()[:16]}…"
    if another_with_this_number(stated.number, stated.fingerprint, deployment):
        remedy = "an organisation has signed two files with one number: open nothing, compare the words of all files "
        return CheckResult("deployment file", service, False, said, remedy + "('croupier org show'), and agree on one")
    remedy = (
        "a newer version is fetched within a minute; if this stays, bring the newest deployment.toml there, or here"
    )
    return CheckResult("deployment file", service, False, said, remedy)


def _noise_limit(service: str, noise: JsonObject) -> CheckResult:
    """Checks that a hop's noise_limit is enough for one more round that costs as much as its rounds on average."""
    said, rounds = noise_line(service, noise), max(1, noise["rounds"])
    limits = ((noise["most_epsilon"], noise["epsilon"]), (noise["most_delta"], noise["delta"]))
    if all(most is None or spent + spent / rounds <= most * (1 + 1e-9) for most, spent in limits):
        return CheckResult("noise limit", service, True, said)
    remedy = "it keeps this promise to participants: make a new deployment, or ask its operator for a larger limit"
    return CheckResult("noise limit", service, False, said, remedy)


def _clocks(offsets: dict[str, float]) -> Iterator[CheckResult]:
    """Compares all clocks, this machine's included, with the one in the middle."""
    all_clocks = {OPERATOR: 0.0, **offsets}
    middle = median_low(all_clocks.values())
    for name, offset in all_clocks.items() if offsets else ():
        late = offset - middle
        said = f"{abs(late):.1f} s {'ahead of' if late > 0 else 'behind'} the others" if late else "as the others"
        remedy = "set the clock, with NTP: deadlines and certificates depend on it"
        yield CheckResult("clock", name, abs(late) <= _CLOCK_S, said, "" if abs(late) <= _CLOCK_S else remedy)


async def _health(check: str, service: str, where: str, entry: ServiceEntry, channel: grpc.aio.Channel) -> CheckResult:
    """Asks for a service's health; not being ready is a finding of the service that is asked."""
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    stub: Any = health_pb2_grpc.HealthStub(channel)
    try:
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=_PATIENCE_S)
    except grpc.aio.AioRpcError as error:
        return _no_answer(check, entry, where, error, service)
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return CheckResult(check, service, True, f"{where} answers")
    remedy = f"its store cannot be written: see the log of {entry.name}, and 'croupier docs runbook#the-store-fails'"
    return CheckResult(check, service, False, f"{where} answers, and is not ready", remedy)


def _no_answer(
    check: str, entry: ServiceEntry, where: str, error: grpc.aio.AioRpcError, service: str = ""
) -> CheckResult:
    if is_not_pinned(error):
        said = f"{where} shows a certificate that is not pinned"
        remedy = "bring the newest deployment.toml here; if this is it, something else answers there: do not trust it"
    elif refusal := refusal_of(error):
        said = f"{where} refuses: {refusal}"
        remedy = f"bring the newest deployment.toml to {entry.name}: it does not know who calls"
    else:
        said = f"{where} does not answer ({why_unreachable(error)})"
        here = "; one that 'croupier up' has made, it starts again" if entry.address.startswith(_LOOPBACK) else ""
        asked = f"'systemctl status croupier@{entry.name}', 'docker compose ps'{here}"
        remedy = f"on its machine: is {entry.name} up ({asked})? "
        remedy += "If it is, let this machine through the firewall to that port, and compare deployment.toml on both"
    return CheckResult(check, service or entry.name, False, said, remedy)
