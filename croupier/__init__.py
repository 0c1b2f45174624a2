"""The public face of croupier: what the documentation shows and what keeps its name between versions.

    >>> import croupier
    >>> budgets = croupier.Budgets.from_tiers([(0.5, 9000), (2.0, 1000)])
    >>> print(croupier.certify(budgets, "rr", delta=1e-6).grade)
    CERTIFIED

Everything is loaded when it is first used. Other packages of the project are private to the deployment.
"""

from importlib.metadata import version
from typing import Any

import accountant

__all__ = sorted([*accountant.__all__, "__version__"])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("croupier")
    if name in accountant.__all__:
        return getattr(accountant, name)
    raise AttributeError(f"module 'croupier' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
