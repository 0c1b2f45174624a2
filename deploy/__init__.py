"""Everything that puts the roles together.

    cli          the `croupier` command line; its commands parse, call, and show
    study        studies and discoveries: plans, the process that runs their waves, results
    operator     keys and their rotation, init, doctor, rounds, tokens, canaries, the ledger's backup
    node         runs one service on its machine
    local        a whole deployment on one machine, the population that it is tried with, the demonstration
    render       units, compose files, manifests and the dashboard, from one description
    directory    where a deployment's files lie

Beside them lie the files that deploy it: systemd, compose, helm, prometheus, grafana; and example data.
"""

import os

# Read when grpc is imported: its C core would write lines of its own between ours, which are JSON.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
