"""The results for an application: the receipt of an answer, the check of its inclusion, and the published result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from croupier.accountant.guarantees import Grade, Guarantee
from croupier.protocol.certificates import assumptions_of, method_of, refusals_of
from croupier.protocol.errors import NotCertifiedError, ProtocolError
from croupier.protocol.histograms import values_of
from croupier.protocol.names import JsonObject, RoundId
from croupier.protocol.notes import certificate_notes
from croupier.protocol.rounding import round_up
from croupier.protocol.shown import sanitize_for_display
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.blocks import Folded, Points, Sentence
from croupier.show.distribution import quantile
from croupier.show.html import html
from croupier.show.promises import Promises
from croupier.show.published import publication_json
from croupier.show.results import result_blocks


@dataclass(frozen=True)
class Receipt:
    """Hop 1 has stored the answer durably; it is counted once.

    Attributes:
        round_id: of the round.
        person: the respondent's name in `submit`; "" for the one person whose device this is.
        local_epsilon, local_delta: the budget that the answer has spent: a proved bound (CERTIFIED) on the report's
            information, whatever the servers do; `RoundResult.guarantee` is the guarantee after the shuffle.
        sealed_before: an earlier call sealed the answer; the value and budget of this call were not used.
        promises: the largest probabilities of a right guess of the answer if one server is honest, and if none is.
    """

    round_id: RoundId
    person: str
    local_epsilon: float
    local_delta: float
    sealed_before: bool
    promises: Promises


@dataclass(frozen=True)
class Inclusion:
    """Every hop has passed on every acknowledged submission from here, report and budget.

    Attributes:
        round_id: of the round.
        num_submissions: their number.
        hops: the names of the shufflers, in the order of the chain.
    """

    round_id: RoundId
    num_submissions: int
    hops: tuple[str, ...]


@dataclass(frozen=True)
class ResultValue:
    """One number of a result.

    Attributes:
        label: the category, for a histogram; empty for a share or mean.
        estimate: unbiased; because of the noise it may be outside the possible range.
        projected: the nearest possible value.
        standard_error: of the estimate, by the noise alone.
        confidence_interval: (low, high) for the truth of these participants, at `RoundResult.confidence_level`.
    """

    label: str
    estimate: float
    projected: float
    standard_error: float
    confidence_interval: tuple[float, float]


@dataclass(frozen=True)
class RoundResult:
    """A published result, with both signatures verified.

    Attributes:
        round_id: of the round.
        values: one for a share or mean, one for each category of a histogram; none if the result is sealed.
        confidence_level: of the values' intervals.
        num_reports: the number of counted reports.
        guarantee: the certified central guarantee for the people with the largest budget, with grade and assumptions.
        sealed: the values are sealed to a collector.
        document: the output of `croupier survey results --json`; `croupier.explain` reads its "certificate".
    """

    round_id: RoundId
    values: tuple[ResultValue, ...]
    confidence_level: float
    num_reports: int
    guarantee: Guarantee
    sealed: bool
    document: JsonObject = field(repr=False)

    def rows(self) -> list[JsonObject]:
        """Returns one dictionary for each value, for `pandas.DataFrame` and `polars.DataFrame`."""
        return [
            {
                "label": value.label,
                "estimate": value.estimate,
                "standard_error": value.standard_error,
                "low": value.confidence_interval[0],
                "high": value.confidence_interval[1],
            }
            for value in self.values
        ]

    @property
    def distribution(self) -> JsonObject | None:
        """Histogram, standard deviation and usual quantiles beside a mean on ordered levels; None for other results."""
        return self.document.get("distribution")

    def quantile(self, q: float) -> JsonObject:
        """The number that the part q of the people do not exceed, with its intervals; 0.5 is the median.

        Raises:
            ValueError: q is not above 0 and below 1, or the question was not asked on levels, or the result is sealed.
        """
        if self.distribution is None:
            raise ValueError(f"round {self.round_id} has no quantiles; only an open result on levels has them")
        return quantile(self.distribution, q)

    def _repr_html_(self) -> str:
        """Returns HTML for notebooks: the values, and the guarantee with its assumptions."""
        told = self.guarantee
        said = f"{told.grade} ε = {round_up(told.epsilon)} at δ = {round_up(told.delta)}, for the largest budget"
        rests_on = Folded("This holds if", [Points([*map(str, told.assumptions)])])
        return html([*result_blocks(self.document), Sentence(said), rests_on], top=4)

    @classmethod
    def read(cls, publication: pb.Publication, certificate: pb.Certificate) -> Self:
        """Returns a verified publication as a result.

        Raises:
            NotCertifiedError: the accountant has refused the round, so that nothing was ever opened.
            ProtocolError: the signed message is not a certificate: an unknown grade, an ε below 0, no method.
        """
        try:
            if not certificate.granted:
                raise NotCertifiedError(RoundId(certificate.round_id), tuple(map(str, refusals_of(certificate))))
            guarantee = Guarantee(
                certificate.epsilon,
                certificate.delta,
                Grade(certificate.grade),
                method_of(certificate),
                assumptions_of(certificate),
                certificate_notes(certificate),
            )
        except ValueError as error:
            raise ProtocolError(
                f"the accountant has signed what is not a certificate: {sanitize_for_display(str(error))}"
            ) from error
        return cls(
            round_id=RoundId(publication.round_id),
            values=tuple(
                ResultValue(
                    value.label,
                    value.estimate,
                    value.projected,
                    value.standard_error,
                    (value.confidence_interval.low, value.confidence_interval.high),
                )
                for value in values_of(publication)
            ),
            confidence_level=publication.confidence_level,
            num_reports=publication.num_reports,
            guarantee=guarantee,
            sealed=bool(publication.sealed_result),
            document=publication_json(publication, certificate),
        )
