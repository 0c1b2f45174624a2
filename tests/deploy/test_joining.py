"""The commands of a person in a study: join, joined and leave, against services on this machine."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from croupier.client.key_file import read_private_key
from croupier.operator.opened_surveys import open_rounds
from croupier.operator.operator import Operator
from croupier.protocol.identity import public_key_of
from croupier.protocol.surveys import scheduled
from croupier.study.versions import start_study
from tests.support import in_process
from tests.support.command_line import answer, croupier
from tests.support.studies import study_file


@pytest.mark.slow
async def test_a_person_joins_answers_and_leaves(tmp_path: Path) -> None:
    place, answers = tmp_path / "deployment", tmp_path / "answers.toml"
    answers.write_text('mood = "good"\nill = 1\n')
    first = f"{datetime.now(UTC) - timedelta(minutes=5):%Y-%m-%dT%H:%M}:00"
    calendar = {"first": first, "every": "day", "on": None, "timezone": "UTC", "open_for": "2 hours"}
    async with in_process(place, 1) as inside, Operator(place, inside.transport) as operator:
        version = start_study(place, study_file(calendar=calendar))
        await open_rounds(operator, place, version, scheduled(version).wave(1))
        where = ("--dir", str(place))

        def told(*arguments: str, expect: int = 0, typed: str = "") -> str:
            said = croupier(*arguments, *where, expect=expect, typed=typed)
            return " ".join((said.stdout + said.stderr).split())

        def play() -> None:
            assert "not joined" in told("join", expect=2, typed="n\n")
            assert answer("join", "--list", *where)["studies"] == []
            assert "version 1" in told("join", "wellbeing", typed="y\n")
            assert "enrol" in told("join", "wellbeing", "--answers", str(answers), expect=3)
            key = public_key_of(read_private_key(place / "client" / "client.key")).hex()
            (tmp_path / "me.csv").write_text(f"{key},me\n")
            told("enrol", str(tmp_path / "me.csv"))
            assert "mood: answered, local ε 0.5" in told("join", "wellbeing", "--answers", str(answers))
            (study,) = answer("join", "--list", *where)["studies"]
            assert [wave["state"] for wave in study["waves"]] == ["answered"]
            assert (study["next_wave"], study["consents"][0]["hash"]) == (2, version.hash.hex())
            assert answer("leave", "wellbeing", *where)["answered"] == 1
            assert "was not joined" in told("leave", "wellbeing", expect=2)

        await asyncio.to_thread(play)
