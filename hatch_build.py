"""The URLs of a wheel, from the repository's public address: whoever publishes it names that once, in the environment.

Without an address a wheel has no URLs.
"""

import os
import re
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PATHS = {
    "Source": "",
    "Documentation": "/tree/HEAD/docs",
    "Changelog": "/blob/HEAD/CHANGELOG.md",
    "Issues": "/issues",
}
"""Where they are on GitHub and GitLab."""


class ProjectUrls(MetadataHookInterface):
    """Sets `project.urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Sets what follows from the addresses that there are."""
        source, documentation = _address("CROUPIER_PROJECT_URL"), _address("CROUPIER_DOCUMENTATION_URL")
        urls = {name: source + path for name, path in PATHS.items()} if source else {}
        metadata["urls"] = urls | ({"Documentation": documentation} if documentation else {})


def _address(variable: str) -> str:
    address = os.environ.get(variable, "").rstrip("/")
    if address and (not re.fullmatch(r"https://[\w.-]+(:\d+)?(/[\w.~/-]+)?", address) or address.endswith(".git")):
        raise ValueError(
            f"{variable} is {address!r}: it must be an https address as a browser shows it, "
            "without a user, a query, a fragment or '.git', like https://git.example/people/croupier"
        )
    return address
