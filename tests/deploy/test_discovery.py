"""Frequent texts that no one has listed: the tree, its thresholds, and words of a real language."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom
from wordfreq import top_n_list, word_frequency

import croupier
from croupier.accountant.guarantees import Grade
from croupier.analyzer.estimates import Fakes
from croupier.client.round_checks import accept_manifest
from croupier.client.submission import Participant
from croupier.deploy.local import discovering
from croupier.deploy.local.discovering import DiscoveryResult, WaveTerms, discover_among_participants, discover_deployed
from croupier.deploy.local.whole_round import players
from croupier.operator.operator import Operator
from croupier.protocol.codes import Assumption
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.statements import Statement
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.noise import truncated_laplace
from croupier.study.discovery import Discovery, DiscoverySettings, holders_found, threshold
from croupier.study.journal import StudyJournal, WaveStep
from tests.support import Threads, in_memory
from tests.support.command_line import invoke
from tests.support.messages import naming
from tests.support.rounds import table

ENGLISH = "abcdefghijklmnopqrstuvwxyz"
SMALL = DiscoverySettings(alphabet="ab", longest=2)


def words(count: int, seed: int) -> list[str]:
    """Words as often as in English texts, one for each person."""
    listed = [word for word in top_n_list("en", 3000) if word.isascii() and word.isalpha()]
    return random.Random(seed).choices(listed, [word_frequency(word, "en") for word in listed], k=count)


def test_a_device_finds_the_category_of_its_text() -> None:
    assert SMALL.categories([""]) == ("a…", "b…", "…")
    assert SMALL.categories(["a"]) == ("a", "aa…", "ab…", "…")
    assert SMALL.categories(["aa", "ab"]) == ("aa", "ab", "aa…", "ab…", "…")
    for kept, texts in (
        ([""], {"a": 0, "abc": 0, "b": 1, "c": 2, "": 2, "1.0": 2}),
        (["a"], {"a": 0, "aa": 1, "ab": 2, "abba": 2, "ac": 3, "b": 3}),
        (["aa", "ab"], {"aa": 0, "ab": 1, "aab": 2, "abba": 3, "a": 4, "ba": 4}),
    ):
        names = SMALL.categories(kept)
        mechanism = KaryResponse(len(names), names)
        assert {text: mechanism.parse_value(text) for text in texts} == texts


def test_thresholds_are_those_of_the_exact_law() -> None:
    """Reference: the whole law of the sum of two binomials."""
    people, own, other = 300, 0.4, 0.03

    def law(holders: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        theirs = binom.pmf(np.arange(holders + 1), holders, own)
        return np.convolve(theirs, binom.pmf(np.arange(people - holders + 1), people - holders, other))

    for fewest, probability in ((1, 0.05), (1, 1e-6), (20, 1e-3)):
        least = threshold(people, fewest, own, other, probability)
        exact = law(fewest - 1)
        assert exact[least:].sum() <= probability < exact[least - 1 :].sum()
        result = holders_found(people, least, own, other, probability)
        assert result is not None
        assert law(result)[:least].sum() <= probability < law(result - 1)[:least].sum()
    assert holders_found(10, 10, 0.5, 0.1, 0.01) is None


def test_thresholds_with_hop_noise_are_those_of_the_whole_law() -> None:
    """Reference: the law of the fakes by its definition, summed over both hops, and that of the reports."""
    people, own, other, noise = 200, 0.5, 0.02, HopNoise(1.0, 1e-6).law(27)
    shifts = np.arange(-noise.radius, noise.radius + 1)
    laplace = np.exp(-np.abs(shifts) / 2.0)
    laplace /= laplace.sum()

    def at_least(count: int, holders: int) -> float:
        reports = np.convolve(
            binom.pmf(np.arange(holders + 1), holders, own),
            binom.pmf(np.arange(people - holders + 1), people - holders, other),
        )
        total = 0.0
        for first, weight in zip(shifts, laplace, strict=True):
            for second, again in zip(shifts, laplace, strict=True):
                total += weight * again * reports[max(0, count - first - second) :].sum()
        return float(total)

    for fewest, probability in ((1, 0.01), (9, 1e-4)):
        least = threshold(people, fewest, own, other, probability, (noise, 2))
        assert at_least(least, fewest - 1) <= probability < at_least(least - 1, fewest - 1)
        needed = holders_found(people, least, own, other, probability, (noise, 2))
        assert needed is not None
        assert 1 - at_least(least, needed) <= probability < 1 - at_least(least, needed - 1)


def test_a_count_with_fakes_is_that_of_the_reports_and_the_noise() -> None:
    """The estimate subtracts the mean of the fakes given their total, and the threshold is for their mean before."""
    settings, law = DiscoverySettings("ab", 1), HopNoise(1.0, 1e-6).law(3)
    own, other = math.exp(4) / (math.exp(4) + 2), 1 / (math.exp(4) + 2)
    least = threshold(100, 1, own, other, settings.false_listed / 2 / 3, (law, 2))
    for total in (6 * law.radius - 9, 6 * law.radius + 12):
        fakes = Fakes(law, 2, total, law.most)
        for noisy, kept in ((least, ("a",)), (least - 1, ())):
            reports = noisy + 2 * law.radius - total / 3  # as the analyzer publishes it
            share = (reports / 100 - other) / (own - other)
            assert Discovery(settings, 4.0).learn([share, 0.0, 0.0], 100, fakes).kept == kept


@pytest.mark.slow
@pytest.mark.parametrize(("groups", "hop_noise"), [(False, None), (True, None), (False, 0.5)])
def test_what_is_promised_of_a_discovery_holds_over_many(groups: bool, hop_noise: float | None) -> None:
    """100 discoveries, drawn from their law; 4,000 people, of whom 1,500 hold "ab" and 30 hold "ba"."""
    source, runs = np.random.default_rng(3), 100
    settings = DiscoverySettings("abc", 3, fewest=60, false_listed=0.2, missed=0.2, groups=groups)
    holders = {"ab": 1500, "ba": 30, "zz": 2470}
    false = missed = 0
    promised = []
    for _ in range(runs):
        discovery = Discovery(settings, 2.0)
        group = {text: source.multinomial(count, [1 / 4] * 4) for text, count in holders.items()}
        while not discovery.over:
            wave, names = len(discovery.levels), discovery.categories()
            k = len(names)
            parse = KaryResponse(k, names).parse_value
            truth = np.zeros(k, dtype=int)
            for text, count in holders.items():
                truth[parse(text)] += group[text][wave] if groups else count
            grown, reports = math.exp(2.0), int(truth.sum())
            own, other = grown / (grown + k - 1), 1 / (grown + k - 1)
            drawn = [
                source.multinomial(count, np.where(np.arange(k) == place, own, other))
                for place, count in enumerate(truth)
            ]
            counts, fakes = np.sum(drawn, axis=0).astype(float), None
            if hop_noise is not None:
                law = HopNoise(hop_noise, 1e-6).law(k)
                added = np.reshape(truncated_laplace(law.scale, law.radius, 2 * k), (2, k)).sum(axis=0)
                fakes = Fakes(law, 2, int(added.sum()) + 2 * k * law.radius, law.most)
                counts += added + 2 * law.radius - fakes.mean
            discovery.learn(((counts / reports - other) / (own - other)).tolist(), reports, fakes)
        listed = {text for text, _ in discovery.texts}
        false += bool(listed - {"ab"})
        missed += "ab" not in listed
        promised.append(discovery.found)
    assert all(number is not None and number <= 1500 for number in promised)
    # Five standard deviations above what is promised.
    assert false <= runs * 0.2 + 5 * math.sqrt(runs * 0.2 * 0.8)
    assert missed <= runs * 0.2 + 5 * math.sqrt(runs * 0.2 * 0.8)


@pytest.mark.slow
def test_a_small_discovery_finds_what_many_hold() -> None:
    texts = ["tea"] * 900 + ["coffee"] * 600 + ["Ω"] * 100
    result = croupier.discover(texts, DiscoverySettings(ENGLISH, longest=4), local_epsilon=6.0)
    assert {text for text, _ in result.texts} == {"tea", "coff…"}
    assert dict(result.texts)["tea"] == pytest.approx(900, rel=0.2)
    assert result.guarantee.grade is Grade.CERTIFIED
    assert 0 < result.guarantee.epsilon < 6.0 * 5
    assert result.guarantee.delta == 1e-6
    assert result.levels[0].categories == 27
    assert result.guarantee.assumptions[-1] == Statement.of(Assumption.TOTAL_BEFOREHAND)
    alone = croupier.discover(texts, DiscoverySettings(ENGLISH, longest=4, groups=True), local_epsilon=6.0)
    assert 0 < alone.guarantee.epsilon <= 6.0
    assert alone.guarantee.assumptions[-1] == Statement.of(Assumption.DISJOINT_GROUPS, groups=5)


def test_one_honest_hop_guarantees_the_waves_together() -> None:
    """Five waves of ε = 0.2 by the fakes of a hop, where the reports of so few people hide nothing."""
    texts = ["tea"] * 300 + ["coffee"] * 200
    result = croupier.discover(texts, DiscoverySettings(ENGLISH, longest=4), local_epsilon=8.0, hop_noise=0.2)
    assert {text for text, _ in result.texts} == {"tea", "coff…"}
    assert 0.9 < result.guarantee.epsilon <= 1.0 + 1e-9
    assert Assumption.ONE_HONEST_HOP in [assumption.code for assumption in result.guarantee.assumptions]
    assert result.levels[0].threshold > 60  # 5 without fakes


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"alphabet": "aa"}, naming("alphabet", "'aa'", "2..1000")),
        ({"alphabet": "a…"}, naming("alphabet", "2..1000")),
        ({"longest": 0}, naming("longest", 0, "1..64")),
        ({"fewest": 0}, naming("fewest", 0)),
        ({"false_listed": 0.6}, naming("false_listed", 0.6, "1e-09..0.5")),
        ({"missed": 0.0}, naming("missed", 0, "1e-09..0.5")),
    ],
)
def test_what_cannot_be_looked_for_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DiscoverySettings(**{"alphabet": ENGLISH, **fields})  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("groups", [False, True])
def test_words_of_a_hundred_thousand_people_are_found(groups: bool) -> None:
    texts = words(100_000, seed=5)
    held = Counter(texts)
    settings = DiscoverySettings(ENGLISH, longest=6, groups=groups)
    result = croupier.discover(texts, settings, local_epsilon=6.0)
    listed = {text for text, _ in result.texts if not text.endswith("…")}
    assert result.found is not None
    frequent = {word for word, count in held.items() if count >= result.found and len(word) <= 6}
    assert len(frequent) >= 8
    assert len(frequent - listed) <= 2  # each is missed with probability 0.05 at most
    assert not [text for text in listed if not held[text]]
    assert result.guarantee.grade is Grade.CERTIFIED
    assert result.guarantee.epsilon < 2.0


@pytest.mark.slow
@pytest.mark.asyncio
async def test_two_thousand_people_find_words_through_a_deployment(tmp_path: Path) -> None:
    """Every wave is a round of its own, with its own certificate."""
    texts, pool = words(1500, seed=6) + ["the"] * 500, Threads()
    async with (
        in_memory(tmp_path / "deployment", 2) as inside,
        Operator(inside.directory, inside.transport) as operator,
        players(operator, tmp_path, pool) as play,
    ):
        result = await discover_deployed(
            play, texts, DiscoverySettings(ENGLISH, longest=3), WaveTerms(local_epsilon=7.0)
        )
    pool.close()
    assert "the" in [text for text, _ in result.texts]
    assert [level.reports for level in result.levels] == [2000] * 4
    assert result.guarantee.grade is Grade.CERTIFIED


DRINKS = ["tea"] * 12 + ["cup"] * 8
WAVES = WaveTerms(local_epsilon=7.0, min_batch_size=20, hop_noise=2.0, delta=1e-3)


class KilledError(BaseException):
    """The process of the operator ends here."""


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_discovery_goes_on_wherever_its_process_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after every line of the journal, and once while people answer: no wave has a second round."""
    write, kills = StudyJournal.write, set[tuple[str, int, str]]()
    answered: dict[str, int] = {}

    def killed_around(journal: StudyJournal, at: float, step: WaveStep, wave: int, **about: object) -> None:
        for moment in ("before", "after"):
            if moment == "after":
                write(journal, at, step, wave, **about)
            if (step, wave, moment) not in kills:
                kills.add((step, wave, moment))
                raise KilledError

    async with table(tmp_path, 1) as at:

        async def people_answer(terms: RoundTerms, closes_unix_s: float) -> None:
            parse = terms.question.mechanism.parse_value
            if terms.round_id not in answered:
                answered[terms.round_id] = len(terms.question.mechanism.categories)
                report = await at.submit(terms, [Participant(parse(text), 7.0) for text in DRINKS])
                assert report.accepted == 20
                raise KilledError

        async def run(terms: WaveTerms = WAVES) -> DiscoveryResult:
            settings = DiscoverySettings("tecupa", longest=2, missed=0.2, false_listed=0.2)
            return await discover_among_participants(
                at.operator, at.inside.directory, settings, terms, answer_for_s=0.0, wait_until=people_answer
            )

        monkeypatch.setattr(StudyJournal, "write", killed_around)
        restarts = 0
        while True:
            try:
                result = await run()
                break
            except KilledError:
                restarts += 1
        waves = len(result.levels)
        assert restarts == waves * (5 * 2 + 1) == len(kills) + waves
        (hop_1, *_) = await at.operator.status()
        assert isinstance(hop_1, rpc.StatusResponse)
        assert {shown.round_id for shown in hop_1.rounds} == {*answered}
        assert [*answered.values()] == [level.categories for level in result.levels]
        assert (await run()) == result
        with pytest.raises(ValueError, match=naming("local_epsilon", 6.0, 7.0)):
            await run(replace(WAVES, local_epsilon=6.0))


@pytest.mark.asyncio
async def test_a_wave_that_too_few_have_answered_stays_open_for_the_same_call(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        waves = at.inside.directory / "operator/discoveries/discover"
        manifest = waves / "wave-1.round"

        async def answer(terms: RoundTerms, texts: Sequence[str]) -> None:
            parse = terms.question.mechanism.parse_value
            await at.submit(terms, [Participant(parse(text), 7.0) for text in texts])

        async def five_answer_at_first(terms: RoundTerms, closes_unix_s: float) -> None:
            # A second wave is asked where the noise has listed a letter with which no text begins.
            await answer(terms, DRINKS if (waves / "wave-2.round").exists() else DRINKS[:5])

        async def run() -> DiscoveryResult:
            settings = DiscoverySettings("xyz", longest=1)
            return await discover_among_participants(
                at.operator, at.inside.directory, settings, WAVES, answer_for_s=0.0, wait_until=five_answer_at_first
            )

        with pytest.raises(RuntimeError, match=naming("OPEN", 5, 20)):
            await run()
        document = pb.SignedRound.FromString(bytes.fromhex(manifest.read_text()))
        await answer(accept_manifest(document, at.deployment), DRINKS)
        assert next(level.reports for level in (await run()).levels) == 20


@pytest.mark.asyncio
async def test_groups_are_refused_where_no_client_draws_one(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        with pytest.raises(ValueError, match=naming("groups", "a client draws no wave")):
            await discover_among_participants(
                at.operator, at.inside.directory, DiscoverySettings(ENGLISH, groups=True), WaveTerms()
            )
        assert not (at.inside.directory / "operator/discoveries").exists()


@pytest.mark.slow
def test_the_command_lists_texts_and_says_what_it_promises(tmp_path: Path) -> None:
    file = tmp_path / "drinks.csv"
    file.write_text("drink\n" + "tea\n" * 900 + "cup\n" * 100)
    options = ["--simulate", "--csv", str(file), "--value-column", "drink", "--local-epsilon", "6"]
    options += ["--alphabet", ENGLISH, "--longest", "3"]
    done = invoke("discover", *options)
    assert done.exit_code == 0, done.stderr
    assert "tea" in done.stdout
    assert "CERTIFIED" in done.stdout
    grouped = invoke("discover", *options, "--groups", "--hop-noise", "1")
    said = " ".join(grouped.stdout.split())
    assert "every person's own device draws one of 4 groups before the first result" in said
    nothing = invoke("discover", "--alphabet", ENGLISH, "--longest", "3")
    assert nothing.exit_code == 2
    assert "csv" in nothing.stderr


@pytest.mark.slow
def test_texts_with_other_letters_are_counted_and_nothing_is_promised_of_them(tmp_path: Path) -> None:
    """Four texts of 200 people each were left out in silence, beside "a text of at least 13 people is listed"."""
    file = tmp_path / "drinks.csv"
    file.write_text(
        "drink\n" + "".join(f"{text}\n" * 200 for text in ("tea", "Tea", "Äpfel", "お茶", "茶")), encoding="utf-8"
    )
    options = ["--simulate", "--csv", str(file), "--value-column", "drink", "--local-epsilon", "8", "--longest", "3"]
    assert invoke("discover", *options).exit_code == 2  # no alphabet is assumed
    done = invoke("discover", *options, "--alphabet", ENGLISH, "--json")
    document = json.loads(done.stdout)
    assert [text["text"] for text in document["texts"]] == ["tea"]
    assert document["others"] == pytest.approx(800, abs=60)
    said = " ".join(invoke("discover", *options, "--alphabet", ENGLISH).stdout.split())
    assert "A text in the alphabet of at least" in said
    assert "begin with a letter that is not in the alphabet" in said


@pytest.mark.slow
def test_what_all_waves_may_cost_follows_from_nothing_that_people_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was composed of the waves that had been asked, whose categories follow from results, and was CERTIFIED."""
    settings = DiscoverySettings("abc", longest=2)
    found = [croupier.discover([text] * 300, settings, local_epsilon=5.0) for text in ("x", "ab", "cc")]
    assert {len(result.levels) for result in found} != {3}  # another number of waves
    (epsilon,) = {result.guarantee.epsilon for result in found}
    assert Statement.of(Assumption.TOTAL_BEFOREHAND) in found[0].guarantee.assumptions
    assert dict(found[0].guarantee.method[-1].parameters)["rounds"] == 3
    asked = [level.categories for result in found for level in result.levels]
    dearest = max(croupier.certify({5.0: 300}, f"krr(k={k})", delta=1e-6 / 13, attack=False).epsilon for k in asked)
    assert dearest < epsilon

    too_small = discovering.WavePlan(0.1, replace(found[0].guarantee, epsilon=0.1))
    monkeypatch.setattr("croupier.deploy.local.discovering.WavePlan.of", lambda *_: too_small)
    with pytest.raises(RuntimeError, match=naming("0.1", "before the first result")):
        croupier.discover(["ab"] * 300, settings, local_epsilon=5.0)
