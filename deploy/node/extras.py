"""Which extra of the package a library comes with that is not installed here."""

from __future__ import annotations

from importlib.util import find_spec

_SERVICE = ("service", "shuffler", "analyzer", "accountant", "operator", "demo", "console")
_EXTRAS_OF = {
    "torch": ("sgd",),
    "sklearn": ("sgd",),
    "psycopg": ("postgresql",),
    "matplotlib": ("plots", "demo"),
    "distributed": ("cluster",),
    "segno": ("operator", "invitations"),
    "jinja2": ("console",),
    "openpyxl": ("demo",),
    "polars": ("parquet",),
    "starlette": ("console", "gateway"),
    "uvicorn": ("console", "gateway"),
    "grpc_health": _SERVICE,
    "grpc_reflection": _SERVICE,
    "prometheus_client": _SERVICE,
    "numpy": ("accountant", "analyzer", "operator", "demo", "console", "report"),
    "scipy": ("accountant", "analyzer", "operator", "demo", "console", "report"),
    "dp_accounting": ("accountant", "operator", "demo", "console", "report"),
    "flint": ("accountant", "operator", "demo", "console", "report"),
}
"""The extras that a library comes with, the one to name first where the caller has not said which it needs."""


def missing_library(error: ImportError, extra: str = "") -> str:
    """Returns the sentence about a library that could not be imported, and how to install it.

    Args:
        error: of the import.
        extra: what the caller needs in all; it is named if the library comes with it.
    """
    name = (error.name or "").partition(".")[0]
    if not name:  # a library is there and cannot be loaded, such as psycopg without libpq
        return str(error)
    extras = _EXTRAS_OF.get(name, ("demo",))
    return f"{name} is not installed; it comes with 'croupier[{extra if extra in extras else extras[0]}]'"


def check_installed(extra: str) -> None:
    """Raises ImportError for a library of an extra that is missing, before anything is started."""
    for name, extras in _EXTRAS_OF.items():
        if extra in extras and find_spec(name) is None:
            raise ImportError(name=name)
