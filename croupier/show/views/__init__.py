"""The JSON documents that commands print and pages show, by their keys; a file for each subject.

A document is a dictionary: `json.dumps` writes it, templates read it, scripts rely on its keys. These types say which
keys there are, so that mypy finds a misspelt one. Certificates are in `protocol.certificate_views`.
"""
