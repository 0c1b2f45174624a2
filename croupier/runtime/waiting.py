"""The rounds that wait, each with the reason that their status shows."""

from __future__ import annotations

import logging

from croupier.protocol.errors import Refusal
from croupier.protocol.names import RoundId

_log = logging.getLogger(__name__)


class WaitingRounds:
    """The rounds of a service that are tried again and again, each with the reason."""

    def __init__(self) -> None:
        self._why: dict[RoundId, str] = {}

    def __len__(self) -> int:
        """Returns how many rounds wait."""
        return len(self._why)

    def why(self, round_id: RoundId) -> str:
        """Returns why a round does not move at the moment; empty if it does."""
        return self._why.get(round_id, "")

    def wait(self, round_id: RoundId, why: str, error: Exception | None = None) -> None:
        """Stores the reason why a round does not move; logged once for each reason.

        error: the error behind the reason, if there is one.
        """
        if self.why(round_id) != why:
            _log.warning("the round waits: %s", why, extra=about(round_id, error))
        self._why[round_id] = why

    def go_on(self, round_id: RoundId) -> None:
        """Notes that a round moves again."""
        self._why.pop(round_id, None)


def about(round_id: RoundId, error: Exception | None) -> dict[str, str]:
    """Returns the fields of a log entry about a round, with the code of a refusal."""
    return {"round_id": round_id} | ({"code": error.code.name} if isinstance(error, Refusal) else {})
