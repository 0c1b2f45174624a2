"""Which commands there are: those of users and operators at the top, those of maintainers in a group of their own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import pytest
from cyclopts import Parameter

import croupier as library
from croupier.cli import app
from tests.support.command_line import croupier, invoke, refused
from tests.support.messages import naming


def test_an_experiment_in_the_place_of_a_command_is_understood() -> None:
    """Reproduction: 'croupier experiment gspa-fig2' ended with 'No such command' and no way out."""
    for typed in ("gspa-fig2", "gspa-fg2"):
        done = invoke("experiment", typed, columns=200)
        assert done.exit_code == 2
        assert re.search(naming(f"'{typed}'", "'croupier experiment run gspa-fig2'"), done.stderr)
    assert "gspa" not in invoke("experiment", "lits").stderr


def test_a_shell_completes_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("cyclopts.completion.detect.detect_shell", lambda: "bash")
    script = Path(croupier("--install-completion").stdout.strip()).read_text()
    assert {"rotate", "survey", "change", "--end-sequential"} <= set(re.findall(r"[\w-]+", script))


def test_numbers_are_taken_as_they_are_written() -> None:
    """Reproduction: cyclopts by itself takes 2.5 for 2, and 'none' for no number at all."""
    for option, value in (("--users", "2.5"), ("--users", "none"), ("--epsilon", "null"), ("--delta", "1e-6 ")):
        assert (option in refused("plan", option, value)) == (value != "1e-6 ")
    assert "low is -5" in refused("plan", "--error", "0.1", "--epsilon", "1", "--low", "-5", "--high", "-6")


def test_what_follows_an_option_is_its_value_and_the_last_of_several_counts(tmp_path: Path) -> None:
    given = "submit", "--dir", tmp_path, "--value-file", tmp_path / "a", "--value-file", "-b", "--epsilon", "1"
    assert "-b does not exist" in refused(*given)


def test_arguments_may_stand_between_options(tmp_path: Path) -> None:
    """Reproduction: cyclopts ends a positional-only list at the first option."""
    (tmp_path / "a").write_text("ab" * 32)
    assert "b does not exist" in refused("enrol", tmp_path / "a", "--dir", tmp_path, "b", "--json")
    assert "--files" in refused("enrol", "--files", tmp_path / "a")


def test_a_mistyped_word_names_the_one_that_is_near() -> None:
    assert "'certify'" in refused("certifi")
    assert "'show'" in refused("survey", "sho")
    assert "--delta" in refused("certify", "budgets.csv", "--detla", "1")


def test_a_group_without_a_command_shows_its_commands_and_has_done_nothing() -> None:
    for path, command in (((), "status"), (("survey",), "close"), (("experiment",), "run")):
        assert command in croupier(*path, expect=2).stdout


@pytest.mark.slow
def test_help_has_a_short_name() -> None:
    """Reproduction: 'croupier -h' ended with 2."""
    for path in ((), ("certify",), ("survey", "open")):
        assert croupier(*path, "-h").stdout == croupier(*path, "--help").stdout


def test_the_version_is_printed_and_nothing_else() -> None:
    assert croupier("--version") == (f"{library.__version__}\n", "")
    assert croupier("--version", "no-such-command").stdout == f"{library.__version__}\n"


def test_no_help_text_is_taken_for_markup() -> None:
    """Reproduction: "rows outside [low, high]" was shown as "rows outside "."""

    def between(
        *, low: Annotated[float, Parameter(help="Rows outside [low, high], and *all* `others`.")] = 0.0
    ) -> None:
        """Counts [b]rows[/b]."""

    app.command(between)
    shown = croupier("between", "--help").stdout
    del app["between"]
    assert "Rows outside [low, high], and *all* `others`." in shown
    assert "Counts [b]rows[/b]." in shown
