"""Every decoder against hostile bytes: an answer, or the very refusal that its documentation names; nothing else.

What is signed here is signed with the right keys: hostile are the peers and their documents, not only the network.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import psutil
import pytest
from google.protobuf.message import DecodeError

from croupier.analyzer.estimators import decoder
from croupier.analyzer.vectors import decode_gaussian_vector
from croupier.deploy.local.budget_groups import parse_budget_groups
from croupier.deploy.local.csv_columns import CsvFile
from croupier.deploy.local.population import PopulationFile, guess_question, read_population
from croupier.operator.keys import make_deployment
from croupier.protocol.batches import digest, read_commitments, unpack
from croupier.protocol.deployment import DEPLOYMENT_FILE, Deployment, load_deployment
from croupier.protocol.envelope import SUITES, Label, SuiteName, generate_key_pair, open_many, seal
from croupier.protocol.errors import Code, Refusal, SignatureError
from croupier.protocol.identity import Identity, Kind, Pinned, canonical, submission_is_authentic, verify_signed
from croupier.protocol.manifest import with_survey
from croupier.protocol.mechanisms.gaussian import Gaussian
from croupier.protocol.mechanisms.gaussian_vector import GaussianVector
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.vector_task import VectorTask
from croupier.protocol.names import Digest, PrivateKey, RoundId
from croupier.protocol.onion import BUDGET_BYTES, Onion, decode_budget
from croupier.protocol.questions import Question
from croupier.protocol.surveys import read_survey
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.service_directory import SETTINGS_FILE, ServiceSettings, load_settings
from tests.fuzz.hostile import Vocabulary, drawn, effort, noted
from tests.support import BIT, make_kit
from tests.support.messages import naming

QUESTIONS = (
    BIT,
    Question("letter", KaryResponse(k=4, labels=("a", "b", "c", "d"))),
    Question("mean", OneBit(low=-5.0, high=5.0)),
    Question("lattice", Laplace(low=0.0, high=10.0, lattice=1000)),
    Question("normal", Gaussian(low=0.0, high=10.0, lattice=100, local_delta=1e-6)),
)
SILOS = Question(
    "silo", GaussianVector(vector=VectorTask(2, 1.0, "m", bytes(8)), local_delta=1e-6, records_per_client=10)
)
KITS = [make_kit(question=question) for question in (*QUESTIONS, SILOS)] + [
    make_kit(suite=suite, hops=1) for suite in SUITES
]
MANIFESTS = [kit.terms.payload for kit in KITS]
SURVEYS = [canonical(kit.survey) for kit in KITS]
TERMS = KITS[0].terms
IDENTITIES = {name: Identity(name, PrivateKey(bytes([index]) * 32)) for index, name in enumerate(TERMS.services)}
PINNED: Pinned = {name: {identity.public_key: None} for name, identity in IDENTITIES.items()}
WORDS = Vocabulary(
    texts=(TERMS.round_id, "local", *TERMS.services, *SUITES, "rr", "krr", "onebit", "laplace", "gaussian", "bit"),
    blobs=(TERMS.hash, *(pair.public for pair in KITS[0].keys.values()), MANIFESTS[0]),
)
TEXT = st.text(max_size=60) | st.sampled_from(["", "\0", "nan", "inf", "-1", "1e999", "١", "1_0", "0x1"])


def refused(code: Code, call: Callable[[], Any]) -> Any:
    """Returns what the call returns, or None where it refuses with this code."""
    noted()
    try:
        return call()
    except Refusal as error:
        assert error.code is code, error
        assert len(error.details()) <= 500
        return None


@effort(12000)
@hypothesis.given(drawn(pb.Manifest.DESCRIPTOR, MANIFESTS, WORDS))
def test_manifests(raw: bytes) -> None:
    terms = refused(Code.BAD_MANIFEST, lambda: with_survey(raw, TERMS.survey))
    if terms is not None:
        assert terms.payload == raw
        assert (terms.round_id, terms.wave) == (TERMS.round_id, None)
        assert 0 < Onion(terms).joint.plain_size < Onion(terms).joint.sealed_size < 100_000


@effort(12000)
@hypothesis.given(drawn(pb.Survey.DESCRIPTOR, SURVEYS, WORDS))
def test_surveys(raw: bytes) -> None:
    survey = refused(Code.BAD_MANIFEST, lambda: read_survey(raw))
    if survey is not None:
        assert canonical(survey.message) == survey.payload == raw
        shared = survey.questions[0].shared
        assert shared.min_batch_size >= 2
        assert 0 < shared.delta <= 0.1
        assert 1 <= len(survey.questions) == len(set(survey.round_ids()))
        for terms in survey.questions:
            assert all(math.isfinite(epsilon) and epsilon > 0 for epsilon in terms.budget_grid)


def signed(kind: Kind, payload: bytes, *names: str) -> pb.Signed:
    return pb.Signed(payload=payload, signatures=[IDENTITIES[name].sign(kind, payload) for name in names])


@effort(10000)
@hypothesis.given(
    drawn(
        pb.Signed.DESCRIPTOR,
        [signed(Kind.MANIFEST, MANIFESTS[0], *TERMS.services).SerializeToString()],
        Vocabulary(TERMS.services, (MANIFESTS[0],)),
    )
)
def test_signed_documents(raw: bytes) -> None:
    noted()
    try:
        document = pb.Signed.FromString(raw)
        payload = verify_signed(Kind.MANIFEST, document, PINNED, TERMS.services)
    except (DecodeError, SignatureError):
        return
    assert payload == MANIFESTS[0]


COMMITMENT = pb.Commitment(
    round_id=TERMS.round_id,
    manifest_hash=TERMS.hash,
    hop=1,
    lane=pb.LANE_REPORT,
    num_in=2,
    num_out=2,
    digest_in=digest([b"a", b"b"]),
    digest_out=digest([b"c", b"d"]),
)
OTHER = pb.Commitment.FromString(COMMITMENT.SerializeToString())
OTHER.lane = pb.LANE_PARAMETER
COMMITMENTS = drawn(
    pb.Commitment.DESCRIPTOR, [canonical(COMMITMENT), canonical(OTHER)], Vocabulary(("round-1",), (TERMS.hash,))
)


@effort(10000, per_example=2)
@hypothesis.given(COMMITMENTS, COMMITMENTS)
def test_commitments_of_a_hostile_hop(report: bytes, parameter: bytes) -> None:
    noted()
    documents = [signed(Kind.COMMITMENT, payload, "shuffler-1") for payload in (report, parameter)]
    try:
        chain = refused(Code.BAD_BATCH, lambda: read_commitments(documents, TERMS, PINNED, 1))
    except SignatureError:
        return
    if chain is not None:
        for lane, (commitment,) in chain.items():
            assert (commitment.lane, commitment.hop, commitment.round_id) == (lane, 1, TERMS.round_id)
            assert commitment.num_in == commitment.num_out + sum(drop.count for drop in commitment.drops)


@effort(8000)
@hypothesis.given(drawn(pb.Submission.DESCRIPTOR, [], WORDS), st.sampled_from([bytes(32), b"\xff" * 32]))
def test_submissions(raw: bytes, manifest_hash: bytes) -> None:
    noted()
    try:
        submission = pb.Submission.FromString(raw)
    except DecodeError:
        return
    assert not submission_is_authentic(Digest(manifest_hash), submission)


SIZES = [Onion(kit.terms) for kit in KITS]


@effort(20000, per_example=4)
@hypothesis.given(st.binary(max_size=3000), st.sampled_from(SIZES), st.integers(1, 2000))
def test_plaintexts_and_chunks(raw: bytes, onion: Onion, size: int) -> None:
    parts = refused(Code.BAD_REQUEST, lambda: unpack(raw, size))
    assert parts is None or (b"".join(parts) == raw and {len(part) for part in parts} == {size})
    report, budget = onion.split(raw)
    assert report + budget == raw
    for text in (raw, raw[:BUDGET_BYTES]):
        noted()
        try:
            assert [type(number) for number in decode_budget(text)] == [float, float]
        except ValueError:
            assert len(text) != BUDGET_BYTES
    for question in QUESTIONS:
        for text in (raw, raw[:8]):
            try:
                assert isinstance(decoder(question, 0.5)(text), int)
            except ValueError as error:
                assert "report" in str(error)
    for text in (raw, raw[:8]):
        try:
            assert float(np.linalg.norm(decode_gaussian_vector(2, 1e30, text).astype(float))) <= 1e30
        except ValueError as error:
            assert "report" in str(error)
    noted()


PAIRS = {suite: generate_key_pair(suite) for suite in SUITES}
LABEL = Label(RoundId("round-1"), Digest(bytes(32)), pb.LANE_JOINT, 1, bytes(16))
SEALED = {suite: seal(suite, PAIRS[suite].public, LABEL, b"good") for suite in SUITES}
LOW_ORDER = [
    bytes(32),
    b"\1" + bytes(31),
    bytes.fromhex("ecffffff" + "ff" * 27 + "7f"),
    bytes.fromhex("ed" + "ff" * 30 + "7f"),
]


@effort(16000, per_example=4)
@hypothesis.given(
    st.sampled_from(SUITES),
    st.lists(
        st.binary(max_size=1500)
        | st.builds(bytes.__add__, st.sampled_from(LOW_ORDER), st.binary(min_size=16, max_size=40))
        | st.sampled_from(list(SEALED.values())),
        min_size=4,
        max_size=4,
    ),
    st.integers(0, 1200),
)
def test_envelopes(suite: SuiteName, ciphertexts: list[bytes], cut: int) -> None:
    noted(len(ciphertexts))
    good = SEALED[suite]
    opened = open_many(suite, PAIRS[suite].private, LABEL, [*ciphertexts, good[:cut], good])
    assert opened[-1] == b"good"
    for ciphertext, plaintext in zip(ciphertexts, opened, strict=False):
        assert (plaintext == b"good") is (ciphertext == good)


TOML_LINE = st.sampled_from(
    [
        "store = 3",
        'store = "mysql://x"',
        'store = "sqlite"',
        'listen = "a:99999"',
        'listen = "[::1]:5"',
        'listen = "a:١"',
        "workers = 0",
        "workers = 99999999999999999999999",
        "workers = true",
        "max_concurrent_calls = 1e3",
        "[storage_key]",
        "a.b.c = 1",
        "x = " + "[" * 5000,
        "\0",
        "store = '''",
    ]
)


@pytest.mark.slow
@hypothesis.given(data=st.data())
@effort(3000)
def test_settings_and_deployment_files(
    tmp_path_factory: pytest.TempPathFactory, deployment_text: str, data: st.DataObject
) -> None:
    noted()
    directory = tmp_path_factory.getbasetemp() / "files"
    directory.mkdir(exist_ok=True)
    noise = (
        st.lists(TOML_LINE | st.text(max_size=40), max_size=6)
        .map("\n".join)
        .map(lambda text: text.encode("utf-8", "replace"))
    )
    good = deployment_text.encode()
    at = data.draw(st.integers(0, len(good)))
    middle = data.draw(st.sampled_from([b"", b"\xff", b"'", b"\n", b"=", b"0", b"[[services]]\n", b"\r", b'"""']))
    altered = good[:at] + middle + good[at + data.draw(st.integers(0, 40)) :]
    raw = data.draw(noise | st.binary(max_size=100) | st.just(altered) | st.just(good[:at]))
    for file, load, kind in (
        (SETTINGS_FILE, lambda: load_settings(directory), ServiceSettings),
        (DEPLOYMENT_FILE, lambda: load_deployment(directory / DEPLOYMENT_FILE), Deployment),
    ):
        (directory / file).write_bytes(raw)
        try:
            assert isinstance(load(), kind)
        except ValueError as error:
            assert file in str(error)


@pytest.fixture(scope="module")
def deployment_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("good") / "d"
    make_deployment(directory, "local", 2)
    return (directory / DEPLOYMENT_FILE).read_text()


@pytest.mark.slow
@hypothesis.given(data=st.data())
@effort(3000)
def test_files_of_participants(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    noted()
    file = tmp_path_factory.getbasetemp() / "population.csv"
    cell = TEXT | st.sampled_from(["0", "1", "a", "0.5", '"', '"a\nb"', "a,b", "\r", "\ufeff"])
    rows = st.lists(st.lists(cell, max_size=4).map(",".join), max_size=8).map("\n".join)
    body = data.draw(rows).encode("utf-8", "replace") + data.draw(st.sampled_from([b"", b"\xff", b"\0", b'\n"']))
    header = data.draw(
        st.sampled_from([b"", b"value,epsilon\n", b"value,epsilon,value\n", b"value\n", b"\xef\xbb\xbfvalue,epsilon\n"])
    )
    file.write_bytes(header + body)
    question = data.draw(st.sampled_from(QUESTIONS))
    try:
        column = data.draw(st.sampled_from([None, "epsilon"]))
        groups = parse_budget_groups("0.5:54,1:37,2:9")
        population = read_population(PopulationFile(CsvFile(file), "value", groups, epsilon_column=column), question)
        for participant in population.participants.values():
            assert math.isfinite(participant.value)
            assert math.isfinite(participant.max_local_epsilon)
            assert participant.max_local_epsilon > 0
        guess_question(CsvFile(file), "value", None, None)
    except ValueError as error:
        assert file.name in str(error) or "value" in str(error)


def test_an_endless_cell_and_a_directory_are_refused_as_files_of_people(tmp_path: Path) -> None:
    endless = tmp_path / "endless.csv"
    endless.write_text("value\n" + "x" * 200_000)
    for path in (endless, tmp_path):
        with pytest.raises(ValueError, match=naming("CSV")):
            read_population(PopulationFile(CsvFile(path), "value", parse_budget_groups("1")), BIT)
    endless.write_text("value\n1\n1\n")
    assert guess_question(CsvFile(endless), "value", None, None).mechanism.kind == "rr"
    endless.write_text("value\nx\nx\n")
    with pytest.raises(ValueError, match=naming("'value'", "'x'")):
        guess_question(CsvFile(endless), "value", None, None)


@pytest.mark.slow
@hypothesis.settings(effort(1), max_examples=3)
@hypothesis.given(st.lists(drawn(pb.Manifest.DESCRIPTOR, MANIFESTS, WORDS), min_size=40, max_size=40))
def test_the_same_messages_again_and_again_take_no_more_memory(messages: list[bytes]) -> None:
    process, sizes = psutil.Process(), []
    for _ in range(2):
        for _ in range(50):
            for raw in messages:
                terms = refused(Code.BAD_MANIFEST, lambda: with_survey(raw, TERMS.survey))  # noqa: B023
                assert terms is None or Onion(terms).joint.sealed_size
        gc.collect()
        sizes.append(process.memory_info().rss)
    assert sizes[1] - sizes[0] < 20 * 2**20
