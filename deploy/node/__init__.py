"""Runs one service: serve it, and reload its keys."""

import os

# Read when grpc is imported: its C core would write lines of its own between ours, which are JSON.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
