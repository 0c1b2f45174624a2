"""The public face of croupier: what the documentation shows and what keeps its name between versions.

    >>> import croupier
    >>> budgets = croupier.Budgets.from_tiers([(0.5, 9000), (2.0, 1000)])
    >>> print(croupier.certify(budgets, "rr", delta=1e-6).grade)
    CERTIFIED

The mathematics is the accountant's. `connect` is for applications that take part in rounds (docs/client-library.md),
and needs no numeric library. Everything is loaded when it is first used. Other packages of the project are private to
the deployment.
"""

from importlib import import_module
from importlib.metadata import version
from typing import Any

import accountant

_ELSEWHERE = {
    "AsyncClient": "croupier.async_client",
    "AsyncClientRound": "croupier.async_client",
    "Client": "croupier.sync_client",
    "ClientRound": "croupier.sync_client",
    "Code": "protocol.errors",
    "CroupierError": "protocol.errors",
    "Inclusion": "croupier.round_results",
    "LimitError": "protocol.errors",
    "Limits": "client.limits",
    "NotCertifiedError": "protocol.errors",
    "NotIncludedError": "protocol.errors",
    "OtherPersonError": "protocol.errors",
    "ProtocolError": "protocol.errors",
    "Receipt": "croupier.round_results",
    "Refusal": "protocol.errors",
    "ResultValue": "croupier.round_results",
    "RoundResult": "croupier.round_results",
    "SignatureError": "protocol.errors",
    "TicketError": "protocol.errors",
    "UnreachableError": "protocol.errors",
    "connect": "croupier.sync_client",
}
"""Where a name of the client library is defined."""

__all__ = sorted([*accountant.__all__, *_ELSEWHERE, "__version__"])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("croupier")
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    if name in accountant.__all__:
        return getattr(accountant, name)
    raise AttributeError(f"module 'croupier' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
