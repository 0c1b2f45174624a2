"""Compose files, settings and Kubernetes secrets, from one description of hosts, roles, ports and limits (`layout`)."""
