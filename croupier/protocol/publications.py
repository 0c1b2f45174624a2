"""Published results: read after every check of their signatures, and the ground on which a rule's next wave stands."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from croupier.protocol.deployment import Deployment
from croupier.protocol.errors import Code, Refusal, SignatureError
from croupier.protocol.identity import Kind, document_hash, read_signed
from croupier.protocol.manifest import RoundTerms, parse_terms, verify_manifest
from croupier.protocol.names import NO_ROUND, RoundId
from croupier.protocol.v1 import messages_pb2 as pb


def read_publication(
    document: pb.Signed, deployment: Deployment, round_id: RoundId = NO_ROUND
) -> tuple[pb.Publication, pb.Certificate]:
    """Returns a published result and its certificate after checking both signatures and that they belong together.

    Retired identities are accepted in a round of their time, according to the manifest in the document.

    Args:
        document: signed by the analyzer.
        deployment: which pins the keys.
        round_id: the round of the result; "" for any.

    Raises:
        SignatureError: a signature of the analyzer, of the accountant or on the manifest is missing or wrong, or the
            manifest is another one.
        Refusal: BAD_BATCH if result or certificate is of another round.
    """
    analyzer, accountant = deployment.analyzer.name, deployment.accountant.name
    pinned = deployment.pinned(_time_of(document, deployment))
    publication = read_signed(Kind.PUBLICATION, pb.Publication, document, pinned, [analyzer])
    certificate = read_signed(Kind.CERTIFICATE, pb.Certificate, publication.certificate, pinned, [accountant])
    if (certificate.round_id, certificate.manifest_hash) != (publication.round_id, publication.manifest_hash):
        raise Refusal(Code.BAD_BATCH, "result and certificate are about different rounds")
    if round_id and publication.round_id != round_id:
        raise Refusal(Code.BAD_BATCH, f"asked for the result of {round_id!r}, got that of {publication.round_id!r}")
    return publication, certificate


def _time_of(document: pb.Signed, deployment: Deployment) -> int | None:
    """Returns the time of a result's round, by the manifest in it; None where a service does not state one.

    The terms themselves are not checked: they may be of an earlier privacy limit.
    """
    try:
        claimed = pb.Publication.FromString(document.payload)
    except DecodeError as error:
        raise SignatureError("what is signed as publication cannot be read as one") from error
    if claimed.manifest_hash != document_hash(Kind.MANIFEST, claimed.round.manifest.payload):
        raise SignatureError("the result is about another manifest than the one that is in it")
    return verify_manifest(claimed.round, deployment)


def check_follows(terms: RoundTerms, before: pb.Signed, deployment: Deployment) -> list[RoundId]:
    """Checks that a round asks the question to which the latest result has led, by the question's rule.

    Args:
        terms: of the round.
        before: the analyzer's signed result of the same question in the latest wave that has one; not used without a
            rule, and before the first result.
        deployment: which pins the keys.

    Returns:
        The rounds of the waves in between, which must have been disposed of.

    Raises:
        SignatureError: the result is missing, or not signed as it must be.
        Refusal: BAD_BATCH, it is of no earlier wave of the survey; BAD_MANIFEST, it has led to another question.
    """
    if terms.rule is None or terms.wave is None:
        return []
    state, latest = pb.Manifest.FromString(terms.payload).rule_state, 0
    if not terms.rule.begins(state):
        publication, _ = read_publication(before, deployment)
        earlier = parse_terms(publication.round)
        latest = 0 if earlier.wave is None else earlier.wave.number
        if earlier.survey.hash != terms.survey.hash or not 0 < latest < terms.wave.number:
            raise Refusal(Code.BAD_BATCH, f"{publication.round_id!r} is no earlier wave of {terms.survey.survey_id!r}")
        if publication.rule_state != terms.rule.published(state):
            raise Refusal(
                Code.BAD_MANIFEST,
                f"rule_state is not that of the result of wave {latest}: the rule alone decides on the next question",
            )
    return [terms.survey.round_id(terms.place, number) for number in range(latest + 1, terms.wave.number)]
