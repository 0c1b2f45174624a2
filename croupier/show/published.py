"""A published result as a JSON document, for the command line and for applications: its message, opened.

The messages come from `client.round_checks`, which has verified them. Their words are those of accountant and analyzer:
what a terminal would not show as it is, is replaced.
"""

from __future__ import annotations

from croupier.protocol.certificates import certificate_json
from croupier.protocol.documents import document_of
from croupier.protocol.errors import ProtocolError, Refusal
from croupier.protocol.histograms import values_of
from croupier.protocol.manifest import parse_terms
from croupier.protocol.names import JsonObject
from croupier.protocol.shown import sanitize_for_display
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.distribution import QUANTILES, quantile
from croupier.show.question import question_json

OPENED = ("certificate", "round", "sealed_result", "vector", "shares")
"""Fields of a publication that are not in its document as they are: see `publication_json`."""


def publication_json(publication: pb.Publication, certificate: pb.Certificate) -> JsonObject:
    """Returns a published result as a JSON document: the fields of the publication, and what is inside of it.

    "certificate" is the opened one, and "values" are there however they were published; there are none if the result
    is "sealed" or refused, or a vector. "asked" is the question, by the signed manifest in the publication, whose
    signatures `read_publication` checks; it is None if no manifest is published. "distribution" has the usual
    quantiles; `cross_tables` adds "table" and "sums", and a demonstration "data_notes" about its file.

    Raises:
        ProtocolError: certificate or result state what only a newer version knows.
    """
    opened = pb.Publication()
    opened.CopyFrom(publication)
    for name in OPENED:
        opened.ClearField(name)  # type: ignore[arg-type]
    try:
        if publication.HasField("shares"):
            opened.values.extend(values_of(publication))
        document: JsonObject = {k: v for k, v in document_of(opened).items() if k not in OPENED}
        document["certificate"] = certificate_json(certificate)
    except (Refusal, ValueError) as error:
        raise ProtocolError(f"the result cannot be read: {sanitize_for_display(str(error))}") from error
    document |= {"asked": _asked(publication), "sealed": bool(publication.sealed_result)}
    if (distribution := document["distribution"]) is not None:
        distribution["quantiles"] = [quantile(distribution, q) for q in QUANTILES]
    shown: JsonObject = sanitize_for_display(document)
    return shown


def _asked(publication: pb.Publication) -> JsonObject | None:
    """Returns the question in a publication's manifest; None if it has no manifest."""
    if not publication.HasField("round"):
        return None
    try:
        return question_json(parse_terms(publication.round).question)
    except Refusal:  # of a version that this one does not read
        return None
