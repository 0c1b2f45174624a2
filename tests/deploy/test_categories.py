"""Categories from a file: checked line by line, up to 65,536 of them, in a round's options and in survey.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from croupier.cli.question_options import QuestionOptions
from croupier.operator.categories_file import read_categories
from croupier.operator.survey_file import read_survey_file
from croupier.protocol.mechanisms.base import Mechanism
from croupier.protocol.mechanisms.krr import KaryResponse
from tests.support.messages import naming

SURVEY = """
name = "s"
title = "S"
consent = "Yes."
budgets = [1.0]

[[questions]]
name = "drug"
question = "Which one?"
categories = {categories}
"""


def mechanism_of(file: Path) -> Mechanism:
    (question,) = QuestionOptions(categories=file).file("drug", "drug").asked()
    return question.mechanism


def test_every_line_of_a_file_is_a_category(tmp_path: Path) -> None:
    file = tmp_path / "drugs.txt"
    file.write_text("\ufeffaspirin\r\nibuprofen \r\nnone of these\r\n\r\n", encoding="utf-8")
    assert read_categories(file) == ("aspirin", "ibuprofen", "none of these")
    mechanism = mechanism_of(file)
    assert mechanism == KaryResponse(3, ("aspirin", "ibuprofen", "none of these"))
    assert mechanism.parse_value(" ibuprofen ") == 1


def test_as_many_categories_as_there_may_be(tmp_path: Path) -> None:
    file = tmp_path / "many.txt"
    file.write_text("\n".join(map(str, range(65_537))))
    with pytest.raises(ValueError, match=naming("k", 65537, "2..65536")):
        mechanism_of(file)
    file.write_text("\n".join(map(str, range(65_536))))
    mechanism = mechanism_of(file)
    assert [mechanism.parse_value(text) for text in ("65535", "7.0", "7")] == [65_535, 7, 7]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\n\nb\n", "line 2 is empty"),
        (b"a\nb\na\n", "line 3 is 'a', as line 1 is; categories must differ"),
        (b"a\n\xff\n", "is not UTF-8 text"),
        ("a\nb\u202ec\n".encode(), "line 2: a category"),
        (b"a\n", "k is 1; it must be 2"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_line(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "bad.txt"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        mechanism_of(file)
    with pytest.raises(ValueError, match=naming("missing.txt")):
        read_categories(tmp_path / "missing.txt")


def test_a_survey_takes_categories_from_a_file_or_its_own_lines(tmp_path: Path) -> None:
    (tmp_path / "drugs.txt").write_text("aspirin\nibuprofen\n")
    for categories in ('"drugs.txt"', '["aspirin", "ibuprofen"]'):
        file = tmp_path / "survey.toml"
        file.write_text(SURVEY.format(categories=categories))
        (question,) = read_survey_file(file).asked()
        assert question.mechanism == KaryResponse(2, ("aspirin", "ibuprofen"))
    file.write_text(SURVEY.format(categories='"missing.txt"'))
    with pytest.raises(ValueError, match=naming("missing.txt")):
        read_survey_file(file)
