"""The public face of croupier: what the documentation shows and what keeps its name between versions.

    >>> import croupier
    >>> budgets = croupier.Budgets.from_tiers([(0.5, 9000), (2.0, 1000)])
    >>> print(croupier.certify(budgets, "rr", delta=1e-6).grade)
    CERTIFIED

The mathematics is the accountant's. `connect` is for applications that take part in rounds (docs/client-library.md),
and needs no numeric library. Everything is loaded when it is first used. Its subpackages are private to the
deployment.
"""

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

if not (Path(__file__).parent / "accountant").is_dir():
    raise ImportError(
        "this checkout has no symbolic links: croupier/accountant is not a folder. Run 'git config core.symlinks true' "
        "and 'git checkout -- croupier', or install the wheel"
    )

from croupier import accountant
from croupier.accountant.drawable import Drawable

_ELSEWHERE = {
    "Assumption": "croupier.protocol.codes",
    "AsyncClient": "croupier.client.async_client",
    "AsyncClientRound": "croupier.client.round_client",
    "Client": "croupier.client.sync_client",
    "ClientRound": "croupier.client.sync_client",
    "Code": "croupier.protocol.errors",
    "CroupierError": "croupier.protocol.errors",
    "DiscoveryResult": "croupier.study.discovery",
    "Explanation": "croupier.show.explanation",
    "Inclusion": "croupier.client.round_result",
    "LimitError": "croupier.protocol.errors",
    "Limits": "croupier.client.limits",
    "Method": "croupier.protocol.codes",
    "NotCertifiedError": "croupier.protocol.errors",
    "NotIncludedError": "croupier.protocol.errors",
    "Note": "croupier.protocol.codes",
    "OtherPersonError": "croupier.protocol.errors",
    "PermanentSeries": "croupier.protocol.permanent",
    "Prefixes": "croupier.protocol.rules",
    "ProtocolError": "croupier.protocol.errors",
    "Receipt": "croupier.client.round_result",
    "Refusal": "croupier.protocol.errors",
    "RefusalReason": "croupier.protocol.codes",
    "ResultValue": "croupier.client.round_result",
    "RoundResult": "croupier.client.round_result",
    "SignatureError": "croupier.protocol.errors",
    "SimulatedQuestion": "croupier.deploy.local.simulation",
    "Simulation": "croupier.deploy.local.simulation",
    "Statement": "croupier.protocol.statements",
    "ProofStep": "croupier.protocol.codes",
    "TicketError": "croupier.protocol.errors",
    "UnreachableError": "croupier.protocol.errors",
    "connect": "croupier.client.sync_client",
    "discover": "croupier.deploy.local.discovering",
    "explain": "croupier.show.explanation",
    "simulate": "croupier.deploy.local.simulation",
}
"""Where a name that is not the accountant's is defined."""

Drawable.drawing = staticmethod(partial(import_module, "croupier.show.certificate_drawing"))

__all__ = sorted([*accountant.__all__, *_ELSEWHERE, "__version__"])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("croupier")
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    if name in accountant.__all__:
        return getattr(accountant, name)
    raise AttributeError(f"module 'croupier' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
