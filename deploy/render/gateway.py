"""The gateway, an optional service: its systemd unit, its container, and its Kubernetes manifest.

It has no key and no store. Under systemd and compose it listens on loopback, behind a reverse proxy on the same
machine that has a certificate for the name that clients know; in Kubernetes it has that certificate itself.
"""

from __future__ import annotations

from string import Template

from croupier.deploy.render.confinement import CONTAINER, CONTAINER_OF_POD, POD, POLICY, UNIT
from croupier.deploy.render.layout import FIRST_PORT, HOME, Layout, Resources

__all__ = ["GATEWAY", "GATEWAY_FILE", "GATEWAY_UNIT_FILE", "gateway_container", "gateway_manifest", "gateway_unit"]

GATEWAY = "gateway"
"""Its name, and that of the folder with its deployment.toml."""
GATEWAY_UNIT_FILE = "croupier-gateway.service"
GATEWAY_FILE = "gateway.yaml"
_LISTEN = "127.0.0.1:8790"
_TLS_PORT = 8443
"""The gateway's port inside its container."""
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
_MANIFEST = Template(
    """\
# The gateway, for clients that cannot speak gRPC (docs/gateway.md). Optional: kustomization.yaml leaves it out.
# gateway-tls is a secret of the type kubernetes.io/tls, with a certificate that clients trust by themselves.
apiVersion: v1
kind: Service
metadata:
  name: $name
  labels: {app.kubernetes.io/name: croupier, app.kubernetes.io/component: $name}
spec:
  type: LoadBalancer # passes TLS through
  externalTrafficPolicy: Local # callers keep their addresses, for each of which there is a limit
  selector: {app.kubernetes.io/name: croupier, app.kubernetes.io/component: $name}
  ports:
    - {name: https, port: $outside, targetPort: https}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: $name
  labels: {app.kubernetes.io/name: croupier, app.kubernetes.io/component: $name}
spec:
  replicas: 1 # or more: it keeps nothing
  selector:
    matchLabels: {app.kubernetes.io/name: croupier, app.kubernetes.io/component: $name}
  template:
    metadata:
      labels: {app.kubernetes.io/name: croupier, app.kubernetes.io/component: $name}
    spec:
"""
    + POD
    + """\
          command:
            - croupier
            - gateway
            - --dir=$home
            - --listen=0.0.0.0:$port
            - --tls-certificate=/run/secrets/tls/tls.crt
            - --tls-key=/run/secrets/tls/tls.key
          ports:
            - {name: https, containerPort: $port}
          # It is alive while it listens; it is ready while it reaches hop 1.
          livenessProbe:
            tcpSocket: {port: $port}
            periodSeconds: 10
          readinessProbe:
            httpGet: {path: /health, port: $port, scheme: HTTPS}
            periodSeconds: 10
            timeoutSeconds: 8
"""
    + CONTAINER_OF_POD
    + """\
          resources:
            requests: {cpu: 100m, memory: 256Mi}
            limits: {memory: ${memory_mib}Mi}
          volumeMounts:
            - {name: deployment, mountPath: $home/deployment.toml, subPath: deployment.toml, readOnly: true}
            - {name: tls, mountPath: /run/secrets/tls, readOnly: true}
            - {name: tmp, mountPath: /tmp}
      volumes:
        - {name: deployment, configMap: {name: croupier-deployment}}
        - {name: tls, secret: {secretName: $name-tls, defaultMode: 0440}}
        - {name: tmp, emptyDir: {medium: Memory, sizeLimit: ${tmp_mib}Mi}}
---
# Clients come from anywhere; it calls what clients call, wherever deployment.toml says that is.
"""
    + POLICY
    + """\
    - ports:
        - {port: $port, protocol: TCP}
  egress:
    - ports:
        - {port: $public, protocol: TCP}
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


def gateway_manifest(layout: Layout) -> str:
    """Returns the Kubernetes manifest."""
    return _MANIFEST.substitute(
        layout.limits.model_dump(),
        name=GATEWAY,
        image=layout.image,
        home=HOME,
        user=layout.limits.user_id,
        port=_TLS_PORT,
        outside=443,
        public=FIRST_PORT + 1,
        group_of_store="",
    )
