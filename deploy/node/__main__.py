"""`python -m croupier.deploy.node NAME DIR`: runs a service, as `croupier serve` does, for `deploy.local`.

A file of this name is not imported again by the service's worker processes, which need little of what it imports.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from croupier.deploy.node.extras import missing_library
from croupier.runtime.logs import log_as_json

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--until-end-of-input", action="store_true")
    parser.add_argument("--log-file", type=Path, help="what standard error is; it is kept below a bound")
    given = parser.parse_args()
    try:
        from croupier.deploy.node.serve import serve
    except ImportError as error:  # of the base alone, which is a client's
        log_as_json(given.name, given.log_file)
        logging.getLogger(__name__).critical("the service ends: %s", missing_library(error))
        raise SystemExit(2) from error
    serve(
        given.name,
        given.directory,
        given.workers,
        until_end_of_input=given.until_end_of_input,
        log_file=given.log_file,
    )
