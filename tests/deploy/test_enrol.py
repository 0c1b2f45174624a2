"""`croupier enrol`: which keys are enrolled, whose they are, and what is refused."""

from __future__ import annotations

import asyncio
import csv
import json
import re
from pathlib import Path

import pytest

from croupier.client.key_file import PRIVATE, PUBLIC, key_text
from croupier.client.submission import Participant, new_client_key
from croupier.deploy.local.users import Fleet
from croupier.operator.keys import make_client_key, make_deployment
from croupier.operator.roster import Enrolment, enrol, enrolled, read_keys, revoke_keys
from croupier.protocol.identity import public_key_of
from croupier.protocol.names import PrivateKey
from croupier.protocol.v1 import services_pb2 as rpc
from tests.support import settings
from tests.support.command_line import invoke
from tests.support.messages import naming
from tests.support.rounds import table
from tests.support.sheets import write_book

ADA, BOB, EVE = (public_key_of(PrivateKey(bytes([number]) * 32)).hex() for number in (1, 2, 3))


def croupier(*arguments: object, expect: int = 0, typed: str = "") -> str:
    done = invoke(*arguments, typed=typed, columns=300)
    assert done.exit_code == expect, done.stderr
    return " ".join((done.stdout if expect == 0 else done.stderr).split())


def lines(text: str) -> list[tuple[int, list[str]]]:
    return list(enumerate(csv.reader(text.splitlines()), start=1))


def test_a_batch_of_keys_is_read_as_spreadsheets_write_it(tmp_path: Path) -> None:
    place = tmp_path / "d"
    make_deployment(place, "local", 1)
    semicolons = tmp_path / "semicolons.csv"
    semicolons.write_bytes(f"key;label\n{ADA};Bj\xf6rn\n{ADA};Eve\n".encode("cp1252"))
    said = croupier("enrol", semicolons, "--dir", place, expect=2)
    assert re.search(naming(semicolons, "Windows-1252", "UTF-8"), said)
    assert f"line 3 of {semicolons} gives key 8a88e3dd… a second label" in said
    book = write_book(tmp_path / "keys.xlsx", [("key", "label"), (ADA, "Ada"), (None, None), (BOB[1:], "Bob")])
    assert re.search(naming("line 4", book), croupier("enrol", book, "--dir", place, expect=2))


def test_keys_are_read_from_every_form_of_file() -> None:
    assert read_keys(lines(key_text(PUBLIC, bytes.fromhex(ADA))), "ada.pub") == [Enrolment(ADA)]
    batch = f'key,label\n{ADA},Ada\n\n# absent\n{BOB.upper()}\n{EVE},"Eve, of site 2"\n{ADA},Ada\n'
    assert read_keys(lines(batch), "batch.csv") == [
        Enrolment(ADA, "Ada"),
        Enrolment(BOB),
        Enrolment(EVE, "Eve, of site 2"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (key_text(PRIVATE, bytes(32)), "client's"),
        (f"{ADA}\n{BOB[1:]}\n", "line 2 of batch.csv.*64 hexadecimal"),
        (f"{ADA},Ada\n{ADA},Bob\n", "line 2 of batch.csv gives key 8a88e3dd… a second label"),
        (f"{bytes(32).hex()}\n", "line 1 of batch.csv .*can sign"),
        (f"{ADA},{'a' * 201}\n", "line 1 of batch.csv.*201 characters"),
        (f"{ADA},Ada\x1b[2J\n", "no control characters"),
        (f"{ADA},Ada,1,2,3,4\n", "line 1 of batch.csv is not"),
    ],
)
def test_a_line_that_is_not_a_key_stops_the_whole_batch(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_keys(lines(text), "batch.csv")


@pytest.mark.virtual_time
async def test_enrolled_keys_are_admitted_and_listed_until_revoked(tmp_path: Path) -> None:
    key = new_client_key()
    mine = Enrolment(public_key_of(key).hex(), "me")
    async with table(tmp_path, 1) as at:
        place, transport = at.inside.directory, at.inside.transport
        assert await enrol(place, [mine, Enrolment(BOB)], transport) == 2
        assert await enrol(place, [mine, Enrolment(BOB, "Bob")], transport) == 0
        listed = enrolled(place)
        assert [(entry.key, entry.label, bool(entry.enrolled_at)) for entry in listed] == [
            (mine.key, "me", True),
            (BOB, "Bob", True),
        ]
        terms = await at.operator.open_round(settings(min_batch_size=2))
        people = {
            "me": Participant(1, 1.0, key),
            "bob": Participant(1, 1.0, PrivateKey(bytes([2]) * 32)),
            "eve": Participant(1, 1.0),
        }
        nobody = Fleet(at.channel, at.accountant, at.outbox, at.pool, enrol=lambda _: asyncio.sleep(0))
        await nobody.answer(terms, people)
        status = (await at.operator.status())[0]
        assert isinstance(status, rpc.StatusResponse)
        assert status.rounds[0].num_items == 2, "the third key was not enrolled"
        await revoke_keys(place, [BOB, EVE], transport)
        assert [bool(client.revoked_at) for client in enrolled(place)] == [False, True, True]
        with pytest.raises(ValueError, match=naming("8139770e…", "(Bob)", "revoked")):
            await enrol(place, [mine, Enrolment(BOB, "Bob")], transport)
        # The list itself can be enrolled again, where a service has lost its store.
        text = (place / "operator" / "enrolled.csv").read_text()
        again = [key for key in read_keys(lines(text), "enrolled.csv") if not key.revoked_at]
        assert await enrol(place, again, transport) == 0


def test_the_command_lists_and_says_what_it_takes(tmp_path: Path) -> None:
    make_deployment(tmp_path, "local", 1)
    here = ("--dir", tmp_path)
    assert croupier("enrol", "--list", *here) == "no client has been enrolled from here"
    assert "nothing to enrol" in croupier("enrol", *here, expect=2)
    assert "takes no file" in croupier("enrol", "--list", "--label", "Ada", *here, expect=2)
    assert re.search(naming("canaries is -1"), croupier("enrol", "--canaries", "-1", *here, expect=2))
    said = croupier("enrol", "-", "--label", "Ada", *here, typed=f"{ADA}\n{BOB}\n", expect=2)
    assert re.search(naming("2 keys"), said)
    assert json.loads(croupier("enrol", "--list", "--json", *here)) == {"enrolled": []}


def test_a_public_key_does_not_sign_an_answer(tmp_path: Path) -> None:
    """Reproduction: with --enrol the public key was taken for a private one, and a fake answer was counted."""
    make_deployment(tmp_path / "d", "local", 1)
    public = make_client_key(tmp_path / "me.key")
    assert (tmp_path / "me.key.pub").read_text() == f"{PUBLIC}\n{public}\n"
    (tmp_path / "bare").write_text(f"{public}\n")
    for file, said in (("me.key.pub", "holds the public half"), ("bare", "not the file of a client's private key")):
        submit = ("submit", "--dir", tmp_path / "d", "--value", "1", "--epsilon", "1", "--enrol", "--key")
        assert said in croupier(*submit, tmp_path / file, expect=2)
    assert not (tmp_path / "d" / "operator" / "enrolled.csv").exists()
