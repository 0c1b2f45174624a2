"""service.toml of a service, as whatever starts it needs it."""

from __future__ import annotations

from croupier.deploy.render.layout import FIRST_PORT, Manager, Place

_MOUNTED_STORAGE_KEY = "/run/secrets/croupier/storage.key"
"""Where a container finds the storage key."""
_WORKERS = 4
"""Processes for the cryptography in a container, which sees all cores of its machine."""


def settings_of(place: Place, manager: Manager) -> str:
    """Returns the settings of a service."""
    if manager != "systemd":
        return _container_settings()
    public = [f'public_listen = "0.0.0.0:{place.first_port + 1}"'] if place.takes_clients else []
    lines = [
        f'storage_key = "file:/run/credentials/croupier@{place.service}.service/storage-key"',
        f'listen = "0.0.0.0:{place.first_port}"',
        *public,
        f'admin_listen = "127.0.0.1:{place.admin_port}"',
        f'metrics_listen = "127.0.0.1:{place.metrics_port}"',
    ]
    return "\n".join(lines) + "\n"


def _container_settings() -> str:
    """Returns the settings of a service in a container, which has all ports for itself."""
    lines = [
        f'storage_key = "file:{_MOUNTED_STORAGE_KEY}"',
        f'listen = "0.0.0.0:{FIRST_PORT}"',
        f'public_listen = "0.0.0.0:{FIRST_PORT + 1}"',
        f'admin_listen = "127.0.0.1:{FIRST_PORT + 2}"',
        f'metrics_listen = "0.0.0.0:{FIRST_PORT + 3}"',
        "insecure_admin_anywhere = true",
        f"workers = {_WORKERS}",
    ]
    return "\n".join(lines) + "\n"
