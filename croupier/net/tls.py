"""Identities: the certificate that a server shows, those that it trusts, and the name of a caller that shows one.

No certificate authority is trusted; each certificate in the deployment file is trusted for its own name only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio

from croupier.protocol.deployment import OPERATOR, Deployment

T = TypeVar("T")
Caller = str
Context = grpc.aio.ServicerContext[Any, Any]


class TlsSecrets(Protocol):
    """The TLS key of one party and its certificate, both in PEM."""

    @property
    def tls_key(self) -> bytes:
        """The private key."""

    @property
    def tls_certificate(self) -> bytes:
        """The certificate."""


def _plain(certificate: str) -> str:
    return "".join(certificate.split())


def presented_certificate(context: Context) -> str | None:
    """Returns the certificate that the caller has shown, in PEM."""
    (presented, *_) = context.auth_context().get("x509_pem_cert", [None])
    return None if presented is None else presented.decode()


class ServerTls:
    """The certificate that a server shows and those that it trusts; `replace` takes effect with the next handshake.

    gRPC asks before every handshake whether they have changed. What it is given then it takes for new and frees what it
    had, while other handshakes may be using that: the process dies. So it is given something only once a change.
    """

    def __init__(self, deployment: Deployment, secrets: TlsSecrets) -> None:
        self._changes = 0
        self._ever_pinned: set[str] = set()
        self.replace(deployment, secrets)

    def replace(self, deployment: Deployment, secrets: TlsSecrets) -> None:
        """Changes to the keys and pins of a new deployment file."""
        services = [certificate for entry in deployment.services for certificate in entry.tls_certificates]
        self.trusted = [*services, deployment.operator_tls_certificate]
        self._pinned = {_plain(certificate) for certificate in self.trusted}
        self._ever_pinned |= self._pinned
        self.certificate = secrets.tls_certificate
        own = [(secrets.tls_key, secrets.tls_certificate)]
        trusted = "\n".join(self.trusted).encode()
        self._peers = grpc.ssl_server_certificate_configuration(own, root_certificates=trusted)
        self._clients = grpc.ssl_server_certificate_configuration(own)
        self._changes += 1

    def pins(self, certificate: str) -> bool:
        """Returns whether this very certificate is pinned."""
        return _plain(certificate) in self._pinned

    def has_pinned(self, certificate: str) -> bool:
        """Returns whether it is, or has been since the service started."""
        return _plain(certificate) in self._ever_pinned

    def for_peers(self) -> grpc.ServerCredentials:
        """Mutual TLS with the pinned certificates."""
        changed = self._once_a_change(lambda: self._peers)
        return grpc.dynamic_ssl_server_credentials(self._peers, changed, require_client_authentication=True)

    def for_clients(self) -> grpc.ServerCredentials:
        """TLS, for callers without a certificate."""
        return grpc.dynamic_ssl_server_credentials(self._clients, self._once_a_change(lambda: self._clients))

    def _once_a_change(self, current: Callable[[], T]) -> Callable[[], Any]:
        given = self._changes

        def changed() -> T | None:
            nonlocal given
            if given == self._changes:
                return None
            given = self._changes
            return current()

        return changed


def caller_name(context: Context, deployment: Deployment) -> Caller | None:
    """Returns the name that the caller's certificate is pinned for, or None for a client."""
    presented = presented_certificate(context)
    if presented is None:
        return None
    certificate = _plain(presented)
    if certificate == _plain(deployment.operator_tls_certificate):
        return OPERATOR
    for entry in deployment.services:
        if any(certificate == _plain(tls_certificate) for tls_certificate in entry.tls_certificates):
            return entry.name
    return None
