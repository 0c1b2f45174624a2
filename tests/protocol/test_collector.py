"""The collector's key: what is sealed to it, and that size, round, manifest and key are bound."""

from __future__ import annotations

import pytest

from croupier.net.sizes import MESSAGE_BYTES
from croupier.protocol.codes import Note
from croupier.protocol.collector import collector_key_lines, open_result, read_collector_key, seal_result
from croupier.protocol.envelope import HOP_COLLECTOR, SUITES, Label, key_id, seal
from croupier.protocol.errors import Code, EnvelopeError, Refusal
from croupier.protocol.histograms import columns_of, values_of
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.hemisphere import Hemisphere
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.levels import Levels
from croupier.protocol.mechanisms.vector_task import SequentialOrder, VectorTask
from croupier.protocol.questions import Question
from croupier.protocol.statements import Statement, messages_of
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import BIT, SUITE, make_kit
from tests.support.messages import naming

LABELS = tuple(f"category {number}" * 20 for number in range(300))


def terms_for(public_key: bytes, question: Question = BIT, suite: str = SUITE) -> RoundTerms:
    return make_kit(question=question, suite=suite, collector_public_key=public_key).terms


def published(terms: RoundTerms, estimate: float, num_values: int = 1, label: str = "") -> pb.Publication:
    value = pb.EstimatedValue(
        label=label,
        estimate=estimate,
        projected=estimate,
        standard_error=estimate,
        confidence_interval=pb.Interval(low=estimate, high=estimate),
        sampling_standard_error=estimate,
    )
    return pb.Publication(
        round_id=terms.round_id,
        manifest_hash=terms.hash,
        certificate=pb.Signed(payload=b"certificate"),
        values=[value] * num_values,
        confidence_level=0.95,
        num_reports=30,
        drops=[pb.Drop(reason="malformed", count=1)],
        notes=messages_of([Statement.of(Note.DEPENDENT_BUDGETS)]),
        vector_standard_error=estimate,
        clamping=pb.Clamping(high=1.0, num_clamped=int(estimate > 0)),
    )


@pytest.mark.parametrize("suite", SUITES)
def test_only_certificate_and_counts_stay_public(suite: str) -> None:
    _, key = read_collector_key(collector_key_lines(suite)[0])
    terms = terms_for(key.public, suite=suite)
    plain = published(terms, 0.375)
    sealed = seal_result(plain, terms)
    public = {field.name for field, _ in sealed.ListFields()}
    assert public == {"round_id", "manifest_hash", "certificate", "num_reports", "drops", "sealed_result"}
    assert open_result(sealed, suite, key) == plain
    other = read_collector_key(collector_key_lines(suite)[0])[1]
    elsewhere = pb.Publication.FromString(sealed.SerializeToString())
    elsewhere.round_id = "round-2"
    under_other_terms = pb.Publication.FromString(sealed.SerializeToString())
    under_other_terms.manifest_hash = bytes(32)
    for publication, with_key in ((sealed, other), (elsewhere, key), (under_other_terms, key), (plain, key)):
        with pytest.raises(EnvelopeError):
            open_result(publication, suite, with_key)


def test_the_size_of_a_sealed_result_tells_nothing() -> None:
    _, key = read_collector_key(collector_key_lines(SUITE)[0])
    for question, num_values, label in (
        (BIT, 1, ""),
        (Question("many", KaryResponse(k=len(LABELS), labels=LABELS)), len(LABELS), LABELS[-1]),
    ):
        terms = terms_for(key.public, question)
        sizes = {
            len(seal_result(result, terms).sealed_result)
            for result in (
                published(terms, 0.1, num_values, label),
                published(terms, 0.0, num_values, label),
                pb.Publication(round_id=terms.round_id, manifest_hash=terms.hash),
            )
        }
        assert len(sizes) == 1


def test_what_is_sealed_and_no_result_is_refused() -> None:
    _, key = read_collector_key(collector_key_lines(SUITE)[0])
    terms = terms_for(key.public)
    label = Label(terms.round_id, terms.hash, pb.LANE_REPORT, HOP_COLLECTOR, key_id(key.public))
    for inside in (b"", b"\0\0", b"\0\0\0\2\xff\xff"):
        publication = pb.Publication(round_id=terms.round_id, manifest_hash=terms.hash)
        publication.sealed_result = seal(SUITE, key.public, label, inside)
        with pytest.raises(EnvelopeError, match=naming("result")):
            open_result(publication, SUITE, key)


def test_without_a_collector_the_result_is_public() -> None:
    terms = terms_for(b"")
    assert seal_result(published(terms, 0.1), terms) == published(terms, 0.1)


def test_a_key_that_nothing_can_be_sealed_to_is_no_collectors() -> None:
    kit = make_kit()
    for bad, why in (
        (bytes(32), "not a public key"),  # X25519 has no secret with it
        (b"\1" * 31, "not a public key"),
        (kit.manifest.hops[0].public_key, "collector"),
    ):
        kit.survey.collector_public_key = bad
        with pytest.raises(Refusal, match=why):
            _ = kit.terms


def test_a_sequential_round_has_no_collector() -> None:
    task = VectorTask(2, 1.0, "model", bytes(8), SequentialOrder(period_ms=10, learning_rate=0.1))
    _, key = read_collector_key(collector_key_lines(SUITE)[0])
    with pytest.raises(Refusal, match=naming(Code.BAD_MANIFEST.message, "collector")):
        terms_for(key.public, Question("gradient", Hemisphere(vector=task)))


@pytest.mark.parametrize("text", ["", "x", SUITE, f"{SUITE} zz", f"{SUITE} 00ff", "no-such-suite " + "11" * 32])
def test_a_file_that_is_no_collectors_key_is_refused_unshown(text: str) -> None:
    with pytest.raises(ValueError, match=naming("collector's key")) as refused:
        read_collector_key(text)
    assert "00ff" not in str(refused.value)


def test_the_private_half_stands_in_the_secret_file_alone() -> None:
    secret, public = collector_key_lines(SUITE)
    (_, whole), (suite, half) = read_collector_key(secret), read_collector_key(public)
    assert (suite, half.public, half.private) == (SUITE, whole.public, b"")
    assert whole.private.hex() not in public


@pytest.mark.slow
def test_the_largest_histogram_fits_into_a_message_when_sealed() -> None:
    """Reproduction: 65,536 labelled categories took 4.7 MB sealed, room for labels included that are not sealed."""
    most = 1 << 16
    _, pair = read_collector_key(collector_key_lines(SUITE)[0])
    terms = terms_for(pair.public, Question("word", KaryResponse(most, tuple(f"{place:016}" for place in range(most)))))
    publication = published(terms, 0.1)
    values = [publication.values[0]] * most
    del publication.values[:]
    publication.shares.CopyFrom(columns_of(values))
    publication.round.CopyFrom(pb.SignedRound.FromString(terms.unsigned))
    sealed = seal_result(publication, terms)
    assert not sealed.HasField("shares")
    assert (
        sealed.ByteSize() < MESSAGE_BYTES - 384 * 1024
    )  # what the certificate takes: tests/analyzer/test_estimators.py
    opened = values_of(open_result(sealed, terms.shared.hpke_suite, pair))
    assert [value.label for value in (opened[0], opened[-1])] == [f"{0:016}", f"{most - 1:016}"]


@pytest.mark.parametrize("k", [2, 1024])
def test_a_distribution_is_sealed_with_its_mean(k: int) -> None:
    _, pair = read_collector_key(collector_key_lines(SUITE)[0])
    terms = terms_for(pair.public, Question("hours", Levels(0.0, 24.0, k)))
    publication, number = published(terms, 0.1), published(terms, 0.1).values[0]
    number.population_interval.MergeFrom(number.confidence_interval)
    publication.distribution.standard_deviation.CopyFrom(number)
    publication.distribution.levels.extend([pb.Level(value=0.1, share=number, cumulative=number)] * k)
    sealed = seal_result(publication, terms)
    assert not sealed.HasField("distribution")
    assert open_result(sealed, terms.shared.hpke_suite, pair).distribution == publication.distribution
