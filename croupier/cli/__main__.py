"""`python -m croupier.cli`: the same as the `croupier` script."""

from croupier.cli import main

main()
