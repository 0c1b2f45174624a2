"""What a guarantee assumes of the services and the clients of a round, beside what `certify` assumes of the reports."""

from __future__ import annotations

__all__ = ["ABSENCE", "HONEST_ACCOUNTANT", "UNWATCHED", "genuine_roster"]

HONEST_ACCOUNTANT = (
    "the accountant follows the protocol: it gives tickets to enrolled clients alone, one for each lane, certifies the "
    "budgets that arrived with one, as published, and gives the release key away only with the certificate; otherwise "
    "dishonest shufflers can replace what all other clients sent, and only its local budget protects a report"
)
UNWATCHED = "no one who learns the answers watches the clients' connections: their traffic shows who is asked, and when"
"""An assumption of sequential rounds: their traffic tells as much as hop 1 knows."""
ABSENCE = "whether a client answers depends neither on the data, nor on earlier answers, nor on when it is asked"
"""An assumption of sequential rounds: the absences of clients tell of the order (docs/accounting.md, 2.1)."""


def genuine_roster(dishonest: int) -> str:
    """Returns what a certificate assumes of the clients that were given tickets."""
    return f"the roster is genuine: of the clients with tickets at most {dishonest} are dishonest"
