"""A process that runs a study by a clock in a file, which a test moves: `python -m tests.support.study_process`."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from croupier.study.journal import StudyJournal
from croupier.study.runs import StudyRun
from croupier.study.versions import journal_file


@dataclass(frozen=True)
class FileClock:
    """A clock that runs like the machine's, by as much ahead or behind as its file says (`runtime.clock.Clock`)."""

    file: Path

    def now(self) -> float:
        return time.time() + float(self.file.read_text())

    def set(self, unix_s: float) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(repr(unix_s - time.time()))
        fresh.replace(self.file)


def main() -> None:
    directory, clock = Path(sys.argv[1]), FileClock(Path(sys.argv[2]))
    with StudyJournal.running(journal_file(directory, "wellbeing")) as journal:
        asyncio.run(StudyRun(directory, "wellbeing", journal, clock=clock).run())


if __name__ == "__main__":
    main()
