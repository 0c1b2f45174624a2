"""Compose files, with one container per service; the gateway, which has no key and no store, is optional.

The gateway listens on loopback, behind a reverse proxy on the same machine that has a certificate for the name that
clients know. In Kubernetes it has that certificate itself (deploy/helm).
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Template

from croupier.deploy.render.layout import FIRST_PORT, HOME, Layout, Place, Resources
from croupier.deploy.render.settings import MOUNTED_STORAGE_KEY

COMPOSE_FILE = "compose.yaml"
GATEWAY = "gateway"
"""The name of the gateway's container, and of the folder with its deployment.toml."""
_LISTEN = "127.0.0.1:8790"
_ADMIN = f"127.0.0.1:{FIRST_PORT + 2}"
_CONFINED = """\
    user: "$user:$user"
    read_only: true
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    restart: unless-stopped
    stop_grace_period: ${stop_s}s
    mem_limit: ${memory_mib}m
    memswap_limit: ${memory_mib}m # no more than the memory: keys and ciphertexts are never swapped to a disk
    ulimits:
      core: 0
      nofile: $open_files
"""
_OPENING = Template("""\
# One container per service, as 'croupier init --run-with compose' lays out their files beside this one:
#
#   NAME/                            deployment.toml, and NAME/ with keys, settings and store: belongs to user $user
#   storage-keys/NAME.storage-key    opens those keys: belongs to user $user, mode 0400
services:
""")
_SERVICE = Template(
    """\
  $name:
    image: $image
    command: [croupier, serve, $name, --dir, $home]
"""
    + _CONFINED
    + """\
    networks: [$name] # of its own: services reach each other at their addresses, as if on other machines
    ports:
      - "$first:$peers" # peers and the operator
$public_port      - "127.0.0.1:$metrics:$metrics_inside" # Prometheus, on this machine only
    healthcheck:
      test: [CMD, python, -m, croupier.deploy.node.probe, "$admin"]
      interval: 30s
      timeout: 5s
      start_period: ${start_s}s
    tmpfs: ["/tmp:size=${tmp_mib}m,mode=1777,exec"] # rbcl loads libsodium from there
    volumes:
      - {type: bind, source: ./$name, target: $home}
    secrets:
      - {source: $name-storage-key, target: $storage_key}
"""
)

_GATEWAY = Template(
    """\
  $name:
    image: $image
    command: [croupier, gateway, --dir, $home, --listen, "$listen"]
"""
    + _CONFINED
    + """\
    network_mode: host # it listens on loopback of this machine, where the reverse proxy is
    healthcheck:
      test: [CMD, python, -m, croupier.deploy.node.probe, "http://$listen"]
      interval: 30s
      timeout: 10s
      start_period: ${start_s}s
    tmpfs: ["/tmp:size=${tmp_mib}m,mode=1777,exec"] # rbcl loads libsodium from there
    volumes:
      - {type: bind, source: ./$name, target: $home, read_only: true}
"""
)


def compose_file(layout: Layout, places: Sequence[Place], *, has_gateway: bool = False) -> str:
    """Returns the compose file for the services of one host."""
    lines = [_OPENING.substitute(user=layout.limits.user_id)]
    lines += [_service(place, layout.image, layout.limits) for place in places]
    if has_gateway:
        limits = layout.limits
        known = {"name": GATEWAY, "image": layout.image, "home": HOME, "user": limits.user_id, "listen": _LISTEN}
        lines.append(_GATEWAY.substitute(limits.model_dump(), **known))
    if not places:
        return "".join(lines)
    lines += ["networks:\n", *(f"  {place.service}: {{}}\n" for place in places)]
    lines += ["secrets:\n"]
    lines += [
        f"  {name}-storage-key: {{file: ./storage-keys/{name}.storage-key}}\n"
        for name in (place.service for place in places)
    ]
    return "".join(lines)


def _service(place: Place, image: str, limits: Resources) -> str:
    public = f'      - "{place.first_port + 1}:{FIRST_PORT + 1}" # clients\n' if place.takes_clients else ""
    return _SERVICE.substitute(
        limits.model_dump(),
        name=place.service,
        image=image,
        home=HOME,
        user=limits.user_id,
        first=place.first_port,
        peers=FIRST_PORT,
        public_port=public,
        metrics=place.metrics_port,
        metrics_inside=FIRST_PORT + 3,
        admin=_ADMIN,
        storage_key=MOUNTED_STORAGE_KEY,
    )
