"""Files that people write: TOML that has to fit a model, with an error that names the file and every field.

What a field holds is repeated only if it is a number or an address: settings hold passwords, and errors are logged.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ValidationError

__all__ = ["Address", "TlsAddress", "parse_toml", "read_toml", "tls_address"]

M = TypeVar("M", bound=BaseModel)


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


def read_toml(path: Path, model: type[M], what: str) -> M:
    """Returns what a file states.

    Args:
        path: the file.
        model: what it has to fit.
        what: what it should be, for the error.

    Raises:
        FileNotFoundError: there is none.
        ValueError: naming the file and every field that is missing, unknown or out of range.
    """
    return parse_toml(path.read_bytes(), model, what, str(path))


def parse_toml(text: bytes, model: type[M], what: str, path: str) -> M:
    """Returns what the text of a file states; `path` is its name in errors. Arguments and errors as `read_toml`."""
    try:
        # Files that it names lie beside it.
        return model.model_validate(tomllib.loads(text.decode()), context=Path(path).parent)
    except ValidationError as error:
        raise ValueError(f"{path} is not a valid {what}: {_in_words(error, [*model.model_fields])}") from None
    except (ValueError, RecursionError) as error:  # UTF-8, TOML, a field; brackets nested without end
        raise ValueError(f"{path} is not a valid {what}: {error}") from error


def _in_words(error: ValidationError, known: list[str]) -> str:
    """Returns every field that is wrong and why, in one line."""
    faults = []
    for fault in error.errors(include_url=False):
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
    return "; ".join(faults)
