"""gRPC over TLS with pinned certificates: servers and the channels between them; clients' channels: `net.channels`.

A service listens twice: peers and the operator come with mutual TLS, clients without a certificate. `net.tls` says
which certificate is whose, `net.guard` checks every call first, and `net.retrying` repeats calls that fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import grpc
import grpc.aio

from croupier.net.channels import pinned_roots, public_channel, secure_channel
from croupier.net.guard import OnRefusal, make_guard
from croupier.net.limits import SERVER_OPTIONS
from croupier.net.tls import ServerTls, TlsSecrets
from croupier.protocol.deployment import ServiceEntry


class ListenAddresses(Protocol):
    """Where a service listens, if not at the addresses of its entry."""

    @property
    def listen(self) -> str | None:
        """For peers and the operator."""

    @property
    def public_listen(self) -> str | None:
        """For clients."""


def make_server(
    concurrent_calls: int, on_refusal: OnRefusal = lambda code: None, tls: ServerTls | None = None
) -> grpc.aio.Server:
    """Returns a server without ports.

    Args:
        concurrent_calls: more at once get RESOURCE_EXHAUSTED.
        on_refusal: is told of refusals.
        tls: says which callers' certificates are pinned; a server without it has none.
    """
    return grpc.aio.server(interceptors=[make_guard(concurrent_calls, on_refusal, tls)], options=SERVER_OPTIONS)


def add_ports(server: grpc.aio.Server, entry: ServiceEntry, tls: ServerTls, settings: ListenAddresses) -> None:
    """Listens for peers and operator with mutual TLS, for clients with plain TLS; where, the settings may say."""
    with listening_at(address := settings.listen or entry.address):
        server.add_secure_port(address, tls.for_peers())
    if entry.public_address:
        with listening_at(address := settings.public_listen or entry.public_address):
            server.add_secure_port(address, tls.for_clients())


@contextmanager
def listening_at(address: str) -> Iterator[None]:
    """Says in one sentence that an address cannot be listened at.

    Raises:
        ValueError: the block has raised what gRPC or the operating system raise then.
    """
    try:
        yield
    except (RuntimeError, OSError) as error:
        raise ValueError(
            f"nothing can listen at {address}: another program uses the port, or the address is not this machine's; "
            "end that program, or choose another address"
        ) from error


def peer_channel(entry: ServiceEntry, secrets: TlsSecrets) -> grpc.aio.Channel:
    """Returns a mutual-TLS channel to a service, as the holder of `secrets`."""
    credentials = grpc.ssl_channel_credentials(pinned_roots(entry), secrets.tls_key, secrets.tls_certificate)
    return secure_channel(entry.address, entry, credentials)


@dataclass(frozen=True)
class Transport:
    """How services and their callers reach each other: `TLS`, or for tests a transport without sockets.

    Attributes:
        make_server: as the function of this name, and so on.
    """

    make_server: Callable[[int, OnRefusal, ServerTls], grpc.aio.Server]
    add_ports: Callable[[grpc.aio.Server, ServiceEntry, ServerTls, ListenAddresses], None]
    peer_channel: Callable[[ServiceEntry, TlsSecrets], grpc.aio.Channel]
    public_channel: Callable[[ServiceEntry], grpc.aio.Channel]


TLS = Transport(make_server, add_ports, peer_channel, public_channel)
