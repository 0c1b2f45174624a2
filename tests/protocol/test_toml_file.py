"""Files of TOML that others send: what is too large or too deep is refused before it is parsed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from croupier.protocol.toml_file import parse_toml, read_toml
from tests.support.messages import naming

DEEP = "a" + ".a" * 33
"""A key of 34 parts."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="allow")


def no_parser(text: str) -> None:
    raise AssertionError("it was parsed")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"{DEEP} = 1", 1),
        (f"b = 1\n[{DEEP}]", 2),
        (f"b = {{{DEEP} = 1}}", 1),
        ("\n\n" + 'a . \'b\' .\t"c\\"" . ' * 12 + "d = 1", 3),
        (f'b = [ # "\n{{{DEEP} = 1}}, ""]', 2),
        (f'b = {{c = """x"""", {DEEP} = 1, d = ""}}', 1),
        (f'b = {{c = """\n""x\\"""", {DEEP} = 1, d = ""}}', 2),
        (f"b = {{c = '''\n\n'x''''', {DEEP} = 1, d = ''}}", 3),
    ],
)
def test_a_key_of_many_parts_is_not_parsed(text: str, line: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reproduction: tomllib takes time that grows with the square of the parts, 13 s for 40 kB."""
    tomllib.loads(text)  # it is valid
    monkeypatch.setattr(tomllib, "loads", no_parser)
    with pytest.raises(ValueError, match=naming(f"line {line}", "x.toml", 32)):
        parse_toml(text.encode(), _Model, "file", "x.toml")


def test_a_large_file_is_parsed_if_it_is_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.toml"
    file.write_bytes(b"#" * ((1 << 18) + 1))
    read_toml(file, _Model, "file")
    monkeypatch.setattr(tomllib, "loads", no_parser)
    with pytest.raises(ValueError, match=naming(file, "262,145 bytes")):
        read_toml(file, _Model, "file", is_sent=True)


def test_an_error_names_the_first_fields() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(extra="forbid")

    with pytest.raises(ValueError, match=naming("a19", "980 more")):
        parse_toml("".join(f"a{number} = 1\n" for number in range(1000)).encode(), Strict, "file", "x.toml")
