"""The compose file of one machine, made of the blocks of deploy/compose/compose.yaml: one container per service.

The gateway, which has no key and no store, is optional. It listens on loopback, behind a reverse proxy on the same
machine that has a certificate for the name that clients know. In Kubernetes it has that certificate itself
(deploy/helm).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources

from croupier.deploy.render.layout import FIRST_PORT, Layout, Place

COMPOSE_FILE = "compose.yaml"
GATEWAY = "gateway"
"""The name of the gateway's container, and of the folder with its deployment.toml."""
_MODEL = "shuffler-1"
"""The service whose block the others are made of: it has a port for clients."""


def compose_file(layout: Layout, places: Sequence[Place], *, has_gateway: bool = False) -> str:
    """Returns the compose file for the services of one host."""
    text = (resources.files("croupier.deploy") / "compose" / COMPOSE_FILE).read_text(encoding="utf-8")
    text = re.sub(r"(?m)^( +image:) \S+$", rf"\1 {layout.image}", text)
    opening, *parts = re.split(r"(?m)^(?=  [a-z0-9-]+:$|networks:$)", text)
    blocks = {part.split(":")[0].strip(): part for part in parts}
    lines = [opening, *(_service(blocks[_MODEL], place) for place in places)]
    if has_gateway:
        lines.append(re.sub(r" +profiles: .*\n", "", blocks[GATEWAY]))
    if places:
        names = [place.service for place in places]
        lines += ["networks:\n", *(f"  {name}: {{}}\n" for name in names), "secrets:\n"]
        lines += [f"  {name}-storage-key: {{file: ./storage-keys/{name}.storage-key}}\n" for name in names]
    return "".join(lines)


def _service(model: str, place: Place) -> str:
    """Returns the block of a service: the model's with its name, and with its ports outside the container."""
    block = model.replace(_MODEL, place.service)
    if not place.takes_clients:
        block = re.sub(r".*# clients\n", "", block)
    outside = place.first_port - FIRST_PORT
    return re.sub(r'(?<=[":])(\d{4})(?=:\d{4}")', lambda port: str(int(port[1]) + outside), block)
