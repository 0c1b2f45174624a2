"""Rounds as operators list them and watch them, and as participants read them before they answer."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from croupier.accountant.guessing import right_at_most
from croupier.client.submission import Participant
from croupier.console.source import Source
from croupier.deploy.version_files import write_deployment
from croupier.operator.keys import signed_by, signed_here
from croupier.operator.overview import TermsCache, overview, watch, why_terms_unknown
from croupier.protocol.certificates import refusals_of
from croupier.protocol.errors import Code, Refusal, SignatureError
from croupier.protocol.identity import Identity
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms import MECHANISMS
from croupier.protocol.mechanisms.base import Form
from croupier.protocol.mechanisms.gaussian_vector import GaussianVector
from croupier.protocol.mechanisms.hemisphere import Hemisphere
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.levels import Levels
from croupier.protocol.mechanisms.vector_task import SequentialOrder, VectorTask
from croupier.protocol.names import JsonObject, PrivateKey, RoundId
from croupier.protocol.questions import Question
from croupier.protocol.rounding import percent
from croupier.protocol.statements import written_json
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.documents import round_json, terms_json
from croupier.show.promises import promises_of
from croupier.show.round_text import answering_sections, deadline, rounds_sections, services_text
from tests.support import make_kit, settings
from tests.support.blocks import shown as printed
from tests.support.messages import naming
from tests.support.rounds import QUESTIONS, table

NOW = 1_700_000_000.0
TASK = VectorTask(2, 1.0, "line", bytes(8), SequentialOrder(500, 0.1))
EVERY = (
    *QUESTIONS,
    Question("hours", Levels(0.0, 24.0, 13)),
    Question("model", Hemisphere(TASK)),
    Question("silo", GaussianVector(TASK, 10, 1e-6)),
)


def terms_of(question: Question = QUESTIONS[0], hops: int = 2, **changes: Any) -> RoundTerms:
    return make_kit(hops, question, round_id=f"{question.name}-{'0123456789ab'}", **changes).terms


def read(terms: RoundTerms, state: str = "OPEN", directory: str = "") -> str:
    return printed(*answering_sections(terms_json(terms) | {"state": state}, NOW, directory))


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("question", EVERY, ids=lambda question: question.mechanism.kind)
def test_what_a_participant_reads_of_every_mechanism(question: Question) -> None:
    said = read(terms_of(question))
    assert "randomizes your answer" not in said
    assert f"a value for {question.mechanism.kind}" not in said  # what is said of a mechanism without words of its own
    assert max(map(len, said.splitlines())) <= 80
    assert said.startswith(f"{question.name}-0123456789ab\n")
    assert "{" not in said
    assert ("ONE RECORD" in said) == (question.mechanism.kind == "gaussian_vector")
    command = f"croupier submit --value-file FILE --epsilon BUDGET \\\n  --round {question.name}-0123456789ab"
    assert (command in said) == (question.mechanism.form is not Form.VECTOR)


def test_every_mechanism_is_among_them() -> None:
    assert {question.mechanism.kind for question in EVERY} == set(MECHANISMS)


def test_every_budget_is_said_with_what_it_promises() -> None:
    terms = terms_of(epsilon_max=1.5)
    said = read(terms)
    for epsilon in (0.5, 1.0):
        assert re.search(naming(f"ε {epsilon:g}", f"most {percent(right_at_most(epsilon))}"), said)
    released, alone = percent(right_at_most(1.5, 1e-6)), percent(right_at_most(2.0))
    assert re.search(naming("ε 2", f"most {released}", f"{alone} if"), said)
    assert "certifies an ε above 1.5, at δ = 1e-06" in flat(said)
    # The noise that a person has added is there in any case, whatever the round's delta is.
    small, _, large = terms_json(terms_of(QUESTIONS[-1], epsilon_max=1.5, delta=0.01))["budgets"]
    assert small["released_right_at_most"] == small["alone_right_at_most"] == right_at_most(0.5, 1e-6)
    assert large["released_right_at_most"] == right_at_most(1.5, 0.01) < large["alone_right_at_most"]


def test_with_hop_noise_budgets_say_what_one_honest_server_promises() -> None:
    noise = pb.HopNoise(epsilon=0.1, delta=1e-6)
    terms = terms_of(hop_noise=noise)
    said = flat(read(terms))
    honest = percent(right_at_most(0.1, 1e-6))
    for budget in terms_json(terms)["budgets"]:
        alone = percent(right_at_most(budget["epsilon"]))
        assert re.search(naming(f"{honest} if", f"{alone} if"), said)
        assert budget["one_honest_right_at_most"] == right_at_most(0.1, 1e-6)
        first, second = promises_of(terms, budget["epsilon"]).lines
        assert honest in first
        assert "all other servers" in first
        assert alone in second
        assert "own noise" in second
    (plain,) = promises_of(terms_of(), 2.0).lines
    assert percent(right_at_most(2.0)) in plain
    assert "all others collude" not in said


def test_the_conditions_and_the_witnesses_are_those_of_the_manifest() -> None:
    plain = flat(read(terms_of()))
    assert "stays open" in plain
    assert "takes none" in plain
    assert "used each budget" in plain
    assert "no limit" in plain
    assert "one shuffler" in plain
    assert re.search(naming("nobody else", "dishonest"), plain)
    many = Question("many", KaryResponse(k=40))
    strict = terms_of(
        many,
        1,
        max_batch_size=5000,
        close_deadline_unix_s=int(NOW) + 5400,
        short_batch_policy=pb.SHORT_BATCH_POLICY_DISPOSE,
        dishonest=3,
        privacy_limit=pb.PrivacyLimit(total_epsilon=2.0, total_delta=1e-5),
    )
    sealed = pb.Survey.FromString(strict.survey.payload)
    sealed.collector_public_key = b"x"
    said = flat(read(replace(strict, survey=replace(strict.survey, message=sealed)), directory="here"))
    for line in (
        "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, … (40 in all)",
        "at least 2 people (and at most 5,000) have answered",
        "Closes 2023-11-14 23:43 UTC, in 1 h 30 min.",
        "the round is deleted",
        "takes 3 to be dishonest",
        "at most ε = 2 at δ = 1e-05",
        "the collector's key",
        "shuffler-1 keeps secret",
        "at most 3 of the other people",
        "\\ --dir here",
    ):
        assert line in said
    closed = read(strict, "DELIVERED")
    assert "It takes no more answers (DELIVERED at shuffler-1)" in closed
    assert "croupier submit" not in closed
    assert "Closes" not in closed


@pytest.mark.parametrize(
    ("unix_s", "said"),
    [
        (None, "open until"),
        (NOW - 1, "deadline was 2023-11-14 22:13 UTC"),
        (NOW + 61, "closes 2023-11-14 22:14 UTC, in 61 s"),
        (NOW + 150, "closes 2023-11-14 22:15 UTC, in 3 min"),
        (NOW + 3 * 86400, "closes 2023-11-17 22:13 UTC, in 3 d 0 h"),
    ],
)
def test_a_deadline_is_said_with_what_is_left(unix_s: float | None, said: str) -> None:
    shown = deadline(None if unix_s is None else int(unix_s), NOW)
    assert shown.startswith(said) if unix_s is None else shown == said


def status(**states: str) -> dict[str, pb.RoundStatus | None]:
    return {
        name: None if state == "UNREACHABLE" else pb.RoundStatus(state=pb.RoundState.Value(f"ROUND_STATE_{state}"))
        for name, state in states.items()
    }


@pytest.mark.parametrize(
    ("states", "stage"),
    [
        ({"hop": "OPEN", "accountant": "OPEN", "analyzer": "OPEN"}, "OPEN"),
        ({"hop": "PREPARED", "accountant": "OPEN", "analyzer": "OPEN"}, "PREPARED"),
        ({"hop": "CLOSED", "accountant": "OPEN", "analyzer": "OPEN"}, "UNDER WAY"),
        ({"hop": "DELIVERED", "accountant": "CLOSED", "analyzer": "CLOSED"}, "UNDER WAY"),
        ({"hop": "SEQUENTIAL", "accountant": "RELEASED", "analyzer": "SEQUENTIAL"}, "SEQUENTIAL"),
        ({"hop": "DELIVERED", "accountant": "RELEASED", "analyzer": "PUBLISHED"}, "PUBLISHED"),
        ({"hop": "DELIVERED", "accountant": "REFUSED", "analyzer": "REFUSED"}, "REFUSED"),
        ({"hop": "DISPOSED", "accountant": "OPEN", "analyzer": "OPEN"}, "DISPOSED"),
        ({"hop": "DELIVERED", "accountant": "RELEASED", "analyzer": "UNREACHABLE"}, "UNKNOWN"),
        ({"hop": "DELIVERED", "accountant": "REFUSED", "analyzer": "UNREACHABLE"}, "REFUSED"),
        ({"hop": "UNREACHABLE", "second": "OPEN", "analyzer": "OPEN"}, "UNKNOWN"),
        ({"hop": "UNREACHABLE", "second": "DELIVERED", "analyzer": "PUBLISHED"}, "PUBLISHED"),
        ({"hop": "OPEN", "second": "OPEN", "analyzer": "UNREACHABLE"}, "OPEN"),
        ({"hop": "DELIVERED", "second": "UNREACHABLE", "analyzer": "CLOSED"}, "UNDER WAY"),
    ],
)
def test_the_stage_of_a_round(states: dict[str, str], stage: str) -> None:
    row = round_json(RoundId("r"), status(**states), terms_of())
    assert row["stage"] == stage
    said = printed(*rounds_sections({"services": [], "rounds": [row]}, NOW, most=1, services=False))
    assert said.startswith(f"r\n{stage} · bit: 1 (yes) or 0 (no) (rr)\n")
    assert ("says why" in said) == (stage == "REFUSED")
    assert ("open until" in said) == (stage == "OPEN")


def test_ids_can_be_copied_and_lines_are_short() -> None:
    question = Question("q" * 51, QUESTIONS[0].mechanism)
    state = pb.ROUND_STATE_OPEN
    seen = {
        "hop": pb.RoundStatus(state=state, num_items=5),
        "accountant": pb.RoundStatus(state=state),
        "analyzer": pb.RoundStatus(state=state, problem="the disk is full"),
    }
    terms = terms_of(question, close_deadline_unix_s=int(NOW) + 7200, min_batch_size=20)
    rounds = [
        round_json(terms.round_id, seen, terms),
        round_json(RoundId("gone"), status(hop="DISPOSED"), None, end=int(NOW)),
        round_json(RoundId("other"), status(hop="DELIVERED"), None, "the chain is another"),
    ]
    seen_all: JsonObject = {"services": [], "rounds": rounds}
    lines = printed(*rounds_sections(seen_all, NOW, most=2, services=True)).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == f"{'q' * 51}-0123456789ab"
    assert f"{'━' * 7}{'─' * 23} 5 reports, 20 needed" in lines
    assert "closes 2023-11-15 00:13 UTC, in 2 h 0 min" in lines
    assert "hop OPEN · accountant OPEN · analyzer OPEN" in lines
    assert "analyzer: the disk is full" in lines
    assert any(line.startswith("DISPOSED · ") for line in lines)
    assert "kept until 2023-11-14" in lines
    assert re.search(naming("1 older", "'croupier status'"), lines[-2])
    assert "terms: the chain is another" in printed(*rounds_sections(seen_all, NOW, most=3, services=False))


def test_where_services_do_not_answer_there_may_be_rounds() -> None:
    """Reproduction: "no round yet" was said of a deployment that was down."""
    services: list[JsonObject] = [{"service": name, "rounds": []} for name in ("shuffler-1", "analyzer")]
    empty: JsonObject = {"services": services, "rounds": []}
    assert "no round yet" in printed(*rounds_sections(empty, NOW, most=3, services=False))
    empty["services"][0]["problem"] = "UNAVAILABLE"
    assert "every service" in printed(*rounds_sections(empty, NOW, most=3, services=False))
    empty["services"][1]["problem"] = "UNAVAILABLE"
    assert printed(*rounds_sections(empty, NOW, most=3, services=False)).strip() == "no service answers"


def test_services_are_shown_with_what_is_wrong() -> None:
    services: list[JsonObject] = [
        {"service": "shuffler-1", "rounds": [], "health": "SERVING", "num_revoked": 3},
        {"service": "accountant", "rounds": [], "health": "SERVING", "problem": "not your call"},
        {"service": "shuffler-2", "rounds": [], "health": "NOT_SERVING"},
        {
            "service": "analyzer",
            "rounds": [],
            "health": "UNREACHABLE",
            "problem": "connection refused at 127.0.0.1:7120",
        },
    ]
    named = (
        ("shuffler-1", "SERVING", "3"),
        ("accountant", "SERVING", "not your call"),
        ("shuffler-2", "NOT_SERVING", "'croupier doctor'"),
        ("analyzer", "out of reach", "connection refused at 127.0.0.1:7120"),
    )
    for line, values in zip(services_text(services).splitlines(), named, strict=True):
        assert re.fullmatch(naming(*values) + ".*", line)


@pytest.mark.virtual_time
async def test_a_round_is_watched_from_open_to_published(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        looks: asyncio.Queue[bool] = asyncio.Queue()

        async def ticks() -> AsyncIterator[None]:
            while await looks.get():
                yield

        seen = watch(at.operator, ticks())

        async def look() -> JsonObject:
            looks.put_nowait(True)
            return await anext(seen)

        assert (await look())["rounds"] == []
        terms = await at.operator.open_round(settings(min_batch_size=3))
        (row,) = (await look())["rounds"]
        assert (row["stage"], row["num_reports"]) == ("OPEN", 0)
        assert row["terms"] is not None
        assert row["terms"]["min_batch_size"] == 3
        await at.submit(terms, [Participant(1, 1.0)] * 3)
        (row,) = (await look())["rounds"]
        assert (row["stage"], row["num_reports"]) == ("OPEN", 3)
        await at.finish(terms)
        await at.inside.stop("accountant")
        gone = await look()
        assert [service["health"] == "UNREACHABLE" for service in gone["services"]] == [False, True, False]
        (row,) = gone["rounds"]
        assert row["stage"] == "PUBLISHED"
        assert list(row["states"]) == ["shuffler-1", "accountant", "analyzer"]
        assert row["states"]["accountant"] == "UNREACHABLE"
        looks.put_nowait(False)
        assert await anext(seen, None) is None


@pytest.mark.virtual_time
async def test_of_a_round_whose_hop_1_is_away_nothing_is_said_that_is_not_known(tmp_path: Path) -> None:
    """An open round had 0 reports, and what was kept of it was deleted."""
    async with table(tmp_path, 1) as at:
        terms = await at.operator.open_round(settings(min_batch_size=3))
        await at.submit(terms, [Participant(1, 1.0)] * 2)
        known: TermsCache = {}
        await overview(at.operator, known)
        await at.inside.stop("shuffler-1")
        for before, named in (
            ({}, [("UNKNOWN",), ("terms", "shuffler-1", "out of reach")]),
            (known, [("UNKNOWN · bit: 1 (yes) or 0 (no) (rr)",), ("unknown", "3 needed")]),
        ):
            seen = await overview(at.operator, before)
            (row,) = seen["rounds"]
            assert row["num_reports"] is None
            lines = printed(*rounds_sections(seen, NOW, most=1, services=False)).splitlines()
            assert lines[0] == terms.round_id
            for line, values in zip(lines[1:-1], named, strict=True):
                assert re.fullmatch(naming(*values), line)
        await at.inside.start("shuffler-1")
        (row,) = (await overview(at.operator, known))["rounds"]
        assert (row["num_reports"], row["problems"]) == (2, {})


@pytest.mark.parametrize(
    ("there", "is_away", "why"),
    [
        (None, True, ("shuffler-1", "out of reach")),
        (None, False, ("shuffler-1", "not know")),
        (pb.RoundStatus(state=pb.ROUND_STATE_OPEN), False, ("shuffler-1", "not answer")),
        (pb.RoundStatus(state=pb.ROUND_STATE_PREPARED), False, ()),
    ],
)
def test_why_the_terms_of_a_round_are_not_known(
    there: pb.RoundStatus | None, is_away: bool, why: tuple[str, ...]
) -> None:
    said = why_terms_unknown("shuffler-1", there, is_away=is_away)
    assert re.search(naming(*why), said) if why else said == ""


@pytest.mark.virtual_time
async def test_terms_are_verified_before_they_are_shown(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        place, transport = at.inside.directory, at.inside.transport
        source = Source(place, transport)
        with pytest.raises(Refusal) as none:
            await source.terms()
        assert none.value.code is Code.NO_OPEN_ROUND
        terms = await at.operator.open_round(settings())
        shown = await source.terms()
        assert shown == terms_json(terms) | {"state": "OPEN", "granted": None, "refusals": []}
        assert await source.terms(terms.round_id) == shown
        with pytest.raises(Refusal, match=Code.UNKNOWN_ROUND.message):
            await source.terms(RoundId("never"))

        known: TermsCache = {}
        stranger = Identity("analyzer", PrivateKey(os.urandom(32)))
        other = stranger.public_key.hex()
        ours = at.operator.deployment
        entries = [
            service.model_copy(update={"identity": other}) if service.role == "analyzer" else service
            for service in ours.services
        ]
        at.operator.deployment = ours.model_copy(update={"services": tuple(entries), "version": 2})
        (row,) = (await overview(at.operator, known))["rounds"]
        assert row["terms"] is None
        assert "signature" in row["problems"]["terms"]
        changed = at.operator.deployment
        write_deployment(place, signed_by(signed_here(changed, [place]), [stranger]))
        with pytest.raises(SignatureError):
            await source.terms()


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_a_round_that_was_refused_is_shown_with_the_reasons(tmp_path: Path) -> None:
    """Reproduction: `round show` ended with DELIVERED at hop 1, granted or refused; only `survey results` said more."""
    async with table(tmp_path, 1) as at:
        seen = {}
        for most in (0.001, 3.9):
            terms = await at.operator.open_round(settings(epsilon_max=most))
            await at.submit(terms, [Participant(1, 1.0)] * 30)
            _, certificate = await at.finish(terms)
            shown = await Source(at.inside.directory, at.inside.transport).terms(terms.round_id)
            assert shown["granted"] == certificate.granted
            assert shown["refusals"] == written_json(refusals_of(certificate))
            seen[shown["granted"]] = printed(*answering_sections(shown, NOW))
            await at.inside.stop("analyzer")
            shown = await Source(at.inside.directory, at.inside.transport).terms(terms.round_id)
            assert (shown["granted"], shown["refusals"]) == (None, [])
            await at.inside.start("analyzer")
        assert "has refused" in seen[False]
        assert re.search(naming("epsilon", "most 0.001"), " ".join(seen[False].split()))
        assert "refused" not in seen[True]


def test_what_is_promised_before_people_answer_is_rounded_up() -> None:
    """Reproduction: of a limit of 0.30000049 people read that nothing above 0.3 would ever be read."""
    limit = pb.PrivacyLimit(total_epsilon=0.70000049, total_delta=1.0000004e-5)
    kit = make_kit(grid=(0.20000049,), epsilon_max=0.30000049, privacy_limit=limit)
    said = flat(read(kit.terms))
    assert "certifies an ε above 0.300001, at δ" in said
    assert re.search(naming("ε = 0.700001", "δ = 1.00001e-05"), said)
    assert "local ε 0.200001: right at most" in said
