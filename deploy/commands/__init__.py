"""The commands of `croupier`, by who gives them; `deploy.cli` puts them together."""
