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


def missing_library(error: ImportError, extra: str = "demo") -> str:
    """Returns the sentence about a library that could not be imported, and how to install it.

    Args:
        error: of the import.
        extra: what to install for a library that several extras need.
    """
    name = (error.name or "").partition(".")[0]
    if not name:  # a library is there and cannot be loaded, such as psycopg without libpq
        return str(error)
    return f"{name} is not installed; it comes with 'croupier[{_EXTRA_OF.get(name, extra)}]'"
