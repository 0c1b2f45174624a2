"""`python -m deploy.node NAME DIR [WORKERS]`: runs a service, as `croupier serve` does.

A file of this name is not imported again by the service's worker processes, which need little of what it imports.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from deploy.node.extras import missing_library
from runtime.logs import log_as_json

if __name__ == "__main__":
    try:
        from deploy.node.serve import serve
    except ImportError as error:  # of the base alone, which is a client's
        log_as_json(sys.argv[1])
        logging.getLogger(__name__).critical("the service ends: %s", missing_library(error))
        raise SystemExit(2) from error
    serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
