"""Files that people write: TOML that has to fit a model, with an error that names the file and every field.

A file that others send, such as a newer deployment file, is parsed under bounds that are checked before: the parser's
time grows with the square of the parts of a dotted key, to 13 s for 40 kB.

What a field holds is repeated only if it is a number or an address: settings hold passwords, and errors are logged.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)
_MOST_BYTES = 1 << 18
"""The most bytes of a file that others send: half a second of parsing at most, and room for a hundred services."""
_MOST_DOTS = 32
"""The most dots in a line of such a file. A key is within a line, and so has one part more at most."""
_MOST_FAULTS = 20
"""The most fields that an error names."""


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not (re.fullmatch(r"[A-Za-z0-9._-]+", host) and re.fullmatch(r"[0-9]{1,5}", port) and 1 <= int(port) <= 65535):
        raise ValueError(f"it is {text!r}, and must be HOST:PORT with a port in 1..65535")
    return text


Address = Annotated[str, AfterValidator(_address)]
"""Where to call or to listen, HOST:PORT."""


def tls_address(text: str) -> str:
    """Returns tls://HOST:PORT as it is, also with an IPv6 address in brackets; raises ValueError for anything else."""
    match = re.fullmatch(r"tls://(?:\[[^\s/]+\]|[^\s/:]+):([0-9]{1,5})", text)
    if not match or not 1 <= int(match[1]) <= 65535:
        raise ValueError(f"it is {text!r}, and must be tls://HOST:PORT with a port in 1..65535")
    return text


TlsAddress = Annotated[str, AfterValidator(tls_address)]
"""Where the scheduler of a Dask cluster is."""


def read_toml(path: Path, model: type[M], what: str, *, is_sent: bool = False) -> M:
    """Returns what a file states.

    Args:
        path: the file.
        model: what it has to fit.
        what: what it should be, for the error.
        is_sent: whether others have sent it: then it is parsed within bounds, as by `parse_toml`.

    Raises:
        FileNotFoundError: there is none.
        ValueError: naming the file and every field that is missing, unknown or out of range.
    """
    return (parse_toml if is_sent else _parse)(path.read_bytes(), model, what, str(path))


def parse_toml(text: bytes, model: type[M], what: str, path: str, *, most_bytes: int = _MOST_BYTES) -> M:
    """Returns what the text of a file states that others have sent; `path` is its name in errors.

    Arguments and errors as `read_toml`; also ValueError for a text that is too long, or a line with too many dots.
    """
    if len(text) > most_bytes:
        raise ValueError(f"{path} has {len(text):,} bytes; a {what} must have at most {most_bytes:,}")
    for number, line in enumerate(text.split(b"\n"), start=1):
        if (dots := line.count(b".")) > _MOST_DOTS:
            raise ValueError(f"line {number} of {path} has {dots:,} dots; a {what} must have at most {_MOST_DOTS}")
    return _parse(text, model, what, path)


def _parse(text: bytes, model: type[M], what: str, path: str) -> M:
    try:
        # Files that it names lie beside it.
        return model.model_validate(tomllib.loads(text.decode()), context=Path(path).parent)
    except ValidationError as error:
        raise ValueError(f"{path} is not a valid {what}: {in_words(error, [*model.model_fields])}") from None
    except (ValueError, RecursionError) as error:  # UTF-8, TOML, a field; brackets nested without end
        raise ValueError(f"{path} is not a valid {what}: {error}") from error


def in_words(error: ValidationError, known: list[str]) -> str:
    """Returns the fields that are wrong and why, in one line; known: names of the model, for what is mistyped."""
    faults, found = [], error.errors(include_url=False)
    for fault in found[:_MOST_FAULTS]:
        field, why = ".".join(map(str, fault["loc"])), fault["msg"].removeprefix("Value error, ")
        why = re.sub(r"^(Input|String) should", "it must", why)
        if fault["type"] == "extra_forbidden":
            close = difflib.get_close_matches(field, known, 1)
            why = f"there is no such line; did you mean {close[0]}?" if close else "there is no such line"
        elif fault["type"] == "missing":
            why = "it is missing"
        elif isinstance(fault["input"], int | float):
            why = f"it is {fault['input']}; {why}"
        faults.append(f"{field}: {why}" if field else why)
    if more := len(found) - len(faults):
        faults.append(f"and {more:,} more")
    return "; ".join(faults)
