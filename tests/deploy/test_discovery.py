"""Frequent texts that no one has listed: the tree, its thresholds, and words of a real language."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom
from wordfreq import top_n_list, word_frequency

import croupier
from croupier.accountant.guarantees import Grade
from croupier.analyzer.estimates import Fakes
from croupier.analyzer.prefix_tree import Discovery, holders_found, threshold
from croupier.deploy.local import discovering
from croupier.protocol.codes import Assumption
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.rules import Prefixes
from croupier.protocol.statements import Statement
from croupier.runtime.noise import truncated_laplace
from croupier.show.blocks import Sentence
from tests.support.messages import naming

ENGLISH = "abcdefghijklmnopqrstuvwxyz"
SMALL = Prefixes(alphabet="ab", longest=2)


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
    rule, law = Prefixes("ab", 1), HopNoise(1.0, 1e-6).law(3)
    own, other = math.exp(4) / (math.exp(4) + 2), 1 / (math.exp(4) + 2)
    least = threshold(100, 1, own, other, rule.false_listed / 2 / 3, (law, 2))
    for total in (6 * law.radius - 9, 6 * law.radius + 12):
        fakes = Fakes(law, 2, total, law.most)
        for noisy, kept in ((least, ("a",)), (least - 1, ())):
            reports = noisy + 2 * law.radius - total / 3  # as the analyzer publishes it
            share = (reports / 100 - other) / (own - other)
            assert Discovery(rule, 4.0).learn([share, 0.0, 0.0], 100, fakes).kept == kept


@pytest.mark.slow
@pytest.mark.parametrize(("groups", "hop_noise"), [(False, None), (True, None), (False, 0.5)])
def test_what_is_promised_of_a_discovery_holds_over_many(groups: bool, hop_noise: float | None) -> None:
    """100 discoveries, drawn from their law; 4,000 people, of whom 1,500 hold "ab" and 30 hold "ba"."""
    source, runs = np.random.default_rng(3), 100
    rule = Prefixes("abc", 3, fewest=60, false_listed=0.2, missed=0.2)
    holders = {"ab": 1500, "ba": 30, "zz": 2470}
    false = missed = 0
    promised = []
    for _ in range(runs):
        discovery = Discovery(rule, 2.0, groups=groups)
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
    result = croupier.discover(texts, Prefixes(ENGLISH, longest=4), local_epsilon=6.0)
    assert {text for text, _ in result.texts} == {"tea", "coff…"}
    assert dict(result.texts)["tea"] == pytest.approx(900, rel=0.2)
    assert result.guarantee.grade is Grade.CERTIFIED
    assert 0 < result.guarantee.epsilon < 6.0 * 5
    assert result.guarantee.delta == 1e-6
    assert result.levels[0].categories == 27
    assert result.guarantee.assumptions[-1] == Statement.of(Assumption.TOTAL_BEFOREHAND)
    alone = croupier.discover(texts, Prefixes(ENGLISH, longest=4), groups=True, local_epsilon=6.0)
    assert 0 < alone.guarantee.epsilon <= 6.0
    assert alone.guarantee.assumptions[-1] == Statement.of(Assumption.DISJOINT_GROUPS, groups=5)


def test_one_honest_hop_guarantees_the_waves_together() -> None:
    """Five waves of ε = 0.2 by the fakes of a hop, where the reports of so few people hide nothing."""
    texts = ["tea"] * 300 + ["coffee"] * 200
    result = croupier.discover(texts, Prefixes(ENGLISH, longest=4), local_epsilon=8.0, hop_noise=0.2)
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
        ({"missed": 0.0}, naming("missed", "0.0", "1e-09..0.5")),
    ],
)
def test_what_cannot_be_looked_for_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Prefixes(**{"alphabet": ENGLISH, **fields})  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("groups", [False, True])
def test_words_of_a_hundred_thousand_people_are_found(groups: bool) -> None:
    texts = words(100_000, seed=5)
    held = Counter(texts)
    result = croupier.discover(texts, Prefixes(ENGLISH, longest=6), groups=groups, local_epsilon=6.0)
    listed = {text for text, _ in result.texts if not text.endswith("…")}
    assert result.found is not None
    frequent = {word for word, count in held.items() if count >= result.found and len(word) <= 6}
    assert len(frequent) >= 8
    assert len(frequent - listed) <= 2  # each is missed with probability 0.05 at most
    assert not [text for text in listed if not held[text]]
    assert result.guarantee.grade is Grade.CERTIFIED
    assert result.guarantee.epsilon < 2.0


@pytest.mark.slow
def test_texts_with_other_letters_are_counted_and_nothing_is_promised_of_them() -> None:
    """Four texts of 200 people each were left out in silence, beside "a text of at least 13 people is listed"."""
    texts = [text for text in ("tea", "Tea", "Äpfel", "お茶", "茶") for _ in range(200)]
    result = croupier.discover(texts, Prefixes(ENGLISH, longest=3), local_epsilon=8.0)
    assert [text for text, _ in result.texts] == ["tea"]
    assert result.document()["others"] == result.others == pytest.approx(800, abs=60)
    said = " ".join(block.text for block in result.blocks() if isinstance(block, Sentence))
    assert "A text in the alphabet of at least" in said
    assert "begin with a letter that is not in the alphabet" in said


@pytest.mark.slow
def test_what_all_waves_may_cost_follows_from_nothing_that_people_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was composed of the waves that had been asked, whose categories follow from results, and was CERTIFIED."""
    rule = Prefixes("abc", longest=2)
    found = [croupier.discover([text] * 300, rule, local_epsilon=5.0) for text in ("x", "ab", "cc")]
    assert {len(result.levels) for result in found} != {3}  # another number of waves
    (epsilon,) = {result.guarantee.epsilon for result in found}
    assert Statement.of(Assumption.TOTAL_BEFOREHAND) in found[0].guarantee.assumptions
    assert dict(found[0].guarantee.method[-1].parameters)["rounds"] == 3
    asked = [level.categories for result in found for level in result.levels]
    dearest = max(croupier.certify({5.0: 300}, f"krr(k={k})", delta=1e-6 / 13, attack=False).epsilon for k in asked)
    assert dearest < epsilon

    too_small = replace(found[0].guarantee, epsilon=0.1)
    monkeypatch.setattr(discovering, "_fixed_beforehand", lambda *_: too_small)
    with pytest.raises(RuntimeError, match=naming("0.1", "before the first result")):
        croupier.discover(["ab"] * 300, rule, local_epsilon=5.0)
