"""Compose files, settings and Kubernetes secrets, made from one description of hosts, roles, ports and limits (`layout`)."""
