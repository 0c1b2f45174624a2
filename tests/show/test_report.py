"""A report: everything is in one page, which runs nothing, loads nothing, and says what it was made from."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import shutil
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from croupier.accountant.guessing import right_at_most
from croupier.operator.opened_surveys import close_rounds
from croupier.operator.published_result import kept_result
from croupier.operator.reports import check_report_file, collect
from croupier.protocol.codes import RefusalReason
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms, parse_terms
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.names import Digest, RoundId
from croupier.protocol.questions import Question
from croupier.protocol.rounding import percent, round_up
from croupier.protocol.statements import Statement, written_json
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.wordings import Wording
from croupier.show.explanation import explain
from croupier.show.numbers import Precision
from croupier.show.report import ReportRound, report_of
from tests.support import in_process
from tests.support.command_line import answer, croupier, refused
from tests.support.messages import naming
from tests.support.participants import chromium, is_for_everybody
from tests.support.results import result_of
from tests.support.rounds import people, table
from tests.support.surveys import opened_survey

SMOKES = Question("smokes", RandomizedResponse(), (Wording("en", "Do you smoke?", choices=("no", "yes")),))
MOOD = Question("mood", KaryResponse(3, ("low", "fair", "high")))
YEARS = Question("years", OneBit(0.0, 25.0), (Wording("en", "For how long?", unit="years"),))
SHARE = [(0.31, (0.28, 0.34), (0.27, 0.35))]
SHARES = [(0.2, (0.1, 0.3), (0.1, 0.3)), (0.5, (0.4, 0.6), (0.4, 0.6)), (0.3, (0.2, 0.4), (0.2, 0.4))]
EVIL = "\"><script>alert(1)</script><img src=x onerror=alert(2)> ' &amp; \u202e"


class Page(HTMLParser):
    """What a browser would make of a page: its tags with attributes, its text, and the contents of its style."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.style, self._in_style = "", "", False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in_style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.style += data
        else:
            self.text += data

    def all_of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


def page_of(*rounds: ReportRound, **how: Any) -> Page:
    return Page(report_of("Report", rounds, **how))


def test_a_report_says_what_a_dishonest_hop_could_have_done() -> None:
    share, mean = result_of(SMOKES, SHARE), result_of(YEARS, [(4.0, (3.0, 5.0), (3.0, 5.0))], round_id="r2")
    assert "a dishonest hop" not in page_of(ReportRound(share)).words.lower()
    share["hop_influence"], mean["hop_influence"] = 0.0123, 0.25
    words = page_of(ReportRound(share), ReportRound(mean)).words
    assert re.search(naming("1.23 points"), words)
    assert re.search(naming("0.25 years"), words)
    assert "no fake reports" in words
    told = "\n".join(line for section in explain(share).sections for line in section.paragraphs)
    assert re.search(naming("1.23 points"), told)


def test_a_report_says_what_one_honest_server_guarantees() -> None:
    noisy = ReportRound(result_of(SMOKES, SHARE, hop_noise=(0.1, 5e-7)))
    page = page_of(noisy)
    (hop,) = (noisy.result["certificate"]["one_honest_hop"],)
    assert hop is not None
    right = percent(right_at_most(hop["epsilon"], hop["delta"]))
    of_hop = f"{right} (ε = {round_up(hop['epsilon'], 4)}, δ = {round_up(hop['delta'], 3)}, CERTIFIED)"
    assert "one server is honest" in page.words
    assert f"{of_hop}{percent(right_at_most(1.0))} (ε = 1, CERTIFIED)" in page.words
    quiet = ReportRound(result_of(MOOD, SHARES, round_id="r2"))
    assert "one server is honest" not in page_of(quiet).words
    both = page_of(noisy, quiet).words  # the question without hop noise counts with its local budget
    assert "no hop noise" in both
    total = percent(right_at_most(hop["epsilon"] + 1.0, hop["delta"]))
    assert re.search(naming(f"{total} if"), both)


def test_every_number_has_its_sentence_and_the_page_its_parts() -> None:
    page = page_of(
        ReportRound(result_of(SMOKES, SHARE)),
        ReportRound(result_of(MOOD, SHARES, round_id="r2")),
        ReportRound(result_of(YEARS, [(9.0, (8.0, 10.0), (7.9, 10.1))], round_id="r3")),
        introduction=["Two departments were asked."],
    )
    for said in (
        "Two departments were asked.",
        "An estimated 31.0 % answered “yes”: 28.0 to 34.0 % of the 1,000 people",
        "An estimated 50 % answered “fair”: 40 to 60 % of the 1,000 people",
        "The estimated mean is 9.0 years: 8.0 to 10.0 years for the 1,000 people",
        "people, 4,000",
        "What participants were promised",
        "All 3 questions together",
        "95.26 % even if all others",
        "keeps secret in which",
        "croupier verify r2 --dir DIR",
    ):
        assert said in page.words
    assert len([svg for svg in page.all_of("svg") if svg["viewbox"] == "0 0 100 16"]) == 2 + 5
    documents = {anchor["download"]: anchor["href"] for anchor in page.all_of("a")}
    assert set(documents) == {f"{name}.{kind}" for name in ("round-1", "r2", "r3") for kind in ("json", "csv")}
    kind, _, content = str(documents["r2.json"]).partition(";base64,")
    assert kind == "data:application/json"
    assert json.loads(base64.b64decode(content)) == json.loads(json.dumps(result_of(MOOD, SHARES, round_id="r2")))


def test_no_text_becomes_markup_and_nothing_is_loaded_or_run() -> None:
    result = result_of(SMOKES, SHARE)
    plain = page_of(ReportRound(result_of(SMOKES, SHARE)))
    result["round_id"] = RoundId(EVIL)
    asked: Any = result["asked"]
    asked["question"] = EVIL
    for key in ("question", "title", "help_text"):
        asked["wordings"][0][key] = EVIL
    asked["wordings"][0]["choices"] = [EVIL, EVIL]
    html = report_of(EVIL, [ReportRound(result)], introduction=[EVIL], verified=EVIL, language="en")
    page = Page(html)
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in plain.tags} | {"p"}
    assert not re.search(r"<(script|img|iframe|object|form|base|link)\b", html)
    assert "\u202e" not in html
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "src", "action")]
        href = attributes.get("href")
        assert href is None or re.match(r"data:(application/json|text/csv|application/octet-stream);base64,", href)
        assert "/" not in (attributes.get("download") or "")
    assert not re.search(r"url\(|@import", page.style)
    (policy,) = (meta["content"] for meta in page.all_of("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def test_groups_that_were_asked_the_same_are_compared() -> None:
    north, south = result_of(SMOKES, [(0.6, (0.55, 0.65), (0.5, 0.7))], round_id="n"), result_of(SMOKES, SHARE)
    page = page_of(
        ReportRound(north, "North"),
        ReportRound(south, "South"),
        ReportRound(result_of(MOOD, SHARES, round_id="m"), "South"),
    )
    assert (
        len([heading for heading in page.all_of("h2") if heading.get("lang") is not None]) == 1
    )  # smokes; no words for mood
    assert page.words.count("Estimated: ") == 2
    assert "“yes”: North is higher than South by an estimated 29 points: North minus South is" in page.words
    # One person is in one group: South has two questions, North one.
    assert "All 2 questions together" in page.words


def test_what_groups_cost_holds_for_the_people_of_each() -> None:
    """Reproduction: the largest ε was given at the δ of its own group, which had fewer rounds than the other one."""
    few = [ReportRound(result_of(MOOD, SHARES, 100, f"n{place}"), "North") for place in range(2)]
    many = [ReportRound(result_of(MOOD, SHARES, 10_000, f"s{place}"), "South") for place in range(3)]
    of_few, page = page_of(*few, fixed_terms=True).words, page_of(*few, *many, fixed_terms=True).words
    said = re.compile(r"right at most [\d.]+ % if the assumptions below hold \(ε = ([\d.]+), δ = (\S+), CERTIFIED\)")
    (small,), (large,) = said.findall(of_few), said.findall(page)
    assert (small[1], large[1]) == ("2e-06", "3e-06")
    assert large[0] == small[0]
    assert "ε = 3, CERTIFIED" in page


def test_what_is_too_noisy_refused_or_sealed_is_said_first() -> None:
    noisy = result_of(SMOKES, [(0.5, (0.1, 0.9), (0.0, 1.0))]) | {"precision": Precision.COVERS_RANGE}
    refused_one, sealed = (
        result_of(MOOD, SHARES, round_id="r2"),
        result_of(YEARS, [(9.0, (8.0, 9.9), (7.0, 11.0))], round_id="r3"),
    )
    hidden: Any = {"values": []}
    refusal: Any = written_json([Statement.of(RefusalReason.NOT_CERTIFIED, grade="HEURISTIC")])
    refused_one |= hidden
    refused_one["certificate"] |= {"granted": False, "refusals": refusal}
    sealed |= hidden | {"sealed": True, "precision": "UNSPECIFIED"}
    page = page_of(*map(ReportRound, (noisy, refused_one, sealed)))
    assert re.search(naming("TOO NOISY", "USE", "95 %"), page.words)
    assert "The accountant refused to certify this round, so that nothing was read:" in page.words
    assert re.search(naming("HEURISTIC", "CERTIFIED"), page.words)
    assert "its collector" in page.words
    downloads = [anchor["download"] for anchor in page.all_of("a")]
    assert downloads == ["round-1.json", "round-1.csv", "r2.json", "r3.json"]
    with pytest.raises(ValueError, match=naming("round")):
        report_of("Report", [])
    with pytest.raises(ValueError, match=naming("'r2'", "twice")):
        page_of(ReportRound(refused_one, "North"), ReportRound(refused_one, "South"))


@pytest.mark.slow
async def test_a_report_says_whether_its_results_were_verified(tmp_path: Path) -> None:
    """A real deployment, because the report's signed documents have to be those that the analyzer gives away."""
    place, out = tmp_path / "d", tmp_path / "new" / "report.html"

    async def say(*arguments: str | Path, expect: int = 0) -> Any:
        return await asyncio.to_thread(partial(answer, *arguments, "--dir", place, expect=expect))

    async with in_process(place, 1):
        opened = await say(
            *("survey", "open", "smokes", "--question", "Do you smoke?", "--choices", "no;yes", "--randomizer", "rr"),
            *("--min-batch-size", "2", "--epsilon-max", "4", "--delta", "1e-4"),
        )
        round_id = opened["survey_id"]
        people = tmp_path / "people.csv"
        people.write_text("smokes\n1\n0\n1\n")
        await say("submit", "--csv", people, "--value-column", "smokes", "--budgets", "1", "--round", round_id)
        await say("survey", "close", round_id)
        result = await say("survey", "results", round_id)
        made = await say("report", f"All of us={round_id}", "--out", out, "--title", "Health")
        assert made == {"report": str(out), "rounds": [round_id], "verified": True}
    assert result["asked"]["wordings"][0]["question"] == "Do you smoke?"
    page = Page(out.read_text(encoding="utf-8"))
    assert "deployment “local”" in page.words
    assert "Do you smoke?" in page.words
    (signed,) = (anchor["href"] for anchor in page.all_of("a") if anchor["download"] == f"{round_id}.signed")
    kept = tmp_path / "kept.signed"
    kept.write_bytes(base64.b64decode(str(signed).partition(",")[2]))
    publication = kept_result(place, round_id, kept).publication
    assert publication.values[0].estimate == result["values"][0]["estimate"]

    file = tmp_path / "result.json"
    file.write_text(json.dumps(result))
    assert (await say("report", file, "--out", out))["verified"] is False
    text = Page(out.read_text(encoding="utf-8")).words
    assert "made from files, whose signatures were not checked" in text
    assert "verified with the keys" not in text


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_a_report_on_a_survey_has_all_its_questions_and_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with table(tmp_path, 1) as at:
        where, how = at.inside.directory, at.inside.transport
        survey = await opened_survey(at, left_out="random")
        async with at.operator.client(tmp_path / "client") as client:
            for question_round in await client.rounds_of():
                await at.submit(question_round.terms, people(question_round.terms.question, 30, 1))
        await close_rounds(where, survey.round_ids(), transport=how)
        said: list[str] = []
        report = await collect(["work-2026"], where, 60.0, how, None, said.append)
        several = await collect(["North=work-2026-1", "work-2026-2"], where, 60.0, how, None, said.append)
        alone = await collect(["work-2026-2"], where, 60.0, how, None, said.append)
        assert alone.survey is None  # one of its questions is not the survey
        with pytest.raises(Refusal) as refusal:
            await collect(["nothing"], where, 60.0, how, None, said.append)
        assert refusal.value.code is Code.UNKNOWN_ROUND

        def with_another_survey(document: pb.SignedRound) -> RoundTerms:
            """The second round is of a survey that was described again after the first result."""
            terms = parse_terms(document)
            if terms.round_id == "work-2026-1":
                return terms
            return replace(terms, survey=replace(terms.survey, hash=Digest(bytes(32))))

        monkeypatch.setattr("croupier.operator.published_result.parse_terms", with_another_survey)
        with pytest.raises(ValueError, match="the rounds are not of one survey"):
            await collect(["work-2026"], where, 60.0, how, None, said.append)
    assert report.survey is not None
    assert (report.survey.hash, report.fixed_terms, report.deployment) == (survey.hash, True, "local")
    assert report.title("de") == "Wie wir arbeiten"
    assert (several.survey, several.fixed_terms) == (None, False)
    page = page_of(
        *report.rounds, introduction=report.introduction("de"), language="de", fixed_terms=report.fixed_terms
    )
    for text in (
        "The works council asks, to plan the offices.",
        "Wie zufrieden sind Sie?",
        "haben „gar nicht“ geantwortet",
        "Arbeiten Sie zu Hause?",
    ):
        assert (text in page.words) != (text == "The works council asks, to plan the offices.")
    assert "gleichverteilt ausgeloste Antwort" in page.words
    assert re.search(naming("3 Fragen"), page.words)


def test_what_cannot_be_reported_on_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"round_id": "x"}')
    assert "is not a result" in refused("report", file)
    file.write_text("{")
    assert "a.json cannot be read" in refused("report", file)
    assert "does not exist" in refused("report", tmp_path / "b.json")
    assert "must end in .html or .pdf" in refused("report", file, "--out", "report.doc")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ValueError, match=naming("PDF")):
        check_report_file(tmp_path / "report.pdf")


@pytest.mark.slow
async def test_a_browser_shows_and_prints_the_report(tmp_path: Path) -> None:
    """A real browser: contrast, widths and the policy are its business."""
    results = [result_of(SMOKES, SHARE), result_of(MOOD, SHARES, round_id="a-very-long-" + "round-" * 8)]
    files = [tmp_path / f"{place}.json" for place in range(2)]
    for file, result in zip(files, results, strict=True):
        file.write_text(json.dumps(result))
    html, pdf = tmp_path / "report.html", tmp_path / "report.pdf"
    await asyncio.to_thread(croupier, "report", *files, "--out", html)
    said: list[str] = []
    async with chromium() as browser:
        page = await browser.new_page()
        page.on("console", lambda message: said.append(message.text))
        await page.goto(html.as_uri())
        await is_for_everybody(page)
    assert said == []
    await asyncio.to_thread(croupier, "report", *files, "--out", pdf)
    assert pdf.read_bytes().startswith(b"%PDF")


def test_a_result_that_is_too_noisy_has_no_bold_estimate() -> None:
    """Reproduction: TOO NOISY TO USE beside a bold "100 %"."""
    noisy, exact = (result_of(SMOKES, [(1.0, (0.1, 1.0), (0.1, 1.0))], round_id=name) for name in ("r1", "r2"))
    noisy["precision"] = Precision.COVERS_RANGE
    for html, said in ((report_of("R", [ReportRound(noisy)]), False), (report_of("R", [ReportRound(exact)]), True)):
        assert ("<strong>100 %</strong>" in html) is said
        assert ("too noisy to use</span>" in html) is not said
        assert html.count('class="estimate"') == 2 + said  # two in the explanation of the intervals
    both = report_of("R", [ReportRound(noisy, "North"), ReportRound(exact, "South")])  # each group by itself
    assert both.count("<strong>100 %</strong>") == both.count("too noisy to use</span>") == 1
