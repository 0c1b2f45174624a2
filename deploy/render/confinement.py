"""What a service of ours may not do, whatever it runs: the lines that its unit, container, pod and policy share.

Each is a part of a template of the file, indented as in the file.
"""

from __future__ import annotations

__all__ = ["CONTAINER", "CONTAINER_OF_POD", "POD", "POLICY", "UNIT"]

UNIT = """\
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
"""
CONTAINER = """\
    user: "$user:$user"
    read_only: true
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    restart: unless-stopped
    stop_grace_period: ${stop_s}s
    mem_limit: ${memory_mib}m
    memswap_limit: ${memory_mib}m$why_no_swap
    ulimits:
      core: 0
      nofile: $open_files
"""
POD = """\
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: $stop_s
      securityContext:
        runAsNonRoot: true
        runAsUser: $user
        runAsGroup: $user
        fsGroup: $user
${group_of_store}        seccompProfile: {type: RuntimeDefault}
      containers:
        - name: croupier
          image: $image
"""
CONTAINER_OF_POD = """\
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
"""
POLICY = """\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: $name
spec:
  podSelector: {matchLabels: {app.kubernetes.io/name: croupier, app.kubernetes.io/component: $name}}
  policyTypes: [Ingress, Egress]
  ingress:
"""
"""It allows nothing until rules for both directions follow."""
