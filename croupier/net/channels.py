"""Channels of clients: gRPC over TLS, to a public address of a service whose certificate the deployment file pins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import grpc
import grpc.aio

from croupier.net.sizes import MESSAGE_BYTES
from croupier.protocol.deployment import ServiceEntry

_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    # Without a limit a peer that was away for long is not tried again for two minutes after it has come back.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 5000),
]


class ClientTransport(Protocol):
    """How a client reaches the services; `net.transport.Transport` includes it."""

    @property
    def public_channel(self) -> Callable[[ServiceEntry], grpc.aio.Channel]:
        """Returns a client's channel to a service."""
        ...


def pinned_roots(entry: ServiceEntry) -> bytes:
    """Returns the certificates that a service may have, as gRPC takes them."""
    return "\n".join(entry.tls_certificates).encode()


def secure_channel(
    address: str, entry: ServiceEntry, credentials: grpc.ChannelCredentials, options: Sequence[tuple[str, Any]] = ()
) -> grpc.aio.Channel:
    """Returns a TLS channel to an address of a service, which must present the service's name."""
    all_options = [*_CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", entry.name), *options]
    return grpc.aio.secure_channel(address, credentials, options=all_options)


def public_channel(entry: ServiceEntry, options: Sequence[tuple[str, Any]] = ()) -> grpc.aio.Channel:
    """Returns a client's channel to a service, with further options of gRPC's.

    Raises:
        ValueError: the service has no public address.
    """
    if entry.public_address is None:
        raise ValueError(f"{entry.name} has no public_address; clients cannot call it")
    return secure_channel(entry.public_address, entry, grpc.ssl_channel_credentials(pinned_roots(entry)), options)
