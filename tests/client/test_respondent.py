"""Who answers: by which name the outbox knows the person, so that nobody is randomized twice."""

from __future__ import annotations

import pytest

from croupier.client.one_answer import Respondent
from croupier.protocol.names import PrivateKey, PublicKey
from tests.support.messages import naming

KEY, PUBLIC = b"\1" * 32, b"\3" * 32
OF_KEY = PUBLIC.hex()


@pytest.mark.parametrize(
    ("respondent", "known", "user"),
    [
        (Respondent(), (), OF_KEY),
        (Respondent(), ("earlier",), OF_KEY),
        (Respondent(key=PrivateKey(KEY)), (), OF_KEY),
        (Respondent("ada", PrivateKey(KEY)), ("earlier",), "person ada"),
        (Respondent(new_key=True), (), OF_KEY),
        (Respondent(new_key=True), ("earlier",), "earlier"),
        (Respondent(new_key=True), ("earlier", "later"), OF_KEY),
        (Respondent(new_key=True, key=PrivateKey(KEY)), ("earlier",), OF_KEY),
        (Respondent(new_key=True, another_person=True), ("earlier",), OF_KEY),
    ],
)
def test_a_person_keeps_one_name(respondent: Respondent, known: tuple[str, ...], user: str) -> None:
    assert respondent.user(PublicKey(PUBLIC), known) == user


def test_several_people_may_answer_only_where_it_is_said() -> None:
    assert Respondent().alone
    assert Respondent(key=PrivateKey(KEY), new_key=True).alone
    assert not Respondent("ada", key=PrivateKey(KEY)).alone
    assert not Respondent(another_person=True).alone


def test_a_respondent_that_cannot_be_is_refused_and_secrets_are_not_shown() -> None:
    with pytest.raises(ValueError, match=naming("key")):
        Respondent("ada")
    assert repr(Respondent(key=PrivateKey(KEY))) == "Respondent(person='', new_key=False, another_person=False)"
