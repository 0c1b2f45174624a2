"""Pieces of text that several documents have."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import round_up


def counted(count: int, thing: str, things: str = "") -> str:
    """Returns "1 epoch", or "2,000 epochs"; things: the plural, where it is irregular."""
    return f"{count:,} {thing if count == 1 else things or f'{thing}s'}"


def note_lines(notes: Iterable[JsonObject]) -> list[str]:
    """Returns a line on each note of a certificate, or another guarantee."""
    return [f"Note: {note['text']}." for note in notes]


def tier_budget(local_epsilon: float, local_delta: float, *, up_to: bool) -> str:
    """Returns the local budget of a tier: "2", "up to 2", or "2, local δ 1e-06" where the randomizer spends a delta."""
    spent = f", local δ {round_up(local_delta)}" if local_delta else ""
    return f"{'up to ' if up_to else ''}{round_up(local_epsilon)}{spent}"


def utc(unix_s: int) -> str:
    """Returns a time with its day of the week."""
    return f"{datetime.fromtimestamp(unix_s, UTC):%a %Y-%m-%d %H:%M} UTC"
