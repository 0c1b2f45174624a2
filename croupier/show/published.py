"""A published result as a JSON document, for the command line and for applications.

The messages come from `client.round_checks`, which has verified them. Their words are those of accountant and analyzer:
what a terminal would not show as it is, is replaced.
"""

from __future__ import annotations

from typing import Any, cast

from croupier.protocol.certificates import round_certificate_json
from croupier.protocol.codes import Note
from croupier.protocol.errors import ProtocolError, Refusal
from croupier.protocol.histograms import values_of
from croupier.protocol.manifest import parse_terms
from croupier.protocol.names import RoundId
from croupier.protocol.shown import sanitize_for_display
from croupier.protocol.statements import read_messages, written_json
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.distribution import QUANTILES, quantile
from croupier.show.question import question_json
from croupier.show.views.distributions import DistributionView, SharesView
from croupier.show.views.published_results import ClampingView, Precision, ResultView
from croupier.show.views.questions import QuestionView

_PRECISIONS = {
    pb.PRECISION_USABLE: Precision.USABLE,
    pb.PRECISION_COVERS_RANGE: Precision.COVERS_RANGE,
    pb.PRECISION_HIDES_SHARES: Precision.HIDES_SHARES,
}
"""Whether a result can be used, in its JSON document; `show.certificate_tables` says it in a sentence."""


def publication_json(publication: pb.Publication, certificate: pb.Certificate) -> ResultView:
    """Returns a published result as a JSON document.

    "asked" is the question, by the signed manifest in the publication, whose signatures `read_publication` checks.

    Raises:
        ProtocolError: certificate or result state what only a newer version knows.
    """
    try:
        stated, notes = round_certificate_json(certificate), read_messages(Note, publication.notes)
    except ValueError as error:
        raise ProtocolError(f"the result cannot be read: {sanitize_for_display(str(error))}") from error
    values, sealed = _values(publication), bool(publication.sealed_result)
    hidden = sealed or not (values or certificate.granted)
    listed = len(values) != 1 and not hidden

    def column(numbers: list[Any]) -> Any:
        return None if hidden else numbers if listed else numbers[0]

    document: ResultView = {
        "round_id": RoundId(publication.round_id),
        "asked": _asked(publication),
        "sealed": sealed,
        "labels": [value.label for value in values] if listed else None,
        "estimate": column([value.estimate for value in values]),
        "projected": column([value.projected for value in values]),
        "standard_error": column([value.standard_error for value in values]),
        "confidence_interval": column(
            [[value.confidence_interval.low, value.confidence_interval.high] for value in values]
        ),
        "confidence_level": None if hidden else publication.confidence_level,
        "sampling_standard_error": column([value.sampling_standard_error for value in values]),
        "population_interval": column([_interval_json(value) for value in values]),
        "precision": None if sealed else _PRECISIONS.get(publication.precision),
        "num_reports": publication.num_reports,
        "clamping": _clamping_json(publication.clamping) if publication.HasField("clamping") else None,
        "hop_influence": publication.hop_influence if certificate.fake_tickets and not hidden else None,
        "distribution": None if hidden else _distribution_json(publication, bool(certificate.fake_tickets)),
        "drops": {drop.reason: drop.count for drop in publication.drops},
        "notes": written_json(notes),
        "certificate": stated,
    }
    return cast(ResultView, sanitize_for_display(document))


def _values(publication: pb.Publication) -> list[pb.EstimatedValue]:
    try:
        return values_of(publication)
    except (Refusal, ValueError) as error:
        raise ProtocolError(f"the result cannot be read: {sanitize_for_display(str(error))}") from error


def _asked(publication: pb.Publication) -> QuestionView | None:
    """Returns the question in a publication's manifest; None if an earlier version included no manifest."""
    if not publication.HasField("round"):
        return None
    try:
        return question_json(parse_terms(publication.round).question)
    except Refusal:  # of a version that this one does not read
        return None


def _distribution_json(publication: pb.Publication, fakes: bool) -> DistributionView | None:
    """Returns the distribution beside a mean with its usual quantiles; None if there is none."""
    if not publication.HasField("distribution"):
        return None
    stated = publication.distribution
    deviation = stated.standard_deviation
    view: DistributionView = {
        "levels": [level.value for level in stated.levels],
        "shares": _shares_json([level.share for level in stated.levels]),
        "cumulative": _shares_json([level.cumulative for level in stated.levels]),
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


def _shares_json(values: list[pb.EstimatedValue]) -> SharesView:
    return {
        "estimate": [value.estimate for value in values],
        "projected": [value.projected for value in values],
        "standard_error": [value.standard_error for value in values],
        "confidence_interval": [_ends(value.confidence_interval) for value in values],
        "population_interval": [_ends(value.population_interval) for value in values],
    }


def _ends(interval: pb.Interval) -> list[float]:
    return [interval.low, interval.high]


def _interval_json(value: pb.EstimatedValue) -> list[float] | None:
    """Returns the interval for the population; None in a result of an earlier version, which has none."""
    if not value.HasField("population_interval"):
        return None
    return [value.population_interval.low, value.population_interval.high]


def _clamping_json(clamping: pb.Clamping) -> ClampingView:
    return {
        "low": clamping.low,
        "high": clamping.high,
        "num_clamped": clamping.num_clamped,
        "bias": clamping.bias,
        "influence": clamping.influence,
    }
