"""Short programs with the library, which docs/api.md shows."""
