"""`python -m deploy.cli`: the same as the `croupier` script."""

from deploy.cli import main

main()
