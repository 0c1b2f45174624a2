"""A deployment's directory: where its public file lies, and where a service that runs there keeps its store.

DIR/deployment.toml     public, the same for all: `protocol.deployment`
DIR/NAME/               secrets, settings and store of one service or of the operator: `runtime.service_directory`
"""

from __future__ import annotations

from pathlib import Path

from protocol.deployment import DEPLOYMENT_FILE, Deployment, load_deployment
from runtime.service_directory import ServiceSettings

__all__ = ["read_deployment", "store_url"]


def read_deployment(directory: Path) -> Deployment:
    """Returns the deployment whose file lies in a directory.

    Raises:
        ValueError: the file does not exist or cannot be used.
    """
    return load_deployment(directory / DEPLOYMENT_FILE)


def store_url(settings: ServiceSettings, directory: Path) -> str:
    """Returns the database of the service with this directory of its own, as SQLAlchemy names it."""
    return f"sqlite:///{directory / 'rounds.db'}" if settings.store == "sqlite" else settings.store
