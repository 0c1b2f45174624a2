"""The journal of a survey's waves: the actions that its process was about to take, and those that it has taken.

One JSON object a line.

A line is on the disk before its action begins, and another one follows after the action. So a process that is killed at
any moment leaves behind the action to repeat, and the journal has for every wave that it was opened, or missed. Lines
are only appended; the next writer removes the end of a line that was cut short, because its action has not begun.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from croupier.deploy.version_files import give_to_owner
from croupier.protocol.names import JsonObject

WaveStep = Literal["open", "opened", "close", "closed", "published", "missed", "stopped"]
"""`open` and `close` are written before, the others after; `published` once the outcome of every round is known."""
ENDED: tuple[WaveStep, ...] = ("published", "missed")


@dataclass(frozen=True)
class Entry:
    """A line of the journal.

    Attributes:
        at: Unix seconds.
        step: the action or event.
        wave: the number of the wave.
        about: further values, by name.
    """

    at: float
    step: WaveStep
    wave: int
    about: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class WaveRecord:
    """The lines of one wave in the journal.

    Attributes:
        number: of the wave.
        entries: its lines, oldest first, at least one.
    """

    number: int
    entries: tuple[Entry, ...]

    @property
    def step(self) -> WaveStep:
        """The newest line of the wave."""
        return self.entries[-1].step

    @property
    def has_ended(self) -> bool:
        """Whether the wave needs no further action."""
        return self.step in ENDED

    @property
    def was_begun(self) -> bool:
        """Whether a round of the wave may have been opened."""
        return any(entry.step == "open" for entry in self.entries)

    @property
    def opens_unix_s(self) -> int | None:
        """When the wave was first due, Unix seconds, where it follows the result of the wave before."""
        opening = self.last("open")
        return None if opening is None else opening.about.get("opens_unix_s")

    def last(self, step: WaveStep) -> Entry | None:
        """Returns the newest line with this step."""
        return next((entry for entry in reversed(self.entries) if entry.step == step), None)


class StudyJournal:
    """The journal of the process that runs a study; see `running`."""

    def __init__(self, file: Path, descriptor: int) -> None:
        self._file = file
        self._descriptor = descriptor

    @classmethod
    @contextmanager
    def running(cls, file: Path) -> Iterator[StudyJournal]:
        """Yields the journal to the only process that may write it; its lock ends with the process.

        Raises:
            RuntimeError: another process runs the study.
            ValueError: a line of the journal cannot be read.
        """
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            give_to_owner(file)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RuntimeError(f"another process runs this: it holds the lock of {file}") from error
            content = file.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                os.ftruncate(descriptor, whole)
            _read(content[:whole], file)
            yield cls(file, descriptor)
        finally:
            os.close(descriptor)

    def write(self, at: float, step: WaveStep, wave: int, **about: object) -> None:
        """Appends a line; when this returns it is on the disk."""
        line = json.dumps({"at": at, "step": step, "wave": wave, **about}, ensure_ascii=False) + "\n"
        left = line.encode()
        while left:
            left = left[os.write(self._descriptor, left) :]
        os.fsync(self._descriptor)

    def records(self) -> dict[int, WaveRecord]:
        """Returns the record of every wave that has a line, by number."""
        return wave_records(read_journal(self._file))


def read_journal(file: Path) -> list[Entry]:
    """Returns the lines of a journal, oldest first; also while its process runs.

    Raises:
        ValueError: a line cannot be read.
    """
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return []
    return _read(content[: content.rfind(b"\n") + 1], file)


def wave_records(entries: Sequence[Entry]) -> dict[int, WaveRecord]:
    """Returns the record of every wave among these lines, by number."""
    by_wave: dict[int, list[Entry]] = {}
    for entry in entries:
        by_wave.setdefault(entry.wave, []).append(entry)
    return {number: WaveRecord(number, tuple(lines)) for number, lines in sorted(by_wave.items())}


def _read(content: bytes, file: Path) -> list[Entry]:
    entries = []
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            values = json.loads(line)
            at, step, wave = float(values.pop("at")), values.pop("step"), int(values.pop("wave"))
            if step not in get_args(WaveStep):
                raise ValueError(f"step is {step!r}; it must be one of {', '.join(get_args(WaveStep))}")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"line {number} of {file} cannot be read; restore the file: {error}") from error
        entries.append(Entry(at, step, wave, values))
    return entries
