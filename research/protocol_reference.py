"""The reference of messages and calls: tables whose sentences are the comments in `proto/`."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2

from croupier.protocol.kinds import MESSAGES
from croupier.protocol.mechanisms import MECHANISMS
from croupier.protocol.mechanisms.base import Form
from research.reference import with_links

ROOT = Path(__file__).parents[1]
_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {number: name.removeprefix("TYPE_").lower() for name, number in _FIELD.Type.items()}
# Numbers of fields in descriptor.proto, of which a comment's path is made.
_MESSAGES, _ENUMS, _SERVICES, _MEMBERS = 4, 5, 6, 2
_SYNTAX = (12,)


class _Commented(NamedTuple):
    """A message, an enum or a service, with the comment before it and the comments before its members.

    Attributes:
        descriptor: protobuf's.
        comment: one paragraph, or several separated by empty lines.
        members: the comment of each field, value or call, in order.
    """

    descriptor: Any
    comment: str
    members: list[str]


@cache
def _files() -> list[descriptor_pb2.FileDescriptorProto]:
    """Returns the files of `proto/`, with comments."""
    sources = sorted((ROOT / "proto").rglob("*.proto"))
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "descriptors"
        command = ["--include_source_info", f"--proto_path={ROOT / 'proto'}", f"--descriptor_set_out={file}"]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *command, *map(str, sources)], check=True)
        described = descriptor_pb2.FileDescriptorSet.FromString(file.read_bytes())
    return list(described.file)


def _comments(file: descriptor_pb2.FileDescriptorProto) -> dict[tuple[int, ...], str]:
    """Returns the comment before each part of a file, by the part's path in the descriptor."""
    return {tuple(location.path): _paragraphs(location.leading_comments) for location in file.source_code_info.location}


def notation() -> str:
    """Returns what the first file says of how bytes are written in all comments: its second paragraph."""
    (preface,) = (_comments(file)[_SYNTAX] for file in _files() if file.name.endswith("messages.proto"))
    return preface.split("\n\n")[1]


@cache
def _protocol() -> Mapping[str, _Commented]:
    """Returns every message, enum and service of `proto/` by its name."""
    commented: dict[str, _Commented] = {}
    for file in _files():
        comments = _comments(file)
        parts: tuple[tuple[int, Sequence[Any]], ...] = (
            (_MESSAGES, file.message_type),
            (_ENUMS, file.enum_type),
            (_SERVICES, file.service),
        )
        for kind, descriptors in parts:
            for at, descriptor in enumerate(descriptors):
                members = [
                    comments.get((kind, at, _MEMBERS, member), "") for member in range(len(_members(descriptor)))
                ]
                commented[descriptor.name] = _Commented(descriptor, comments.get((kind, at), ""), members)
    return commented


def _members(descriptor: Any) -> Sequence[Any]:
    for name in ("field", "value", "method"):
        if hasattr(descriptor, name):
            members: Sequence[Any] = getattr(descriptor, name)
            return members
    raise ValueError(f"{descriptor.name} is a {type(descriptor).__name__}; it must be a message, an enum or a service")


def _named(name: str) -> _Commented:
    protocol = _protocol()
    if name not in protocol:
        raise ValueError(f"proto/ has no message, enum or service {name!r}; it has {', '.join(sorted(protocol))}")
    return protocol[name]


def comments_of(name: str) -> tuple[str, list[str]]:
    """Returns the comment before a message or an enum, and the comments before its fields or values, in order."""
    commented = _named(name)
    return commented.comment, commented.members


def _paragraphs(comment: str) -> str:
    """Returns a comment of a .proto file as Markdown: a line a paragraph, and links to the pages that it names."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", comment.strip())]
    return with_links("\n\n".join(paragraphs).replace("<", "&lt;"))


def _cell(text: str) -> str:
    return text.replace("\n\n", " ").replace("|", "\\|")


def _type_of(field: Any) -> str:
    name = field.type_name.rpartition(".")[2] or _SCALARS[field.type]
    prefix = "repeated " if field.label == _FIELD.LABEL_REPEATED else "optional " if field.proto3_optional else ""
    return f"{prefix}{name}"


def _message_table(name: str) -> Iterator[str]:
    message = _named(name)
    yield f"### {name}\n"
    if message.comment:
        yield f"{message.comment}\n"
    if message.members:
        yield "| field | type | meaning |\n|---|---|---|"
        for field, comment in zip(message.descriptor.field, message.members, strict=True):
            yield f"| `{field.name}` = {field.number} | {_type_of(field)} | {_cell(comment)} |"
        yield ""


def message_tables(*names: str) -> str:
    """Returns for each message its comment and a table of its fields; "mechanisms" are those that people answer."""
    mechanisms = [MESSAGES[kind].name for kind, mechanism in MECHANISMS.items() if mechanism.form is not Form.VECTOR]
    expanded = [message for name in names for message in (mechanisms if name == "mechanisms" else [name])]
    return "\n".join(line for name in expanded for line in _message_table(name)).rstrip()


def enum_table(name: str) -> str:
    """Returns the table of an enum's values, without the one that says nothing."""
    enum = _named(name)
    rows = ["| value | meaning |", "|---|---|"]
    shared = re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper() + "_"
    for value, comment in zip(enum.descriptor.value, enum.members, strict=True):
        if value.number:
            rows.append(f"| `{value.name.removeprefix(shared)}` = {value.number} | {_cell(comment)} |")
    return "\n".join([*([enum.comment, ""] if enum.comment else []), *rows])


def calls_table(*names: str) -> str:
    """Returns the table of calls, each named as `Service.Call`."""
    rows = ["| call | asks with | answers with | meaning |", "|---|---|---|---|"]
    for name in names:
        service, _, call = name.partition(".")
        for method, comment in zip(_named(service).descriptor.method, _named(service).members, strict=True):
            if method.name == call:
                asked, answered = (part.rpartition(".")[2] for part in (method.input_type, method.output_type))
                rows.append(f"| `{service}.{call}` | {asked} | {answered} | {_cell(comment)} |")
                break
        else:
            raise ValueError(f"proto/ has no call {name!r}")
    return "\n".join(rows)
