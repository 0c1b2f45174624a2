"""A report in another language is in that language throughout: every sentence that `say` is given has a translation."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

import croupier.show.language
from croupier.protocol import texts
from croupier.protocol.codes import Note, RefusalReason
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.questions import Question
from croupier.protocol.statements import Statement, written_json
from croupier.protocol.wordings import Wording
from croupier.show.language import LOCALES, number, say, speaking
from croupier.show.numbers import Precision
from croupier.show.report import ReportRound, report_of
from croupier.show.survey_description import LEFT_OUT_TEXTS
from tests.support.results import result_of

ROOMS = (Path(croupier.show.language.__file__).parent, Path(croupier.show.language.__file__).parents[1] / "operator")
LANGUAGES = sorted(file.stem for file in LOCALES.iterdir())


def said() -> Iterator[str]:
    """Yields the constants that are given to `say` itself, or by a name."""
    for file in (file for room in ROOMS for file in room.glob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
        given = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "say"]
        named = {node.id for node in given if isinstance(node, ast.Name)}
        assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
        given += [each.value for each in assigned if any(getattr(name, "id", "") in named for name in each.targets)]
        yield from (node.value for node in given if isinstance(node, ast.Constant) and isinstance(node.value, str))


def needed() -> set[str]:
    coded = {texts.TEXTS[code] for codes in (Note, RefusalReason) for code in codes}
    plain = {*texts.PLAIN.values(), *texts.DEVICE_STEPS.values()}
    return {*said(), *LEFT_OUT_TEXTS.values(), *coded, *plain, *texts.PLAIN_WITHOUT.values()}


def fields(text: str) -> set[str]:
    return {f"{name}:{form}" for _, name, form, _ in Formatter().parse(text) if name and name != "whose"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_sentence_of_a_report_is_translated_and_no_other(language: str) -> None:
    translations = json.loads((LOCALES / f"{language}.json").read_text(encoding="utf-8"))
    assert set(translations) == needed()
    for text, translation in translations.items():
        assert fields(text) == fields(translation), text


def test_numbers_have_the_separators_of_the_language() -> None:
    with speaking("de-AT") as spoken:
        assert (spoken, number("1,000.5 %"), say("{low} to {high}", low="1", high=2000)) == (
            "de",
            "1.000,5 %",
            "1 bis 2.000",
        )
    with speaking("fr") as spoken:
        assert (spoken, number("1,000.5 %"), say("mean")) == ("en", "1,000.5 %", "mean")


def test_a_german_report_has_no_english_sentence() -> None:
    smokes = Question("raucht", RandomizedResponse(), (Wording("de", "Rauchen Sie?", choices=("nein", "ja")),))
    mood = Question("laune", KaryResponse(2, ("gut", "böse")))
    noisy = result_of(smokes, [(0.5, (0.1, 0.9), (0.0, 1.0))], hop_noise=(0.1, 5e-7))
    noisy |= {"precision": Precision.COVERS_RANGE, "hop_influence": 0.25}
    shares = result_of(mood, [(0.7, (0.6, 0.8), (0.5, 0.9)), (0.3, (0.2, 0.4), (0.1, 0.5))], round_id="r2")
    shares["notes"] = written_json([Statement.of(Note.DEPENDENT_BUDGETS)])
    north, south = (result_of(smokes, [(0.31, (0.28, 0.34), (0.27, 0.35))], round_id=name) for name in ("n", "s"))
    rounds = [ReportRound(noisy), ReportRound(shares), ReportRound(north, "Nord"), ReportRound(south, "Süd")]
    page = " ".join(re.sub(r"<[^>]*>|base64,[^\"]*", "\n", report_of("Bericht", rounds, language="de")).split())
    assert '<html lang="de">' in report_of("Bericht", rounds, language="de")
    assert "Geschätzt 31,0 % haben „ja“ geantwortet" in page
    pieces = {piece.strip() for text in needed() for piece in re.split(r"\{[^}]*\}", text)}
    translated = " ".join(json.loads((LOCALES / "de.json").read_text(encoding="utf-8")).values())
    assert [piece for piece in pieces if len(piece) > 11 and piece in page and piece not in translated] == []
