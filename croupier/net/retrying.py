"""Calls that are repeated where they fail for the moment: by services, clients and the operator alike."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc.aio

from croupier.protocol.errors import TRANSIENT, ProtocolError, refusal_of

T = TypeVar("T")
_log = logging.getLogger(__name__)
RETRY_AFTER = "retry-after-ms"
"""The trailing metadata in which a service says when to try again."""
HOW_TO_TRUST = (
    "if the certificate is of an authority of your own, set the environment variable SSL_CERT_FILE to the file of that "
    "authority (PEM); else ask the gateway's operator"
)
_LONGEST_RETRY_AFTER_S = 30.0
_NO_SUCH_NAME = ("address lookup failed", "DNS resolution failed", "name resolution", "Name or service not known")


class NotTrustedError(grpc.aio.AioRpcError):
    """A call ended because the system does not trust the certificate of a gateway's web server."""


async def retrying(
    call: Callable[[], Awaitable[T]],
    *,
    give_up_after_s: float,
    longest_wait_s: float = 5.0,
    on_failure: Callable[[grpc.aio.AioRpcError], None] = lambda _: None,
) -> T:
    """Returns the call's answer, repeating transient failures with jittered exponential backoff.

    A caller with limited patience hears of a certificate that is not pinned or trusted at once, and of an outage by a
    warning. Where the service says when to try again, the wait is at least as long, up to 30 s.

    Args:
        call: makes the call, once for every attempt.
        give_up_after_s: total waiting after which the last failure is raised; infinity keeps trying.
        longest_wait_s: the longest wait between two attempts that the service has not asked for.
        on_failure: called with every failure that will be repeated.

    Raises:
        Refusal: the service said no.
        ProtocolError: what the service answered is not a message of this call.
        grpc.aio.AioRpcError: the transport failed for good, or for too long.
    """
    wait_s, waited_s = 0.05, 0.0
    while True:
        try:
            answer = await call()
            if answer is None:  # which gRPC returns where an answer cannot be read
                raise ProtocolError("the service's answer cannot be read: it is not a message of this call")
            return answer
        except grpc.aio.AioRpcError as error:
            hopeless = math.isfinite(give_up_after_s) and (is_not_pinned(error) or is_not_trusted(error))
            if error.code() not in TRANSIENT or waited_s >= give_up_after_s or hopeless:
                refusal = refusal_of(error)
                if refusal is not None:
                    raise refusal from error
                raise
            if not waited_s and 1 < give_up_after_s < math.inf and refusal_of(error) is None:
                _log.warning("no answer yet (%s); trying for %g s", why_unreachable(error), give_up_after_s)
            on_failure(error)
            hint_s = retry_after_s(error)
        pause_s = wait_s * random.uniform(0.5, 1.0) + hint_s  # noqa: S311 (spreads load; protects no one)
        await asyncio.sleep(pause_s)
        waited_s += pause_s
        wait_s = min(wait_s * 2, longest_wait_s)


def is_not_pinned(error: grpc.aio.AioRpcError) -> bool:
    """Returns whether a call failed because the server has not the certificate that the deployment file pins."""
    return "CERTIFICATE_VERIFY_FAILED" in (error.details() or "")


def is_not_trusted(error: grpc.aio.AioRpcError) -> bool:
    """Returns whether a call failed because the system does not trust the certificate of a gateway's web server."""
    return isinstance(error, NotTrustedError)


def why_unreachable(error: grpc.aio.AioRpcError) -> str:
    """Returns in a few words why a call did not arrive, and where."""
    details = error.details() or ""
    match = re.search(r"ipv[46]:([\d.]+:\d+|\[[^\]]+\]:\d+)", details)
    if is_not_trusted(error):
        why = details
    elif is_not_pinned(error):
        why = "a certificate that is not pinned"
    elif any(sign in details for sign in _NO_SUCH_NAME):
        why = "there is no address for the name of its host"
    else:
        why = "connection refused" if "Connection refused" in details else error.code().name
    return f"{why} at {match[1]}" if match else why


def retry_after_s(error: grpc.aio.AioRpcError) -> float:
    """Returns how long the service asks its caller to stay away, 0 if it does not ask."""
    value = dict(error.trailing_metadata() or ()).get(RETRY_AFTER, "")
    if not isinstance(value, str) or not value.isdecimal() or len(value) > 9:
        return 0.0
    return min(int(value) / 1000, _LONGEST_RETRY_AFTER_S)
