"""Commands whose options are fields of dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from croupier.deploy.cli.option_groups import with_groups

seen: list[tuple[str, Place, Size, bool]] = []


@dataclass(frozen=True)
class Place:
    where: Annotated[str, typer.Option("--at", help="Where.")]
    floor: Annotated[int | None, typer.Option(help="Which floor.")] = None


@dataclass(frozen=True)
class Size:
    width: Annotated[float, typer.Option(envvar="WIDTH", help="How wide.")] = 1.5


def build(
    name: str,
    place: Place,
    size: Size,
    flat: Annotated[bool, typer.Option("--flat", help="Without a storey.")] = False,
) -> None:
    """Build a house."""
    seen.append((name, place, size, flat))


def run(*arguments: str, width: str = "") -> tuple[int, str]:
    app = typer.Typer()
    app.command()(with_groups(build))
    done = CliRunner().invoke(app, arguments, env={"WIDTH": width} if width else None)
    return done.exit_code, done.output


def test_every_field_of_a_group_is_an_option() -> None:
    seen.clear()
    assert run("hut", "--at", "sea", "--floor", "2", "--flat", width="3")[0] == 0
    assert run("inn", "--at", "lake")[0] == 0
    assert seen == [("hut", Place("sea", 2), Size(3.0), True), ("inn", Place("lake"), Size(), False)]


def test_the_help_names_the_options_in_their_order_and_what_is_missing() -> None:
    code, said = run("hut")
    assert (code, "--at" in said) == (2, True)
    code, said = run("--help")
    assert code == 0
    places = [said.index(text) for text in ("Build a house.", "--at", "--floor", "--width", "--flat")]
    assert places == sorted(places)
