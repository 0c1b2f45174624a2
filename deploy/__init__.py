"""Everything that puts the roles together: command line, keys, local deployment, operator, demo, benchmark."""

import os

# Read when grpc is imported: its C core would write lines of its own between ours, which are JSON.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
