"""`python -m croupier.deploy.node.probe HOST:PORT`: ends with 0 if the service at this admin port is ready, else 1.

With http://HOST:PORT it is the gateway there that is asked.

For the health check of a container, which is run inside it.
"""

from __future__ import annotations

import argparse
import sys
import urllib.request
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_PATIENCE_S = 4.0
"""Seconds that a service has to answer a probe."""


def is_ready(address: str) -> bool:
    """Asks a plaintext health port whether its service is ready, or a gateway whether it reaches hop 1."""
    if address.startswith("http://"):
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=2 * _PATIENCE_S):  # noqa: S310 (http, as just seen)
                return True
        except OSError:
            return False
    with grpc.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=_PATIENCE_S)
        except grpc.RpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Is the service ready?")
    parser.add_argument("address", help="host:port of the service's admin_listen, or http://host:port of a gateway")
    sys.exit(0 if is_ready(parser.parse_args().address) else 1)
