"""Containers: the file that their image is built from, and compose files with one container per service."""

from __future__ import annotations

from collections.abc import Sequence
from string import Template

from croupier.deploy.render.confinement import CONTAINER
from croupier.deploy.render.layout import FIRST_PORT, HOME, Layout, Place, Resources
from croupier.deploy.render.settings import MOUNTED_STORAGE_KEY

__all__ = ["COMPOSE_FILE", "compose_file", "containerfile"]

COMPOSE_FILE = "compose.yaml"
_ADMIN = f"127.0.0.1:{FIRST_PORT + 2}"
_CONTAINERFILE = Template("""\
# The image of every service, from the files of a release: make release, and then
# docker build --file deploy/compose/Containerfile --tag $image dist
# It holds no key and no deployment, and runs as a user without a name that owns nothing in it. Packages and wheel are
# installed by their hashes. A tag can change, and a digest that is written down here would miss the base's security
# updates: release.yml resolves the digest when it builds, and a build by hand names it with
# --build-arg PYTHON_IMAGE=python:3.11-slim@sha256:... (docs/install.md).
ARG PYTHON_IMAGE=python:3.11-slim
FROM $$PYTHON_IMAGE AS build
COPY . /dist
RUN python -m venv /opt/croupier \\
 && /opt/croupier/bin/pip install --no-cache-dir --require-hashes --only-binary :all: \\
    --requirement /dist/requirements-with-hashes.txt \\
 && /opt/croupier/bin/pip install --no-cache-dir --require-hashes --no-deps --no-index --find-links /dist \\
    --requirement /dist/wheel-with-hash.txt

FROM $$PYTHON_IMAGE
COPY --from=build /opt/croupier /opt/croupier
ENV PATH=/opt/croupier/bin:$$PATH PYTHONDONTWRITEBYTECODE=1
USER $user:$user
WORKDIR $home
EXPOSE $peers $public
HEALTHCHECK --interval=30s --timeout=5s --start-period=${start_s}s \\
 CMD ["python", "-m", "croupier.deploy.node.probe", "$admin"]
CMD ["croupier", "--help"]
""")
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
    + CONTAINER
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


def containerfile(layout: Layout) -> str:
    """Returns what the image is built from."""
    limits = layout.limits
    return _CONTAINERFILE.substitute(
        image=layout.image,
        user=limits.user_id,
        home=HOME,
        peers=FIRST_PORT,
        public=FIRST_PORT + 1,
        admin=_ADMIN,
        start_s=limits.start_s,
    )


def compose_file(layout: Layout, places: Sequence[Place], gateway: str = "") -> str:
    """Returns the compose file for the services of one host, and what `gateway_container` returns for a gateway."""
    lines = [_OPENING.substitute(user=layout.limits.user_id)]
    lines += [_service(place, layout.image, layout.limits) for place in places]
    lines += [gateway]
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
        why_no_swap=" # no more than the memory: keys and ciphertexts are never swapped to a disk",
    )
