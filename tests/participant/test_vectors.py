"""The client inside the participants' page, under Node: golden vectors, and rounds that Python reads or refuses."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from croupier.client.randomizers import randomize
from croupier.client.thresholds import blanket_threshold, flip_threshold
from croupier.deploy.page.participants import participant_page
from croupier.protocol.errors import Refusal
from croupier.protocol.identity import Identity, Kind, canonical
from croupier.protocol.manifest import parse_terms
from croupier.protocol.mechanisms.choices import MultipleChoice
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.levels import Levels
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.pgr import ProjectiveResponse
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.names import PrivateKey
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.wordings import Wording
from tests.support import RoundKit, make_kit
from tests.support.scripted import Scripted
from tests.support.studies import kit_of_wave

WEB = Path(__file__).parents[2] / "web"
PAGE = Path(__file__).parents[2] / "deploy" / "page" / "participate.html"
NAMES = ("shuffler-1", "shuffler-2", "accountant", "analyzer")
SIGNERS = {name: Identity(name, PrivateKey(hashlib.sha256(name.encode()).digest())) for name in NAMES}
MOOD = KaryResponse(3, ("a", "b", "c"))
ASKED = Wording("en", "How?", "Title", "Help: x < 3", ("good", "so-so", "bad"))
Change = Callable[[pb.Manifest, pb.Survey], Any]
UNKNOWN = bytes.fromhex("a00601")
"""A field that no message has."""

FILE = Path(__file__).parents[1] / "vectors" / "client.json"
CHAINS = FILE.with_name("deployments.json")


def of_survey(change: Callable[[pb.Survey], Any]) -> Change:
    return lambda _, survey: change(survey)


def of_keys(change: Callable[[pb.Manifest], Any]) -> Change:
    return lambda manifest, _: change(manifest)


def asked(change: Callable[[pb.Question], Any]) -> Change:
    return lambda _, survey: change(survey.questions[0].question)


def schedule(**fields: Any) -> Change:
    return lambda _, survey: survey.schedule.MergeFrom(pb.Schedule(**fields))


def calendar(**fields: Any) -> Change:
    return schedule(calendar=pb.Calendar(**fields))


def wording(**fields: Any) -> Change:
    return asked(lambda question: question.wordings[0].MergeFrom(pb.Wording(**fields)))


def field(name: str, value: Any) -> Change:
    return of_survey(lambda survey: setattr(survey, name, value))


def stated(name: str, value: Any) -> Change:
    return of_keys(lambda manifest: setattr(manifest, name, value))


def grid(**fields: Any) -> Change:
    return lambda _, survey: survey.questions[0].budget_grid[1].MergeFrom(pb.LocalBudget(**fields))


def hop_noise(epsilon: float, delta: float) -> Change:
    return of_survey(lambda survey: survey.hop_noise.MergeFrom(pb.HopNoise(epsilon=epsilon, delta=delta)))


def hop_noise_beside(*epsilons: float) -> Change:
    def change(manifest: pb.Manifest, survey: pb.Survey) -> None:
        hop_noise(1.0, 1e-6)(manifest, survey)
        del survey.questions[0].budget_grid[:]
        survey.questions[0].budget_grid.extend(pb.LocalBudget(epsilon=epsilon) for epsilon in epsilons)

    return change


def another_question(survey: pb.Survey) -> None:
    survey.questions.add().CopyFrom(survey.questions[0])
    del survey.questions[1].budget_grid[0]


GOOD: dict[str, tuple[Question, str]] = {
    "a bit": (Question("bit", RandomizedResponse()), ""),
    "categories with names": (Question("mood", MOOD), ""),
    "categories with captions": (Question("mood", MOOD, (ASKED, Wording("de-CH", "Wie?"))), ""),
    "a number": (Question("hours", OneBit(-0.5, 24.0), (Wording("en", "How long?", unit="h", low="never"),)), ""),
    "many categories": (Question("word", ProjectiveResponse(1024, (), 3)), ""),
    "a number on levels": (Question("hours", Levels(0.0, 24.0, 13)), ""),
    "several choices": (Question("symptoms", MultipleChoice(3, ("a", "b", "c")), (ASKED,)), ""),
    "what needs a sampler": (Question("hours", Laplace(0.0, 1.0)), "NeedsProgram"),
}
BAD: dict[str, Change] = {
    "another version": field("protocol_version", 2),
    "a survey's name that turns the writing": field("survey_id", "a\u202eb"),
    "a survey with the name of a wave": field("survey_id", "a-w1-b"),
    "another survey": stated("survey_hash", bytes(32)),
    "a question that the survey does not have": stated("question", 1),
    "a wave of a survey that has none": stated("wave", 1),
    "the time of a wave in a survey that has none": lambda manifest, _: manifest.MergeFrom(
        pb.Manifest(opens_unix_s=1, closes_unix_s=1)
    ),
    "questions with different numbers of budgets": of_survey(another_question),
    "no questions": of_survey(lambda survey: survey.ClearField("questions")),
    "nothing about questions left out": field("left_out", 0),
    "a survey's wording without a consent": of_survey(lambda survey: survey.wordings.add(language="en", title="How?")),
    "another number of hops": field("num_hops", 3),
    "no minimum": field("min_batch_size", 1),
    "fewer at most than at least": field("max_batch_size", 1),
    "no policy": field("short_batch_policy", 0),
    "another policy": field("short_batch_policy", 7),
    "no delta": field("delta", 0.0),
    "too large a delta": field("delta", 0.2),
    "too large an epsilon": field("epsilon_max", 21.0),
    "another suite": field("hpke_suite", "rot13"),
    "a budget that is not a number": grid(epsilon=float("nan")),
    "budgets in another order": grid(epsilon=0.4),
    "a budget with a delta": grid(delta=1e-6),
    "a budget with too large a limit": grid(epsilon_max=30.0),
    "no budgets": of_survey(lambda survey: survey.questions[0].ClearField("budget_grid")),
    "a key twice": of_keys(lambda manifest: manifest.analyzer.MergeFrom(manifest.hops[0])),
    "keys of another round": of_keys(lambda manifest: setattr(manifest.hops[0], "round_id", "other")),
    "no release key": of_keys(lambda manifest: manifest.accountant.ClearField("release_public_key")),
    "one ticket key": of_keys(
        lambda manifest: setattr(manifest.accountant, "report_ticket_key", manifest.accountant.parameter_ticket_key)
    ),
    "a collector's key that is a key of the round": lambda manifest, survey: setattr(
        survey, "collector_public_key", manifest.hops[0].public_key
    ),
    "a collector key of five bytes": field("collector_public_key", b"short"),
    "an unknown field in the question": asked(lambda question: question.MergeFromString(UNKNOWN)),
    "an unknown field in the survey": of_survey(lambda survey: survey.MergeFromString(UNKNOWN)),
    "an unknown field in a key": of_keys(lambda manifest: manifest.hops[1].MergeFromString(UNKNOWN)),
    "no question": of_survey(lambda survey: survey.questions[0].ClearField("question")),
    "a name with a space": asked(lambda question: setattr(question, "name", "a b")),
    "too many categories": asked(lambda question: setattr(question.krr, "k", 40_000)),
    "other labels": asked(lambda question: question.krr.labels.append("d")),
    "the same label twice": asked(lambda question: question.krr.labels.__setitem__(0, "b")),
    "a label that hides": asked(lambda question: question.krr.labels.__setitem__(0, "b\u200b")),
    "another caption": wording(choices=["more"]),
    "markup": wording(question="a<b>"),
    "an entity": wording(help_text="a&lt;b"),
    "a line break": wording(help_text="a\nb"),
    "a long question": wording(question="é" * 501),
    "a long help": wording(help_text="a" * 4001),
    "a unit": wording(unit="kg"),
    "not a language": wording(language="English!"),
    "a language twice": asked(lambda question: question.wordings.add(language="en", question="Again?")),
    "no text": asked(lambda question: question.wordings.add(language="fr")),
    "hop noise without an epsilon": hop_noise(0.0, 1e-6),
    "hop noise with too large an epsilon": hop_noise(21.0, 1e-6),
    "hop noise without a delta": hop_noise(1.0, 0.0),
    "hop noise with too large a delta": hop_noise(1.0, 2e-3),
}
BAD_WAVES: dict[str, Change] = {
    "a wave after the last": stated("wave", 9),
    "no wave": stated("wave", 0),
    "a wave that is open for longer": stated("closes_unix_s", 2**40),
    "a deadline beside the schedule": field("close_deadline_unix_s", 2**31),
    "a long name": field("survey_id", "a" * 41),
    "results for others without a key": schedule(results=pb.RESULTS_OPERATOR),
    "a key of results that are public": field("collector_public_key", bytes(range(32))),
    "version 0": lambda _, survey: survey.schedule.ClearField("version"),
    "a second version that names none before": schedule(version=2, change="More."),
    "a second version that changes nothing": schedule(version=2, previous_hash=bytes(32)),
    "a first version that changes something": schedule(change="More."),
    "a first version that names one before": schedule(previous_hash=bytes(32)),
    "a change that hides": schedule(version=2, previous_hash=bytes(32), change="b\u200b"),
    "a first version from wave 2": schedule(first_wave=2),
    "too many waves": schedule(last_wave=4097),
    "once, and three waves": calendar(every=pb.PERIOD_ONCE),
    "no calendar": lambda _, survey: survey.schedule.ClearField("calendar"),
    "no period": lambda _, survey: survey.schedule.calendar.ClearField("every"),
    "a day that no month has": calendar(first="2026-02-30T08:00"),
    "a time with seconds": calendar(first="2026-01-05T08:00:00"),
    "a time zone that is not a name": calendar(timezone="Europe, Berlin"),
    "waves that overlap": calendar(open_for_s=7 * 86_400),
    "no total epsilon": schedule(total_epsilon=float("inf")),
    "too large a total delta": schedule(total_delta=0.2),
    "nothing about who reads": lambda _, survey: survey.schedule.ClearField("results"),
}


def signed(kit: RoundKit, change: Change = lambda *_: None, unknown: bytes = b"") -> pb.SignedRound:
    """A round that all services have signed; the names of its keys follow from the survey, unless they changed."""
    manifest, survey = kit.manifest, kit.survey
    before = manifest.analyzer.round_id
    change(manifest, survey)
    name = f"{survey.survey_id}-w{manifest.wave}" if survey.HasField("schedule") else survey.survey_id
    place = f"-{manifest.question + 1}" if survey.HasField("schedule") or len(survey.questions) > 1 else ""
    for keys in (*manifest.hops, manifest.accountant, manifest.analyzer):
        keys.round_id = name + place if keys.round_id == before else keys.round_id
    named = manifest.survey_hash
    document = kit.round
    manifest.survey_hash = named or manifest.survey_hash
    payload = canonical(manifest) + unknown
    signatures = [signer.sign(Kind.MANIFEST, payload) for signer in SIGNERS.values()]
    document.manifest.CopyFrom(pb.Signed(payload=payload, signatures=signatures))
    return document


def deployment(**changes: Any) -> str:
    roles = {name: "shuffler" if name.startswith("shuffler") else name for name in NAMES}
    services = [{"name": name, "role": roles[name], "identity": SIGNERS[name].public_key.hex()} for name in NAMES]
    return json.dumps({"name": "local", "services": services} | changes)


def is_refused(document: pb.SignedRound) -> bool:
    """Whether Python's client, and so every service, refuses a round."""
    try:
        parse_terms(document)
    except Refusal:
        return True
    return False


def case(what: str, document: pb.SignedRound, accepted: object = True) -> dict[str, Any]:
    """A case of vectors.mjs; accepted: "NeedsProgram" or "Distrust" where the page does not answer the round."""
    facts = {}
    if accepted is True:
        terms = parse_terms(document)
        facts = {
            "round_id": terms.round_id,
            "invited_to": terms.survey.invitation_hash.hex(),
            "series": terms.permanent.name if terms.permanent else "",
        }
    round_ = document.SerializeToString().hex()
    return {"what": what, "round": round_, "accepted": accepted, "deployment": deployment(), **facts}


def shown_rounds() -> list[dict[str, Any]]:
    cases = [
        case(what, signed(make_kit(question=question)), otherwise or True)
        for what, (question, otherwise) in GOOD.items()
    ]
    question, _ = GOOD["categories with captions"]
    cases.append(case("hop noise", signed(make_kit(question=question), hop_noise(1.0, 1e-6))))
    for smallest, accepted in ((0.5, True), (8.5, "Distrust")):  # the page offers no budget above 8
        document = signed(make_kit(question=question), hop_noise_beside(smallest, 9.0))
        assert not is_refused(document)
        cases.append(case(f"hop noise, budgets from {smallest}", document, accepted))
    second = schedule(version=2, previous_hash=bytes(32), change="More.", first_wave=2, last_wave=9)
    for what, good in {"a wave": schedule(), "a wave of a second version": second}.items():
        cases.append(case(what, signed(kit_of_wave(2, question=question), good)))
        cases.append(case(f"{what}, not permanent", signed(kit_of_wave(2, question=question, permanent=False), good)))
    for wave, changes in ((0, BAD), (1, BAD_WAVES)):
        for what, change in changes.items():
            document = signed(kit_of_wave(wave, question=question) if wave else make_kit(question=question), change)
            assert is_refused(document), what
            cases.append(case(what, document, "Distrust"))
    unknown = signed(make_kit(question=question), unknown=UNKNOWN)
    cases.append(case("a field that nobody knows", unknown, "Distrust"))
    return cases


def points(source: random.Random) -> list[dict[str, Any]]:
    """Reports of many categories, made by Python's client from draws that are given."""
    cases = []
    for k, q, epsilon in ((7, 2, 1.0), (1024, 3, 0.5), (300, 19, 3.0), (5000, 5, 2.0)):
        question = Question("word", ProjectiveResponse(k, (), q))
        for _ in range(20):
            category, drawn = source.randrange(k), [source.randrange(2**64) for _ in range(2)]
            report = randomize(question, category, epsilon, Scripted(*drawn))
            cases.append({"k": k, "q": q, "category": category, "epsilon": epsilon, "drawn": drawn, "report": report})
    return [case | {"drawn": [str(draw) for draw in case["drawn"]]} for case in cases]


@pytest.mark.slow
def test_the_page_computes_what_python_computes(tmp_path: Path) -> None:
    """Thresholds bit by bit, layers, tickets, signatures, inclusion; and it refuses what Python refuses."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node: install the package 'nodejs'")
    source = random.Random(7)
    drawn = [(10 ** source.uniform(-8.9, 1.3), source.choice((2, 3, 65536))) for _ in range(300)]
    positions = [(source.uniform(-5, 7), -5.0, 7.0) for _ in range(50)] + [(5e-324, 0.0, 1e308), (0.1, -0.1, 0.3)]
    exact = [(Fraction(x) - Fraction(low)) / (Fraction(high) - Fraction(low)) for x, low, high in positions]
    chains = json.loads(CHAINS.read_text())
    vectors = json.loads(FILE.read_text()) | {
        "chains": chains["cases"],
        "signed": chains["signed"],
        "more_thresholds": [
            {"epsilon": e, "k": k, "blanket": str(blanket_threshold(e, k)), "flip": str(flip_threshold(e))}
            for e, k in drawn
        ],
        "positions": [
            {
                "value": x,
                "low": low,
                "high": high,
                "numerator": str(fraction.numerator),
                "denominator": str(fraction.denominator),
            }
            for (x, low, high), fraction in zip(positions, exact, strict=True)
        ],
        "points": points(source),
        "rounds": shown_rounds(),
    }
    (file := tmp_path / "vectors.json").write_text(json.dumps(vectors))
    program = Path(__file__).parent / "vectors.mjs"
    done = subprocess.run([node, program, PAGE, file], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["two-hops: ok", "one-hop: ok", "page: ok"]


def test_the_page_is_built_from_its_sources() -> None:
    """`make web` builds it; without Node this at least shows that nobody has forgotten to."""
    files = [WEB / "build.mjs", WEB / "package-lock.json", WEB / "tsconfig.json"]
    files += sorted(file for file in (WEB / "src").rglob("*") if file.is_file())
    whole = hashlib.sha256()
    for file in files:
        line = f"{file.relative_to(WEB).as_posix()} {hashlib.sha256(file.read_bytes()).hexdigest()}\n"
        whole.update(line.encode())
    assert re.findall(rb"<!-- sources: (\w+) -->", participant_page()) == [whole.hexdigest().encode()]


def test_the_page_needs_nothing_from_anywhere_else() -> None:
    page = participant_page().decode()
    head, _, script = page.partition('<script type="module">')
    assert re.findall(r"(?:src|href)=\"(?!data:|#)", head) == []
    assert re.findall(r"\beval\(|new Function\(|innerHTML|document\.write|importScripts", script) == []
    texts = [json.loads(file.read_text()) for file in (WEB / "src" / "locales").iterdir()]
    assert [set(text) ^ set(texts[0]) for text in texts] == [set()] * 2
    placeholders = [{name: sorted(re.findall(r"{(\w+)}", said)) for name, said in text.items()} for text in texts]
    assert placeholders[0] == placeholders[1]
