"""Which extra of the package a library comes with that is not installed here."""

from __future__ import annotations

__all__ = ["missing_library"]

_EXTRA_OF = {
    "torch": "sgd",
    "sklearn": "sgd",
    "psycopg": "postgresql",
    "matplotlib": "plots",
    "distributed": "cluster",
    "jinja2": "console",
    "starlette": "console",
    "uvicorn": "console",
    "grpc_health": "service",
    "grpc_reflection": "service",
    "prometheus_client": "service",
}


def missing_library(error: ImportError, extra: str = "") -> str:
    """Returns the sentence about a library that could not be imported, and how to install it.

    Args:
        error: of the import.
        extra: what the caller needs; the smallest that the library comes with if not given.
    """
    name = (error.name or "").partition(".")[0]
    if not name:  # a library is there and cannot be loaded, such as psycopg without libpq
        return str(error)
    return f"{name} is not installed; it comes with 'croupier[{extra or _EXTRA_OF.get(name, 'demo')}]'"
