"""Organisations that approve of proposals."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from croupier.operator.proposals import ProposalFile, approve, read_proposal, write_proposal
from croupier.protocol.deployment import Deployment


def approve_file(
    directory: Path, file: Path, deployment: Deployment, *, now: Callable[[], float] = time.time
) -> ProposalFile:
    """Signs the proposal in a file with the keys in a directory, as who has read it."""
    signed = approve(directory, read_proposal(file), deployment, now=now)
    write_proposal(file, signed)
    return signed
