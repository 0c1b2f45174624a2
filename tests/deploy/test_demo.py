"""The rounds of a demonstration: who answers them is what was planned, and an answer that is refused is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from croupier.client.submission import Participant
from croupier.deploy.local.budget_groups import parse_budget_groups
from croupier.deploy.local.columns import Rows
from croupier.deploy.local.csv_columns import CsvFile
from croupier.deploy.local.demo import ask_planned
from croupier.deploy.local.demo_plan import PlannedRound, ask_about, plan_demo
from croupier.deploy.local.users import FleetReport
from croupier.deploy.local.whole_round import play_round
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import make_kit
from tests.support.messages import naming


class FakeFleet:
    """A fleet that notes who answers."""

    def __init__(self, *codes: str) -> None:
        self.users: list[Mapping[str, Participant]] = []
        self._codes = codes

    async def answer(
        self, _terms: Any, users: Mapping[str, Participant], progress: Callable[[int], None]
    ) -> FleetReport:
        self.users.append(users)
        for _ in users:
            progress(1)
        return FleetReport(Counter(self._codes))


def planned(tmp_path: Path) -> PlannedRound:
    file = tmp_path / "people.csv"
    file.write_text("hours\n" + "\n".join(str(number % 9) for number in range(40)) + "\nmany\n")
    csv, questions = ask_about(file, ["hours:0:5"], None, None, None)
    groups = parse_budget_groups("0.5:54,1:37,2:9")
    (planned_round,) = plan_demo(csv, questions, groups, delta=1e-6, clamp=True)
    return planned_round


def test_each_column_is_read_once_for_all_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "people.csv"
    file.write_text("mood,site\n" + "".join(f"{'good' if n % 3 else 'bad'},{n % 4}\n" for n in range(40)))
    opened, rows = list[str](), CsvFile.rows

    def noted(csv: CsvFile) -> AbstractContextManager[Rows]:
        opened.append(csv.name)
        return rows(csv)

    monkeypatch.setattr(CsvFile, "rows", noted)
    csv, questions = ask_about(file, ["mood"], None, None, None)
    plan = plan_demo(csv, questions, parse_budget_groups("1"), group_by="site", delta=1e-6, clamp=True)
    assert [len(planned_round.population.participants) for planned_round in plan] == [10] * 4
    assert len(opened) == 2  # once for "mood", once for "site"


async def test_the_planned_participants_answer_with_their_drawn_budgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reproduction: a second process read the file again, and drew other budgets than the plan's."""
    part, moved = planned(tmp_path), list[tuple[str, int, int]]()
    terms: Any = object()
    (tmp_path / "people.csv").unlink()  # nothing reads it any more
    played: list[tuple[Any, Mapping[str, Participant]]] = []

    async def play(*given: Any) -> Any:
        _, _, _, asked, users, progress = given
        played.append((asked, users))
        for _ in users:
            progress(1)
        return SimpleNamespace(certificate=pb.Certificate(granted=True))

    monkeypatch.setattr("croupier.deploy.local.demo.play_round", play)
    await ask_planned(terms, tmp_path, terms, part, terms, lambda *what: moved.append(what))
    ((asked, users),) = played
    assert asked is terms
    assert users is part.population.participants
    assert (moved[0], moved[-1], len(moved)) == (("hours", 1, 40), ("hours", 40, 40), 40)


async def test_a_round_ends_where_an_answer_was_refused(tmp_path: Path) -> None:
    part = planned(tmp_path)
    operator: Any = None
    fleet: Any = FakeFleet(*["SUBMISSION_CODE_ACCEPTED"] * 39, "SUBMISSION_CODE_OVERLOADED")
    with pytest.raises(RuntimeError, match=naming(40, "39 ACCEPTED", "1 OVERLOADED")):
        await play_round(operator, tmp_path, fleet, make_kit().terms, part.population.participants)
    assert fleet.users == [part.population.participants]
