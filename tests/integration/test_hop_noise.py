"""Whole rounds with hop noise: every hop adds its fakes, and certificate, result and counts say so."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path

import croupier_check
import pytest

from croupier.client.round_result import RoundResult
from croupier.client.submission import Participant
from croupier.operator.doctor import examine
from croupier.operator.ledger_stores import hop_ledgers
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.certificates import certificate_json
from croupier.protocol.codes import Assumption
from croupier.protocol.documents import document_of
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.levels import Levels
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.service_directory import load_settings
from croupier.show.csv_file import result_csv
from croupier.show.explanation import explain
from croupier.show.ledger import noise_line
from croupier.show.numbers import numbers_of
from croupier.show.published import publication_json
from croupier.show.report import ReportRound, report_of
from tests.support import BIT
from tests.support.command_line import answer
from tests.support.messages import naming, refuses
from tests.support.rounds import table
from tests.support.statements import codes

pytestmark = pytest.mark.virtual_time
NOISE = 1.0
GRID = (2.0, 4.0)


def settings(question: Question, people: int) -> RoundSettings:
    return RoundSettings(question, GRID, hop_noise=NOISE, min_batch_size=people, epsilon_max=1.0)


def plain(question: Question) -> RoundSettings:
    return RoundSettings(question, (0.25, 0.5), min_batch_size=2)


def report_commitments(certificate: pb.Certificate) -> list[pb.Commitment]:
    read = [pb.Commitment.FromString(commitment.payload) for commitment in certificate.commitments]
    return [commitment for commitment in read if commitment.lane == pb.LANE_REPORT]


@pytest.mark.parametrize(
    ("question", "hops"),
    [(BIT, 1), (BIT, 3), (Question("letter", KaryResponse(k=4)), 2), (Question("mean", OneBit(0.0, 1.0)), 2)],
    ids=["rr-1", "rr-3", "krr-2", "onebit-2"],
)
async def test_a_round_with_hop_noise_is_certified_and_estimated(tmp_path: Path, question: Question, hops: int) -> None:
    people = 40
    async with table(tmp_path, hops) as at:
        terms = await at.operator.open_round(settings(question, people))
        users = [
            Participant(value, epsilon) for value, epsilon in zip([0, 1] * 20, [2.0] * 20 + [4.0] * 20, strict=True)
        ]
        await at.submit(terms, users)
        publication, certificate = await at.finish(terms)
    assert terms.fakes is not None
    law = terms.fakes.law
    assert certificate.granted
    assert certificate.epsilon < NOISE
    assert codes(certificate.assumptions)[-1] == Assumption.ONE_HONEST_HOP
    assert Assumption.HONEST_ACCOUNTANT not in codes(certificate.assumptions)
    fakes = [commitment.num_fakes for commitment in report_commitments(certificate)]
    assert list(certificate.fake_tickets) == fakes
    assert all(0 < count <= law.most for count in fakes)
    assert all(count == law.most for count in fakes) or not law.is_paired
    assert (certificate.num_reports, certificate.num_users, certificate.num_tickets) == (people, people, people)
    assert (certificate.dishonest, certificate.unknown_budgets) == (0, 0)
    assert publication.num_reports == people
    error = publication.values[0].standard_error
    gain = sum(-math.expm1(-e) / (1 + (law.num_values - 1) * math.exp(-e)) for e in [2.0, 4.0]) * 20
    assert error * gain > math.sqrt(hops * law.variance * (1 if law.is_paired else 1 - 1 / law.num_values))
    assert publication.hop_influence == pytest.approx(law.influence(max(fakes)) / gain)
    *_, one_hop, _ = croupier_check.check(json.loads(json.dumps(certificate_json(certificate))))
    assert one_hop.startswith(f"if one hop is honest: epsilon = {certificate.one_honest_hop.epsilon} at")


LIMIT = "[noise_limit]\nepsilon = 2.0\ndelta = 1e-5\n"


@pytest.mark.slow
async def test_a_hop_signs_no_round_beyond_its_own_noise_limit(tmp_path: Path) -> None:
    """Whatever operator and accountant want: one hop keeps it, and the accountant has no limit at all."""
    async with table(tmp_path, 2, settings_of=lambda name: LIMIT if name == "shuffler-2" else "") as at:
        noisy = settings(BIT, 2)
        withdrawn = await at.operator.open_round(noisy)
        assert await at.operator.withdraw(withdrawn.round_id)  # nothing has left: it does not count
        for _ in range(2):
            terms = await at.operator.open_round(noisy)
            await at.submit(terms, [Participant(1, 2.0), Participant(0, 2.0)])
            assert (await at.finish(terms))[1].granted
        with pytest.raises(Refusal) as refused:
            await at.operator.open_round(noisy)
        assert refused.value.code is Code.BAD_MANIFEST
        assert "noise_limit is epsilon 2: requested 1, spent 2 in 2 rounds" in str(refused.value)
        with pytest.raises(Refusal, match=r"requested 0\.5"):  # without hop noise the local budget counts
            await at.operator.open_round(plain(BIT))
        await at.inside.restart("shuffler-2")
        first, second, accountant, _ = [document_of(status) for status in await at.operator.status()]
        assert accountant["noise_spent"] is None
        spent = {"epsilon": 2.0, "delta": 2e-6, "rounds": 2}
        assert second["noise_spent"] == {**spent, "most_epsilon": 2.0, "most_delta": 1e-5}
        assert first["noise_spent"]["rounds"] >= 2
        assert first["noise_spent"]["most_epsilon"] is None
        said = "shuffler-2's own ledger: ε 2 at δ 2e-06 spent in 2 rounds; its noise_limit is ε 2 at δ 1e-05, and it"
        at_hop = hop_ledgers(at.inside.directory)
        assert answer("ledger", "--dir", at.inside.directory)["hops"] == at_hop
        machine = tmp_path / "machine"  # of shuffler-2 alone
        shutil.copytree(at.inside.directory / "shuffler-2", machine / "shuffler-2")
        shutil.copy(at.inside.directory / "deployment.toml", machine)
        assert answer("ledger", "--dir", machine) == {"hops": {"shuffler-2": second["noise_spent"]}}
        assert at_hop["shuffler-2"] == second["noise_spent"]
        assert noise_line("shuffler-2", at_hop["shuffler-2"]).startswith(said)
        assert re.search(naming("noise_limit"), noise_line("shuffler-1", at_hop["shuffler-1"]))
        checks = await examine(at.inside.directory, at.inside.transport, at.inside.clock)
        checked = {check.service: check for check in checks if check.check == "noise limit"}
        assert [checked[name].is_well for name in ("shuffler-1", "shuffler-2")] == [True, False]
        assert checked["shuffler-2"].says.startswith(said)
        with pytest.raises(Refusal, match="spent 2 in 2 rounds"):
            await at.operator.open_round(noisy)


async def test_a_hop_refuses_rounds_without_hop_noise_if_its_settings_say_so(tmp_path: Path) -> None:
    own = LIMIT + "hop_noise_only = true\n"
    async with table(tmp_path, 2, settings_of=lambda name: own if name == "shuffler-2" else "") as at:
        with refuses(Code.BAD_MANIFEST, naming("hop_noise_only")):
            await at.operator.open_round(plain(BIT))
        assert hop_ledgers(at.inside.directory)["shuffler-2"]["rounds"] == 0
        assert (await at.operator.open_round(settings(BIT, 2))).fakes is not None


def test_a_noise_limit_is_a_shufflers(tmp_path: Path) -> None:
    for wrong in ("epsilon = 0\ndelta = 0.1", "epsilon = 1.0\ndelta = 1", "epsilon = 1.0"):
        (tmp_path / "service.toml").write_text(f"[noise_limit]\n{wrong}\n")
        with pytest.raises(ValueError, match="noise_limit"):
            load_settings(tmp_path)


@pytest.mark.slow
async def test_a_number_on_levels_has_a_mean_and_a_distribution(tmp_path: Path) -> None:
    """With hop noise: the mean, shares that add up, quantiles, and what a dishonest hop can have moved."""
    question = Question("hours", Levels(0.0, 8.0, 5))
    async with table(tmp_path, 2) as at:
        terms = await at.operator.open_round(settings(question, 40))
        await at.submit(terms, [Participant(value, 4.0) for value in [1.5, 2.0, 2.5, 7.0] * 10])
        publication, certificate = await at.finish(terms)
    assert terms.fakes is not None
    law = terms.fakes.law
    assert (law.num_values, certificate.randomizer) == (5, "levels(k=5)")
    result = publication_json(publication, certificate)
    distribution, (number,) = result["distribution"], numbers_of(result)
    assert distribution is not None
    assert [level["value"] for level in distribution["levels"]] == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert sum(level["share"]["estimate"] for level in distribution["levels"]) == pytest.approx(1)
    weight = 40 * -math.expm1(-4.0) / (1 + 4 * math.exp(-4.0))
    assert result["hop_influence"] == pytest.approx(8 * law.influence(max(certificate.fake_tickets)) / weight)
    assert distribution["hop_influence"] == pytest.approx(law.influence(max(certificate.fake_tickets)) / weight)
    assert abs(number.estimate - 3.25) < 7 * number.standard_error
    median = RoundResult.read(publication, certificate).quantile(0.5)
    assert median in distribution["quantiles"]
    assert median["confidence_interval"]["low"] <= median["estimate"] <= median["confidence_interval"]["high"]
    assert "standard deviation" in result_csv(result)
    page = report_of("Sleep", [ReportRound(result)])
    assert page.count("How the numbers are distributed") == 1
    assert "The estimated median is" in page
    assert any("The estimated median is" in line for section in explain(result).sections for line in section.points)
