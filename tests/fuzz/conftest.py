"""Says at the end how many hostile messages there were."""

from __future__ import annotations

import pytest

from tests.fuzz.hostile import num_messages


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if num_messages():
        terminalreporter.write_line(f"fuzz: {num_messages()} hostile messages")
