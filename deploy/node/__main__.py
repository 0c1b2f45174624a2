"""`python -m deploy.node NAME DIR [WORKERS]`: runs a service, as `croupier serve` does.

A file of this name is not imported again by the service's worker processes, which need little of what it imports.
"""

from __future__ import annotations

import sys
from pathlib import Path

from deploy.node.serve import serve

if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
