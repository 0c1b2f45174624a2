"""Traces calls through the product's files, and notes those that return into a file that is waiting up the stack."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]


@dataclass
class Walk:
    """The files that are called, and the calls that come back.

    Attributes:
        files: in the order in which they were first called.
        returns: every call from another file into a file that waits for it further up the stack: "caller -> called".
            A function inside a function does not count: the reader has just read it.
    """

    files: list[str] = field(default_factory=list)
    returns: set[str] = field(default_factory=set)

    def follow(self, frame: FrameType, event: str, _: Any) -> None:
        """Notes a call; what `sys.setprofile` takes."""
        called = _file_of(frame.f_code.co_filename) if event == "call" else ""
        if not called:
            return
        if called not in self.files:
            self.files.append(called)
        waiting: list[tuple[str, str]] = []
        caller = frame.f_back
        while caller is not None:
            file = _file_of(caller.f_code.co_filename)
            if file and (not waiting or waiting[-1][0] != file):
                waiting.append((file, caller.f_code.co_qualname))
            caller = caller.f_back
        name = frame.f_code.co_qualname
        if waiting and called != waiting[0][0] and called in dict(waiting[1:]) and "<" not in name:
            self.returns.add(f"{':'.join(waiting[0])} -> {called}:{name}")


@contextmanager
def walked() -> Iterator[Walk]:
    """Yields the walk of everything that this thread calls meanwhile."""
    walk = Walk()
    sys.setprofile(walk.follow)
    try:
        yield walk
    finally:
        sys.setprofile(None)


@cache
def _file_of(filename: str) -> str:
    """Returns the path of a file of the product, without what protoc writes; "" for any other."""
    path = Path(filename).resolve()
    if filename.startswith("<") or not path.is_relative_to(ROOT) or "v1" in path.parts:
        return ""
    place = path.relative_to(ROOT)
    return "" if place.parts[0] in ("tests", ".venv") else str(place)
