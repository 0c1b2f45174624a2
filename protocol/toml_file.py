"""Files that people write: TOML that has to fit a model, with an error that names the file and every field."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

__all__ = ["read_toml"]

M = TypeVar("M", bound=BaseModel)


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
    text = path.read_bytes()
    try:
        return model.model_validate(tomllib.loads(text.decode()))
    except (ValueError, RecursionError) as error:  # UTF-8, TOML, a field; brackets nested without end
        raise ValueError(f"{path} is not a valid {what}: {error}") from error
