"""Two questions that are asked as one: pairs of answers as labels, and the two questions read off them."""

from __future__ import annotations

import pytest

from croupier.protocol.crossed import crossed, crossed_name, factor_names, factors
from croupier.protocol.mechanisms.krr import KaryResponse


def test_the_questions_are_read_off_the_pairs() -> None:
    labels = crossed(("yes", "no"), ("good", "so-so", "bad"))
    assert labels[:4] == ("yes × good", "yes × so-so", "yes × bad", "no × good")
    assert factors(labels) == (("yes", "no"), ("good", "so-so", "bad"))
    assert KaryResponse(6, labels).parse_value("no × bad") == 5


@pytest.mark.parametrize(
    "labels",
    [("a", "b"), ("a × x", "a × y"), ("a × x", "b × x"), ("a × x", "a × y", "b × x"), ("a × x × 1", "b × x × 1")],
)
def test_other_labels_are_no_table(labels: tuple[str, ...]) -> None:
    assert factors(labels) is None


def test_pairs_in_another_order_are_no_table() -> None:
    first, second, third, fourth = crossed(("a", "b"), ("x", "y"))
    assert factors((first, third, second, fourth)) is None


def test_an_answer_with_the_sign_between_is_refused() -> None:
    with pytest.raises(ValueError, match="must be without"):
        crossed(("a × b", "c"), ("x", "y"))


def test_names_are_put_together_and_read() -> None:
    assert factor_names(crossed_name("smokes", "mood")) == ("smokes", "mood")
    assert factor_names("letter") == ("rows", "columns")


def test_others_take_what_is_not_listed() -> None:
    drugs = KaryResponse(3, ("aspirin", "ibuprofen", "others"))
    assert [drugs.parse_value(text) for text in ("aspirin", "paracetamol", "others", "7")] == [0, 2, 2, 2]
    with pytest.raises(ValueError, match="paracetamol"):
        KaryResponse(2, ("aspirin", "ibuprofen")).parse_value("paracetamol")
