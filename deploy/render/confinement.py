"""What a service of ours may not do, whatever it runs: the lines that its units and containers share.

Pods have theirs in the Helm chart.

Each is a part of a template of the file, indented as in the file.
"""

from __future__ import annotations

__all__ = ["CONTAINER", "UNIT"]

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
