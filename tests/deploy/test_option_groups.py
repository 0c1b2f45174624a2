"""A group of options is one parameter of a command, and one option for each of its fields."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated

import typer
from typer.testing import CliRunner

from croupier.cli.option_groups import with_option_groups
from croupier.cli.training import TrainingOptions
from croupier.training.config import TrainingConfig


@dataclass(frozen=True)
class Ends:
    """An interval."""

    low: Annotated[float, typer.Option(help="The smallest value.")] = 0.0
    high: Annotated[float, typer.Option("--to", help="The largest value.")] = 1.0

    def __post_init__(self) -> None:
        if self.low >= self.high:
            raise ValueError(f"low is {self.low:g}; it must be below {self.high:g}")


@with_option_groups
def width(name: str, *, ends: Ends, steps: int = 1) -> None:
    typer.echo(f"{name}: {(ends.high - ends.low) / steps:g}")


@dataclass(frozen=True)
class Drawing:
    """A group with a group in it."""

    ends: Ends
    color: Annotated[str, typer.Option(help="The color.")] = "red"


@with_option_groups
def drawn(*, drawing: Drawing) -> None:
    typer.echo(f"{drawing.color}: {drawing.ends.low:g} to {drawing.ends.high:g}")


APP = typer.Typer()
APP.command()(width)
NESTED = typer.Typer()
NESTED.command()(drawn)


def test_a_field_is_an_option_with_its_own_default() -> None:
    runner = CliRunner()
    assert runner.invoke(APP, ["hours"]).stdout == "hours: 1\n"
    assert runner.invoke(APP, ["hours", "--steps", "2", "--to", "24"]).stdout == "hours: 12\n"
    assert "The smallest value." in runner.invoke(APP, ["--help"]).stdout


def test_a_group_that_refuses_its_values_ends_the_command() -> None:
    refused = CliRunner().invoke(APP, ["hours", "--low", "2"])
    assert refused.exit_code == 2
    assert "low is 2; it must be below 1" in refused.stderr


def test_a_group_in_a_group_has_its_options_too() -> None:
    runner = CliRunner()
    assert runner.invoke(NESTED, ["--to", "24", "--color", "blue"]).stdout == "blue: 0 to 24\n"
    refused = runner.invoke(NESTED, ["--low", "2"])
    assert (refused.exit_code, "low is 2; it must be below 1" in refused.stderr) == (2, True)


def test_every_field_of_a_training_has_an_option() -> None:
    assert TrainingOptions.__annotations__.keys() == {field.name for field in fields(TrainingConfig)}
