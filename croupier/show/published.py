"""A published result as a JSON document, for the command line and for applications.

The messages come from `client.round_checks`, which has verified them. Their words are those of accountant and analyzer:
what a terminal would not show as it is, is replaced.
"""

from __future__ import annotations

from typing import Any

from croupier.protocol.certificates import certificate_json
from croupier.protocol.codes import Note
from croupier.protocol.documents import document_of
from croupier.protocol.errors import ProtocolError, Refusal
from croupier.protocol.histograms import values_of
from croupier.protocol.manifest import parse_terms
from croupier.protocol.names import JsonObject, RoundId
from croupier.protocol.shown import sanitize_for_display
from croupier.protocol.statements import read_messages
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.distribution import QUANTILES, quantile
from croupier.show.numbers import Precision
from croupier.show.question import question_json

_PRECISIONS = {
    pb.PRECISION_USABLE: Precision.USABLE,
    pb.PRECISION_COVERS_RANGE: Precision.COVERS_RANGE,
    pb.PRECISION_HIDES_SHARES: Precision.HIDES_SHARES,
}
"""Whether a result can be used, in its JSON document; `show.results` says it in a sentence."""
_CLAMPING = ("low", "high", "num_clamped", "bias", "influence")


def publication_json(publication: pb.Publication, certificate: pb.Certificate) -> JsonObject:
    """Returns a published result as a JSON document.

    The columns from "labels" to "sampling_standard_error" are a number for a share or mean, a list for a histogram, and
    None if the result is sealed or refused. "asked" is the question, by the signed manifest in the publication, whose
    signatures `read_publication` checks; it is None if no manifest is published. "precision" says whether the result
    can be used. "distribution" is beside a mean of numbers on ordered levels; `cross_tables` adds "table" and "sums",
    and a demonstration "data_notes" about its file.

    Raises:
        ProtocolError: certificate or result state what only a newer version knows.
    """
    try:
        stated, notes = certificate_json(certificate), read_messages(Note, publication.notes)
    except ValueError as error:
        raise ProtocolError(f"the result cannot be read: {sanitize_for_display(str(error))}") from error
    values, sealed = _values(publication), bool(publication.sealed_result)
    hidden = sealed or not (values or certificate.granted)
    listed, is_clamped = len(values) != 1 and not hidden, publication.HasField("clamping")

    def column(numbers: list[Any]) -> Any:
        return None if hidden else numbers if listed else numbers[0]

    document = {
        "round_id": RoundId(publication.round_id),
        "asked": _asked(publication),
        "sealed": sealed,
        "labels": [value.label for value in values] if listed else None,
        **{name: column(numbers) for name, numbers in _columns(values).items()},
        "confidence_level": None if hidden else publication.confidence_level,
        "sampling_standard_error": column([value.sampling_standard_error for value in values]),
        "precision": None if sealed else _PRECISIONS.get(publication.precision),
        "num_reports": publication.num_reports,
        "clamping": {name: getattr(publication.clamping, name) for name in _CLAMPING} if is_clamped else None,
        "hop_influence": publication.hop_influence if certificate.fake_tickets and not hidden else None,
        "distribution": None if hidden else _distribution_json(publication, bool(certificate.fake_tickets)),
        "drops": {drop.reason: drop.count for drop in publication.drops},
        "notes": document_of(notes),
        "certificate": stated,
    }
    shown: JsonObject = sanitize_for_display(document)
    return shown


def _values(publication: pb.Publication) -> list[pb.EstimatedValue]:
    try:
        return values_of(publication)
    except (Refusal, ValueError) as error:
        raise ProtocolError(f"the result cannot be read: {sanitize_for_display(str(error))}") from error


def _asked(publication: pb.Publication) -> JsonObject | None:
    """Returns the question in a publication's manifest; None if it has no manifest."""
    if not publication.HasField("round"):
        return None
    try:
        return question_json(parse_terms(publication.round).question)
    except Refusal:  # of a version that this one does not read
        return None


def _distribution_json(publication: pb.Publication, fakes: bool) -> JsonObject | None:
    """Returns the shares on each level, and on it or below, with the usual quantiles; None if there is none.

    "projected" shares are possible and agree with each other.
    """
    if not publication.HasField("distribution"):
        return None
    stated = publication.distribution
    deviation = stated.standard_deviation
    view: JsonObject = {
        "levels": [level.value for level in stated.levels],
        "shares": _columns([level.share for level in stated.levels]),
        "cumulative": _columns([level.cumulative for level in stated.levels]),
        "standard_deviation": {
            "estimate": deviation.estimate,
            "standard_error": deviation.standard_error,
            "confidence_interval": _ends(deviation.confidence_interval),
            "population_interval": _ends(deviation.population_interval),
        },
        "hop_influence": stated.hop_influence if fakes else None,
    }
    view["quantiles"] = [quantile(view, q) for q in QUANTILES]
    return view


def _columns(values: list[pb.EstimatedValue]) -> JsonObject:
    columns: JsonObject = {
        name: [getattr(value, name) for value in values] for name in ("estimate", "projected", "standard_error")
    }
    intervals = ("confidence_interval", "population_interval")
    return columns | {name: [_ends(getattr(value, name)) for value in values] for name in intervals}


def _ends(interval: pb.Interval) -> list[float]:
    return [interval.low, interval.high]
