"""Makes a deployment: identities, TLS certificates, storage keys, and the public file that pins them.

DIR/deployment.toml            public: give it to every service and every client
DIR/<service>/*.key, tls.crt   secret: one directory per service, and one for the operator; `storage.key` opens the rest
"""

from __future__ import annotations

import datetime
import fcntl
import ipaddress
import os
import re
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from croupier.client.key_file import PRIVATE, PUBLIC, key_text
from croupier.deploy.page.participants import page_hash
from croupier.deploy.version_files import give_to_owner, install
from croupier.protocol.collector import collector_key_lines
from croupier.protocol.deployment import DEPLOYMENT_FILE, OPERATOR, Deployment, FileSignature, SignedFile
from croupier.protocol.envelope import MAX_HOPS
from croupier.protocol.identity import Identity
from croupier.protocol.names import HostName, StorageKey
from croupier.runtime.cluster import AUTHORITY_FILE, certificate_files
from croupier.runtime.service_directory import identity_keys, seal_key

F = TypeVar("F", bound=SignedFile)
_VALID_DAYS = 825
"""Days for which a TLS certificate is valid."""
VALID_BEFORE = datetime.timedelta(days=1)
"""So long before it is made a certificate is valid: clocks differ."""
PORTS_VARIABLE = "CROUPIER_PORTS"
"""The environment variable with the first and the last port for `free_addresses`, such as 10000-32767, the default.

The default is the ports below those that systems choose themselves, for any connection at any time.
"""


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Returns the X.509 key usage of a certificate that signs certificates, or else only handshakes."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def check_hops(hops: int) -> None:
    """Raises ValueError for a number of shufflers that no deployment can have."""
    if not 1 <= hops <= MAX_HOPS:
        raise ValueError(f"hops is {hops}; it must be in 1..{MAX_HOPS}")


def make_deployment(directory: Path, name: str, hops: int, addresses: Sequence[str] | None = None) -> Deployment:
    """Writes all keys and the deployment file, and returns the deployment.

    Args:
        directory: for the deployment file, and a directory below it for each service and for the operator.
        name: of the deployment: lower-case letters, digits and "-".
        hops: the number of shufflers, 1..32.
        addresses: host:port for every service and then the public ones of hop 1, accountant and analyzer; free
            loopback ports if not given. Edit the file to move a service to another machine.

    Raises:
        ValueError: a name or number out of range, or the directory holds a deployment already.
    """
    check_hops(hops)
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,62}", name):
        raise ValueError(f"name is {name!r}; it must be a letter and at most 62 more of a-z, 0-9 and '-'")
    file = directory / DEPLOYMENT_FILE
    if file.exists():
        raise ValueError(f"{file} exists; choose another directory, or delete it to make new keys")
    roles = [(f"shuffler-{hop}", "shuffler") for hop in range(1, hops + 1)]
    roles += [("accountant", "accountant"), ("analyzer", "analyzer")]
    needed = len(roles) + 3
    where = list(addresses or free_addresses(needed))
    if len(where) != needed:
        raise ValueError(f"there are {len(where)} addresses; {len(roles)} services and 3 public ports need {needed}")
    public = {"shuffler-1": where[-3], "accountant": where[-2], "analyzer": where[-1]}
    services = []
    for (service, role), address in zip(roles, where, strict=False):
        identity, certificate, _ = new_keys(directory / service, service)
        services.append(
            {
                "name": service,
                "role": role,
                "address": address,
                "public_address": public.get(service),
                "identity": identity,
                "tls_certificate": certificate,
            }
        )
    _, operator_certificate, _ = new_keys(directory / OPERATOR, OPERATOR)
    unsigned = Deployment.model_validate(
        {
            "name": name,
            "operator_tls_certificate": operator_certificate,
            "services": services,
            "participant_pages": [page_hash()],
        }
    )
    deployment = signed_here(unsigned, [directory])
    install(directory, deployment)
    return deployment


def signed_here(file: F, homes: Sequence[Path], before: Deployment | None = None) -> F:
    """Returns a file with the signatures that it needs of all services whose keys are in one of the directories.

    Args:
        file: to sign.
        homes: with a directory below for each service.
        before: the deployment in force; None before the first.

    Raises:
        ValueError: a key does not open with its storage key.
    """
    return signed_by(file, [signer for home in homes for signer in identities_in(home)], before)


def signed_by(file: F, signers: Sequence[Identity], before: Deployment | None = None) -> F:
    """Returns a file with the signatures that it needs of these signers, and without its invalid ones."""
    made, own = file.valid_signatures(), {signer_of(signer): signer for signer in signers}
    for demanded in file.quorum(before).demands.values():
        for keys in demanded:
            able = [signer for signer in own if signer in keys]
            if able and not made.keys() & able:
                made[able[0]] = FileSignature.made(own[able[0]], file.kind, file.statements)
    return file.model_copy(update={"signatures": tuple(made[signer] for signer in sorted(made))})


def signer_of(identity: Identity) -> tuple[str, str]:
    """Returns the service and the public key, hexadecimal, by which a `Quorum` names an identity."""
    return identity.name, identity.public_key.hex()


def identities_in(home: Path) -> list[Identity]:
    """Returns the identities whose keys are in the directories of services; ValueError if one does not open."""
    places = sorted(key.parent for key in home.glob("*/identity.key") if key.parent.name != OPERATOR)
    return [Identity(place.name, key) for place in places for key in identity_keys(place)]


def make_client_key(path: Path) -> str:
    """Writes one client's signing key, and its public half into FILE.pub; returns the latter, hexadecimal.

    Raises:
        ValueError: FILE exists, or FILE.pub is not the public half of a key that is gone.
    """
    public_file = path.with_name(f"{path.name}.pub")
    if path.exists():
        raise ValueError(f"{path} exists; a client keeps its key")
    if public_file.exists() and not public_file.read_bytes().startswith(PUBLIC.encode()):
        raise ValueError(f"{public_file} exists and is not a client's public key; choose another name")
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    write_secret(path, key_text(PRIVATE, key.private_bytes_raw()))
    public_file.write_text(key_text(PUBLIC, public), encoding="ascii")
    return public.hex()


def make_collector_key(path: Path, suite: str) -> Path:
    """Writes a collector's key, and its public half beside it; returns the file of the latter.

    Raises:
        ValueError: one of the files exists, or there is no such suite.
    """
    public = path.with_name(f"{path.name}.pub")
    for file in (path, public):
        if file.exists():
            raise ValueError(f"{file} exists; results that are sealed to a key can be opened with that key alone")
    secret_line, public_line = collector_key_lines(suite)
    write_secret(path, secret_line)
    public.write_text(public_line, encoding="utf-8")
    return public


def free_addresses(count: int) -> list[str]:
    """Returns loopback addresses with ports that were free a moment ago, and that no outgoing connection is given.

    Raises:
        RuntimeError: fewer than `count` of those ports are free.
        ValueError: CROUPIER_PORTS is not a range of ports.
    """
    addresses: list[str] = []
    first, last = _port_range()
    ports = range(first, last + 1)
    start = secrets.randbelow(len(ports))
    for port in (*ports[start:], *ports[:start]):
        if len(addresses) == count:
            break
        with suppress(OSError), socket.socket() as sock:
            sock.bind(("127.0.0.1", port))
            addresses.append(f"127.0.0.1:{port}")
    if len(addresses) < count:
        raise RuntimeError(f"{count} free ports are needed, and of {first}–{last} {len(addresses)} are")
    return addresses


def _port_range() -> tuple[int, int]:
    given = os.environ.get(PORTS_VARIABLE, "10000-32767")
    match = re.fullmatch(r"([0-9]{4,5})-([0-9]{4,5})", given)
    if match and 1024 <= int(match[1]) <= int(match[2]) <= 65535:
        return int(match[1]), int(match[2])
    raise ValueError(f"{PORTS_VARIABLE} is {given!r}; it must be a range within 1024-65535, such as 20000-20999")


def write_secret(path: Path, content: str) -> None:
    """Writes a new file that only its owner may read; when this returns it is on the disk.

    Raises:
        FileExistsError: the file exists.
        OSError: it cannot be written, and is not there.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        give_to_owner(path)
    except BaseException:
        path.unlink()  # half of it would be in the way of the next attempt
        raise


def replace_secret(path: Path, content: str) -> None:
    """Writes a file that only its owner may read, in place of an older one in a single step."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    write_secret(fresh, content)
    fresh.replace(path)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Waits until no other process changes a file; the lock of a process that dies is gone with it."""
    file = path.with_suffix(".lock")  # the file itself is replaced, and a lock on it with it
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        give_to_owner(file)
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def new_keys(
    own: Path, owner: str, hosts: Sequence[HostName] = (), storage_key_file: Path | None = None
) -> tuple[str, str, StorageKey]:
    """Writes all keys of a service or the operator; returns its public identity, its TLS certificate and storage key.

    Args:
        own: the directory of the service or the operator.
        owner: its name.
        hosts: see `write_keys`.
        storage_key_file: for the storage key; by default storage.key beside the keys.
    """
    storage_key = StorageKey(os.urandom(32))
    write_secret(storage_key_file or own / "storage.key", storage_key.hex() + "\n")
    return *write_keys(own, owner, storage_key, hosts=hosts), storage_key


def write_keys(
    directory: Path, owner: str, storage_key: StorageKey, prefix: str = "", hosts: Sequence[HostName] = ()
) -> tuple[str, str]:
    """Writes new identity and TLS keys; returns the public identity and the TLS certificate.

    Args:
        directory: of the service or the operator.
        owner: the name in the TLS certificate, which callers check.
        storage_key: encrypts the keys.
        prefix: of the file names.
        hosts: further names and IP addresses in the certificate, for tools that check these.

    Raises:
        FileExistsError: such files exist.
    """
    identity = Ed25519PrivateKey.generate()
    write_secret(directory / f"{prefix}identity.key", seal_key(identity, storage_key).decode())
    key = ec.generate_private_key(ec.SECP256R1())
    pem = _pem(_certificate(owner, key.public_key(), owner, key, hosts=hosts))
    write_secret(directory / f"{prefix}tls.key", seal_key(key, storage_key).decode())
    write_secret(directory / f"{prefix}tls.crt", pem)
    return identity.public_key().public_bytes_raw().hex(), pem


def make_cluster_keys(directory: Path) -> list[Path]:
    """Writes the certificates of a Dask cluster, with their keys, and returns the files.

    They are signed by an authority that is made for them and whose key is not kept, so that no other certificate is
    ever valid in this cluster. The keys are not encrypted, because Dask reads them from files.

    Args:
        directory: a new one; the service's own is `cluster/` in its directory.

    Raises:
        ValueError: the directory holds certificates already.
    """
    authority_file = directory / AUTHORITY_FILE
    if authority_file.exists():
        raise ValueError(f"{authority_file} exists; choose another directory, or delete this one to make new keys")
    authority, name = ec.generate_private_key(ec.SECP256R1()), "croupier cluster"
    files = [authority_file]
    write_secret(authority_file, _pem(_certificate(name, authority.public_key(), name, authority, is_authority=True)))
    for side in ("client", "scheduler", "worker"):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate_file, key_file = certificate_files(directory, side)
        write_secret(certificate_file, _pem(_certificate(side, key.public_key(), name, authority)))
        plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        write_secret(key_file, key.private_bytes(*plain).decode())
        files += [certificate_file, key_file]
    return files


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _certificate(
    owner: str,
    public_key: ec.EllipticCurvePublicKey,
    issuer: str,
    signing_key: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool = False,
    hosts: Sequence[HostName] = (),
) -> x509.Certificate:
    subject, signer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in (owner, issuer))
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - VALID_BEFORE)
        .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(key_usage(signs_certificates=is_authority), critical=True)
    )
    if owner != issuer:
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False
        )
    if not is_authority:
        names = [x509.DNSName(owner), *map(_general_name, hosts)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signing_key, hashes.SHA256())


def _general_name(host: HostName) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
