"""Writes the golden vectors: `make vectors`."""

from tests.vectors.client import FILE, as_text, make_vectors
from tests.vectors.deployments import VERSIONS_FILE, make_versions

FILE.write_text(as_text(make_vectors()), encoding="utf-8")
VERSIONS_FILE.write_text(as_text(make_versions()), encoding="utf-8")
