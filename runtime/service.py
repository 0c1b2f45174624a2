"""A role of the deployment: the round driver, the operator's calls and the deliveries in one gRPC service."""

from __future__ import annotations

from runtime.delivery import SEQUENTIAL_REPORT, Delivery
from runtime.round_control import ENVELOPE_KEY, RELEASE_KEY, RoundControl
from runtime.round_driver import ServiceSetup, Stopwatch

__all__ = ["ENVELOPE_KEY", "RELEASE_KEY", "SEQUENTIAL_REPORT", "RoundService", "ServiceSetup", "Stopwatch"]


class RoundService(RoundControl, Delivery):
    """What every role inherits. A role says which keys it has, which lanes come to it, and what to do next."""
