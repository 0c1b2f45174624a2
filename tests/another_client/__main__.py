"""Writes the golden vectors: `make vectors`."""

from tests.another_client.vectors import FILE, as_text, make_vectors
from tests.another_client.versions import VERSIONS_FILE, make_versions

FILE.write_text(as_text(make_vectors()), encoding="utf-8")
VERSIONS_FILE.write_text(as_text(make_versions()), encoding="utf-8")
