"""Everything that puts the roles together, with files for systemd, containers, Helm, Prometheus and Grafana."""

import os

# Read when grpc is imported: its C core would write lines of its own between ours, which are JSON.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
