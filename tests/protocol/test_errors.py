"""The catalogue of refusals: every code has its sentence. Other tests assert codes, and take a sentence from here."""

from __future__ import annotations

import pytest

from croupier.protocol.errors import Code, Refusal


def test_no_two_codes_have_one_sentence() -> None:
    assert len({code.message for code in Code}) == len(Code)


@pytest.mark.parametrize("code", Code, ids=lambda code: code.name)
def test_a_code_has_a_sentence_that_goes_on_with_the_callers_value(code: Code) -> None:
    assert 10 <= len(code.message) <= 120
    assert code.message == code.message.strip(" .:")
    assert code.message.isprintable()
    assert str(Refusal(code, "'x'")) == f"{code.message}: 'x'"
    assert Refusal(code, "'x'", log_only="a secret").details() == f"{code.name}: {code.message}: 'x'"


@pytest.mark.parametrize("code", [member for member in Code if member is not Code.INTERNAL], ids=lambda code: code.name)
def test_a_sentence_says_whether_to_try_again(code: Code) -> None:
    assert ("again" in code.message) == code.may_pass
