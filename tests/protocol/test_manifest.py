"""The manifest and its survey: canonical bytes, and one refusal for every field that can be wrong."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from croupier.operator.keys import make_deployment
from croupier.protocol.deployment import PrivacyLimit
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import parse_terms
from croupier.protocol.mechanisms import mechanism_from
from croupier.protocol.mechanisms.gaussian import Gaussian
from croupier.protocol.mechanisms.gaussian_vector import GaussianVector
from croupier.protocol.mechanisms.hemisphere import Hemisphere
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.mechanisms.vector_task import SequentialOrder, VectorTask
from croupier.protocol.questions import Question
from croupier.protocol.surveys import read_survey
from croupier.protocol.tier_counts import EXACT, BudgetPrivacy, TierCounts
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import RoundKit, make_kit
from tests.support.messages import naming, refuses

TASK = VectorTask(2, 1.5, "model", bytes(8))


def golden() -> RoundKit:
    kit = make_kit()
    manifest = kit.manifest
    for index, keys in enumerate((*manifest.hops, manifest.accountant, manifest.analyzer), start=1):
        keys.public_key = bytes([index]) * 32
    manifest.accountant.release_public_key = b"\xff" * 32
    manifest.accountant.report_ticket_key = b"\x11" * 32
    manifest.accountant.parameter_ticket_key = b"\x12" * 32
    return kit


def test_the_encoding_and_its_hashes_are_golden() -> None:
    terms = golden().terms
    assert (len(terms.payload), len(terms.survey.payload)) == (363, 121)
    assert hashlib.sha256(b"croupier/v1/manifest\0" + terms.payload).digest() == terms.hash
    assert hashlib.sha256(b"croupier/v1/survey\0" + terms.survey.payload).digest() == terms.survey.hash
    assert terms.hash.hex() == "ca1abe477ee03df83f882ce847ac2b9542d90dd2d4ed044d560d23570794080d"
    assert terms.survey.hash.hex() == "0303cacbd970649c4b50f7ce43fdbaeca3bfc1730a8dfde884bad8044125cde1"


def test_what_is_written_is_read_back() -> None:
    for question in (
        Question("a", RandomizedResponse()),
        Question("b", KaryResponse(k=3, labels=("x", "y", "z"))),
        Question("c", OneBit(low=-1.5, high=4.0)),
        Question("d", Laplace(low=0.0, high=1.0, lattice=100)),
        Question("e", Gaussian(low=0.0, high=1.0, lattice=100, local_delta=1e-6)),
        Question("f", Hemisphere(vector=VectorTask(2, 1.5, "model", bytes(8)))),
        Question("g", GaussianVector(vector=TASK, local_delta=1e-6, records_per_client=600)),
    ):
        terms = make_kit(hops=3, question=question).terms
        assert terms.question == question
        assert terms.shared.num_hops == 3
        assert terms.budget_grid == (0.5, 1.0, 2.0)
        assert terms.services == ("shuffler-1", "shuffler-2", "shuffler-3", "accountant", "analyzer")


Change = Callable[[RoundKit], None]


def _set(name: str, value: object) -> Change:
    return lambda kit: setattr(kit.survey, name, value)


def _grid(*epsilons: float, delta: float = 0.0) -> Change:
    def change(kit: RoundKit) -> None:
        grid = kit.survey.questions[0].budget_grid
        del grid[:]
        grid.extend(pb.LocalBudget(epsilon=epsilon, delta=delta) for epsilon in epsilons)

    return change


def _question(**fields: object) -> Change:
    return lambda kit: kit.survey.questions[0].question.CopyFrom(pb.Question(**{"name": "q", **fields}))  # type: ignore[arg-type]


def _vector(**fields: Any) -> dict[str, Any]:
    return {"dimension": 2, "clipping_norm": 1.0, "parameters": bytes(8)} | fields


def _silos(**fields: Any) -> Change:
    """A question to silos, with budgets that have its delta unless it is out of range."""
    given: dict[str, Any] = {"vector": _vector(), "local_delta": 1e-6, "records_per_client": 10} | fields

    def change(kit: RoundKit) -> None:
        _question(gaussian_vector=given)(kit)
        for budget in kit.survey.questions[0].budget_grid:
            budget.delta = given["local_delta"]

    return change


def _tiny_budget(kit: RoundKit) -> None:
    _silos(local_delta=1e-15)(kit)
    kit.survey.questions[0].budget_grid[0].epsilon = 2e-9


def _limit(epsilon: float, delta: float) -> Change:
    return lambda kit: kit.survey.privacy_limit.CopyFrom(pb.PrivacyLimit(total_epsilon=epsilon, total_delta=delta))


def _budget_privacy(epsilon: float = 1.0, delta: float = 1e-6, **policy: int) -> Change:
    def change(kit: RoundKit) -> None:
        kit.survey.budget_privacy.MergeFrom(pb.BudgetPrivacy(epsilon=epsilon, delta=delta))
        kit.survey.MergeFrom(pb.Survey(**policy))  # type: ignore[arg-type]

    return change


def _of_manifest(name: str, value: object) -> Change:
    return lambda kit: setattr(kit.manifest, name, value)


def _accountants(name: str, value: Callable[[pb.Manifest], bytes]) -> Change:
    return lambda kit: setattr(kit.manifest.accountant, name, value(kit.manifest))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("protocol_version", 2), "protocol_version is 2; this software speaks 1"),
        (_set("deployment", ""), "deployment is empty"),
        (_set("survey_id", ""), "survey_id is ''"),
        (_set("survey_id", "x" * 65), "must be 1..64"),
        (_set("survey_id", "r\x1b[1A"), "survey_id is 'r.x1b"),
        (_of_manifest("question", 1), "question is 1; the survey has 1, from 0"),
        (_of_manifest("wave", 1), "wave is 1.*without a schedule"),
        (_set("num_hops", 0), "num_hops is 0; it must be 1..32"),
        (
            _question(krr={"k": 2, "labels": ["no", "yes\n  · local ε 0.01"]}),
            "a label is 'yes.n  · local ε 0.01', with",
        ),
        (_question(krr={"k": 2, "labels": ["no", "\u202eyes"]}), "controls of"),
        (_question(hemisphere={"vector": _vector(model="\x9b2J")}), "model is '.x9b2J', with the character"),
        (_set("hpke_suite", "none"), "hpke_suite is 'none'"),
        (_set("min_batch_size", 0), "min_batch_size is 0"),
        (_set("min_batch_size", 1), "min_batch_size is 1"),
        (_set("short_batch_policy", pb.SHORT_BATCH_POLICY_UNSPECIFIED), "short_batch_policy is missing"),
        (_set("delta", 0.0), "delta is 0.0; it must be 0 < delta"),
        (_set("delta", 0.5), "delta is 0.5"),
        (_set("epsilon_max", 0.0), "epsilon_max is 0.0"),
        (_set("epsilon_max", float("nan")), "epsilon_max is nan"),
        (_grid(), "budget_grid has 0 budgets"),
        (_grid(1.0, 1.0), "strictly ascending"),
        (_grid(2.0, 1.0), "strictly ascending"),
        (_grid(-1.0), "epsilon is -1.0"),
        (_grid(21.0), "epsilon is 21.0"),
        (_grid(1e-10), "epsilon is 1e-10; it must be 1e-09 < "),
        (_grid(1.0, delta=1e-6), "delta is 1e-06"),
        (_question(), "mechanism.*rr.*krr"),
        (_question(krr={"k": 1}), "k is 1; it must be 2"),
        (_question(onebit={"low": 2, "high": 1}), r"the interval is \[2.0, 1.0\]"),
        (_question(laplace={"low": 0, "high": 1}), "lattice is 0"),
        (_question(gaussian={"low": 0, "high": 1, "lattice": 9}), "local_delta is 0"),
        (_question(gaussian={"low": 0, "high": 1, "lattice": 9, "local_delta": 1e-6}), "it must be 1e-06"),
        (_question(name="", rr={}), "name is ''"),
        (_question(hemisphere={}), "vector is missing; Hemisphere needs it"),
        (_question(hemisphere={"vector": _vector(dimension=0)}), "dimension is 0; it must be 1"),
        (_question(hemisphere={"vector": _vector(dimension=1 << 19)}), "dimension is 524288"),
        (_question(hemisphere={"vector": _vector(clipping_norm=0)}), "clipping_norm is 0.0"),
        (
            _question(hemisphere={"vector": _vector(parameters=b"x")}),
            "1 bytes; 2 .* 8",
        ),
        (_silos(vector=None), "vector is missing; GaussianVector needs it"),
        (_silos(local_delta=0), "local_delta is 0.0; it must be 1e-15"),
        (_silos(local_delta=0.2), "local_delta is 0.2; it must be 1e-15"),
        (_silos(records_per_client=0), "records_per_client is 0; it must be 1"),
        (_silos(records_per_client=2**30 + 1), "records_per_client is 1073741825; it must be 1"),
        (_silos(vector=_vector(clipping_norm=1e-21)), "clipping_norm is 1e-21; it must be 1e-20..1e.20"),
        (_silos(vector=_vector(clipping_norm=1e21)), "clipping_norm is 1e.21; it must be 1e-20..1e.20"),
        (_tiny_budget, "1e.09"),
        (_set("max_batch_size", 1), "max_batch_size.*1.*0 .*min_batch_size.*2"),
        (_limit(0.0, 1e-6), "privacy_limit.total_epsilon is 0.0"),
        (_limit(1.0, 0.0), "privacy_limit.total_delta is 0.0"),
        (_budget_privacy(0.0), "budget_privacy epsilon is 0.0; it must be 0.001..20"),
        (_budget_privacy(math.nan), "budget_privacy epsilon is nan"),
        (_budget_privacy(delta=0.01), "budget_privacy delta is 0.01; it must be 1e-12..0.001"),
        (lambda kit: kit.manifest.ClearField("hops"), "hops has 0 shufflers; the survey has 2"),
        (lambda kit: setattr(kit.manifest.hops[1], "service", "shuffler-1"), "appears twice"),
        (lambda kit: setattr(kit.manifest.analyzer, "round_id", "another"), "are for round 'another'"),
        (lambda kit: setattr(kit.manifest.hops[0], "public_key", b""), "public key of 'shuffler-1' is missing"),
        (_accountants("release_public_key", lambda manifest: manifest.analyzer.public_key), "two round keys"),
        (_accountants("parameter_ticket_key", lambda _: b""), "two ticket keys .*32 bytes"),
        (
            _accountants("parameter_ticket_key", lambda manifest: manifest.accountant.report_ticket_key),
            "two ticket keys",
        ),
    ],
)
def test_every_field_is_checked(change: Change, message: str) -> None:
    kit = make_kit()
    change(kit)
    with refuses(Code.BAD_MANIFEST, message):
        _ = kit.terms


def test_other_encodings_of_the_same_round_are_refused() -> None:
    whole = make_kit().round
    manifest, survey = whole.manifest.payload, whole.survey
    for changed in (bytes([0x18, 0x00]), bytes([0xF8, 0x7F, 0x01])):  # a field that is empty, and an unknown one
        with pytest.raises(Refusal, match="not canonical"):
            parse_terms(pb.SignedRound(manifest=pb.Signed(payload=manifest + changed), survey=survey))
        with pytest.raises(Refusal, match="not canonical"):
            parse_terms(pb.SignedRound(manifest=pb.Signed(payload=manifest), survey=survey + changed))
    for broken in (pb.SignedRound(survey=b"\xff\xff\xff"), pb.SignedRound(survey=survey)):
        broken.manifest.payload = b"\xff\xff\xff"
        with pytest.raises(Refusal, match=Code.BAD_MANIFEST.message):
            parse_terms(broken)


def test_a_manifest_is_of_one_survey() -> None:
    kit = make_kit()
    whole = kit.round
    kit.survey.epsilon_max = 2.0
    other = kit.round.survey
    with pytest.raises(Refusal, match=naming("survey", read_survey(other).hash.hex()[:16])):
        parse_terms(pb.SignedRound(manifest=whole.manifest, survey=other))


def test_strangers_have_no_keys_here() -> None:
    terms = make_kit().terms
    assert terms.keys_of("analyzer") == terms.analyzer
    with pytest.raises(Refusal, match=naming(Code.BAD_MANIFEST.message, "'mallory'")):
        terms.keys_of("mallory")


def test_a_round_belongs_to_one_deployment(tmp_path: Path) -> None:
    deployment = make_deployment(tmp_path, "local", 2)
    terms = make_kit().terms
    terms.check_place(deployment)
    limited = deployment.model_copy(update={"privacy_limit": PrivacyLimit(total_epsilon=2.0, total_delta=1e-5)})
    policy = pb.PrivacyLimit(total_epsilon=2.0, total_delta=1e-5)
    make_kit(privacy_limit=policy).terms.check_place(limited)
    for elsewhere, message in [
        (deployment.model_copy(update={"name": "other"}), "deployment is 'local', not 'other'"),
        (deployment.model_copy(update={"services": deployment.services[1:]}), "services are"),
        (limited, "privacy_limit is None, not total_epsilon=2.0"),
    ]:
        with pytest.raises(Refusal, match=message):
            terms.check_place(elsewhere)


@pytest.mark.parametrize("missing", ["vector", "local_delta", "records_per_client"])
def test_a_question_to_silos_needs_all_of_its_parts(missing: str) -> None:
    parts: dict[str, Any] = {"vector": TASK, "local_delta": 1e-6, "records_per_client": 10}
    assert mechanism_from("gaussian_vector", parts).report_bytes == 8
    with pytest.raises(ValueError, match=naming(missing, "gaussian_vector")):
        mechanism_from("gaussian_vector", parts | {missing: None})
    with pytest.raises(ValueError, match=naming("lattice", 10, "gaussian_vector")):
        mechanism_from("gaussian_vector", parts | {"lattice": 10})


def test_in_a_sequential_round_a_client_submits_the_key_of_its_answer() -> None:
    is_sequential = Question("q", GaussianVector(replace(TASK, sequential=SequentialOrder(100, 0.1)), 10, 1e-6))
    assert (is_sequential.mechanism.report_bytes, is_sequential.submitted_bytes) == (8, 32)
    assert is_sequential.answer_bytes == 32 + 64 + 8


def test_a_manifest_may_have_budget_privacy() -> None:
    kit = make_kit()
    _budget_privacy()(kit)
    assert kit.terms.counted_by == TierCounts(BudgetPrivacy(1.0, 1e-6))
    del kit.survey.questions[0].budget_grid[1:]  # with which there is nothing to hide
    assert kit.terms.counted_by == EXACT
