"""What a step of a rotation changes in a cluster, for 'kubectl apply': JSON, which is YAML, too.

The services themselves are deployed by the Helm chart in deploy/helm.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

from croupier.protocol.names import JsonObject

PROPOSAL_CONFIG = "croupier-proposal"
"""The name of the ConfigMap with the next version of the deployment file. The chart has the one that pods read."""


def rotated(name: str, deployment_text: str, keys: Mapping[str, bytes]) -> JsonObject:
    """Returns the manifests of a step.

    Args:
        name: of the service.
        deployment_text: the next version of the deployment file.
        keys: the new files of the service's own secret, if the step changes these.
    """
    items: list[JsonObject] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": PROPOSAL_CONFIG},
            "data": {"proposal.toml": deployment_text},
        }
    ]
    if keys:
        items.append(secret(f"{name}-keys", keys))
    return {"apiVersion": "v1", "kind": "List", "items": items}


def secret(name: str, files: Mapping[str, bytes]) -> JsonObject:
    """Returns the manifest of a secret with these files."""
    data = {file: base64.b64encode(content).decode() for file, content in files.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
