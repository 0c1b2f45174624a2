"""service.toml of a service, as whatever starts it needs it."""

from __future__ import annotations

from croupier.deploy.render.layout import FIRST_PORT, Manager, Place

_MOUNTED_STORAGE_KEY = "/run/secrets/croupier/storage.key"
"""Where a container finds the storage key."""
_WORKERS = 4
"""Processes for the cryptography in a container, which sees all cores of its machine."""


def settings_of(place: Place, manager: Manager) -> str:
    """Returns the settings of a service; in a container it has all ports for itself, and metrics are asked outside."""
    contained = manager != "systemd"
    first, metrics = (FIRST_PORT, "0.0.0.0") if contained else (place.first_port, "127.0.0.1")  # noqa: S104
    key = _MOUNTED_STORAGE_KEY if contained else f"/run/credentials/croupier@{place.service}.service/storage-key"
    lines = [
        f'storage_key = "file:{key}"',
        f'listen = "0.0.0.0:{first}"',
        *([f'public_listen = "0.0.0.0:{first + 1}"'] if contained or place.takes_clients else []),
        f'admin_listen = "127.0.0.1:{first + 2}"',
        f'metrics_listen = "{metrics}:{first + 3}"',
        *(["insecure_admin_anywhere = true", f"workers = {_WORKERS}"] if contained else []),
    ]
    return "\n".join(lines) + "\n"
