"""Kubernetes manifests: a StatefulSet and its Services for each service, and the connections that may be made."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from string import Template

from croupier.deploy.render.confinement import CONTAINER_OF_POD, POD, POLICY
from croupier.deploy.render.gateway import GATEWAY_FILE, gateway_manifest
from croupier.deploy.render.layout import FIRST_PORT, HOME, Layout, Place, called_by
from croupier.deploy.render.settings import MOUNTED_STORAGE_KEY, container_settings
from croupier.protocol.deployment import DEPLOYMENT_FILE
from croupier.protocol.views import JsonObject

__all__ = ["DEPLOYMENT_CONFIG", "manifests", "rotated", "secret"]

DEPLOYMENT_CONFIG = "croupier-deployment"
"""The name of the ConfigMap with the deployment file; a service's keys are in the Secret NAME-keys."""
_STARTUP_PERIOD_S = 2
"""Seconds between two startup probes."""
_SERVICE = Template("""\
apiVersion: v1
kind: Service
metadata:
  name: $name
  labels: {app.kubernetes.io/name: croupier, app.kubernetes.io/component: $name}
spec:
  clusterIP: None
  # The operator asks for the status of a service that is not ready, too.
  publishNotReadyAddresses: true
  selector: {app.kubernetes.io/name: croupier, app.kubernetes.io/component: $name}
  ports:
    - {name: peers, port: $peers, targetPort: peers}
""")
_PUBLIC_SERVICE = Template("""\
---
apiVersion: v1
kind: Service
metadata:
  name: $name-public
  labels: {app.kubernetes.io/name: croupier, app.kubernetes.io/component: $name}
spec:
  type: LoadBalancer # passes TLS through; the clients pin this service's own certificate
  externalTrafficPolicy: Local # callers keep their addresses, for each of which there is a limit
  selector: {app.kubernetes.io/name: croupier, app.kubernetes.io/component: $name}
  ports:
    - {name: public, port: $public, targetPort: public}
""")
_STATEFUL_SET = Template(
    """\
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: $name
  labels: {app.kubernetes.io/name: croupier, app.kubernetes.io/component: $name}
spec:
  serviceName: $name
  replicas: 1 # never more: a round's keys and store belong to one process
  selector:
    matchLabels: {app.kubernetes.io/name: croupier, app.kubernetes.io/component: $name}
  template:
    metadata:
      labels: {app.kubernetes.io/name: croupier, app.kubernetes.io/component: $name}
      annotations: {prometheus.io/scrape: "true", prometheus.io/port: "$metrics"}
    spec:
"""
    + POD
    + """\
          command: [croupier, serve, $name, --dir, $home]
          ports:
            - {name: peers, containerPort: $peers}
$public_port            - {name: admin, containerPort: $admin}
            - {name: metrics, containerPort: $metrics}
          # "live" says that the process answers; readiness follows the store.
          startupProbe:
            grpc: {port: $admin, service: live}
            periodSeconds: $startup_period
            failureThreshold: $start_tries
          livenessProbe:
            grpc: {port: $admin, service: live}
            periodSeconds: 10
            timeoutSeconds: 5
          readinessProbe:
            grpc: {port: $admin}
            periodSeconds: 5
            timeoutSeconds: 5
            failureThreshold: 1
"""
    + CONTAINER_OF_POD
    + """\
          resources:
            requests: {cpu: "1", memory: 512Mi}
            limits: {memory: ${memory_mib}Mi}
          volumeMounts:
            - {name: store, mountPath: $home/$name}
            - {name: deployment, mountPath: $home/deployment.toml, subPath: deployment.toml, readOnly: true}
            - {name: settings, mountPath: $home/$name/service.toml, subPath: service.toml, readOnly: true}
            - {name: keys, mountPath: $home/$name/identity.key, subPath: identity.key, readOnly: true}
            - {name: keys, mountPath: $home/$name/tls.key, subPath: tls.key, readOnly: true}
            - {name: keys, mountPath: $home/$name/tls.crt, subPath: tls.crt, readOnly: true}
            - {name: storage-key, mountPath: $secrets, readOnly: true}
            - {name: tmp, mountPath: /tmp}
      volumes:
        - {name: deployment, configMap: {name: $deployment_config}}
        - {name: settings, configMap: {name: croupier-settings}}
        - {name: keys, secret: {secretName: $name-keys, defaultMode: 0440}}
        - {name: storage-key, secret: {secretName: $name-storage-key, defaultMode: 0440}}
        - {name: tmp, emptyDir: {medium: Memory, sizeLimit: ${tmp_mib}Mi}}
  volumeClaimTemplates:
    - metadata:
        name: store
      spec:
        accessModes: [ReadWriteOncePod]
        resources:
          requests: {storage: ${store_gib}Gi}
"""
)
_NAMESPACE = """\
apiVersion: v1
kind: Namespace
metadata:
  name: croupier
  labels:
    pod-security.kubernetes.io/enforce: restricted
"""
_SETTINGS = """\
# How every service runs in its pod. Plaintext health and metrics leave the pod, which is why 'insecure' has to be said:
# the kubelet's probes speak no TLS. network-policy.yaml lets only Prometheus and the node reach those two ports.
apiVersion: v1
kind: ConfigMap
metadata:
  name: croupier-settings
  labels: {app.kubernetes.io/name: croupier}
data:
  service.toml: |
"""
_KUSTOMIZATION = """\
# kubectl apply -k deploy/kubernetes: all services of a two-hop deployment in one namespace; see README.md first.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: croupier
resources:
"""
_OPTIONAL = """\
  # - gateway.yaml # for clients that cannot speak gRPC: docs/gateway.md
"""
_NETWORK = Template("""\
# The connections that may be made: predecessor → hop, hop 1 → all hops, accountant ↔ analyzer, every hop → accountant
# (tickets for fake reports; sequential rounds), the operator → all services, clients → hop 1, accountant and analyzer.
# Everything else is denied, in both directions. Services check their callers' certificates as well; this is the second
# fence.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: deny-everything
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: resolve-names
spec:
  podSelector: {matchLabels: {app.kubernetes.io/name: croupier}}
  policyTypes: [Egress]
  egress:
    - to:
        - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}
      ports:
        - {port: 53, protocol: UDP}
        - {port: 53, protocol: TCP}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: show-metrics
spec:
  podSelector: {matchLabels: {app.kubernetes.io/name: croupier}}
  policyTypes: [Ingress]
  ingress:
    - from:
        - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}
      ports:
        - {port: $metrics, protocol: TCP}
---
# The operator's commands, run in a pod of this namespace with this label.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: operator
spec:
  podSelector: {matchLabels: {app.kubernetes.io/name: croupier, app.kubernetes.io/component: operator}}
  policyTypes: [Egress]
  egress:
    - to:
        - podSelector: {matchLabels: {app.kubernetes.io/name: croupier}}
      ports:
        - {port: $peers, protocol: TCP}
        - {port: $public, protocol: TCP}
""")
_OF_PEERS = Template(
    """\
---
"""
    + POLICY
    + """\
    - from:
$callers      ports:
        - {port: $peers, protocol: TCP}
$clients  egress:
    - to:
$called      ports:
        - {port: $peers, protocol: TCP}
"""
)
_PEER = Template("""\
        - podSelector: {matchLabels: {app.kubernetes.io/name: croupier, app.kubernetes.io/component: $name}}
""")
_CLIENTS = Template("""\
    - ports:
        - {port: $public, protocol: TCP}
""")
_PORTS = {"peers": FIRST_PORT, "public": FIRST_PORT + 1, "admin": FIRST_PORT + 2, "metrics": FIRST_PORT + 3}
_WHAT = {
    "accountant": "the accountant, where clients get tickets",
    "analyzer": "the analyzer, where clients read results",
    "shuffler-1": "hop 1, where clients submit",
}


def rotated(name: str, deployment_text: str, keys: Mapping[str, bytes], *, signed: bool = True) -> JsonObject:
    """Returns what a step of a rotation changes in the cluster, for 'kubectl apply'; JSON is YAML, too.

    Args:
        name: of the service.
        deployment_text: the new deployment file.
        keys: the new files of the service's own secret, if the step changes these.
        signed: whether all services have signed the file; a proposal does not replace the file that pods read.
    """
    items: list[JsonObject] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": DEPLOYMENT_CONFIG if signed else "croupier-proposal"},
            "data": {DEPLOYMENT_FILE if signed else "proposal.toml": deployment_text},
        }
    ]
    if keys:
        items.append(secret(f"{name}-keys", keys))
    return {"apiVersion": "v1", "kind": "List", "items": items}


def secret(name: str, files: Mapping[str, bytes]) -> JsonObject:
    """Returns the manifest of a secret with these files."""
    data = {file: base64.b64encode(content).decode() for file, content in files.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}


def manifests(layout: Layout) -> dict[str, str]:
    """Returns the files by their names; every service is in a pod of its own, with all ports for itself."""
    files = {place.service: f"{place.service}.yaml" for place in layout.places}
    found = {
        "kustomization.yaml": _KUSTOMIZATION
        + "".join(
            f"  - {name}\n" for name in ("namespace.yaml", "settings.yaml", "network-policy.yaml", *files.values())
        )
        + _OPTIONAL,
        GATEWAY_FILE: gateway_manifest(layout),
        "namespace.yaml": _NAMESPACE,
        "settings.yaml": _SETTINGS
        + "".join(f"    {line}\n" for line in container_settings("kubernetes", layout.limits).splitlines()),
        "network-policy.yaml": _NETWORK.substitute(_PORTS) + "".join(_policy(layout, place) for place in layout.places),
    }
    return found | {file: _service(layout, place) for place, file in zip(layout.places, files.values(), strict=True)}


def _service(layout: Layout, place: Place) -> str:
    limits, name = layout.limits, place.service
    values = {
        **_PORTS,
        "name": name,
        "deployment_config": DEPLOYMENT_CONFIG,
        "group_of_store": "        fsGroupChangePolicy: OnRootMismatch\n",
        "home": HOME,
        "image": layout.image,
        "memory_mib": limits.memory_mib,
        "public_port": f"            - {{name: public, containerPort: {_PORTS['public']}}}\n"
        if place.takes_clients
        else "",
        "secrets": MOUNTED_STORAGE_KEY.rpartition("/")[0],
        "startup_period": _STARTUP_PERIOD_S,
        "start_tries": limits.start_s // _STARTUP_PERIOD_S,
        "stop_s": limits.stop_s,
        "store_gib": limits.store_gib,
        "tmp_mib": limits.tmp_mib,
        "user": limits.user_id,
    }
    parts = (_SERVICE, *([_PUBLIC_SERVICE] if place.takes_clients else []), _STATEFUL_SET)
    what = _WHAT.get(name, f"hop {name.removeprefix('shuffler-')}")
    opening = (
        f"# {name}: {what}.\n# Its operator applies this file, settings.yaml and its rule in network-policy.yaml.\n"
    )
    return opening + "".join(part.substitute(values) for part in parts)


def _policy(layout: Layout, place: Place) -> str:
    callers = [one.service for one in layout.places if place in called_by(layout.places, one)]
    called = [one.service for one in called_by(layout.places, place)]
    return _OF_PEERS.substitute(
        _PORTS,
        name=place.service,
        callers="".join(_PEER.substitute(name=name) for name in (*callers, "operator")),
        called="".join(_PEER.substitute(name=name) for name in called),
        clients=_CLIENTS.substitute(_PORTS) if place.takes_clients else "",
    )
