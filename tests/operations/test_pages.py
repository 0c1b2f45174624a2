"""The parts of pages that a command writes: from the program, from proto/ and from tested files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from croupier.protocol.deployment import ServiceEntry
from croupier.protocol.v1 import messages_pb2 as pb
from research.pages import changes, write_pages, written_again
from research.protocol_reference import calls_table, enum_table, message_tables
from research.reference import settings_table
from tests.support.messages import naming


def test_every_part_is_what_is_written_there() -> None:
    assert write_pages(check=True) == []


def test_a_changed_part_is_found_and_written_again(tmp_path: Path) -> None:
    (docs := tmp_path / "docs").mkdir()
    begin, end = "<!-- values: SubmissionCode -->", "<!-- end of values -->"
    page = docs / "page.md"
    page.write_text(f"# A page\n{begin}\nold\n{end}\nand more, <!-- another comment -->\n")
    assert write_pages(tmp_path, check=True) == [Path("docs/page.md")]
    assert "old" in page.read_text()
    assert write_pages(tmp_path) == [Path("docs/page.md")]
    written = f"{begin}\n\n{enum_table('SubmissionCode')}\n\n{end}"
    assert page.read_text() == f"# A page\n{written}\nand more, <!-- another comment -->\n"
    assert write_pages(tmp_path) == []


@pytest.mark.parametrize(
    ("page", "named"),
    [
        ("<!-- errors -->\n## Next", "errors"),
        ("<!-- errors -->\n<!-- metrics -->\n<!-- end of errors -->\n<!-- end of metrics -->", "errors"),
        ("<!-- messages: Manifesto -->\n<!-- end of messages -->", "Manifesto"),
        ("<!-- calls: Shuffler.Shuffle -->\n<!-- end of calls -->", "Shuffler.Shuffle"),
        ("<!-- round steps: client/outbox.py -->\n<!-- end of round steps -->", "client/outbox.py"),
        ("<!-- rooms: protocol/v2 -->\n<!-- end of rooms -->", "protocol/v2"),
        ("<!-- functions: croupier.protocol.v1 -->\n<!-- end of functions -->", "croupier.protocol.v1"),
        ("<!-- settings: croupier.protocol.deployment.OPERATOR -->\n<!-- end of settings -->", "OPERATOR"),
    ],
)
def test_a_part_that_cannot_be_written_is_named(page: str, named: str) -> None:
    with pytest.raises(ValueError, match=naming(named)):
        written_again(page)


def test_changes_of_files_and_new_files_are_blocks(tmp_path: Path) -> None:
    (tmp_path / "step.diff").write_text(
        '+++ net/a.py\n before\n+after\n--- /dev/null\n+++ net/b.py\n+"""New."""\n+\n+B = 1\n+++ net/a.py\n+last\n'
    )
    assert changes(str(tmp_path / "step.diff")) == (
        '```diff title="net/a.py"\n before\n+after\n```\n\n'
        '```python title="net/b.py"\n"""New."""\n\nB = 1\n```\n\n'
        '```diff title="net/a.py"\n+last\n```'
    )


def test_the_tables_of_messages_have_every_field_with_its_type() -> None:
    rows = re.findall(r"^\| `(\w+)` = (\d+) \| ([\w ]+) \|", message_tables("Survey"), re.MULTILINE)
    assert [(name, int(number)) for name, number, _ in rows] == [
        (field.name, field.number) for field in pb.Survey.DESCRIPTOR.fields
    ]
    types = {name: kind for name, _, kind in rows}
    assert (types["survey_id"], types["questions"], types["schedule"]) == (
        "string",
        "repeated SurveyQuestion",
        "Schedule",
    )
    codes = re.findall(r"^\| `(\w+)` = (\d+) \| \w", enum_table("SubmissionCode"), re.MULTILINE)
    assert {f"SUBMISSION_CODE_{name}": int(number) for name, number in codes} == {
        name: number for name, number in pb.SubmissionCode.items() if number
    }
    assert "| `Shuffler.Submit` | SubmitRequest | SubmitResponse |" in calls_table("Shuffler.Submit")


def test_the_tables_of_settings_have_defaults_and_ranges() -> None:
    rows = settings_table("croupier.runtime.service_directory.ServiceSettings").splitlines()
    (calls,) = [row for row in rows if row.startswith("| `max_concurrent_calls` | `256` |")]
    assert calls.endswith("Range: ≥ 8, ≤ 65536. |")
    named = re.findall(r"^\| `(\w+)`", settings_table(f"{ServiceEntry.__module__}.ServiceEntry"), re.MULTILINE)
    assert named == list(ServiceEntry.model_fields)
