"""Ports that are free for a service of a test."""

from __future__ import annotations

import socket
from contextlib import suppress

from croupier.operator.keys import free_addresses


def four_ports() -> int:
    """Returns the first of four neighbouring ports that are free."""
    while True:
        first = int(free_addresses(1)[0].rpartition(":")[2])
        with suppress(OSError):
            for port in range(first, first + 4):
                with socket.create_server(("127.0.0.1", port)):
                    pass
            return first
