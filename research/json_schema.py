"""The JSON Schema (2020-12) of a message's document, as `protocol.documents` writes it, with the comments of `proto/`.

`python -m research.json_schema certificate`, or `result`, prints a published one, which `make protos` writes into the
package.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from croupier.protocol.certificates import OF_A_ROUND, PROVED
from croupier.protocol.codes import Code, Note, ProofStep
from croupier.protocol.documents import HEX, NUMBERS, WHOLE, codes_of, is_list
from croupier.protocol.mechanisms import MECHANISMS
from croupier.protocol.names import JsonObject
from croupier.protocol.statements import MOST, SCHEMA
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.values import names_of
from croupier.show.published import OPENED
from research.protocol_reference import comments_of

_KINDS: dict[type, JsonObject] = {
    int: {"type": "integer", "minimum": 0, "maximum": MOST},
    float: {"type": "number"},
    str: {"type": "string"},
}
"""The schema of a parameter of a statement, by its type."""
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TEXT, _NUMBER = {"type": "string"}, {"type": "number"}
_INTERVAL, _SHARE = ({"$ref": f"#/$defs/{name}"} for name in ("Interval", "EstimatedValue"))


def definitions(message: Descriptor) -> JsonObject:
    """Returns the schemas of a message and of everything in its document, by their names."""
    return {name: schema for descriptor in _messages(message) for name, schema in _definitions(descriptor)}


def _messages(message: Descriptor) -> Iterator[Descriptor]:
    yield message
    for field in message.fields:
        if field.message_type is not None and codes_of(field) is None:
            yield from _messages(field.message_type)


def _definitions(message: Descriptor) -> Iterator[tuple[str, JsonObject]]:
    about, members = comments_of(message.name)
    yield (
        message.name,
        {
            "description": about,
            "type": "object",
            "properties": {
                field.name: _field(field) | ({"description": comment} if comment else {})
                for field, comment in zip(message.fields, members, strict=True)
            },
            "required": [field.name for field in message.fields],
            "additionalProperties": False,
        },
    )
    for field in message.fields:
        if (codes := codes_of(field)) is not None:
            yield codes.__name__, _schema_of(codes)


def _field(field: FieldDescriptor) -> JsonObject:
    one = _value(field)
    if is_list(field):
        return {"type": "array", "items": one}
    return {"anyOf": [one, {"type": "null"}]} if field.has_presence or field.cpp_type in NUMBERS else one


def _value(field: FieldDescriptor) -> JsonObject:
    codes, kind = codes_of(field), field.cpp_type
    if field.message_type is not None:
        return {"$ref": f"#/$defs/{field.message_type.name if codes is None else codes.__name__}"}
    if field.enum_type is not None:
        return {"enum": [*names_of(field.enum_type).values()]}
    if kind in WHOLE:
        return {"type": "integer", "minimum": WHOLE[kind][0], "maximum": WHOLE[kind][1]}
    if kind in NUMBERS:
        return {"type": "number"}
    text = {"type": "string", "pattern": HEX} if field.type == FieldDescriptor.TYPE_BYTES else {"type": "string"}
    return {"type": "boolean"} if kind == FieldDescriptor.CPPTYPE_BOOL else text


def _schema_of(codes: type[Code]) -> JsonObject:
    """Returns the JSON schema of a statement with one of these codes."""
    with_parameters: dict[tuple[tuple[str, type], ...], list[str]] = {}
    for code in codes:
        with_parameters.setdefault(tuple(sorted(code.parameters.items())), []).append(str(code))
    return {
        "type": "object",
        "properties": {"code": {"type": "string"}, "parameters": {"type": "object"}, "text": {"type": "string"}},
        "required": ["code", "parameters"],
        "additionalProperties": False,
        "oneOf": [
            {
                "properties": {
                    "code": {"enum": names},
                    "parameters": {
                        "properties": {name: _KINDS[kind] for name, kind in parameters},
                        "required": [name for name, _ in parameters],
                        "additionalProperties": False,
                    },
                }
            }
            for parameters, names in with_parameters.items()
        ],
    }


def certificate_schema() -> JsonObject:
    """Returns the JSON Schema of certificates: those of 'croupier certify', and those of rounds."""
    described = definitions(pb.Certificate.DESCRIPTOR) | {
        codes.__name__: _schema_of(codes) for codes in (Note, ProofStep)
    }
    certificate = described.pop("Certificate")
    notes, steps = ({"type": "array", "items": {"$ref": f"#/$defs/{codes.__name__}"}} for codes in (Note, ProofStep))
    certificate["properties"] |= {
        "schema": {"const": SCHEMA},
        "notes": {"description": "Made from the numbers, and not read back.", **notes},
        "steps": {"description": "How each tier's number came about; not read back.", "type": "array", "items": steps},
        **{f"{name}_grade": {"description": "Not read back.", "const": "CERTIFIED"} for name in PROVED},
    }
    certificate["required"] = [name for name in certificate["required"] if name not in OF_A_ROUND]
    return {
        "$schema": _DIALECT,
        "title": f"A certificate of croupier, version {SCHEMA}",
        **certificate,
        "if": {"required": ["round_id"]},
        "then": {"required": [*OF_A_ROUND]},
        "else": {"properties": dict.fromkeys(OF_A_ROUND, False)},
        "$defs": described,
    }


def result_schema() -> JsonObject:
    """Returns the JSON Schema of results: `publication_json`, with the sums and the cross table that may be added."""
    certificate = certificate_schema()
    described = definitions(pb.Publication.DESCRIPTOR) | definitions(pb.Wording.DESCRIPTOR) | certificate.pop("$defs")
    described["Certificate"] = {name: part for name, part in certificate.items() if name not in ("$schema", "title")}
    distribution = described["Distribution"]
    distribution["properties"]["quantiles"] = _list_of(
        _object("", q=_NUMBER, estimate=_NUMBER, confidence_interval=_INTERVAL, population_interval=_INTERVAL)
    )
    distribution["required"].append("quantiles")
    result = described.pop("Publication")
    result["properties"] = {name: part for name, part in result["properties"].items() if name not in OPENED}
    result["properties"] |= {
        "certificate": {"$ref": "#/$defs/Certificate"},
        "asked": {
            "anyOf": [
                _object(
                    "The question, by the signed manifest in the publication.",
                    question=_TEXT,
                    wordings=_list_of({"$ref": "#/$defs/Wording"}),
                    randomizer={"enum": [*MECHANISMS]},
                    parameters={"description": "The randomizer's, by their names.", "type": "object"},
                ),
                {"type": "null"},
            ]
        },
        "sealed": {"description": "Whether only the collector's key opens the numbers.", "type": "boolean"},
    }
    result["required"] = [*result["properties"]]
    result["properties"] |= {
        "sums": {"description": "With --sum.", **_list_of(_object("", categories=_list_of(_TEXT), share=_SHARE))},
        "table": _object(
            "With --table, of a question that asks two as one.",
            questions=_list_of(_TEXT),
            rows=_list_of(_TEXT),
            columns=_list_of(_TEXT),
            cells=_list_of(_list_of(_NUMBER)),
            row_shares=_list_of(_SHARE),
            column_shares=_list_of(_SHARE),
            within_rows=_list_of(_list_of(_SHARE)),
            differences=_list_of(_object("", rows=_list_of(_TEXT), column=_TEXT, difference=_SHARE)),
            independence=_object("", statistic=_NUMBER, degrees={"type": "integer"}, p_value=_NUMBER),
        ),
    }
    parts = {name: {"$ref": f"#/$defs/{name}"} for name in described}
    used = {name for name, ref in parts.items() if _names(ref, [result, *described.values()])}
    return {
        "$schema": _DIALECT,
        "title": f"A result of croupier, with a certificate of version {SCHEMA}",
        **result,
        "$defs": {name: described[name] for name in described if name in used},
    }


def _object(about: str, **properties: JsonObject) -> JsonObject:
    return ({"description": about} if about else {}) | {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


def _list_of(one: JsonObject) -> JsonObject:
    return {"type": "array", "items": one}


def _names(ref: JsonObject, value: Any) -> bool:
    """Returns whether a schema refers to a definition."""
    if value == ref:
        return True
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_names(ref, part) for part in parts)


def _lines(value: Any, depth: int) -> str:
    """Returns JSON with a line for each entry, down to this depth."""
    if depth == 0 or not value or not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[\n" + ",\n".join(_lines(entry, depth - 1) for entry in value) + "\n]"
    entries = (f"{json.dumps(name)}: {_lines(entry, depth - 1)}" for name, entry in value.items())
    return "{\n" + ",\n".join(entries) + "\n}"


SCHEMAS = {"certificate": certificate_schema, "result": result_schema}
"""The published schemas, by the names of their files in `croupier/protocol`."""

if __name__ == "__main__":
    sys.stdout.write(_lines(SCHEMAS[sys.argv[1]](), 3) + "\n")
