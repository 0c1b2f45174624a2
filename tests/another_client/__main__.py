"""Writes the golden vectors: `make vectors`."""

from tests.another_client.vectors import FILE, as_text, make_vectors

FILE.write_text(as_text(make_vectors()), encoding="utf-8")
