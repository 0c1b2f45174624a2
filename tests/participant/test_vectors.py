"""The client inside the participants' page, under Node: golden vectors, and manifests that Python reads or refuses."""

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
from croupier.protocol.identity import Identity, Kind
from croupier.protocol.manifest import canonical, parse_terms
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
from tests.support import make_kit
from tests.support.scripted import Scripted

WEB = Path(__file__).parents[2] / "web"
PAGE = Path(__file__).parents[2] / "deploy" / "page" / "participate.html"
NAMES = ("shuffler-1", "shuffler-2", "accountant", "analyzer")
SIGNERS = {name: Identity(name, PrivateKey(hashlib.sha256(name.encode()).digest())) for name in NAMES}
MOOD = KaryResponse(3, ("a", "b", "c"))
ASKED = Wording("en", "How?", "Title", "Help: x < 3", ("good", "so-so", "bad"))
Change = Callable[[pb.Manifest], Any]

FILE = Path(__file__).parents[1] / "vectors" / "client.json"
CHAINS = FILE.with_name("deployments.json")


def wording(**fields: Any) -> Change:
    return lambda manifest: manifest.question.wordings[0].MergeFrom(pb.Wording(**fields))


def field(name: str, value: Any) -> Change:
    return lambda manifest: setattr(manifest, name, value)


def grid(**fields: Any) -> Change:
    return lambda manifest: manifest.budget_grid[1].MergeFrom(pb.LocalBudget(**fields))


def hop_noise(epsilon: float, delta: float) -> Change:
    return lambda manifest: manifest.hop_noise.MergeFrom(pb.HopNoise(epsilon=epsilon, delta=delta))


def hop_noise_beside(*epsilons: float) -> Change:
    def change(manifest: pb.Manifest) -> None:
        hop_noise(1.0, 1e-6)(manifest)
        del manifest.budget_grid[:]
        manifest.budget_grid.extend(pb.LocalBudget(epsilon=epsilon) for epsilon in epsilons)

    return change


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
    "an id that turns the writing": field("round_id", "a\u202eb"),
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
    "no budgets": lambda manifest: manifest.ClearField("budget_grid"),
    "a key twice": lambda manifest: manifest.analyzer.MergeFrom(manifest.hops[0]),
    "keys of another round": lambda manifest: setattr(manifest.hops[0], "round_id", "other"),
    "no release key": lambda manifest: manifest.accountant.ClearField("release_public_key"),
    "one ticket key": lambda manifest: setattr(
        manifest.accountant, "report_ticket_key", manifest.accountant.parameter_ticket_key
    ),
    "a collector's key that is a key of the round": lambda manifest: setattr(
        manifest, "collector_public_key", manifest.hops[0].public_key
    ),
    "an unknown field in the question": lambda manifest: manifest.question.MergeFromString(bytes.fromhex("a00601")),
    "an unknown field in a key": lambda manifest: manifest.hops[1].MergeFromString(bytes.fromhex("a00601")),
    "no question": lambda manifest: manifest.ClearField("question"),
    "a name with a space": lambda manifest: setattr(manifest.question, "name", "a b"),
    "too many categories": lambda manifest: setattr(manifest.question.krr, "k", 40_000),
    "other labels": lambda manifest: manifest.question.krr.labels.append("d"),
    "the same label twice": lambda manifest: manifest.question.krr.labels.__setitem__(0, "b"),
    "a label that hides": lambda manifest: manifest.question.krr.labels.__setitem__(0, "b\u200b"),
    "another caption": wording(choices=["more"]),
    "markup": wording(question="a<b>"),
    "an entity": wording(help_text="a&lt;b"),
    "a line break": wording(help_text="a\nb"),
    "a long question": wording(question="é" * 501),
    "a long help": wording(help_text="a" * 4001),
    "a unit": wording(unit="kg"),
    "not a language": wording(language="English!"),
    "a language twice": lambda manifest: manifest.question.wordings.add(language="en", question="Again?"),
    "no text": lambda manifest: manifest.question.wordings.add(language="fr"),
    "hop noise without an epsilon": hop_noise(0.0, 1e-6),
    "hop noise with too large an epsilon": hop_noise(21.0, 1e-6),
    "hop noise without a delta": hop_noise(1.0, 0.0),
    "hop noise with a larger delta than the round": hop_noise(1.0, 1e-5),
}


def signed(question: Question, change: Change | None = None, unknown: bytes = b"") -> pb.Signed:
    manifest = make_kit(question=question).manifest
    if change:
        change(manifest)
    payload = canonical(manifest) + unknown
    return pb.Signed(payload=payload, signatures=[signer.sign(Kind.MANIFEST, payload) for signer in SIGNERS.values()])


def deployment(**changes: Any) -> str:
    roles = {name: "shuffler" if name.startswith("shuffler") else name for name in NAMES}
    services = [{"name": name, "role": roles[name], "identity": SIGNERS[name].public_key.hex()} for name in NAMES]
    return json.dumps({"name": "local", "services": services} | changes)


def is_refused(manifest: bytes) -> bool:
    """Whether Python's client, and so every service, refuses a manifest."""
    try:
        parse_terms(manifest)
    except Refusal:
        return True
    return False


def manifests() -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = [
        {"what": what, "manifest": signed(question), "accepted": otherwise or True}
        for what, (question, otherwise) in GOOD.items()
    ]
    question, _ = GOOD["categories with captions"]
    cases.append({"what": "hop noise", "manifest": signed(question, hop_noise(1.0, 1e-6)), "accepted": True})
    for smallest, accepted in ((0.5, True), (8.5, "Distrust")):  # the page offers no budget above 8
        document = signed(question, hop_noise_beside(smallest, 9.0))
        assert not is_refused(document.payload)
        cases.append({"what": f"hop noise, budgets from {smallest}", "manifest": document, "accepted": accepted})
    for what, change in BAD.items():
        document = signed(question, change)
        assert is_refused(document.payload), what
        cases.append({"what": what, "manifest": document, "accepted": "Distrust"})
    unknown = signed(question, unknown=bytes.fromhex("a00601"))
    cases.append({"what": "a field that nobody knows", "manifest": unknown, "accepted": "Distrust"})
    return [
        case | {"manifest": case["manifest"].SerializeToString().hex(), "deployment": deployment()} for case in cases
    ]


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
        "manifests": manifests(),
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
