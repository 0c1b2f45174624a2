"""The public file of an organisation: its statement of its service, signed with that service's identity."""

from __future__ import annotations

from pathlib import Path

from pydantic import model_validator

from croupier.deploy.version_files import toml_lines
from croupier.operator.keys import replace_secret
from croupier.protocol.deployment import (
    OPERATOR,
    FileSignature,
    OperatorEntry,
    Pem,
    ServiceEntry,
    Strict,
    canonical_json,
)
from croupier.protocol.identity import Identity, Kind, document_hash
from croupier.protocol.names import Digest
from croupier.protocol.toml_file import read_toml
from croupier.runtime.service_directory import identity_keys


class PublicFile(Strict):
    """The statement of one organisation for the others.

    Attributes:
        service: its service.
        operator_tls_certificate: instead: of the operator that it runs.
        operator: the operator's name and address.
        signature: with the identity in the file.
    """

    service: ServiceEntry | None = None
    operator_tls_certificate: Pem | None = None
    operator: OperatorEntry | None = None
    signature: FileSignature | None = None

    @model_validator(mode="after")
    def _check(self) -> PublicFile:
        if (self.service is None) == (self.operator_tls_certificate is None):
            raise ValueError("it must state either a service or an operator_tls_certificate")
        if self.operator is not None and self.service is not None:
            raise ValueError("it states a service, so that it must not state who the operator is")
        return self

    @property
    def owner(self) -> str:
        """The name of the service, or "operator"."""
        return OPERATOR if self.service is None else self.service.name

    @property
    def statement(self) -> bytes:
        """The signed bytes."""
        return canonical_json(self, without={"signature"})

    @property
    def fingerprint(self) -> Digest:
        """The hash that is compared by telephone."""
        return document_hash(Kind.ORGANISATION, self.statement)

    def is_signed(self) -> bool:
        """Returns whether the owner has signed this file with the identity that it names."""
        signature = self.signature
        return (
            signature is not None
            and signature.signer == self.owner
            and (self.service is None or signature.identity == self.service.identity)
            and signature.is_valid(Kind.ORGANISATION, [self.statement])
        )


def public_file_path(directory: Path, owner: str) -> Path:
    """Returns the path of the public file of a service, or of the operator."""
    return directory / f"{owner}.public.toml"


def write_public_file(directory: Path, stated: PublicFile) -> PublicFile:
    """Signs a public file with the owner's identity key and writes it; returns it with the signature.

    Raises:
        ValueError: the key does not open, or is not that of the identity in the file.
    """
    for key in identity_keys(directory / stated.owner):
        signature = FileSignature.made(Identity(stated.owner, key), Kind.ORGANISATION, [stated.statement])
        signed = stated.model_copy(update={"signature": signature})
        if signed.is_signed():
            break
    else:
        raise ValueError(f"the identity key of {stated.owner} is not the one that its public file names")
    tables = signed.model_dump(exclude={"operator_tls_certificate"}, exclude_none=True)
    lines = toml_lines({"operator_tls_certificate": signed.operator_tls_certificate} if signed.service is None else {})
    for name, table in tables.items():
        lines += ["", f"[{name}]", *toml_lines(table)]
    file = public_file_path(directory, stated.owner)
    replace_secret(file, "\n".join(lines).lstrip() + "\n")
    file.chmod(0o644)
    return signed


def read_public_file(file: Path) -> PublicFile:
    """Reads a public file.

    Raises:
        ValueError: it cannot be used, or is not signed with the identity that it names.
    """
    stated = read_toml(file, PublicFile, "public file of an organisation", is_sent=True)
    if not stated.is_signed():
        raise ValueError(f"{file} is not signed by {stated.owner}: it was changed; get it from its owner again")
    return stated


def entry_fingerprint(entry: ServiceEntry) -> Digest:
    """Returns the fingerprint of the public file that states this entry, before anything about it has changed."""
    return PublicFile(service=entry).fingerprint


def public_file_of(directory: Path, name: str) -> ServiceEntry | None:
    """Returns the entry in an own service's public file; None if there is no such file.

    Raises:
        ValueError: the file cannot be used.
    """
    file = public_file_path(directory, name)
    return read_public_file(file).service if file.exists() else None
