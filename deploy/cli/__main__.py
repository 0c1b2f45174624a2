"""`python -m croupier.deploy.cli`: the same as the `croupier` script."""

from croupier.deploy.cli import main

main()
