"""The gateway, an optional service: its systemd unit and its container.

It has no key and no store. Under systemd and compose it listens on loopback, behind a reverse proxy on the same
machine that has a certificate for the name that clients know. In Kubernetes it has that certificate itself
(deploy/helm).
"""

from __future__ import annotations

from string import Template

from croupier.deploy.render.confinement import CONTAINER, UNIT
from croupier.deploy.render.layout import HOME, Layout, Resources

__all__ = ["GATEWAY", "GATEWAY_UNIT_FILE", "gateway_container", "gateway_unit"]

GATEWAY = "gateway"
"""Its name, and that of the folder with its deployment.toml."""
GATEWAY_UNIT_FILE = "croupier-gateway.service"
_LISTEN = "127.0.0.1:8790"
_UNIT = Template("""\
# The gateway, for clients that cannot speak gRPC (docs/gateway.md): systemctl enable --now croupier-gateway
#
#   /opt/croupier/bin/croupier                  from a virtual environment with croupier[gateway]
#   /etc/croupier-gateway/deployment.toml       public; restart the gateway after it has changed
#
# It listens on loopback: a reverse proxy on this machine has the certificate, and sets X-Forwarded-For.
[Unit]
Description=croupier gateway
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
ExecStart=/opt/croupier/bin/croupier gateway --dir %d --listen $listen
LoadCredential=deployment.toml:/etc/croupier-gateway/deployment.toml
DynamicUser=yes
UMask=0077
Restart=on-failure
RestartSec=2
TimeoutStopSec=$stop_s

${sandbox}LimitNOFILE=$open_files

[Install]
WantedBy=multi-user.target
""")
_CONTAINER = Template(
    """\
  $name:
    image: $image
${profiles}    command: [croupier, gateway, --dir, $home, --listen, "$listen"]
"""
    + CONTAINER
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


def gateway_unit(limits: Resources) -> str:
    """Returns the systemd unit."""
    return _UNIT.substitute(listen=_LISTEN, stop_s=limits.stop_s, open_files=limits.open_files, sandbox=UNIT)


def gateway_container(layout: Layout, *, optional: bool = False) -> str:
    """Returns the lines of a compose file; an optional service starts only with '--profile gateway'."""
    return _CONTAINER.substitute(
        layout.limits.model_dump(),
        name=GATEWAY,
        image=layout.image,
        profiles=f"    profiles: [{GATEWAY}] # starts only with 'docker compose --profile {GATEWAY} up'\n"
        if optional
        else "",
        home=HOME,
        user=layout.limits.user_id,
        listen=_LISTEN,
        why_no_swap="",
    )
